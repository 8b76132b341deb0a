"""onnx's own reference evaluator: each operator a few lines of NumPy, its matrix products NumPy's BLAS.

Its bits are NumPy's, so its variants are NumPy's: the OpenBLAS kernels of other CPUs, threads, and NumPy's own loops
with fewer instruction sets. It stands for what NumPy code gives on this machine and on others.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.external_data_helper import load_external_data_for_model

from repro.artifact.canonical import Json
from repro.audit.peers import cost, instruction_sets
from repro.audit.peers.peer import Adder, PeerError
from repro.audit.records import Executor, Outcome
from repro.ir.types import Array

PLAIN_SECONDS = 10
VARIANT_SECONDS = 4
"""What one run may take by `cost`, for the plainest executor and for each other. A run is made four times or so."""

EMULATED_SLOWDOWN = 20
"""How much longer QEMU takes for such a run: measured 8 to 30."""

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
_PLAIN = (("threads", "1"),)


class OnnxReference:
    """Executors `onnx-reference[threads=…]`, with `blas=` an OpenBLAS core, `simd=` the highest group of instructions
    that NumPy's loops may use, `cpu=` an emulated one."""

    family = "onnx-reference"

    def variants(self) -> tuple[Executor, ...]:
        others = (*_blas_options()[:1], *_simd_options()[:1])
        return (_executor(_PLAIN), _executor((("threads", "2"),)), *(_executor((*_PLAIN, each)) for each in others))

    def named(self) -> tuple[Executor, ...]:
        emulated = [("cpu", cpu) for cpu in instruction_sets.EMULATED_CPUS]
        others = (*_blas_options()[1:], *_simd_options()[1:], *emulated)
        return tuple(_executor((*_PLAIN, each)) for each in others)

    def versions(self) -> Mapping[str, Json]:
        _evaluator_class()
        baseline, found = instruction_sets.simd_extensions()
        return {
            "onnx": metadata.version("onnx"),
            "numpy": np.__version__,
            "blas": _blas(),
            "simd": [baseline, *found],
        }

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        return model

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        _check_settings(executor)
        _check_cost(model, executor)
        names = [item.name for item in model.graph.output]
        try:
            with np.errstate(all="ignore"):
                found = _evaluator_class()(_whole(model)).run(names, dict(inputs))
        except MemoryError as error:
            raise PeerError(Outcome.MEMORY, "onnx's reference evaluator had no memory left") from error
        except Exception as error:  # its operators are plain NumPy code, which raises anything
            raise PeerError(*_failure(error)) from error
        return {name: value for name, value in zip(names, found, strict=True) if isinstance(value, np.ndarray)}

    def implementations(self, model: ModelProto) -> Mapping[str, str]:
        return {}

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        _check_settings(executor)
        return {"sum": _sum, "sum of columns": _sum_of_columns, "dot": _dot, "matmul": _matmul}


# ── executors ───────────────────────────────────────────────────────────────────────────────────────


def _executor(options: tuple[tuple[str, str], ...]) -> Executor:
    settings = dict(options)
    environment = [(name, settings["threads"]) for name in _THREAD_VARIABLES]
    if "blas" in settings:
        environment.append(("OPENBLAS_CORETYPE", settings["blas"]))
    if "simd" in settings:
        environment.append(("NPY_DISABLE_CPU_FEATURES", dict(instruction_sets.simd_levels())[settings["simd"]]))
    if "cpu" not in settings:
        return Executor(OnnxReference.family, options, tuple(environment))
    environment += instruction_sets.emulated_environment(settings["cpu"])
    return Executor(OnnxReference.family, options, tuple(environment), instruction_sets.emulation(settings["cpu"]))


def _blas_options() -> tuple[tuple[str, str], ...]:
    return tuple(("blas", core.name) for core in instruction_sets.blas_cores())


def _simd_options() -> tuple[tuple[str, str], ...]:
    return tuple(("simd", level) for level, _ in instruction_sets.simd_levels())


def _check_settings(executor: Executor) -> None:
    """Raises PeerError if NumPy did not take the settings that the process started with."""
    asked, core = executor.option("blas"), instruction_sets.blas_core()
    if asked and not instruction_sets.is_core(asked, core):
        raise PeerError(Outcome.MISSING, f"this NumPy's BLAS has no {asked} kernels: it runs {core or 'another BLAS'}")
    level = executor.option("simd")
    baseline, found = instruction_sets.simd_extensions()
    if level and level != (baseline, *found)[-1]:
        raise PeerError(Outcome.MISSING, f"NumPy's loops did not stop at {level}: they use {', '.join(found)}")


def _check_cost(model: ModelProto, executor: Executor) -> None:
    """Raises PeerError if the run would take too long."""
    slowdown = EMULATED_SLOWDOWN if executor.emulator else 1
    seconds = cost.reference_nanoseconds(model) * slowdown / 1e9
    allowed = PLAIN_SECONDS if executor.options == _PLAIN or executor.emulator else VARIANT_SECONDS
    if seconds > allowed:
        raise PeerError(
            Outcome.SKIPPED, f"too slow: about {seconds:.0f} s a run by estimate, at most {allowed} s asked"
        )


# ── the evaluator ───────────────────────────────────────────────────────────────────────────────────


def _evaluator_class() -> type:
    try:
        from onnx.reference import ReferenceEvaluator
    except ImportError as error:
        raise PeerError(Outcome.MISSING, f"onnx's reference evaluator does not import: {error}") from error
    return ReferenceEvaluator


def _whole(model: ModelProto) -> ModelProto:
    """The model with its external data, which lies in the process's own folder: the evaluator takes no other."""
    if not any(item.data_location == TensorProto.EXTERNAL for item in model.graph.initializer):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    load_external_data_for_model(copy, ".")
    return copy


def _blas() -> str:
    """NumPy's BLAS, its version, and the core whose kernels it runs."""
    build: Any = np.show_config(mode="dicts")
    library = build.get("Build Dependencies", {}).get("blas", {})
    core = instruction_sets.blas_core()
    words = (library.get("name", "unknown"), library.get("version", ""), f"{core} kernels" if core else "")
    return " ".join(word for word in words if word)


def _failure(error: Exception) -> tuple[Outcome, str]:
    """How a run ended, and at which node: the evaluator holds it in a variable where it calls it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    nodes = [getattr(frame.f_locals.get("node"), "onnx_node", None) for frame in frames]
    node = next((each for each in nodes if isinstance(each, NodeProto)), None)
    where = f"node '{node.name}' ({node.op_type}): " if node else ""
    message = (str(error).splitlines() or [""])[0]
    outcome = Outcome.REFUSED if isinstance(error, NotImplementedError) else Outcome.FAILED
    return outcome, f"{where}{type(error).__name__}: {message}"


# ── its sums, as its operators make them ────────────────────────────────────────────────────────────

_ROWS, _COLUMNS = 16, 16
"""A matrix product of a layer's kind: neither a vector nor small enough for a kernel of its own."""


@cache
def _operator(name: str) -> Any:
    """The evaluator of a model of one node, of any shapes."""
    attributes: dict[str, Any] = {"keepdims": 0} if name == "ReduceSum" else {}
    second = TensorProto.INT64 if name == "ReduceSum" else TensorProto.FLOAT
    inputs = [("a", TensorProto.FLOAT), ("b", second)]
    graph = helper.make_graph(
        [helper.make_node(name, ["a", "b"], ["y"], **attributes)],
        name,
        [helper.make_tensor_value_info(each, kind, None) for each, kind in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return _evaluator_class()(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def _run_operator(name: str, left: Array, right: Array) -> Array:
    return np.asarray(_operator(name).run(None, {"a": left, "b": right})[0])


def _sum(terms: Array, factors: Array) -> float:
    return float(_run_operator("ReduceSum", terms, np.array([0])))


def _sum_of_columns(terms: Array, factors: Array) -> float:
    columns = np.zeros((terms.size, _COLUMNS), np.float32)
    columns[:, 0] = terms
    return float(_run_operator("ReduceSum", columns, np.array([0]))[0])


def _dot(terms: Array, factors: Array) -> float:
    return float(_run_operator("MatMul", terms[None, :], factors[:, None])[0, 0])


def _matmul(terms: Array, factors: Array) -> float:
    rows, columns = np.zeros((_ROWS, terms.size), np.float32), np.zeros((terms.size, _COLUMNS), np.float32)
    rows[0], columns[:, 0] = terms, factors
    return float(_run_operator("MatMul", rows, columns)[0, 0])
