"""Probes as a table in Markdown: executors that say the same share a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from repro.artifact.canonical import Json
from repro.audit.probes.running import NOT_RUN
from repro.audit.probes.words import UNKNOWN
from repro.audit.records import Probe

FMA = {True: "yes", False: "no", None: ""}
CONFIRMED = {True: "yes", False: "**no**", None: "not asked"}


def markdown(probes: Sequence[Probe], host: Mapping[str, Json]) -> Iterator[str]:
    """A table for each family of executors, then what did not run."""
    yield f"Host: {', '.join(f'{name} {value}' for name, value in host.items() if isinstance(value, str))}."
    for family in dict.fromkeys(probe.executor.partition("[")[0] for probe in probes):
        rows = [p for p in probes if p.executor.partition("[")[0] == family and p.operation != NOT_RUN]
        if rows:
            yield from ("", f"## {family}", "")
            yield "| operation | terms | order | fma | bits | confirmed | executors |"
            yield "|---|---:|---|---|---:|---|---|"
            yield from (_row(group) for group in groups(rows))
    for probe in probes:
        if probe.operation == NOT_RUN:
            yield from ("", f"- {probe.executor} did not run: {probe.tree}")


def groups(probes: Iterable[Probe]) -> Iterator[list[Probe]]:
    """Probes that differ in the executor, or in the number of terms, alone."""
    by_executor: dict[object, list[Probe]] = {}
    for probe in probes:
        by_executor.setdefault((probe.operation, probe.length, *_said(probe)), []).append(probe)
    by_length: dict[object, list[Probe]] = {}
    for group in by_executor.values():
        first = group[0]
        executors = tuple(probe.executor for probe in group)
        by_length.setdefault((first.operation, executors, *_said(first)), []).extend(group)
    return iter(by_length.values())


def _said(probe: Probe) -> tuple[object, ...]:
    return order_of(probe), probe.fused, probe.precision, probe.confirmed


def order_of(probe: Probe) -> str:
    """A probe's order in words, with its tree where the words do not tell it."""
    if probe.order == UNKNOWN:
        return f"{UNKNOWN}: `{probe.tree}`"
    return probe.order if probe.order == probe.tree or " (" in probe.order else probe.tree


def _row(probes: Sequence[Probe]) -> str:
    first = probes[0]
    lengths = ", ".join(f"{length}" for length in dict.fromkeys(probe.length for probe in probes))
    executors = ", ".join(dict.fromkeys(_settings(probe.executor) for probe in probes))
    cells = (
        first.operation, lengths, order_of(first), FMA[first.fused],
        "" if first.precision is None else f"{first.precision}", CONFIRMED[first.confirmed], executors,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _settings(executor: str) -> str:
    """`threads=1` of `torch[threads=1]`, the name where it has no settings."""
    return executor.partition("[")[2].removesuffix("]") or executor
