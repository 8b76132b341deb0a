"""The tables of docs/performance.md, from records that `repro bench --json` wrote.

    repro bench WORKLOAD... --json benchmarks/records/MACHINE/NAME.json
    python -m benchmarks.tables                                            # prints them
    python -m benchmarks.tables --write docs/performance.md                # puts them between their marks

A record is what the command wrote, every sample of it; no number of a table is written by hand. Where two records of a
machine have the same measurement, the one whose file name is later counts.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from repro.bench.report import ratio_text, share_text
from repro.bench.suite import Benchmark, Measurement
from repro.bench.workloads import MODES, WORKLOADS
from repro.bench.workloads.models import MODELS

RECORDS = Path(__file__).parent / "records"
MIB = 1 << 20
MARKED = re.compile(r"<!-- (?P<name>\w+) of (?P<machine>[\w-]+) -->\n.*?<!-- end of (?P=name) -->", re.S)
SQUARE, SKINNY = re.compile(r"dot/\d+"), re.compile(r"dot(_t)?/\d+x\d+x\d+")


@dataclass(frozen=True)
class Row:
    benchmark: Benchmark
    measurement: Measurement

    def cells(self, peers: Iterable[str]) -> tuple[str, ...]:
        """Those under `_HEAD`, then each peer's ratio."""
        each, ours = self.measurement, self.measurement.timing("repro")
        time = "" if ours is None else f"{ours.seconds * 1e3:.2f}"
        share = share_text(self.benchmark, each)
        ratios = (ratio_text(each, side) for side in peers)
        return each.workload, each.mode, str(each.threads), time, share, *ratios

    @property
    def mebibytes(self) -> str:
        return " / ".join(
            f"{self.measurement.memory[side] / MIB:.0f}"
            for side in ("repro", "torch")
            if side in self.measurement.memory
        )


def rows(machine: Path) -> list[Row]:
    """Every measurement of a machine's records once, in the order of the workloads."""
    found: dict[tuple[str, str, int], Row] = {}
    for path in sorted(machine.glob("*.json")):
        benchmark = Benchmark.of(json.loads(path.read_text(encoding="utf-8")))
        for each in benchmark.measurements:
            found[each.workload, each.mode, each.threads] = Row(benchmark, each)
    names = list(WORKLOADS)
    order = sorted(found, key=lambda key: (names.index(key[0]), MODES.index(key[1]), key[2]))
    return [found[key] for key in order]


def models(machine: Path) -> Iterator[str]:
    yield from _head(*_HEAD, *_PEERS.values(), "MiB, repro / PyTorch")
    for row in rows(machine):
        if row.measurement.workload in _MODELS:
            yield _line(*row.cells(_PEERS), row.mebibytes)


def operations(machine: Path) -> Iterator[str]:
    peers = {side: head for side, head in _PEERS.items() if side != "torch.compile"}
    yield from _head(*_HEAD, *peers.values())
    for row in rows(machine):
        if row.measurement.workload not in _MODELS:
            yield _line(*row.cells(peers))


def dots(machine: Path) -> Iterator[str]:
    """Of the ratios to torch.mm: geometric mean and least."""
    yield from _head("dots", "threads", "PyTorch / repro, geometric mean", "least")
    for name, pattern in (("square", SQUARE), ("skinny", SKINNY)):
        found: dict[int, list[float]] = {}
        for row in rows(machine):
            each = row.measurement
            if pattern.fullmatch(each.workload) and "torch" in each.ratios:
                found.setdefault(each.threads, []).append(each.ratios["torch"].value)
        for threads, values in found.items():
            mean = exp(sum(log(value) for value in values) / len(values))
            yield _line(name, str(threads), f"{mean:.2f}", f"{min(values):.2f}")


_MODELS = {model.name for model in MODELS}
_HEAD = ("workload", "mode", "threads", "repro, ms", "of peak")
_PEERS = {
    "torch": "PyTorch / repro",
    "torch.compile": "torch.compile / repro",
    "onnxruntime": "ONNX Runtime / repro",
}
TABLES = {"models": models, "operations": operations, "dots": dots}


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*cells: str) -> Iterator[str]:
    yield _line(*cells)
    yield f"|{'---|' * len(cells)}"


def marked(name: str, machine: Path) -> str:
    """A table between the marks that say which it is."""
    lines = TABLES[name](machine)
    return "\n".join((f"<!-- {name} of {machine.name} -->", *lines, f"<!-- end of {name} -->"))


def renewed(text: str, records: Path = RECORDS) -> str:
    """A page with its marked tables written anew."""

    def table(found: re.Match[str]) -> str:
        return marked(found["name"], records / found["machine"])

    return re.sub(
        r"<!-- (?P<name>\w+) of (?P<machine>[\w-]+) -->\n.*?<!-- end of (?P=name) -->", table, text, flags=re.S
    )


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables", description="Tables of measurements, from records."
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="renew the tables of this page")
    options = parser.parse_args(words)
    if options.write is not None:
        options.write.write_text(renewed(options.write.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    for machine in sorted(path for path in RECORDS.iterdir() if path.is_dir()):
        print(*(marked(name, machine) for name in TABLES), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
