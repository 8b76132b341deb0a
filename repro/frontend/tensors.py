"""ONNX tensors as storage arrays: element types, inline and external data, each checked before it is read."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from repro.errors import ReproError
from repro.frontend.limits import check_tensor_size
from repro.ir.types import (
    BF16,
    BOOL,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Array,
    DType,
    TensorType,
)

DTYPES: dict[int, DType] = {
    TensorProto.BOOL: BOOL,
    TensorProto.INT8: I8,
    TensorProto.INT16: I16,
    TensorProto.INT32: I32,
    TensorProto.INT64: I64,
    TensorProto.UINT8: U8,
    TensorProto.UINT16: U16,
    TensorProto.UINT32: U32,
    TensorProto.UINT64: U64,
    TensorProto.FLOAT16: F16,
    TensorProto.BFLOAT16: BF16,
    TensorProto.FLOAT: F32,
    TensorProto.DOUBLE: F64,
    TensorProto.FLOAT8E4M3FN: F8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ: F8E4M3FNUZ,
    TensorProto.FLOAT8E5M2: F8E5M2,
    TensorProto.FLOAT8E5M2FNUZ: F8E5M2FNUZ,
}
"""ONNX element types that have a dtype here."""

_FIELDS: dict[DType, str] = {
    F32: "float_data", F64: "double_data", I64: "int64_data", U64: "uint64_data", U32: "uint64_data",
}  # fmt: skip


def dtype_of(code: int, what: str, node: str | None = None) -> DType:
    """The dtype of an ONNX element type; `what` names the thing that has it."""
    found = DTYPES.get(code)
    if found is None:
        known = TensorProto.DataType.values()
        name = TensorProto.DataType.Name(code) if code in known else str(code)
        expected = ", ".join(dtype.name for dtype in DTYPES.values())
        raise ReproError(f"{what} has an element type that is not supported", node=node, found=name, expected=expected)
    return found


def onnx_type(dtype: DType) -> int:
    """The ONNX element type of a dtype."""
    return next(code for code, known in DTYPES.items() if known is dtype)


def onnx_tensor(name: str, dtype: DType, array: Array) -> TensorProto:
    """A tensor of that name from a storage array, its data inside."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return helper.make_tensor(name, onnx_type(dtype), array.shape, little.tobytes(), raw=True)


def type_of(tensor: TensorProto) -> TensorType:
    """Dtype and shape of a tensor, within the limits."""
    what = f"tensor '{tensor.name}'"
    shape = tuple(tensor.dims)
    if min(shape, default=0) < 0:
        raise ReproError(f"{what} has a negative extent", found=str(list(shape)), expected="extents of 0 and up")
    made = TensorType(dtype_of(tensor.data_type, what), shape)
    check_tensor_size(shape, made.dtype.bytes, node=tensor.name)
    return made


def read_array(tensor: TensorProto, folder: Path | None) -> tuple[Array, DType]:
    """The storage array of a tensor (read-only; external data is mapped, not read)."""
    kind = type_of(tensor)
    if tensor.data_location == TensorProto.EXTERNAL:
        data: Any = _external(tensor, kind, folder)
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
    else:
        return _from_fields(tensor, kind), kind.dtype
    if len(data) != kind.nbytes:
        raise _wrong_length(tensor, kind, f"{len(data)} bytes")
    if kind.dtype is BOOL:  # any byte but 0 is true
        return np.frombuffer(data, dtype=np.uint8).reshape(kind.shape) != 0, kind.dtype
    little = kind.dtype.storage.newbyteorder("<")
    return np.frombuffer(data, dtype=little).reshape(kind.shape), kind.dtype


def _wrong_length(tensor: TensorProto, kind: TensorType, found: str) -> ReproError:
    return ReproError(
        f"the data of tensor '{tensor.name}' does not fit its type",
        found=found,
        expected=f"{kind}: {kind.elements} elements, {kind.nbytes} bytes",
        next="export the model again; the file may be damaged",
    )


def _from_fields(tensor: TensorProto, kind: TensorType) -> Array:
    """The typed repeated fields; narrow types stand in int32_data as their bits or values."""
    values = getattr(tensor, _FIELDS.get(kind.dtype, "int32_data"))
    if len(values) != kind.elements:
        raise _wrong_length(tensor, kind, f"{len(values)} elements")
    if kind.dtype.is_float and kind.dtype.bits >= 32:
        return np.array(values, dtype=kind.dtype.storage).reshape(kind.shape)
    wide = np.array(values, dtype=np.uint64 if kind.dtype.bits == 64 and not kind.dtype.is_signed else np.int64)
    return wide.astype(kind.dtype.storage).reshape(kind.shape)


# ── external data ───────────────────────────────────────────────────────────────────────────────────


def _external(tensor: TensorProto, kind: TensorType, folder: Path | None) -> Any:
    """The bytes of a tensor kept in a file beside the model, mapped."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    if folder is None:
        raise _refused(tensor, location, "external data of a model that came without a folder", "a path to the model")
    path = _inside(tensor, folder, location)
    offset, length = _number(tensor, fields, "offset", 0), _number(tensor, fields, "length", kind.nbytes)
    if length != kind.nbytes:
        raise _wrong_length(tensor, kind, f"{length} bytes in '{location}'")
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise _refused(
            tensor, location, "external data cannot be read", "a readable file", str(error.strerror)
        ) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(tensor, location, "external data is not a regular file", "a regular file")
        if offset + length > status.st_size:
            found = f"'{location}' has {status.st_size} bytes"
            raise _refused(tensor, location, "external data is too short", f"at least {offset + length} bytes", found)
        if not length:
            return b""
        page = offset % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(handle, length + page, access=mmap.ACCESS_READ, offset=offset - page)
        return memoryview(mapped)[page:]
    finally:
        os.close(handle)


def _refused(tensor: TensorProto, location: str, what: str, expected: str, found: str | None = None) -> ReproError:
    return ReproError(
        f"{what}: tensor '{tensor.name}'",
        found=found or f"location '{location}'",
        expected=expected,
        next="keep external data as plain files in the folder of the model",
    )


def _number(tensor: TensorProto, fields: dict[str, str], name: str, default: int) -> int:
    text = fields.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _refused(tensor, fields.get("location", ""), f"{name} is no count", "a decimal number", f"'{text[:40]}'")
    return int(text)


def _inside(tensor: TensorProto, folder: Path, location: str) -> Path:
    """The file's path, which no part of leads out of the model's folder: not absolute, no `..`, no link."""
    windows, parts = PureWindowsPath(location), PurePosixPath(location.replace("\\", "/")).parts
    if not parts or "\0" in location:
        raise _refused(tensor, location, "external data has no location", "a file name")
    if PurePosixPath(location).is_absolute() or windows.drive or windows.root:
        raise _refused(tensor, location, "external data at an absolute path", "a path below the folder of the model")
    if ".." in parts:
        raise _refused(tensor, location, "external data above its folder", "a path below the folder of the model")
    path = folder
    for part in PurePosixPath(location).parts:
        path = path / part
        if path.is_symlink():
            raise _refused(tensor, location, "external data behind a link", "a plain file")
    if not path.exists():
        raise _refused(tensor, location, "external data is missing", f"a file '{location}' beside the model")
    return path
