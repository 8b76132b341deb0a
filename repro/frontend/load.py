"""Reading a model: bytes to a `ModelProto`, with limits. No checker and no shape inference of onnx decides here."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import FunctionProto, ModelProto, OperatorSetIdProto, TensorProto

from repro.errors import ReproError
from repro.frontend.limits import (
    MODEL_BYTES,
    NESTING,
    NEWEST_OPSET,
    OLDEST_OPSET,
    TOTAL_NODES,
    call_key,
    domain_of,
)
from repro.frontend.scope import Body
from repro.frontend.tensors import read_array
from repro.ir.types import Array, DType

FunctionKey = tuple[str, str, str]
"""Domain, name, overload."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A parsed model.

    `folder` is where its external data lies, None for a model without files. `functions` are its local
    functions; `expanded_nodes` counts its nodes with every call of them expanded.
    """

    proto: ModelProto
    folder: Path | None
    name: str
    opsets: dict[str, int]
    functions: dict[FunctionKey, FunctionProto]
    expanded_nodes: int

    def tensor(self, tensor: TensorProto, where: str | None = None) -> tuple[DType, Array]:
        """A tensor's dtype and storage array (read-only, external data mapped); `where` names it in errors."""
        try:
            array, dtype = read_array(tensor, self.folder)
        except ReproError as error:
            error.node = error.node or where or tensor.name
            raise
        return dtype, array

    def read(self, tensor: TensorProto) -> memoryview:
        """A tensor's raw little-endian bytes."""
        _, array = self.tensor(tensor)
        return memoryview(array.reshape(-1).view("u1")) if array.size else memoryview(b"")


def load_model(source: str | Path | ModelProto, folder: Path | None = None) -> LoadedModel:
    """Parse a model file, or take a parsed model (its external data in `folder`). Raises ReproError if it is none."""
    if isinstance(source, ModelProto):
        return _loaded(source, folder, source.graph.name or "model", "the model")
    path = Path(source)
    model = ModelProto()
    try:
        model.ParseFromString(_read(path))
    except DecodeError:
        raise _not_onnx(f"'{path.name}'", "bytes that do not parse: not ONNX, cut short, or nested too deep") from None
    return _loaded(model, folder or path.parent, path.stem, f"'{path.name}'")


def _loaded(model: ModelProto, folder: Path | None, name: str, what: str) -> LoadedModel:
    if not model.HasField("graph") or model.ir_version < 1:
        raise _not_onnx(what, "no graph" if model.ir_version >= 1 else "no IR version")
    if not model.graph.output:
        raise _not_onnx(what, "a graph without outputs")
    functions = _functions(model)
    body = Body.of_graph(model.graph)
    return LoadedModel(model, folder, name, opsets_of(model.opset_import), functions, _Sizes(functions).of(body))


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ReproError("the model is not a file", found=str(path), expected="an .onnx file")
        if status.st_size > MODEL_BYTES:
            raise ReproError(
                "the model file is too large",
                found=f"{status.st_size} bytes",
                expected=f"at most {MODEL_BYTES} bytes",
                next="save the weights as external data",
            )
        return path.read_bytes()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ReproError("the model cannot be read", found=f"{path}: {reason}", expected="an .onnx file") from None


def _not_onnx(what: str, found: str) -> ReproError:
    return ReproError(
        f"{what} is not an ONNX model", found=found, expected="an ONNX ModelProto", next="export the model again"
    )


# ── opsets and functions ────────────────────────────────────────────────────────────────────────────


def opsets_of(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Versions by domain. One domain in two versions is an error."""
    found: dict[str, int] = {}
    for item in imports:
        domain, version = domain_of(item.domain), int(item.version)
        if found.setdefault(domain, version) != version:
            raise ReproError(
                f"the operator set '{domain or 'ai.onnx'}' is imported twice",
                found=f"versions {found[domain]} and {version}",
                expected="one version",
            )
    return found


def function_opsets(function: FunctionProto) -> dict[str, int]:
    """The versions that a local function is written in."""
    return opsets_of(function.opset_import)


def check_opset(domain: str, version: int, op: str, node: str) -> None:
    """Refuse a version of the default operator set that is not understood."""
    if domain == "" and not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise ReproError(
            "the opset version is not supported",
            op,
            node,
            found=f"opset {version}",
            expected=f"opset {OLDEST_OPSET} to {NEWEST_OPSET}",
            next="convert the model with onnx.version_converter",
        )


def _functions(model: ModelProto) -> dict[FunctionKey, FunctionProto]:
    found: dict[FunctionKey, FunctionProto] = {}
    for function in model.functions:
        key = (domain_of(function.domain), function.name, function.overload)
        if key in found:
            raise ReproError(f"the local function '{function.name}' is defined twice", expected="one definition")
        found[key] = function
    return found


class _Sizes:
    """Node counts with calls expanded, by adding up: never by expanding."""

    def __init__(self, functions: dict[FunctionKey, FunctionProto]) -> None:
        self._functions = functions
        self._known: dict[FunctionKey, int] = {}
        self._open: list[FunctionKey] = []

    def of(self, body: Body) -> int:
        total = 0
        for index, node in enumerate(body.nodes):
            key = call_key(node)
            total += self._function(key) if key in self._functions else 1
            total += sum(self.of(child) for child in body.children(index))
            if total > TOTAL_NODES:
                raise ReproError(
                    "the model has too many nodes",
                    node.op_type,
                    node.name,
                    found=f"more than {TOTAL_NODES} nodes with local functions expanded",
                    expected=f"at most {TOTAL_NODES} nodes",
                )
        return total

    def _function(self, key: FunctionKey) -> int:
        if key in self._known:
            return self._known[key]
        if key in self._open:
            chain = " → ".join(name for _, name, _ in (*self._open[self._open.index(key) :], key))
            raise ReproError("a local function calls itself", found=chain, expected="functions without recursion")
        if len(self._open) >= NESTING:
            raise ReproError(
                "local functions are nested too deep", found=f"more than {NESTING} levels", expected=f"at most {NESTING}"
            )
        self._open.append(key)
        self._known[key] = self.of(Body.of_function(self._functions[key]))
        self._open.pop()
        return self._known[key]
