"""Verification: parse, hash, rebuild from the source, run what was rebuilt everywhere, compare bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from repro.artifact import tensors
from repro.artifact.build import Built, build, current_versions
from repro.artifact.checks import Check, Report, Status
from repro.artifact.compiling import compile_programs
from repro.artifact.config import Config, Tensor
from repro.artifact.entries import BuiltEntry
from repro.artifact.loaded import LoadedArtifact, request_of
from repro.artifact.reading import Stored, open_artifact
from repro.artifact.sessions import Session
from repro.errors import EXIT_INCOMPLETE, EXIT_MISMATCH, ReproError
from repro.frontend import INFER
from repro.ir.types import Array
from repro.ir.work import program_operations
from repro.numerics.contract import CONTRACT_VERSION
from repro.targets import registry
from repro.targets.protocol import REFERENCE

Progress = Callable[[str, int, int], None]

REFERENCE_LIMIT = 300_000_000
"""Scalar operations up to which the reference runs; more is a row 'not run: cost'."""


@dataclass
class _Rows:
    """The rows so far. Once one fails that others rest on, the rest are 'not run'."""

    checks: list[Check] = field(default_factory=list[Check])

    def good(self, name: str, detail: str = "", required: bool = True) -> None:
        self.checks.append(Check(name, Status.GOOD, detail, required))

    def mismatch(self, name: str, detail: str, required: bool = True) -> None:
        self.checks.append(Check(name, Status.MISMATCH, detail, required))

    def not_run(self, name: str, reason: str, required: bool = True) -> None:
        self.checks.append(Check(name, Status.NOT_RUN, reason, required))

    def compare(self, name: str, found: object, expected: object, detail: str) -> None:
        if found == expected:
            self.good(name, detail)
        else:
            self.mismatch(name, f"rebuilt {found}, the artifact has {expected}")


def verify(
    path: Path, targets: Sequence[str] | None, require: Sequence[str], trust_code: bool, progress: Progress
) -> Report:
    """All checks of an artifact. Raises ReproError (exit code 2) where there is none to check, or a part is missing."""
    wanted = _wanted(targets, require)
    rows = _Rows()
    try:
        stored = open_artifact(path)
        rows.good("parse", "manifest and config are canonical and follow their schemas")
        damage = _hash_all(stored, rows)
    except ReproError as error:
        if error.exit_code != EXIT_MISMATCH:
            raise
        rows.mismatch("parse", _flat(error))
        _rest_not_run(rows, "the artifact is damaged")
        return Report("unknown", "unknown", tuple(rows.checks))
    graph = stored.config.entries[0].graph
    if damage:
        _rest_not_run(rows, "the artifact is damaged")
        return Report(stored.id, graph, tuple(rows.checks))
    if stored.config.contract != CONTRACT_VERSION:
        reason = (
            f"the artifact follows version {stored.config.contract} of the numerics contract, this is version "
            f"{CONTRACT_VERSION}; pip install 'repro=={stored.config.versions.repro}'"
        )
        _rest_not_run(rows, reason)
        return Report(stored.id, graph, tuple(rows.checks))
    built = _rebuild(stored, rows, progress)
    if built is None:
        _rest_not_run(rows, "the artifact cannot be rebuilt", rebuilt=True)
    else:
        _run_all(stored, built, wanted, rows, progress)
    if trust_code:
        _run_shipped(stored, rows)
    return Report(stored.id, graph, tuple(rows.checks))


def _flat(error: ReproError) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines())


def _rest_not_run(rows: _Rows, reason: str, rebuilt: bool = False) -> None:
    for name in () if rebuilt else ("rebuild",):
        rows.not_run(name, reason)
    rows.not_run("run cpu", reason)


def _hash_all(stored: Stored, rows: _Rows) -> bool:
    """Hash every blob; every damaged one is a row. A missing one is an error."""
    damage = False
    total = 0
    for blob in stored.blobs:
        try:
            total += len(stored.read(blob))
        except ReproError as error:
            if error.exit_code != EXIT_MISMATCH:
                raise
            damage = True
            rows.mismatch("hash", _flat(error))
    if not damage:
        rows.good("hash", f"{len(stored.blobs)} blobs, {total} bytes")
    return damage


# ── rebuild ─────────────────────────────────────────────────────────────────────────────────────────


def _rebuild(stored: Stored, rows: _Rows, progress: Progress) -> Built | None:
    """Build again from the artifact's own source, without the cache, and compare."""
    try:
        built = build(request_of(stored), None, progress)
    except ReproError as error:
        if error.exit_code == EXIT_MISMATCH:
            rows.mismatch("rebuild", _flat(error))
        else:
            rows.not_run("rebuild", _flat(error))
        return None
    old, new = stored.config, built.artifact.config
    rows.compare("source digest", new.source.digest, old.source.digest, old.source.digest)
    for before, after in zip(old.entries, new.entries, strict=False):
        rows.compare(f"graph digest of {before.name}", after.graph, before.graph, before.graph)
    rows.compare("loop IR", _loop_ir(new), _loop_ir(old), f"{len(_loop_ir(old))} programs and kernels")
    if current_versions() != old.versions:
        mine, theirs = current_versions(), old.versions
        reason = f"not comparable: built by {_toolchain(theirs)}, this is {_toolchain(mine)}"
        rows.not_run("code", reason, required=False)
        rows.not_run("rebuild", reason, required=False)
        return built
    rows.compare("code", _code(new), _code(old), f"{len(_code(old))} objects")
    if built.artifact.id == stored.id:
        rows.good("rebuild", f"the same {len(stored.blobs) + 1} blobs")
    else:
        rows.mismatch("rebuild", _different_layers(stored, built))
    return built


def _toolchain(versions: object) -> str:
    return str(versions)


def _loop_ir(config: Config) -> list[str]:
    found = {entry.program for target in config.targets for entry in target.entries}
    found |= {kernel.kernel for target in config.targets for entry in target.entries for kernel in entry.kernels}
    return sorted(found)


def _code(config: Config) -> list[str]:
    entries = [entry for target in config.targets for entry in target.entries]
    return [digest for entry in entries for digest in (entry.code, *(kernel.code for kernel in entry.kernels))]


def _different_layers(stored: Stored, built: Built) -> str:
    old = {blob.title: blob.digest for blob in stored.blobs[1:]}
    new = {layer.title: layer.digest for layer in built.artifact.layers}
    names = [title for title in dict.fromkeys((*old, *new)) if old.get(title) != new.get(title)]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"rebuilt {built.artifact.id}; layers that differ: {shown or 'none, so the config does'}"


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Wanted:
    """Targets to run: those named (None: all), and those that must run."""

    named: tuple[str, ...] | None
    required: frozenset[str]


def _wanted(targets: Sequence[str] | None, require: Sequence[str]) -> _Wanted:
    registry.check_names((*(targets or ()), *require))
    own, asked = _full(registry.CPU), [_full(name) for name in targets or ()]
    named = None if targets is None else tuple(dict.fromkeys((own, *asked)))
    return _Wanted(named, frozenset((own, *asked, *map(_full, require))))


def _full(name: str) -> str:
    """A target's full name."""
    return name if name == REFERENCE else registry.runner(name).name


def _run_all(stored: Stored, built: Built, wanted: _Wanted, rows: _Rows, progress: Progress) -> None:
    mine = (runner.name for target in stored.config.targets for runner in registry.runners_of(target.name))
    default = (REFERENCE, *sorted({*mine, *wanted.required} - {REFERENCE}))
    names = tuple(dict.fromkeys((*(wanted.named or default), *sorted(wanted.required))))
    here = [name for name in names if name == REFERENCE or registry.runner(name).obstacle() is None]
    for each in built.entries:
        _compile_missing(each, here, progress)
    for done, name in enumerate(names):
        progress("run targets", done, len(names))
        for each in built.entries:
            _run_target(stored, each, name, name in wanted.required, rows)


def _compile_missing(built: BuiltEntry, names: Sequence[str], progress: Progress) -> None:
    targets = registry.code_targets(names)
    extra = [target for target in targets if target.name not in built.compiled]
    if extra:
        programs = compile_programs([(target, built.lowered.program) for target in extra], None, progress)
        built.compiled.update({each.target.name: each for each in programs})


def _row(entry: str, target: str, threads: int = 0) -> str:
    """A run's name in the report; the entry that every artifact has needs no mention."""
    where = f"run {target}" if entry == INFER else f"run {entry} on {target}"
    return f"{where}, {threads} thread{'s' if threads > 1 else ''}" if threads else where


def _run_target(stored: Stored, built: BuiltEntry, name: str, required: bool, rows: _Rows) -> None:
    cost = program_operations(built.lowered.program)
    limit = REFERENCE_LIMIT if name == REFERENCE else registry.runner(name).limit
    reason = None if name == REFERENCE else registry.runner(name).obstacle()
    if reason is None and limit is not None and cost > limit and not required:
        reason = f"cost: {cost} operations, the limit is {limit}"
    counts = (1,) if name == REFERENCE else registry.runner(name).threads
    for threads in counts:
        row = _row(built.name, name, threads if len(counts) > 1 else 0)
        if reason is not None:
            rows.not_run(row, reason, required)
        else:
            _compare_run(stored, row, required, lambda threads=threads: built.session(name, threads), rows)


def _run_shipped(stored: Stored, rows: _Rows) -> None:
    """The code that came with the artifact, on the best target of this host."""
    artifact = LoadedArtifact(stored)
    for entry in artifact.entries:
        row = "run shipped code" if entry == INFER else f"run shipped code of {entry}"
        _compare_run(stored, row, True, lambda entry=entry: artifact.session(entry, "cpu", 1), rows)


def _compare_run(stored: Stored, row: str, required: bool, make: Callable[[], Session], rows: _Rows) -> None:
    try:
        with make() as session:
            golden = stored.config.golden_run(session.entry.name)
            if golden is None:
                rows.not_run(row, "the artifact has no golden run", required)
                return
            inputs = {each.name: tensors.from_bytes(stored.by_digest(each.digest), each.type) for each in golden.inputs}
            outputs = session.run(inputs)
            state = session.state if golden.state else {}
    except ReproError as error:
        say = rows.not_run if error.exit_code == EXIT_INCOMPLETE else rows.mismatch
        say(row, _flat(error), required)
        return
    different = [text for each in golden.outputs if (text := _difference(stored, "output", each, outputs))]
    different += [text for each in golden.state if (text := _difference(stored, "state", each, state))]
    if different:
        rows.mismatch(row, "; ".join(different), required)
        return
    counts = f"{len(golden.outputs)} output{'s' if len(golden.outputs) > 1 else ''}"
    counts += f" and {len(golden.state)} state tensors" if golden.state else ""
    rows.good(row, f"{counts}, equal bits", required)


def _difference(stored: Stored, what: str, expected: Tensor, outputs: Mapping[str, Array]) -> str:
    """What differs between an output, or a state tensor, and its golden bits; empty if nothing does."""
    if expected.name not in outputs:
        return f"{what} '{expected.name}': the entry has none of this name"
    found = tensors.to_bytes(outputs[expected.name])
    if tensors.digest(outputs[expected.name]) == expected.digest:
        return ""
    if not any(blob.digest == expected.digest for blob in stored.blobs):
        return f"{what} '{expected.name}': other bits ({tensors.digest(outputs[expected.name])}, not {expected.digest})"
    golden = np.frombuffer(bytes(stored.by_digest(expected.digest)), np.uint8)
    mine = np.frombuffer(found, np.uint8)
    if golden.size != mine.size:
        return f"{what} '{expected.name}': {mine.size} bytes, not {golden.size}"
    width = max(1, mine.size // max(1, outputs[expected.name].size))
    places = np.flatnonzero((golden.reshape(-1, width) != mine.reshape(-1, width)).any(axis=1))
    where = tuple(int(i) for i in np.unravel_index(int(places[0]), outputs[expected.name].shape))
    return f"{what} '{expected.name}': {places.size} of {mine.size // width} elements differ, first at {list(where)}"
