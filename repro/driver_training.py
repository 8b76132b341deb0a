"""`repro train`, `repro export` and `repro bisect` as Python functions."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from repro.artifact import tensors
from repro.artifact.files import resolved
from repro.driver import default_cache, load
from repro.errors import ReproError
from repro.ir.types import Array
from repro.signatures import checked
from repro.training import bisect as bisection
from repro.training import checkpoint as checkpoints
from repro.training import data as training_data
from repro.training import trace as traces
from repro.training.bisect import Bisection
from repro.training.compare import TensorDifference
from repro.training.export import exported
from repro.training.loop import Progress as TrainingStep
from repro.training.loop import Settings, Trained
from repro.training.loop import train as train_loop
from repro.training.nodes import Operand
from repro.training.replay import Side

__all__ = ["Bisection", "Operand", "TensorDifference", "TrainingStep", "bisect", "export", "train"]

Data = str | Path | Mapping[str, Array]
"""An .npz file, a folder of .npy files, or arrays by name."""


@checked
def train(
    path: str | Path,
    data: Data,
    *,
    checkpoint: str | Path,
    epochs: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    last: str = "drop",
    seed: int = 0,
    validation: Data | None = None,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    keep: int = 3,
    trace: str | Path | None = None,
    trace_state_every: int = 1,
    trace_tensors: bool = False,
    trace_nodes_every: int | None = None,
    trace_nodes_at: Sequence[int] = (),
    metrics: str | Path | None = None,
    resume: bool = False,
    target: str = "cpu",
    threads: int | None = None,
    chips: int = 1,
    progress: Callable[[TrainingStep], None] | None = None,
) -> Trained:
    """Train an artifact that was built with a loss, until it has gone `epochs` or `steps` from its beginning.

    `data` has an array for each input of the entry `train_step`, one row for each sample; their order in each epoch
    follows from `seed`; `last` says whether what does not fill a batch is dropped or padded. Checkpoints go into the
    folder `checkpoint`, the newest `keep` stay; `resume` goes on from the newest to the same bits as an unbroken run.
    `trace` names a file for a line of each step; `trace_nodes_every` and `trace_nodes_at` say in which steps it has the
    digest of each node's value. `chips` share the step's virtual shards on a target that simulates several. Ctrl-C
    and SIGTERM end the run after the step, with a checkpoint. Raises ReproError. See docs/training.md.
    """
    settings = Settings(
        checkpoint=Path(checkpoint),
        epochs=epochs,
        steps=steps,
        batch=batch,
        last=last,
        seed=seed,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        keep=keep,
        trace=None if trace is None else Path(trace),
        trace_state_every=trace_state_every,
        trace_tensors=trace_tensors,
        trace_nodes_every=trace_nodes_every,
        trace_nodes_at=tuple(trace_nodes_at),
        metrics=None if metrics is None else Path(metrics),
        resume=resume,
        target=target,
        threads=threads,
        chips=chips,
    )
    held_out = None if validation is None else _arrays(validation)
    with _interrupts() as stopped:
        listener = progress or _unheard
        return train_loop(load(path), _arrays(data), held_out, settings, listener, stopped, default_cache())


def _unheard(step: TrainingStep) -> None:
    """Nobody listens."""


def _arrays(data: Data) -> Mapping[str, Array]:
    return training_data.read(Path(data)) if isinstance(data, str | Path) else data


@contextmanager
def _interrupts() -> Generator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, or SIGTERM came; a second time it ends the process at once, as ever. A SIGTERM that
    nobody else handles ends the process behind the run. What is ignored stays so. Elsewhere than in the main thread,
    which alone is told of signals, none is ever seen."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
    came: list[int] = []

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def press(number: int, frame: FrameType | None) -> None:
        pressed.set()
        came.append(number)
        restore()

    for number in before:
        signal.signal(number, press)
    try:
        yield pressed.is_set
    finally:
        restore()
        if signal.SIGTERM in came and before[signal.SIGTERM] is signal.SIG_DFL:
            signal.raise_signal(signal.SIGTERM)


@checked
def export(checkpoint: str | Path, out: str | Path, *, artifact: str | Path | None = None) -> Path:
    """Write the source model with a checkpoint's weights. `artifact`: where it lies now, if it was moved.

    Raises ReproError for a checkpoint of another graph.
    """
    found = checkpoints.read(Path(checkpoint))
    model = exported(load(_artifact_of(found) if artifact is None else artifact), found)
    tensors.write_output(Path(out), model.SerializeToString(deterministic=True))
    return Path(out)


def _artifact_of(found: checkpoints.Checkpoint) -> Path:
    path = Path(os.path.normpath(resolved(found.path.parent) / found.document.artifact_path))
    if not path.exists():
        raise ReproError(
            "the checkpoint's artifact is not where it was", found=str(path), next="say where it is with --artifact"
        )
    return path


@checked
def bisect(
    left: str | Path,
    right: str | Path | None = None,
    *,
    artifact: str | Path | None = None,
    data: Data | None = None,
    left_checkpoint: str | Path | None = None,
    right_checkpoint: str | Path | None = None,
    left_target: str = "cpu",
    right_target: str = "cpu",
    threads: int | None = None,
) -> Bisection:
    """The first step at which two traces differ; without `right`, at which a re-run on `right_target` leaves `left`.

    With `artifact` and `data` that step is run again on both targets, from the newest checkpoint before it in
    the folders given, else from the initial state: tensors and the first node that differ. Raises ReproError.
    """
    mine, theirs = traces.read(Path(left)), None if right is None else traces.read(Path(right))
    sides = (_side(left_target, left_checkpoint, threads), _side(right_target, right_checkpoint, threads))
    if artifact is None or data is None:
        if theirs is None or artifact is not None or data is not None:
            raise ReproError("running steps again needs the artifact and its data", next="give --artifact and --data")
        return bisection.compare(mine, theirs)
    loaded, arrays, found_in = load(artifact), _arrays(data), default_cache()
    if theirs is None:
        return bisection.rerun(mine, loaded, arrays, sides, found_in)
    return bisection.locate(bisection.compare(mine, theirs), loaded, arrays, (mine, theirs), sides, found_in)


def _side(target: str, folder: str | Path | None, threads: int | None) -> Side:
    if folder is not None and not Path(folder).is_dir():
        raise ReproError("there is no such folder of checkpoints", found=str(folder))
    return Side(target, None if folder is None else Path(folder), threads)
