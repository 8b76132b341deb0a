# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.
"""What runs a workload. A side is opened once, then run again and again; each run ends with its results in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import repro
from repro.bench.workloads import STEP, Workload
from repro.ir.types import Array


class UnavailableError(Exception):
    """A side that cannot run a workload; the text says why."""


@dataclass(frozen=True)
class Job:
    """One measurement: a workload in one mode on a number of threads, with its model and artifact in a folder."""

    workload: Workload
    mode: str
    threads: int
    folder: Path

    @property
    def inputs(self) -> dict[str, Array]:
        found = self.workload.inputs()
        if self.mode == STEP and self.workload.labels is not None:
            found["labels"] = self.workload.labels()
        return found

    @property
    def entry(self) -> str:
        """Of the artifact."""
        return "train_step" if self.mode == STEP else "infer"


Run = Callable[[], Array]
"""One run; the loss of a step, or the first output."""


class Side(Protocol):
    name: str

    def open(self, job: Job) -> Run:
        """Raises UnavailableError, as the first run may."""
        ...


class Repro:
    name = "repro"

    def open(self, job: Job) -> Run:
        session = repro.load(job.folder / "artifact").session(job.entry, threads=job.threads)
        inputs, first = job.inputs, session.entry.outputs[0].name
        return lambda: session.run(inputs)[first]


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
        inputs = job.inputs
        return lambda: session.run(None, inputs)[0]


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
        inputs = {name: torch.from_numpy(np.array(array)) for name, array in job.inputs.items()}
        forward = self.compiled(torch, lambda: model(parameters, inputs, job.mode))
        if job.mode != STEP or job.workload.own_step:
            return lambda: _without_gradients(torch, forward)
        return _training(torch, job, parameters, inputs["labels"], forward)

    def compiled(self, torch: Any, forward: Callable[[], Any]) -> Callable[[], Any]:
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

    def compiled(self, torch: Any, forward: Callable[[], Any]) -> Callable[[], Any]:
        return torch.compile(forward)


def _parameters(torch: Any, job: Job) -> Mapping[str, Any]:
    network, _ = job.workload.network(job.mode)
    made = {name: torch.from_numpy(np.array(array)) for name, array in network.weights.items()}
    for name, tensor in made.items():
        frozen = name.rpartition(".")[2] in job.workload.buffers
        if job.mode == STEP and tensor.is_floating_point() and tensor.dim() and not frozen:
            tensor.requires_grad_()
    return made


def _without_gradients(torch: Any, forward: Callable[[], Any]) -> Array:
    with torch.no_grad():
        return forward().detach().numpy()


def _training(torch: Any, job: Job, parameters: Mapping[str, Any], labels: Any, forward: Callable[[], Any]) -> Run:
    trained = [tensor for tensor in parameters.values() if tensor.requires_grad]
    rate = job.workload.training["learning_rate"]
    if job.workload.training["optimizer"] == "adamw":
        optimizer = torch.optim.AdamW(trained, rate)
    else:
        optimizer = torch.optim.SGD(trained, rate, momentum=0.9)

    def step() -> Array:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach().numpy()

    return step


SIDES: dict[str, Side] = {side.name: side for side in (Repro(), Torch(), TorchCompile(), OnnxRuntime())}
