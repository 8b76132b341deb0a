"""The training loop. It reads no clock and no environment; whoever calls it is told of each step and may stop it."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from repro.artifact import files
from repro.artifact.cache import Cache
from repro.artifact.canonical import Json
from repro.artifact.config import Entry
from repro.artifact.loaded import LoadedArtifact
from repro.artifact.sessions import Session
from repro.artifact.workers import cores
from repro.errors import ReproError
from repro.ir.types import Array
from repro.train_step.assemble import TRAIN_STEP
from repro.training import checkpoint as checkpoints
from repro.training import data, digests, nodes, trace
from repro.training.checkpoint import Checkpoint, Document
from repro.training.data import Arrays, Batches
from repro.training.evaluate import Evaluator, check_labels, ignored_label, loss_of, open_evaluator
from repro.training.metrics import MetricsWriter
from repro.training.nodes import Recorder

Metrics = dict[str, float | int]


@dataclass(frozen=True)
class Settings:
    """How a run goes. One of `epochs` and `steps` says when it ends, counted from the start of the training."""

    checkpoint: Path
    epochs: int | None = None
    steps: int | None = None
    batch: int | None = None
    last: str = "drop"
    seed: int = 0
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    keep: int = 3
    trace: Path | None = None
    trace_state_every: int = 1
    trace_tensors: bool = False
    trace_nodes_every: int | None = None
    trace_nodes_at: tuple[int, ...] = ()
    metrics: Path | None = None
    resume: bool = False
    target: str = "cpu"
    threads: int | None = None
    chips: int = 1

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ReproError("training ends after a number of epochs or of steps: give one of them")
        counts = {
            "epochs": self.epochs, "steps": self.steps, "keep": self.keep, "evaluate-every": self.evaluate_every,
            "checkpoint-every": self.checkpoint_every, "trace-state-every": self.trace_state_every,
            "trace-nodes-every": self.trace_nodes_every,
            "trace-nodes-at": min(self.trace_nodes_at, default=None),
        }  # fmt: skip
        for name, count in counts.items():
            if count is not None and count < 1:
                raise ReproError(f"--{name} is out of range", found=str(count), expected="1 or more")
        if not 0 <= self.seed < 1 << 64:
            raise ReproError("the seed is out of range", found=str(self.seed), expected="0..2^64-1")
        if self.trace is None and self.detail != trace.Detail():
            raise ReproError("states, tensors and nodes are recorded in a trace", next="name one with --trace")
        if self.trace is not None and self.trace.resolve() == self.metrics_file.resolve():
            raise ReproError(
                "the trace and the metrics are one file", found=str(self.trace), next="give --trace another one"
            )

    @property
    def metrics_file(self) -> Path:
        """Where the metrics are written: `metrics`, or a file beside the checkpoints."""
        return self.metrics or self.checkpoint / "metrics.jsonl"

    @property
    def detail(self) -> trace.Detail:
        """What the lines of the trace have."""
        at = frozenset(self.trace_nodes_at)
        return trace.Detail(self.trace_state_every, self.trace_tensors, self.trace_nodes_every, at)


@dataclass(frozen=True)
class Progress:
    """A finished step."""

    step: int
    steps: int
    loss: float
    validation: Metrics | None


@dataclass(frozen=True)
class Trained:
    """How a run ended. `state` is the digest of the weights and everything beside them; `not_finite` the first step of
    the run whose loss is infinite or no number."""

    step: int
    epoch: int
    loss: float | None
    state: str
    checkpoint: Path
    interrupted: bool
    validation: Metrics | None
    not_finite: int | None


def train(
    artifact: LoadedArtifact,
    arrays: Arrays,
    validation: Arrays | None,
    settings: Settings,
    tell: Callable[[Progress], None],
    stopped: Callable[[], bool],
    cache: Cache | None = None,
) -> Trained:
    """Train until the end, or until `stopped` says so after a step; then there is a checkpoint. Raises ReproError.

    `cache` keeps the code that shows what nodes compute, where the trace records it.
    """
    if validation is None and settings.evaluate_every is not None:
        raise ReproError("there is nothing to evaluate on", next="name held-out data with --validation")
    run = _Run(artifact, arrays, settings, cache)
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(artifact.session(TRAIN_STEP, settings.target, settings.threads, settings.chips))
        evaluator = None
        if validation is not None:
            evaluator = open_evaluator(artifact, validation, settings.target, settings.threads)
            stack.callback(evaluator.close)
        stack.enter_context(_locked(settings.checkpoint))
        run.start(session, stopped)
        run.open_files(stack)
        return run.loop(evaluator, tell, stopped)


class _Run:
    """One call of `train`: what it writes, and how far it has come."""

    def __init__(self, artifact: LoadedArtifact, arrays: Arrays, settings: Settings, cache: Cache | None) -> None:
        self.artifact, self.settings, self.cache = artifact, settings, cache
        self.entry = _train_step(artifact)
        fitted = data.fit(arrays, self.entry.inputs, ignored_label(artifact.training), notes=artifact.label_notes)
        if settings.batch not in (None, fitted.batch):
            raise ReproError(
                "the artifact was built for another batch",
                found=str(settings.batch),
                expected=str(fitted.batch),
                next="build with another --bind: the batch is part of the compiled code",
            )
        self.batches = Batches(fitted, settings.seed, settings.last)
        self.total = settings.steps or (settings.epochs or 0) * self.batches.per_epoch
        if max(settings.trace_nodes_at, default=0) > self.total:
            raise ReproError(
                "--trace-nodes-at names a step that the run does not reach",
                found=str(max(settings.trace_nodes_at)),
                expected=f"at most {self.total}",
            )
        self.options: dict[str, Json] = {
            "seed": f"0x{settings.seed:016x}",
            "last": settings.last,
            "batch": fitted.batch,
            "samples": fitted.samples,
        }
        self.step, self.loss = 0, ""
        self.not_finite: int | None = None
        self.written: Path | None = None
        self.validation: Metrics | None = None
        self.trace: trace.TraceWriter | None = None
        self.nodes: Recorder | None = None

    # ── start ───────────────────────────────────────────────────────────────────────────────────────

    def start(self, session: Session, stopped: Callable[[], bool]) -> None:
        """From the initial state, or from the newest checkpoint. All data is read once, behind what can be refused
        without."""
        self.session = session
        self.initial = self.artifact.initial_state(self.entry.name)
        found = checkpoints.documents(self.settings.checkpoint)
        if found and not self.settings.resume:
            raise ReproError(
                "the folder already holds checkpoints",
                found=str(found[-1]),
                next="go on from them with --resume, or name another folder",
            )
        read = checkpoints.read(found[-1]) if found else None
        if read is not None:
            self._check(read)
        check_labels(self.artifact, self.batches.data, "data")
        self.options["data"] = self.batches.data.digest(stopped)
        if read is not None:
            self._check(read)
            self.session.state = read.state
            self.step, self.loss, self.written = read.document.step, read.document.loss, read.path

    def _check(self, read: Checkpoint) -> None:
        """Raises ReproError for a checkpoint that this run would not go on from to the same bits."""
        document = read.document
        wanted: dict[str, Json] = {"graph": self.entry.graph, "entry": self.entry.name, **self.options}
        stated: dict[str, Json] = {"graph": document.graph, "entry": document.entry, **document.options}
        wrong = [name for name in wanted if stated.get(name) != wanted[name]]
        if not wrong and self.batches.cursor(document.step) != (document.epoch, document.position):
            wrong = ["cursor"]
        if wrong:
            raise ReproError(
                f"the checkpoint is of another run: its {wrong[0]} differs",
                found=f"{read.path}: {stated.get(wrong[0], (document.epoch, document.position))}",
                expected=str(wanted.get(wrong[0], self.batches.cursor(document.step))),
                next="train with the data and the options of its beginning, or into another folder",
            )

    def open_files(self, stack: contextlib.ExitStack) -> None:
        """Take them all, and then begin them: who is refused one has lost nothing of the others."""
        settings = self.settings
        self.metrics = MetricsWriter(settings.metrics_file, self.step, settings.resume)
        stack.callback(self.metrics.close)
        if settings.trace is not None:
            if settings.detail.any_nodes:
                self.nodes = nodes.recorder(
                    self.artifact, self.entry.name, settings.target, settings.threads, self.cache
                )
            threads = settings.threads or cores()
            self.trace = trace.TraceWriter(
                settings.trace, self._header(), self.step, settings.resume, settings.detail, threads
            )
            stack.callback(self.trace.close)
            first = min(settings.trace_nodes_at, default=self.step + 1)
            if first <= self.step and not self.trace.goes_on:
                raise ReproError(
                    "--trace-nodes-at names a step that the run has behind it",
                    found=str(first),
                    expected=f"more than {self.step}",
                    next="train again from an earlier checkpoint, or from the beginning",
                )
            self.trace.begin()
        self.metrics.begin()

    def _header(self) -> Json:
        rows, root = checkpoints.describe(self.state())
        header: Json = {
            "format": trace.FORMAT,
            "entry": self.entry.name,
            "graph": self.entry.graph,
            "contract": self.artifact.config.contract,
            **self.options,
            "tensors": [[name, kind] for name, kind, _ in rows],
            "step": self.step,
            "state": root,
        }
        if self.nodes is not None:
            header["nodes"] = [row.json() for row in self.nodes.rows]
        return header

    def state(self) -> dict[str, Array]:
        """All tensors in slot order, those that the code has no use for too: arrays that the next step may change."""
        current = self.session.state_views()
        return {name: current.get(name, array) for name, array in self.initial.items()}

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────

    def loop(
        self, evaluator: Evaluator | None, tell: Callable[[Progress], None], stopped: Callable[[], bool]
    ) -> Trained:
        value: float | None = None
        while self.step < self.total and not stopped():
            value = self._step()
            if evaluator is not None and (self._due(self.settings.evaluate_every) or self.step == self.total):
                self.validation = evaluator.measure(self.state())
                self.metrics.validation(self.step, self.validation)
            if self._due(self.settings.checkpoint_every):
                self._checkpoint()
            tell(Progress(self.step, self.total, value, self.validation))
        if self.written is None or checkpoints.step_of(self.written) != self.step:
            self._checkpoint()
        state = digests.of_arrays(self.state())
        written = self.written or self.settings.checkpoint
        interrupted = self.step < self.total
        epoch = self.batches.cursor(self.step)[0]
        return Trained(self.step, epoch, value, state, written, interrupted, self.validation, self.not_finite)

    def _step(self) -> float:
        inputs = self.batches.inputs(self.step)
        epoch, _ = self.batches.cursor(self.step)
        shown = self._node_digests(inputs)
        loss = self.session.run(inputs)[self.entry.outputs[0].name]
        self.step += 1
        self.loss = digests.bits_of(loss)
        if self.trace is not None:
            state = self.state() if self.trace.detail.state_of(self.step) else None
            self.trace.add(self.step, loss, inputs, state, shown)
        value = float(loss.reshape(()))
        self.metrics.step(self.step, epoch, value)
        if self.not_finite is None and not math.isfinite(value):
            self.not_finite = self.step
        return value

    def _node_digests(self, inputs: Mapping[str, Array]) -> tuple[str, ...] | None:
        """Of every node's value in the step to come, where the trace is to have them."""
        if self.nodes is None or not self.settings.detail.nodes_of(self.step + 1):
            return None
        return self.nodes.digests(inputs, self.state())

    def _due(self, every: int | None) -> bool:
        """Whether something is done after this step; if nobody said how often, at the end of each epoch."""
        return self.step % (every or self.batches.per_epoch) == 0

    def _checkpoint(self) -> None:
        """Trace and metrics reach the disk first: a checkpoint never stands for steps that they do not have."""
        if self.trace is not None:
            self.trace.sync()
        self.metrics.sync()
        self.written = checkpoints.write(self.settings.checkpoint, *self._document(), self.settings.keep)

    def _document(self) -> tuple[Document, Mapping[str, Array]]:
        state = self.state()
        rows, root = checkpoints.describe(state)
        epoch, position = self.batches.cursor(self.step)
        places = (files.resolved(each) for each in (self.artifact.folder, self.settings.checkpoint))
        document = Document(
            format=checkpoints.FORMAT,
            artifact=self.artifact.id,
            artifact_path=files.as_text(os.path.relpath(*places)),
            entry=self.entry.name,
            graph=self.entry.graph,
            step=self.step,
            epoch=epoch,
            position=position,
            options=self.options,
            loss=self.loss,
            tensors=rows,
            state=root,
        )
        return document, state


def _train_step(artifact: LoadedArtifact) -> Entry:
    found = artifact.entries.get(TRAIN_STEP)
    if found is None:
        raise ReproError(
            "the artifact has no training step",
            found=", ".join(artifact.entries),
            expected=TRAIN_STEP,
            next="build with --loss and --optimizer",
        )
    loss_of(found)
    return found


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Make the folder, unless it is there; no two runs write into one. The lock goes with the process, however that
    ends."""
    if (folder / "artifact.json").exists():
        raise ReproError(
            "the folder of checkpoints is that of an artifact", found=str(folder), next="give --checkpoint another one"
        )
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ReproError("the folder of checkpoints cannot be used", found=f"{folder}: {error.strerror}") from error
    try:
        if not files.taken(descriptor):
            raise ReproError("another run writes into this folder of checkpoints", found=str(folder))
        yield
    finally:
        os.close(descriptor)
