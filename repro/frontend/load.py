"""Reading a model: bytes to a checked ModelProto. Nothing here trusts the file, or asks onnx's checker."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError

from repro.errors import ReproError
from repro.frontend.limits import MAX_MODEL_BYTES, FunctionKey, check_nesting, domain_of, function_key
from repro.frontend.tensors import read_array
from repro.ir.types import Array, DType

OLDEST_OPSET = 7
NEWEST_OPSET = int(onnx.defs.onnx_opset_version())
NEWEST_IR = int(onnx.IR_VERSION)
_OTHER_FORMATS = {
    b"PK\x03\x04": "a zip file",
    b"\x1f\x8b": "a gzip file",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUM": "a NumPy array",
    b"\x80\x02": "a Python pickle",
}
_UNREADABLE = "bytes that do not parse as ONNX: another format, truncated, or nested beyond protobuf's limit"


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that parsed and passed the checks of nesting. `content` is the file as it was read.

    `folder` is where its external data lies, None for a model that came without files.
    """

    proto: onnx.ModelProto
    content: bytes
    path: Path | None
    folder: Path | None
    opsets: dict[str, int]
    functions: dict[FunctionKey, onnx.FunctionProto]
    expanded_nodes: int

    @property
    def name(self) -> str:
        return self.path.stem if self.path else self.proto.graph.name or "model"

    def tensor(self, tensor: onnx.TensorProto, where: str = "") -> tuple[DType, Array]:
        """Element type and storage array (read-only) of a tensor, its external data mapped."""
        try:
            array, dtype = read_array(tensor, self.folder)
        except ReproError as error:
            node = error.node or where or tensor.name
            raise ReproError(error.what, error.op, node, error.found, error.expected, error.next) from None
        return dtype, array


def load_model(source: str | Path | bytes | onnx.ModelProto, folder: Path | None = None) -> LoadedModel:
    """A model from a path, its bytes, or a ModelProto; external data is looked up in `folder`.

    Raises ReproError for anything that is not an ONNX model, and for nesting over the stated limits.
    """
    path: Path | None = None
    if isinstance(source, onnx.ModelProto):
        proto, content = source, _serialise(source)
    else:
        if not isinstance(source, bytes):
            path = Path(source)
            folder = folder or path.parent
            source = _read(path)
        content = source
        proto = _parse(content, f"'{path}'" if path else "the given bytes")
    _check_header(proto, f"'{path}'" if path else "the given model")
    nodes = check_nesting(proto)
    return LoadedModel(proto, content, path, folder, _opsets(proto.opset_import), _functions(proto), nodes)


def _serialise(proto: onnx.ModelProto) -> bytes:
    try:
        return proto.SerializeToString(deterministic=True)
    except (ValueError, EncodeError) as error:  # over 2 GiB, or nested beyond protobuf's own limit
        raise ReproError("the model cannot be serialised", found=str(error), expected="less than 2 GiB") from None


def _read(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe must not block here
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ReproError("the model is not a file", found=f"'{path}'", expected="an .onnx file")
            _check_file_size(status.st_size)
            content = file.read(status.st_size + 1)  # memory for the file, not for the largest there may be
            _check_file_size(len(content))
            return content
    except OSError as error:
        found = f"'{path}': {error.strerror}"
        raise ReproError("the model cannot be read", found=found, expected="a readable .onnx file") from None


def _check_file_size(size: int) -> None:
    if size > MAX_MODEL_BYTES:
        raise ReproError(
            "the model file is over the size limit",
            found=f"{size} bytes",
            expected=f"at most {MAX_MODEL_BYTES} bytes",
            next="keep the weights in external data",
        )


def _parse(content: bytes, where: str) -> onnx.ModelProto:
    if not content:
        raise _not_onnx(where, "an empty file")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError:
        form = next((name for magic, name in _OTHER_FORMATS.items() if content.startswith(magic)), None)
        raise _not_onnx(where, form or _UNREADABLE) from None
    return proto


def _not_onnx(where: str, found: str) -> ReproError:
    return ReproError(
        "this is not a readable ONNX model",
        found=f"{where}: {found}",
        expected="a ModelProto as ONNX defines it",
        next="check that the file is complete and is the .onnx file itself",
    )


def _check_header(proto: onnx.ModelProto, where: str) -> None:
    if not proto.HasField("graph"):
        raise _not_onnx(where, "no graph: another format, or truncated")
    if not 1 <= proto.ir_version <= NEWEST_IR:
        raise ReproError(
            "the model's IR version is not supported",
            found=f"IR version {proto.ir_version}",
            expected=f"1 to {NEWEST_IR}",
            next="export with an older IR version, or update repro",
        )
    if proto.graph.node and not proto.opset_import:
        raise ReproError(
            "the model imports no opset",
            found=f"{where}: opset_import is empty (a truncated file looks like this)",
            expected=f"an opset from {OLDEST_OPSET} to {NEWEST_OPSET}",
        )


def _opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for item in imports:
        domain, version = domain_of(item.domain), int(item.version)
        if opsets.setdefault(domain, version) != version:
            raise ReproError(
                "one operator domain is imported at two versions",
                found=f"'{domain or 'ai.onnx'}' at {opsets[domain]} and {version}",
                expected="one version per domain",
            )
    return opsets


def _functions(proto: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    functions: dict[FunctionKey, onnx.FunctionProto] = {}
    for item in proto.functions:
        key = function_key(item)
        if key in functions:
            raise ReproError("a local function is defined twice", op=item.name, found=f"domain '{item.domain}'")
        functions[key] = item
    return functions


def function_opsets(function: onnx.FunctionProto) -> dict[str, int]:
    """The opsets that a function's own nodes mean."""
    return _opsets(function.opset_import)


def check_opset(domain: str, version: int, op: str, node: str) -> None:
    """Refuses a default-domain opset outside the supported range."""
    if domain == "" and not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise ReproError(
            "the model's opset is not supported",
            op,
            node,
            found=f"opset {version}",
            expected=f"{OLDEST_OPSET} to {NEWEST_OPSET}",
            next="convert the model with onnx.version_converter",
        )
