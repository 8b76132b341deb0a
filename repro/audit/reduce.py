"""The smallest model that still drifts: the nodes of an origin, cut down to the elements that it takes.

Each try runs in a process of the executor's own and is compared with golden bits of the same small model, so what is
left is a finding by itself. Axes are shortened around the element that is farthest off, to one element if the drift
stays, else by halves. The order of tries is fixed: the same finding gives the same files.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from repro.artifact import files, tensors
from repro.artifact.cache import Cache
from repro.audit.drift import drift
from repro.audit.golden import golden as golden_of
from repro.audit.model import Audited, prepare, qdq_of_prepared
from repro.audit.parts import Cut, Part, contexts, part
from repro.audit.peers import PEERS
from repro.audit.records import Capture, Drift, Executor, Kind, Origin
from repro.audit.reproducer import SCRIPT, scripts
from repro.audit.running import Limits, run_all
from repro.errors import InternalError, ReproError
from repro.ir.types import Array

MODEL, INPUTS, EXPECTED = "model.onnx", "inputs.npz", "expected.npz"
TRIES = 40
"""Runs of the executor that one reduction may take."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Reduced:
    """What was written. `confirmed`: the script, run as a user runs it, shows the drift. `elements` are those of all
    inputs and weights, `before` those of the origin's nodes in the whole model."""

    folder: Path
    executor: str
    nodes: tuple[str, ...]
    value: str
    drift: Drift
    elements: int
    before: int
    tries: int
    confirmed: bool
    command: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Drifting:
    """A part that drifts: by how much, and where most."""

    part: Part
    audited: Audited
    expected: Array
    drift: Drift
    index: tuple[int, ...]


def reduce(
    audited: Audited,
    golden: Capture,
    origin: Origin,
    executor: Executor,
    folder: Path,
    limits: Limits | None = None,
    cache: Cache | None = None,
    peers: Mapping[str, str] = PEERS,
    progress: Progress = lambda *_: None,
    tries: int = TRIES,
) -> Reduced:
    """Write the smallest model with which `executor` still drifts at `origin`, and the script that shows it.

    `golden` has its arrays. Raises ReproError for an origin that is no node, and where no part of the model drifts by
    itself.
    """
    if origin.kind not in (Kind.NODE, Kind.FUSED):
        raise ReproError(f"an origin in a {origin.kind.value} has nothing to run", found=origin.value)
    with tempfile.TemporaryDirectory(prefix="repro-reduce-") as name:
        search = _Search(executor, limits or Limits(), cache or Cache(Path(name)), peers, progress, tries)
        whole = part(audited, golden, frozenset(origin.nodes), origin.value)
        found = search.smallest(search.first(audited, golden, origin))
    names = tuple(node.name for node in found.part.nodes)
    confirmed = False
    for text in scripts(executor, found.part, _where(found.part), peers):
        _write(folder, found, text)
        confirmed = confirm(folder, executor, search.limits) == 1
        if confirmed:
            break
    command = (*executor.emulator, "python", str(folder / SCRIPT))
    return Reduced(
        folder=folder,
        executor=executor.name,
        nodes=names,
        value=origin.value,
        drift=found.drift,
        elements=found.part.elements,
        before=whole.elements,
        tries=search.tried,
        confirmed=confirmed,
        command=command,
        notes=_notes(found.part, origin),
    )


def _where(found: Part) -> str:
    last = found.nodes[-1]
    more = f" and {len(found.nodes) - 1} nodes before it" if len(found.nodes) > 1 else ""
    return f"{last.name} ({last.op_type}){more}"


def _notes(found: Part, origin: Origin) -> tuple[str, ...]:
    added = [node.name for node in found.nodes if node.name not in origin.nodes]
    return (f"drifts only together with {', '.join(added)}",) if added else ()


# ── the search ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _Search:
    """Tries parts; `tried` counts the runs."""

    executor: Executor
    limits: Limits
    cache: Cache
    peers: Mapping[str, str]
    progress: Progress
    allowed: int
    tried: int = 0
    refused: list[str] = field(default_factory=list[str])

    def first(self, audited: Audited, golden: Capture, origin: Origin) -> _Drifting:
        """The origin's nodes by themselves, or with as much around them as it takes."""
        for names in contexts(audited.summary, origin.nodes):
            found = self.attempt(part(audited, golden, names, origin.value))
            if found is not None:
                return found
        raise ReproError(
            "the drift does not come back in a part of the model",
            node=", ".join(origin.nodes),
            found="; ".join(dict.fromkeys(self.refused)) or f"{self.executor.name} gives repro's bits there",
            expected="nodes that drift by themselves, or with what stands before them",
        )

    def smallest(self, found: _Drifting) -> _Drifting:
        """Cut until no cut leaves the drift, or the tries are used up. What failed once is not tried again."""
        failed: set[Cut] = set()
        cut = next(found.part.cuts(), None)
        while cut is not None:
            shorter = self._shortened(found, cut)
            if shorter is None:
                failed.add(cut)
            else:
                found = shorter
            cut = next((each for each in found.part.cuts() if each not in failed), None)
        return found

    def _shortened(self, found: _Drifting, cut: Cut) -> _Drifting | None:
        """The part with the fewest elements along a cut that drifts; None if none does."""
        for start, size in _ranges(cut.extent, _place(found, cut)):
            shorter = self.attempt(found.part.shortened(cut, start, size))
            if shorter is not None:
                return shorter
        return None

    def attempt(self, candidate: Part) -> _Drifting | None:
        """A run of the part; None if it is no model, does not run, gives golden bits, or no tries are left."""
        if self.tried >= self.allowed:
            return None
        try:
            audited = prepare(candidate.proto(), inputs=candidate.inputs, qdq=qdq_of_prepared(candidate.frame))
            golden = golden_of(audited, self.cache, _silent)
        except ReproError as error:
            self.refused.append(error.what)
            return None
        self.progress("runs", self.tried, self.allowed)
        self.tried += 1
        (capture,) = run_all(audited, golden, (self.executor,), self.limits, True, _silent, self.cache, self.peers)
        if not capture.ran:
            self.refused.append(f"{capture.outcome.value}: {capture.reason}")
            return None
        return _judged(candidate, audited, golden, capture)


def _silent(stage: str, done: int, total: int) -> None:
    """Of what one try does, nothing is told."""


def _judged(candidate: Part, audited: Audited, golden: Capture, capture: Capture) -> _Drifting | None:
    name = candidate.value
    left, right = golden.served[name], capture.served.get(name)
    if right is None or left == right or left.type != right.type:
        return None
    expected, theirs = golden.arrays[name], capture.arrays[name]
    apart = drift(expected, theirs)
    if apart is None:
        raise InternalError(f"{name}: two digests of one array")
    return _Drifting(candidate, audited, expected, apart, _farthest(expected, theirs))


def _farthest(expected: Array, theirs: Array) -> tuple[int, ...]:
    """The place of the element with the greatest absolute error; of the first that differs where there is none."""
    with np.errstate(all="ignore"):
        errors = np.abs(expected.astype(np.float64) - theirs.astype(np.float64))
    other_kind = np.isnan(errors) & ~(np.isnan(expected.astype(np.float64)) & np.isnan(theirs.astype(np.float64)))
    errors = np.where(other_kind, np.inf, np.nan_to_num(errors, nan=0.0))
    return tuple(int(place) for place in np.unravel_index(int(np.argmax(errors)), errors.shape))


def _place(found: _Drifting, cut: Cut) -> int:
    """Where along the cut the worst element lies: its place along an axis of the result with that extent."""
    along = (at for at, extent in zip(found.index, found.expected.shape, strict=True) if extent == cut.extent)
    return next(along, 0)


def _ranges(extent: int, place: int) -> Iterator[tuple[int, int]]:
    """(start, size): the element at `place`, then the half that holds it, then the other."""
    half = extent // 2
    yield place, 1
    if half > 1:
        halves = [(0, half), (half, extent - half)]
        yield from halves if place < half else reversed(halves)


# ── files ───────────────────────────────────────────────────────────────────────────────────────────


def _write(folder: Path, found: _Drifting, text: str) -> None:
    """The model with its inputs, golden bits and script. Raises ReproError."""
    arrays = {**found.audited.inputs, found.part.value: found.expected}
    foreign = sorted({str(array.dtype) for array in arrays.values() if array.dtype.kind not in "biuf"})
    if foreign:
        raise ReproError("NumPy's files have no such element type", found=", ".join(foreign))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        model = found.audited.proto.SerializeToString(deterministic=True)
        files.write_file(folder / MODEL, model)
        files.write_file(folder / SCRIPT, text.encode())
    except OSError as error:
        raise ReproError("the reduced model cannot be written", found=f"{folder}: {error.strerror}") from error
    tensors.write_npz(folder / INPUTS, found.audited.inputs)
    tensors.write_npz(folder / EXPECTED, {found.part.value: found.expected})


_RUN = "import json,runpy,sys; sys.path[:]=json.loads(sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"


def confirm(folder: Path, executor: Executor, limits: Limits) -> int | None:
    """The exit code of the script, run in a process of its own; None where it ran out of time."""
    command = [*executor.emulator, sys.executable, "-c", _RUN, json.dumps(sys.path), str((folder / SCRIPT).resolve())]
    try:
        return subprocess.run(command, capture_output=True, timeout=limits.seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        return None
