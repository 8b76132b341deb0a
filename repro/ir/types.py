"""Element types and tensor types. A type knows its bits, its storage and its NumPy face, nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Kind(Enum):
    BOOL = "bool"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"


@dataclass(frozen=True)
class DType:
    """An element type.

    `storage` is the NumPy type of the raw elements inside repro: f16, bf16 and f8 are held as unsigned
    integers of their width, because inside a program they are only moved and converted (contract, rule 3).
    `face` is the NumPy type that users pass in and get out.
    """

    name: str
    kind: Kind
    bits: int
    storage: np.dtype[Any]
    face: np.dtype[Any]

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_signed(self) -> bool:
        return self.kind is Kind.SIGNED

    @property
    def computes(self) -> bool:
        """Whether arithmetic is defined on it; the narrow floats compute in f32 (rule 3)."""
        return not self.is_float or self.bits >= 32

    def __repr__(self) -> str:
        return self.name


def _dtype(name: str, kind: Kind, bits: int, face: Any, storage: Any = None) -> DType:
    return DType(name, kind, bits, np.dtype(storage or face), np.dtype(face))


BOOL = _dtype("bool", Kind.BOOL, 8, np.bool_)
I8 = _dtype("i8", Kind.SIGNED, 8, np.int8)
I16 = _dtype("i16", Kind.SIGNED, 16, np.int16)
I32 = _dtype("i32", Kind.SIGNED, 32, np.int32)
I64 = _dtype("i64", Kind.SIGNED, 64, np.int64)
U8 = _dtype("u8", Kind.UNSIGNED, 8, np.uint8)
U16 = _dtype("u16", Kind.UNSIGNED, 16, np.uint16)
U32 = _dtype("u32", Kind.UNSIGNED, 32, np.uint32)
U64 = _dtype("u64", Kind.UNSIGNED, 64, np.uint64)
F16 = _dtype("f16", Kind.FLOAT, 16, np.float16, np.uint16)
BF16 = _dtype("bf16", Kind.FLOAT, 16, ml_dtypes.bfloat16, np.uint16)
F32 = _dtype("f32", Kind.FLOAT, 32, np.float32)
F64 = _dtype("f64", Kind.FLOAT, 64, np.float64)
F8E4M3FN = _dtype("f8e4m3fn", Kind.FLOAT, 8, ml_dtypes.float8_e4m3fn, np.uint8)
F8E4M3FNUZ = _dtype("f8e4m3fnuz", Kind.FLOAT, 8, ml_dtypes.float8_e4m3fnuz, np.uint8)
F8E5M2 = _dtype("f8e5m2", Kind.FLOAT, 8, ml_dtypes.float8_e5m2, np.uint8)
F8E5M2FNUZ = _dtype("f8e5m2fnuz", Kind.FLOAT, 8, ml_dtypes.float8_e5m2fnuz, np.uint8)

DTYPES: tuple[DType, ...] = (
    BOOL, I8, I16, I32, I64, U8, U16, U32, U64,
    F16, BF16, F32, F64, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ,
)  # fmt: skip
BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in DTYPES}

CANONICAL_NAN: dict[DType, int] = {
    F16: 0x7E00,
    BF16: 0x7FC0,
    F32: 0x7FC00000,
    F64: 0x7FF8000000000000,
}
"""The NaN that outputs, hashes and bit-inspecting operands carry (rule 4)."""


@dataclass(frozen=True)
class TensorType:
    """A dense tensor: an element type and fixed extents, row-major."""

    dtype: DType
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(extent < 0 for extent in self.shape):
            raise ValueError(f"negative extent in {self.shape}")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.bytes

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@lru_cache(maxsize=4096)  # a session asks for the types of what it takes and gives in every run
def parse_type(text: str) -> TensorType:
    """The inverse of `str(TensorType)`: `f32[2,3]`."""
    name, _, rest = text.partition("[")
    extents = rest.removesuffix("]")
    return TensorType(BY_NAME[name], tuple(int(part) for part in extents.split(",") if part))


def _is_both(array: Array, dtype: DType) -> bool:
    """Whether an array is what users see and what is stored: each conversion takes a good part of a small run."""
    return type(array) is np.ndarray and array.dtype == dtype.face == dtype.storage and array.flags.c_contiguous


def to_storage(array: Array, dtype: DType) -> Array:
    """User array to storage array: same bits, contiguous, native order. A bool is a byte of 0 or 1, whatever byte
    a view of other memory has for true."""
    if dtype is not BOOL and _is_both(array, dtype):
        return array
    native = np.ascontiguousarray(array, dtype=dtype.face)
    if dtype is BOOL and native.size and native.view(np.uint8).max() > 1:
        native = native.view(np.uint8) != 0
    return native.reshape(np.shape(array)).view(dtype.storage)


def to_face(array: Array, dtype: DType) -> Array:
    """Storage array to the array that a user sees: same bits."""
    if _is_both(array, dtype):
        return array
    return np.ascontiguousarray(array).reshape(np.shape(array)).view(dtype.face)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a dense row-major tensor."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
