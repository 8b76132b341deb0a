"""Arrays to tensors and back, same bits. bf16 and f8, which NumPy itself does not know, go as integers."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor

from repro.audit.peers.torch_ops.call import Unsupported
from repro.ir.types import Array

_AS_INTEGERS: dict[np.dtype[np.generic], tuple[torch.dtype, type[np.generic]]] = {
    np.dtype(ml_dtypes.bfloat16): (torch.bfloat16, np.int16),
    np.dtype(ml_dtypes.float8_e4m3fn): (torch.float8_e4m3fn, np.uint8),
    np.dtype(ml_dtypes.float8_e4m3fnuz): (torch.float8_e4m3fnuz, np.uint8),
    np.dtype(ml_dtypes.float8_e5m2): (torch.float8_e5m2, np.uint8),
    np.dtype(ml_dtypes.float8_e5m2fnuz): (torch.float8_e5m2fnuz, np.uint8),
}
_FACES = {dtype: (face, integer) for face, (dtype, integer) in _AS_INTEGERS.items()}
_PLAIN = {np.dtype(kind) for kind in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")}

ELEMENTS: dict[int, torch.dtype] = {
    TensorProto.BOOL: torch.bool,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.UINT8: torch.uint8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.UINT32: torch.uint32,
    TensorProto.UINT64: torch.uint64,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
}
"""ONNX element type -> PyTorch's."""


def element(kind: int) -> torch.dtype:
    """PyTorch's element type. Raises Unsupported for one that it lacks, or converts to by rules of its own (f8)."""
    if kind not in ELEMENTS:
        raise Unsupported(f"element type {TensorProto.DataType.Name(kind)}")
    return ELEMENTS[kind]


def to_torch(array: Array) -> Tensor:
    """A tensor of its own memory. Raises Unsupported for an element type that PyTorch lacks."""
    native = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    if native.dtype in _AS_INTEGERS:
        dtype, integer = _AS_INTEGERS[native.dtype]
        return torch.from_numpy(native.view(integer)).view(dtype)
    if native.dtype not in _PLAIN:
        raise Unsupported(f"element type {native.dtype}")
    return torch.from_numpy(native)


def to_numpy(tensor: Tensor) -> Array:
    """A row-major array."""
    dense = tensor.detach().contiguous()
    if dense.dtype in _FACES:
        face, integer = _FACES[dense.dtype]
        return dense.view(torch.int16 if integer is np.int16 else torch.uint8).numpy().view(face)
    return dense.numpy()
