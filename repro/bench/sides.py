# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.
"""What runs a workload. A side is opened once, then run again and again; each run ends with its results in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import repro
from repro.bench.workloads import STEP, Workload
from repro.errors import ReproError
from repro.ir.types import Array


class UnavailableError(Exception):
    """A side that cannot run a workload; the text says why."""


@dataclass(frozen=True)
class Job:
    """One measurement: a workload in one mode on a number of threads, with its model and artifact in a folder. Its runs
    are given `copies` of the inputs in turn: of one, caches may still hold what the run before has read."""

    workload: Workload
    mode: str
    threads: int
    folder: Path
    copies: int = 1

    @property
    def inputs(self) -> dict[str, Array]:
        found = self.workload.inputs()
        if self.mode == STEP and self.workload.labels is not None:
            found["labels"] = self.workload.labels()
        return found

    def turns(self) -> Iterator[dict[str, Array]]:
        """The inputs of each run, without an end."""
        return cycle([self.inputs for _ in range(self.copies)])

    @property
    def entry(self) -> str:
        """Of the artifact."""
        return "train_step" if self.mode == STEP else "infer"


Run = Callable[[], Array]
"""One run; the loss of a step, or the first output."""
Forward = Callable[[Mapping[str, Any]], Any]
"""PyTorch's forward pass of inputs."""


class Side(Protocol):
    @property
    def name(self) -> str: ...

    def open(self, job: Job) -> Run:
        """Raises UnavailableError, as the first run may."""
        ...


@dataclass(frozen=True)
class Repro:
    """An artifact in the job's folder."""

    name: str = "repro"
    folder: str = "artifact"

    def open(self, job: Job) -> Run:
        session = repro.load(job.folder / self.folder).session(job.entry, threads=job.threads)
        turns, first = job.turns(), session.entry.outputs[0].name
        return lambda: session.run(next(turns))[first]


class Other(Repro):
    """The artifact that another version of the package has built, run by this one."""

    def open(self, job: Job) -> Run:
        try:
            return super().open(job)
        except ReproError as error:
            raise UnavailableError(f"this version does not run it: {error.what}") from error


class OnnxRuntime:
    """Its defaults, on the threads that are asked for, which sleep between runs so that others are not disturbed."""

    name = "onnxruntime"

    def open(self, job: Job) -> Run:
        if job.mode == STEP or not job.workload.onnxruntime:
            raise UnavailableError("it has no training" if job.mode == STEP else "it has no such operator")
        ort = import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = job.threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        session = ort.InferenceSession(str(job.folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        turns = job.turns()
        return lambda: session.run(None, next(turns))[0]


class Torch:
    """PyTorch eager: autograd and its own optimizers."""

    name = "torch"

    def open(self, job: Job) -> Run:
        try:
            torch: Any = import_module("torch")
        except ImportError as error:
            raise UnavailableError("PyTorch is not installed") from error
        model = job.workload.torch
        if model is None:
            raise UnavailableError("it has no such operators")
        torch.set_num_threads(job.threads)
        parameters = _parameters(torch, job)
        turns = cycle([_tensors(torch, job.inputs) for _ in range(job.copies)])
        forward = self.compiled(torch, lambda inputs: model(parameters, inputs, job.mode))
        if job.mode != STEP or job.workload.own_step:
            return lambda: _without_gradients(torch, forward, next(turns))
        return _training(torch, job, parameters, forward, turns)

    def compiled(self, torch: Any, forward: Forward) -> Forward:
        return forward


class TorchCompile(Torch):
    """PyTorch through its compiler, which needs a C++ compiler of the host and does not take every model."""

    name = "torch.compile"

    def open(self, job: Job) -> Run:
        run = super().open(job)

        def first_compiling() -> Array:
            try:
                return run()
            except Exception as error:  # whatever its compiler raises: this column says so, the others go on
                first = next(iter(str(error).splitlines()), "")
                raise UnavailableError(f"it does not compile this: {type(error).__name__}: {first[:100]}") from error

        return first_compiling

    def compiled(self, torch: Any, forward: Forward) -> Forward:
        return torch.compile(forward)


def _tensors(torch: Any, arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _parameters(torch: Any, job: Job) -> Mapping[str, Any]:
    network, _ = job.workload.network(job.mode)
    made = _tensors(torch, network.weights)
    for name, tensor in made.items():
        frozen = name.rpartition(".")[2] in job.workload.buffers
        if job.mode == STEP and tensor.is_floating_point() and tensor.dim() and not frozen:
            tensor.requires_grad_()
    return made


def _without_gradients(torch: Any, forward: Forward, inputs: Mapping[str, Any]) -> Array:
    with torch.no_grad():
        return forward(inputs).detach().numpy()


def _training(
    torch: Any, job: Job, parameters: Mapping[str, Any], forward: Forward, turns: Iterator[Mapping[str, Any]]
) -> Run:
    trained = [tensor for tensor in parameters.values() if tensor.requires_grad]
    rate = job.workload.training["learning_rate"]
    if job.workload.training["optimizer"] == "adamw":
        optimizer = torch.optim.AdamW(trained, rate)
    else:
        optimizer = torch.optim.SGD(trained, rate, momentum=0.9)

    def step() -> Array:
        optimizer.zero_grad()
        inputs = next(turns)
        loss = torch.nn.functional.cross_entropy(forward(inputs), inputs["labels"])
        loss.backward()
        optimizer.step()
        return loss.detach().numpy()

    return step


OTHER = Other("other", "other")
SIDES: dict[str, Side] = {side.name: side for side in (Repro(), Torch(), TorchCompile(), OnnxRuntime())}
