"""Reading a model: bytes to a `ModelProto`, with limits. No checker and no shape inference of onnx decides here."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto

from repro.errors import ReproError
from repro.frontend.limits import MODEL_BYTES
from repro.frontend.tensors import read_array
from repro.ir.types import Array, DType


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A parsed model; `folder` is where its external data lies, None for a model without files."""

    model: ModelProto
    folder: Path | None
    name: str

    def array(self, tensor: TensorProto) -> tuple[Array, DType]:
        """A tensor's storage array (read-only, external data mapped) and dtype."""
        return read_array(tensor, self.folder)

    def tensor(self, tensor: TensorProto, where: str) -> tuple[DType, Array]:
        """A tensor that stands at `where` in the model: its dtype and storage array."""
        try:
            array, dtype = self.array(tensor)
        except ReproError as error:
            raise ReproError(error.what, error.op, error.node or where, error.found, error.expected, error.next) from None
        return dtype, array

    def read(self, tensor: TensorProto) -> memoryview:
        """A tensor's raw little-endian bytes."""
        array, _ = self.array(tensor)
        return memoryview(array.reshape(-1).view("u1")) if array.size else memoryview(b"")


def load_model(source: str | Path | ModelProto) -> LoadedModel:
    """Parse a model file, or take a parsed model. Raises ReproError if it is none."""
    if isinstance(source, ModelProto):
        _check(source, "the model")
        return LoadedModel(source, None, source.graph.name or "model")
    path = Path(source)
    model = ModelProto()
    try:
        model.ParseFromString(_read(path))
    except DecodeError:
        raise _not_onnx(f"'{path.name}'", "bytes that do not parse: not ONNX, or cut short") from None
    _check(model, f"'{path.name}'")
    return LoadedModel(model, path.parent, path.stem)


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


def _check(model: ModelProto, what: str) -> None:
    """What any ONNX model has; bytes of another kind may well parse into an empty message."""
    if not model.HasField("graph") or model.ir_version < 1:
        raise _not_onnx(what, "no graph" if model.ir_version >= 1 else "no IR version")
    if not model.graph.output:
        raise _not_onnx(what, "a graph without outputs")


def _not_onnx(what: str, found: str) -> ReproError:
    return ReproError(
        f"{what} is not an ONNX model", found=found, expected="an ONNX ModelProto", next="export the model again"
    )
