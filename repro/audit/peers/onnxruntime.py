"""ONNX Runtime: its optimization levels, threads and execution providers.

What a level makes of a model is a model again: the session saves it, with fused operators and, at `all`, with
convolutions in blocks of channels. Run with all optimizations off, the saved model gave the bits of the session that
saved it on every model tried, with and without its values shown; a worker checks that each time (`Capture.faithful`).
"""

from __future__ import annotations

import ctypes
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper
from onnx.external_data_helper import load_external_data_for_tensor

from repro.artifact.canonical import Json
from repro.audit.peers import cost, instruction_sets
from repro.audit.peers.onnxruntime_adders import Sessions, adders
from repro.audit.peers.onnxruntime_blocks import DOMAIN, FILLED, REORDERINGS, shown_in_full
from repro.audit.peers.peer import Adder, PeerError
from repro.audit.records import Executor, Outcome
from repro.ir.types import Array

LEVELS = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
CPU = "CPUExecutionProvider"
REMOTE = frozenset({"AzureExecutionProvider"})
"""Providers that compute elsewhere."""

EMULATED_PRODUCTS = 2_000_000_000
"""Products that a run under QEMU may add up: some ten seconds of it."""

PROTOBUF_BYTES = 2_000_000_000
"""A larger model goes through files: protobuf messages end at 2 GiB."""

_NARROW = {
    "tensor(bfloat16)": ml_dtypes.bfloat16,
    "tensor(float8e4m3fn)": ml_dtypes.float8_e4m3fn,
    "tensor(float8e4m3fnuz)": ml_dtypes.float8_e4m3fnuz,
    "tensor(float8e5m2)": ml_dtypes.float8_e5m2,
    "tensor(float8e5m2fnuz)": ml_dtypes.float8_e5m2fnuz,
}
"""Types that its Python face hands over as memory only."""

_NO_NUMPY_TYPE = ("tensor(int4)", "tensor(uint4)", "tensor(int2)", "tensor(uint2)", "tensor(float4e2m1)")

_REFUSALS = ("is not a registered function/op", "Unsupported model IR version", "till opset")
"""Words of its general error where it does not know the operators of a model."""

_NO_MEMORY = ("Failed to allocate memory", "bad_alloc", "bad allocation")


class OnnxRuntime:
    """Executors `onnxruntime[level=…,threads=…]`, with `provider=` one other than the CPU's, `cpu=` an emulated one."""

    family = "onnxruntime"

    def __init__(self) -> None:
        self._fused: dict[str, str] = {}

    def variants(self) -> tuple[Executor, ...]:
        plain = [_executor(level=level, threads=threads) for level in LEVELS for threads in ("1", "2")]
        others = [_executor(level="all", threads="1", provider=_short(name)) for name in _other_providers()]
        return (*plain, *others)

    def named(self) -> tuple[Executor, ...]:
        many = [_executor(level=level, threads="4") for level in ("disable", "all")]
        emulated = [
            _executor(level=level, threads="1", cpu=cpu)
            for cpu in instruction_sets.EMULATED_CPUS
            for level in ("disable", "all")
        ]
        return (*many, *emulated)

    def versions(self) -> Mapping[str, Json]:
        runtime = _runtime()
        return {
            "onnxruntime": runtime.__version__,
            "build": runtime.get_build_info(),
            "providers": list(runtime.get_available_providers()),
            "numpy": metadata.version("numpy"),
        }

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        self._fused = {}
        if executor.option("level") == "disable":
            return model
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / "optimized.onnx"
            _session(model, executor, saved_to=saved)
            found = shown_in_full(model, _read_saved(saved))
        self._fused = fused_nodes(model, found)
        return found

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        _check_cost(model, executor)
        session = _session(model, executor, level="disable" if lowered else "")
        names = [item.name for item in session.get_outputs()]
        try:
            given = {name: _value(array) for name, array in inputs.items()}
            found = session.run_with_ort_values(names, given)
        except Exception as error:
            raise _failure(error) from error
        arrays = {name: _array(value) for name, value in zip(names, found, strict=True)}
        return {name: array for name, array in arrays.items() if array is not None}

    def implementations(self, model: ModelProto) -> Mapping[str, str]:
        """Of the model that was lowered last: what its fused nodes run as."""
        return self._fused

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        return adders(Sessions(lambda model: _session(model, executor)))


# ── executors ───────────────────────────────────────────────────────────────────────────────────────


def _executor(**options: str) -> Executor:
    if "cpu" not in options:
        return Executor(OnnxRuntime.family, tuple(options.items()))
    environment = instruction_sets.emulated_environment(options["cpu"])
    return Executor(OnnxRuntime.family, tuple(options.items()), environment, instruction_sets.emulation(options["cpu"]))


def _short(provider: str) -> str:
    return provider.removesuffix("ExecutionProvider")


def usable_providers() -> list[str]:
    """The execution providers that can be made here, the CPU's own and remote ones left out. Imports the runtime."""
    runtime = _runtime()
    node = helper.make_node("Identity", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    model = helper.make_model(
        helper.make_graph([node], "identity", [x], [y]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    found: list[str] = []
    for provider in runtime.get_available_providers():
        if provider == CPU or provider in REMOTE:
            continue
        try:
            session = runtime.InferenceSession(model.SerializeToString(), options, [provider])
        except Exception:  # noqa: BLE001 - a provider that cannot be made is not here, whatever it says
            continue
        if provider in session.get_providers():
            found.append(provider)
    return found


@cache
def _other_providers() -> tuple[str, ...]:
    """`usable_providers`, asked of a process of its own."""
    asked = (
        f"import json, sys; from {__name__} import usable_providers; sys.stdout.write(json.dumps(usable_providers()))"
    )
    try:
        answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60, check=True)
        return tuple(json.loads(answer.stdout))
    except (subprocess.SubprocessError, OSError, ValueError):
        return ()


def _check_cost(model: ModelProto, executor: Executor) -> None:
    """Raises PeerError if the run would take too long."""
    if not executor.emulator:
        return
    products = cost.multiply_adds(model)
    if products > EMULATED_PRODUCTS:
        reason = f"too slow under {executor.emulator[0]}: {products / 1e9:.1f} billion products, at most"
        raise PeerError(Outcome.SKIPPED, f"{reason} {EMULATED_PRODUCTS / 1e9:.0f} billion")


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise PeerError(Outcome.MISSING, f"onnxruntime does not import: {error}") from error
    return onnxruntime


def _session(model: ModelProto, executor: Executor, level: str = "", saved_to: Path | None = None) -> Any:
    """A session of the executor's settings. Raises PeerError."""
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(
        runtime.GraphOptimizationLevel, LEVELS[level or executor.option("level", "all")]
    )
    options.intra_op_num_threads = int(executor.option("threads", "1"))
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if saved_to is not None:
        options.optimized_model_filepath = str(saved_to)
        if model.ByteSize() > PROTOBUF_BYTES // 2:  # folding may make it larger
            options.add_session_config_entry(
                "session.optimized_model_external_initializers_file_name", saved_to.with_suffix(".data").name
            )
    try:
        with _source(model) as source:
            return runtime.InferenceSession(source, options, _providers(executor))
    except Exception as error:
        raise _failure(error) from error


def _read_saved(path: Path) -> ModelProto:
    """The model that a session saved; external data that it did not save with it stays where it was."""
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        if location and (path.parent / location).is_file():
            load_external_data_for_tensor(tensor, str(path.parent))
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
    return model


def _providers(executor: Executor) -> list[str]:
    other = executor.option("provider")
    return [f"{other}ExecutionProvider", CPU] if other else [CPU]


@contextmanager
def _source(model: ModelProto) -> Generator[bytes | str]:
    """The model's bytes, or, where it is too large for a message, its path."""
    if model.ByteSize() <= PROTOBUF_BYTES:
        yield model.SerializeToString()
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        copy = ModelProto()
        copy.CopyFrom(model)  # saving moves the tensors out of the message
        onnx.save(copy, path, save_as_external_data=True)
        yield path


def _failure(error: Exception) -> PeerError:
    """How a run ended, in the first line of its own message."""
    if isinstance(error, PeerError):
        return error
    message = (str(error).splitlines() or [type(error).__name__])[0][:400]
    kind = type(error).__name__
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return PeerError(Outcome.MEMORY, message or "no memory left")
    refused = kind in ("NotImplemented", "InvalidGraph") or any(words in message for words in _REFUSALS)
    return PeerError(Outcome.REFUSED if refused else Outcome.FAILED, message)


# ── tensors ─────────────────────────────────────────────────────────────────────────────────────────


def _value(array: Array) -> Any:
    """An array as the runtime's own value."""
    runtime = _runtime()
    whole = np.ascontiguousarray(array).reshape(np.shape(array))
    if whole.dtype.name not in _narrow_names():
        return runtime.OrtValue.ortvalue_from_numpy(whole)
    element = helper.np_dtype_to_tensor_dtype(whole.dtype)
    bits = whole.view(np.uint16 if whole.dtype.itemsize == 2 else np.uint8)
    return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, element)


@cache
def _narrow_names() -> frozenset[str]:
    return frozenset(np.dtype(narrow).name for narrow in _NARROW.values())


def _array(value: Any) -> Array | None:
    """A tensor; None for what has no NumPy type: sequences, absent optionals, types of less than a byte."""
    if not value.has_value() or not value.is_tensor() or value.data_type() in _NO_NUMPY_TYPE:
        return None
    narrow = _NARROW.get(value.data_type())
    if narrow is None:
        return value.numpy()
    shape: Sequence[int] = value.shape()
    size = math.prod(shape) * np.dtype(narrow).itemsize
    memory = bytes((ctypes.c_char * size).from_address(value.data_ptr())) if size else b""
    return np.frombuffer(memory, narrow).reshape(shape)


# ── what was fused ──────────────────────────────────────────────────────────────────────────────────


def fused_nodes(model: ModelProto, lowered: ModelProto) -> dict[str, str]:
    """By name of each node of the model that does not run as it is: the operators of the lowered model that make its
    result, or the next results behind it which both models have. Constants and reorderings compute nothing."""
    own, made = _makers(model), _makers(lowered)
    folded = {item.name for item in lowered.graph.initializer}
    found: dict[str, str] = {}
    for name in made.keys() & own.keys():
        before = _group(own[name], own, made.keys() | folded)
        after = [operator for node in _group(made[name], made, own.keys()) if (operator := _operator(node))]
        if [_operator(node) for node in before] != after:
            operators = ", ".join(dict.fromkeys(reversed(after)))
            found.update({node.name: operators for node in before if node.op_type != "Constant"})
    return found


def _makers(model: ModelProto) -> dict[str, onnx.NodeProto]:
    return {name: node for node in model.graph.node for name in node.output if name}


def _operator(node: onnx.NodeProto) -> str:
    """Its name with its domain; nothing for what only moves elements into blocks and back."""
    if (node.domain == DOMAIN and node.op_type in REORDERINGS) or node.name.endswith(FILLED):
        return ""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _group(last: onnx.NodeProto, own: Mapping[str, onnx.NodeProto], other: Set[str]) -> list[onnx.NodeProto]:
    """A node and those before it, up to results that the other model has too; the last first."""
    found, waiting = [last], [last]
    while waiting:
        names = [name for name in waiting.pop().input if name in own and name not in other]
        for node in (own[name] for name in names):
            if not any(node is each for each in found):
                found.append(node)
                waiting.append(node)
    return found
