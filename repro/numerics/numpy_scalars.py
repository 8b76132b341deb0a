"""The meaning of every scalar operation on NumPy storage arrays: the judge of every target.

Only NumPy operations whose bits do not depend on the CPU stand here: + - * / and sqrt (correctly rounded),
roundings to integers, fmod (exact), comparisons and integer work. Callers that evaluate much enter
`host_mode.exact_arithmetic` once around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from repro.ir.scalars import SCALARS
from repro.ir.types import BOOL, CANONICAL_NAN, F32, Array, DType
from repro.numerics.numpy_convert import convert
from repro.numerics.numpy_fma import fma_f32, fma_f64

Meaning = Callable[[DType, Sequence[Array]], Array]
"""Of the operands' element type and the operands."""


def evaluate(op: str, result: DType, operands: Sequence[DType], arrays: Sequence[Array]) -> Array:
    """The operation on storage arrays that broadcast together; storage of `result`."""
    if op == "convert":
        return np.asarray(convert(np.asarray(arrays[0]), operands[0], result))
    if op == "bitcast":
        return _bitcast(np.asarray(arrays[0]), result)
    if op == "select":
        return np.where(arrays[0], arrays[1], arrays[2])
    return np.asarray(_MEANINGS[op](operands[0], [np.asarray(array) for array in arrays]))


def lookup(table: Sequence[int], result: DType, index: Array) -> Array:
    """table[index mod n], the entries given by their bits."""
    entries = np.array(table, np.dtype(f"u{result.bytes}")).view(result.storage)
    return entries[index & index.dtype.type(len(table) - 1)]


def canonical_nan(dtype: DType) -> Array:
    """The canonical NaN as a 0-d storage array."""
    unsigned = np.dtype(f"u{dtype.bytes}")
    return np.array(CANONICAL_NAN[dtype], unsigned).view(dtype.storage)


def canonicalize(array: Array, dtype: DType) -> Array:
    """Every NaN replaced by the canonical one (rule 4); what leaves a program or is hashed."""
    if not dtype.is_float or dtype not in CANONICAL_NAN:
        return array
    if dtype.computes:
        return np.where(array != array, canonical_nan(dtype), array)
    return np.where(np.isnan(convert(array, dtype, F32)), canonical_nan(dtype), array)


def _bitcast(array: Array, result: DType) -> Array:
    if result is BOOL:
        return array.view(np.uint8) != 0
    return array.view(result.storage)


def _division(dtype: DType, arrays: Sequence[Array]) -> Array:
    a, b = arrays
    if dtype.is_float:
        return a / b
    zero, one = dtype.storage.type(0), dtype.storage.type(1)
    if not dtype.is_signed:
        return np.where(b == 0, zero, a // np.where(b == 0, one, b))
    easy = (b == 0) | (b == -1)
    divisor = np.where(easy, one, b)
    quotient = a // divisor
    inexact = quotient * divisor != a
    truncated = quotient + (inexact & ((a < 0) != (divisor < 0))).astype(dtype.storage)
    return np.where(b == 0, zero, np.where(b == -1, zero - a, truncated))


def _remainder(dtype: DType, arrays: Sequence[Array]) -> Array:
    a, b = arrays
    if dtype.is_float:
        return np.fmod(a, b)  # exact, as C's
    easy = b == 0
    if dtype.is_signed:
        easy = easy | (b == -1)  # INT_MIN rem -1 traps on some CPUs
    one = dtype.storage.type(1)
    return np.where(easy, dtype.storage.type(0), np.fmod(a, np.where(easy, one, b)))


def _least(dtype: DType, arrays: Sequence[Array]) -> Array:
    a, b = arrays
    if not dtype.is_float:
        return np.minimum(a, b)
    chosen = np.where((a < b) | ((a == b) & np.signbit(a)), a, b)
    return np.where((a != a) | (b != b), canonical_nan(dtype), chosen)


def _greatest(dtype: DType, arrays: Sequence[Array]) -> Array:
    a, b = arrays
    if not dtype.is_float:
        return np.maximum(a, b)
    chosen = np.where((a > b) | ((a == b) & ~np.signbit(a)), a, b)
    return np.where((a != a) | (b != b), canonical_nan(dtype), chosen)


def _fma(dtype: DType, arrays: Sequence[Array]) -> Array:
    return fma_f32(*arrays) if dtype is F32 else fma_f64(*arrays)


def _negated(dtype: DType, arrays: Sequence[Array]) -> Array:
    return -arrays[0] if dtype.is_float else dtype.storage.type(0) - arrays[0]


def _magnitude(dtype: DType, arrays: Sequence[Array]) -> Array:
    return arrays[0] if not (dtype.is_float or dtype.is_signed) else np.abs(arrays[0])


def _not(dtype: DType, arrays: Sequence[Array]) -> Array:
    return ~arrays[0]


def _shift(left: bool) -> Meaning:
    def meaning(dtype: DType, arrays: Sequence[Array]) -> Array:
        value, amount = arrays
        unsigned = amount.view(np.dtype(f"u{dtype.bytes}"))
        inside = unsigned < dtype.bits
        safe = np.where(inside, amount, dtype.storage.type(0))
        shifted = np.left_shift(value, safe) if left else np.right_shift(value, safe)
        return np.where(inside, shifted, dtype.storage.type(0))

    return meaning


def _unary(function: Callable[[Array], Array]) -> Meaning:
    return lambda _, arrays: function(arrays[0])


def _binary(function: Callable[[Array, Array], Array]) -> Meaning:
    return lambda _, arrays: function(arrays[0], arrays[1])


_MEANINGS: dict[str, Meaning] = {
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "div": _division,
    "rem": _remainder,
    "fma": _fma,
    "sqrt": _unary(np.sqrt),
    "neg": _negated,
    "abs": _magnitude,
    "floor": _unary(np.floor),
    "ceil": _unary(np.ceil),
    "trunc": _unary(np.trunc),
    "round": _unary(np.rint),
    "min": _least,
    "max": _greatest,
    "eq": _binary(np.equal),
    "ne": _binary(np.not_equal),
    "lt": _binary(np.less),
    "le": _binary(np.less_equal),
    "gt": _binary(np.greater),
    "ge": _binary(np.greater_equal),
    "and": _binary(np.bitwise_and),
    "or": _binary(np.bitwise_or),
    "xor": _binary(np.bitwise_xor),
    "not": _not,
    "shl": _shift(left=True),
    "shr": _shift(left=False),
}

assert {*_MEANINGS, "convert", "bitcast", "select"} == set(SCALARS), "a scalar operation without a meaning"
