"""Running the steps of a trace again, from the checkpoint before them, and comparing each with its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from repro.artifact.canonical import Json
from repro.artifact.loaded import LoadedArtifact
from repro.artifact.sessions import Session
from repro.errors import ReproError
from repro.ir.types import Array
from repro.training import checkpoint as checkpoints
from repro.training import data, digests
from repro.training.data import Arrays, Batches
from repro.training.evaluate import ignored_label
from repro.training.trace import Trace

_OTHER_DATA = "the data is not that of the trace"


@dataclass(frozen=True)
class Side:
    """How one side of a comparison is run again: on what, and from which folder of checkpoints."""

    target: str = "cpu"
    checkpoints: Path | None = None
    threads: int | None = None


@dataclass(frozen=True, eq=False)
class Replayed:
    """A step that was run again. `parted` is the first step, from the start of the re-run to this one, whose
    line the re-run does not give; None: it gives the trace."""

    step: int
    started: int
    before: dict[str, Array]
    inputs: dict[str, Array]
    after: dict[str, Array]
    loss: str
    parted: int | None


def replay(artifact: LoadedArtifact, arrays: Arrays, trace: Trace, side: Side, last: int | None) -> Replayed:
    """Run again to step `last`; None: to the first step that is not as in the trace, or to its end."""
    batches = _batches(artifact, arrays, trace)
    final = trace.first + len(trace.steps) if last is None else last
    started, state = _start(artifact, trace, side, 0 if last is None else final - 1)
    with artifact.session(trace.header["entry"], side.target, side.threads) as session:
        session.state = state
        parted: int | None = None
        before = state
        for step in range(started + 1, final + 1):
            before = {name: array.copy() for name, array in _whole(session, state).items()}
            inputs = batches.inputs(step - 1)
            loss = digests.bits_of(session.run(inputs)[session.entry.outputs[0].name])
            after = _whole(session, state)
            if parted is None and not _agrees(trace.steps[step - trace.first - 1], loss, inputs, after):
                parted = step
            if step == final or (last is None and parted is not None):
                return Replayed(step, started, before, inputs, after, loss, parted)
    raise ReproError("there is no step to run again", found=f"{trace.path} ends at step {final}")


def _whole(session: Session, initial: dict[str, Array]) -> dict[str, Array]:
    """All tensors in slot order; those that the code has no use for never change."""
    current = session.state_views()
    return {name: current.get(name, array) for name, array in initial.items()}


def _agrees(line: Json, loss: str, inputs: dict[str, Array], state: dict[str, Array]) -> bool:
    same = line["loss"] == loss and line["inputs"] == digests.of_arrays(inputs)
    return same and (line["state"] is None or line["state"] == digests.of_arrays(state))


def _batches(artifact: LoadedArtifact, arrays: Arrays, trace: Trace) -> Batches:
    header = trace.header
    entry = artifact.entries.get(header["entry"])
    if entry is None or entry.graph != header["graph"]:
        raise ReproError(
            "the trace is not of this artifact",
            found=f"{trace.path}: {header['graph']}",
            expected=entry.graph if entry else header["entry"],
        )
    fitted = data.fit(arrays, entry.inputs, ignored_label(artifact.training), notes=artifact.label_notes)
    if (fitted.samples, fitted.batch) != (header["samples"], header["batch"]):
        found = f"{fitted.samples} samples in batches of {fitted.batch}"
        expected = f"{header['samples']} in batches of {header['batch']}"
        raise ReproError(_OTHER_DATA, found=found, expected=expected)
    if (digest := fitted.digest(lambda: False)) != header["data"]:
        raise ReproError(_OTHER_DATA, found=digest, expected=header["data"])
    return Batches(fitted, int(header["seed"], 16), header["last"])


def _start(artifact: LoadedArtifact, trace: Trace, side: Side, latest: int) -> tuple[int, dict[str, Array]]:
    """The newest state that is not after step `latest`: of a checkpoint, or the initial one."""
    found = checkpoints.documents(side.checkpoints) if side.checkpoints else []
    usable = [path for path in found if trace.first <= checkpoints.step_of(path) <= latest]
    if not usable:
        initial = artifact.initial_state(trace.header["entry"])
        if trace.first or digests.of_arrays(initial) != trace.header["state"]:
            raise ReproError(
                "there is no checkpoint to run again from",
                found=str(side.checkpoints or "none given"),
                expected=f"one of steps {trace.first} to {max(latest, trace.first)}",
            )
        return 0, initial
    read = checkpoints.read(usable[-1])
    step = read.document.step
    stated = trace.documents[step - trace.first]["state"]
    if stated is not None and stated != read.document.state:
        raise ReproError(
            "the checkpoint is not of this trace",
            found=f"{read.path}: {read.document.state}",
            expected=f"{stated} at step {step} of {trace.path}",
        )
    return step, read.state
