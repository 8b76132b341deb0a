"""The peer `torch`: an ONNX model run node by node with ATen's kernels.

The table of `torch_ops` says which kernel runs which operator. It is our own because the converter that is kept best,
onnx2torch 1.5.15 (its last release is of August 2024), takes operators up to opset 16 for the most part (Softmax and
Reshape 13 and 14, BatchNormalization 15 in inference only), refuses a whole model for one operator that it lacks, and
gives a module that has lost the names of nodes and values; an audit needs each value by its name, training, and the
rest of a model where one node is foreign. Nodes that the table lacks are run by onnx's reference evaluator, and said
so.

Options of an executor, all of them settings of its process: `threads`; `isa`, the widest instructions that all of
PyTorch's libraries may use, or each by itself: `aten`, `onednn`, `mkl`, `cbwr` (MKL's one code path for all CPUs, the
only one of its settings that takes effect on an AMD CPU); `compile=inductor` fuses the whole model (needs a C++
compiler).
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onnx import ModelProto

from repro.artifact.canonical import Json
from repro.audit.peers.instruction_sets import features
from repro.audit.peers.peer import Adder, PeerError
from repro.audit.records import Executor, Outcome
from repro.ir.types import Array

FAMILY = "torch"
THREADS, ISA, COMPILE = "threads", "isa", "compile"

ENVIRONMENT = {
    "aten": "ATEN_CPU_CAPABILITY",
    "onednn": "ONEDNN_MAX_CPU_ISA",
    "mkl": "MKL_ENABLE_INSTRUCTIONS",
    "cbwr": "MKL_CBWR",
}
"""Option -> the variable by which that library is told."""
LIBRARIES: dict[str, dict[str, str]] = {
    "sse": {"aten": "default", "onednn": "SSE41", "mkl": "SSE4_2", "cbwr": "COMPATIBLE"},
    "avx2": {"aten": "avx2", "onednn": "AVX2", "mkl": "AVX2"},
}
"""`isa` -> what each library calls it. PyTorch's own loops without a capability are compiled for SSE."""


def executor(**options: str) -> Executor:
    """An executor of this family with its environment: executor(threads="1", isa="avx2")."""
    said = {**LIBRARIES.get(options.get(ISA, ""), {}), **{k: v for k, v in options.items() if k in ENVIRONMENT}}
    environment = tuple((ENVIRONMENT[library], value) for library, value in said.items())
    return Executor(FAMILY, tuple(options.items()), environment)


class TorchPeer:
    """PyTorch on a CPU."""

    family = FAMILY

    def __init__(self) -> None:
        self._fallbacks: dict[str, str] = {}

    def variants(self) -> tuple[Executor, ...]:
        found = [executor(threads="1"), executor(threads="2")]
        found += [executor(threads="1", isa=isa) for isa in ("avx2", "sse") if _narrower(isa)]
        return tuple(found)

    def named(self) -> tuple[Executor, ...]:
        """The fused model, and each library's narrower instructions by themselves."""
        single = [
            executor(threads="1", **{library: value})
            for isa in ("avx2", "sse")
            if _narrower(isa)
            for library, value in LIBRARIES[isa].items()
        ]
        return (executor(threads="1", compile="inductor"), *single)

    def versions(self) -> Mapping[str, Json]:
        torch = _imported()
        found: dict[str, Json] = {
            "torch": str(torch.__version__),
            "capability": str(torch.backends.cpu.get_cpu_capability()),
        }
        for line in torch.__config__.show().splitlines():
            name = next((each for each in ("Math Kernel Library Version", "MKL-DNN v", "OpenMP") if each in line), None)
            if name:
                found[{"Math Kernel Library Version": "mkl", "MKL-DNN v": "onednn", "OpenMP": "openmp"}[name]] = (
                    line.strip(" -")
                )
        return found

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        """The model itself: eager kernels run one by one. What `compile` fuses has no form in ONNX."""
        return model

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        torch = settle(executor)
        from repro.audit.peers.torch_ops.interpreter import Interpreter
        from repro.audit.peers.torch_ops.tensors import to_numpy, to_torch

        interpreter = Interpreter(model)
        given = {name: to_torch(array) for name, array in inputs.items()}
        outputs = [item.name for item in model.graph.output]
        with torch.no_grad():
            if executor.option(COMPILE):
                from repro.audit.peers.torch_ops.fused import fused

                values: Mapping[str, Any] = fused(interpreter, given, outputs, executor.option(COMPILE))
            else:
                values = interpreter.run(given)
        self._fallbacks = dict(interpreter.fallbacks)
        found: dict[str, Array] = {}
        for name in outputs:
            value = values[name]
            if isinstance(value, list):
                found.update({f"{name}[{index}]": to_numpy(each) for index, each in enumerate(value)})
            else:
                found[name] = to_numpy(value) if isinstance(value, torch.Tensor) else value
        return found

    def implementations(self, model: ModelProto) -> Mapping[str, str]:
        """Of the last run: whether a kernel takes a node shows when it is given the node's inputs."""
        names = {node.name or node.output[0] for node in model.graph.node}
        return {name: reason for name, reason in self._fallbacks.items() if name in names}

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        torch = settle(executor)

        def of(function: Callable[[Any, Any], Any]) -> Adder:
            return lambda a, b: float(function(torch.from_numpy(a.copy()), torch.from_numpy(b.copy())))

        return {
            "sum": of(lambda a, b: torch.sum(a)),
            "dot": of(lambda a, b: torch.mm(a[None, :], b[:, None])[0, 0]),
            "dot (torch.dot)": of(torch.dot),
            "dot (linear)": of(lambda a, b: torch.nn.functional.linear(a.expand(8, -1), b.expand(16, -1))[3, 5]),
        }


def _narrower(isa: str) -> bool:
    """Whether that is less than what this host has by itself, and can run here."""
    return ({"avx2"} if isa == "sse" else {"avx2", "avx512f"}) <= features()


def _imported() -> Any:
    try:
        import torch
    except ImportError as error:
        raise PeerError(Outcome.MISSING, "PyTorch is not installed: the extra `torch`") from error
    return torch


def settle(executor: Executor) -> Any:
    """PyTorch with the executor's threads; with no deterministic mode and no precision but its own choice, as it is
    served. Raises PeerError where it is missing."""
    torch = _imported()
    torch.set_num_threads(int(executor.option(THREADS, "1")))
    return torch
