"""Conversions between element types on NumPy storage arrays, each rounded once from the exact value.

Rule 3 (narrow floats), rule 4 (a narrow NaN is canonical), rule 6 (float to integer and to bool).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from repro.ir.types import BOOL, F32, Array, DType
from repro.numerics.narrow_formats import NARROW, NarrowFormat

_U64 = np.uint64
_F64_BIAS = 1023
_F64_MANTISSA = 52


def convert(array: Array, source: DType, target: DType) -> Array:
    """`array` of `source` storage as `target` storage."""
    if source is target:
        return array
    if source in NARROW:
        return convert(_widen(array, source), F32, target) if target is not F32 else _widen(array, source)
    if target is BOOL:
        return array != 0  # a NaN is unequal to 0, so true
    if target in NARROW:
        return _narrow(_to_f64_odd(array, source), target)
    if source.is_float and target.is_integer:
        return _float_to_integer(array, target)
    return array.astype(target.storage)  # exact, wrapping, or rounded to nearest even by the CPU


@cache
def _widening_table(source: DType) -> Array:
    """The f32 value of every code of a narrow format."""
    fmt = NARROW[source]
    codes = np.arange(1 << fmt.width, dtype=np.uint32)
    magnitude = codes & np.uint32((1 << (fmt.width - 1)) - 1)
    values = np.array([fmt.value(int(code)) for code in magnitude[: 1 << (fmt.width - 1)]], np.float64)
    values[fmt.greatest + 1 :] = np.nan
    if fmt.infinity is not None:
        values[fmt.infinity] = np.inf
    table = np.concatenate([values, -values]).astype(np.float32)
    if not fmt.negative_zero:
        table[fmt.nan] = np.nan
    table[np.isnan(table)] = np.nan  # the canonical one, without a sign
    table.flags.writeable = False
    return table


def _widen(array: Array, source: DType) -> Array:
    return _widening_table(source)[array]


def _to_f64_odd(array: Array, source: DType) -> Array:
    """The value in f64, rounded to odd: exact but for integers above 2^53, and safe to round again."""
    if source is BOOL or source.is_float or source.bits <= 32:
        return array.astype(np.float64)
    magnitude = array.view(_U64)
    negative = np.zeros(array.shape, np.bool_)
    if source.is_signed:
        negative = array < 0
        magnitude = np.where(negative, _U64(0) - magnitude, magnitude)
    wide = magnitude >= _U64(1 << 53)
    sticky = (magnitude >> _U64(11)) | ((magnitude & _U64(0x7FF)) != 0).astype(_U64)
    value = np.where(wide, sticky.astype(np.float64) * 2048.0, magnitude.astype(np.float64))
    return np.where(negative, -value, value)


def _narrow(array: Array, target: DType) -> Array:
    """f64 to a narrow format by integer code: to nearest, ties to even, subnormals kept."""
    fmt = NARROW[target]
    bits = np.asarray(array).view(_U64)
    sign = bits >> _U64(63)
    magnitude = bits & _U64((1 << 63) - 1)
    code = _round_magnitude(magnitude, fmt)
    # codes are ordered as values are; what rounds above the greatest (infinity too) overflows
    code = np.where(code > _U64(fmt.greatest), _U64(fmt.overflow), code)
    signed = code | (sign << _U64(fmt.width - 1))
    if not fmt.negative_zero:
        signed = np.where(code == 0, _U64(0), signed)
    nan = magnitude > _U64(0x7FF << _F64_MANTISSA)
    return np.where(nan, _U64(fmt.nan), signed).astype(target.storage)


def _round_magnitude(magnitude: Array, fmt: NarrowFormat) -> Array:
    """Codes without sign and without an upper end: a greater value has a greater code."""
    exponent = (magnitude >> _U64(_F64_MANTISSA)).astype(np.int64)
    smallest_normal = 1 - fmt.bias + _F64_BIAS
    below = np.minimum(np.maximum(smallest_normal - exponent, 0), 63)
    drop = _F64_MANTISSA - fmt.mantissa_bits
    subnormal = below > 0
    significand = (magnitude & _U64((1 << _F64_MANTISSA) - 1)) | _U64(1 << _F64_MANTISSA)
    rebased = magnitude - _U64((_F64_BIAS - fmt.bias) << _F64_MANTISSA)
    source = np.where(subnormal, significand, rebased)
    shift = np.minimum(drop + below, 62).astype(_U64)
    half = (_U64(1) << (shift - _U64(1))) - _U64(1)
    odd = (source >> shift) & _U64(1)
    return (source + half + odd) >> shift


def _float_to_integer(array: Array, target: DType) -> Array:
    """Truncated, saturated; NaN gives 0."""
    info = np.iinfo(target.storage)
    whole = np.trunc(array.astype(np.float64))
    too_great = whole >= float(info.max) if target.bits < 64 else whole >= 2.0 ** (64 - target.is_signed)
    too_small = whole <= float(info.min)
    inside = ~(too_great | too_small | np.isnan(whole))
    carrier = np.uint64 if target.bits == 64 and not target.is_signed else np.int64
    middle = np.where(inside, whole, 0.0).astype(carrier).astype(target.storage)
    ended = np.where(too_great, target.storage.type(info.max), middle)
    return np.where(too_small, target.storage.type(info.min), ended)
