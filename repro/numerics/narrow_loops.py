"""Conversions from and to the narrow floats as loop IR over integers, so that every target rounds alike.

Hardware converts differ (some flush subnormals, some take a library call), so none is used (rule 3).
"""

from __future__ import annotations

from repro.ir.expressions import Apply, Expr, apply, bitcast, const, convert
from repro.ir.types import BOOL, F32, F64, U8, U16, U32, U64, DType, Kind
from repro.numerics.narrow_formats import NARROW, NarrowFormat

_F64_MANTISSA, _F64_BIAS = 52, 1023


def is_narrow(expr: Expr) -> bool:
    """Whether it is a conversion that this module writes out."""
    if not isinstance(expr, Apply) or expr.op != "convert":
        return False
    return not (expr.dtype.computes and expr.children[0].dtype.computes)


def legalise(expr: Expr, operand: Expr) -> Expr:
    """A narrow conversion of `operand` to `expr`'s type in operations that every target has."""
    wide = operand if operand.dtype.computes else _widen(operand)
    if expr.dtype.computes:
        return convert(wide, expr.dtype)
    if wide.dtype is BOOL:
        wide = convert(wide, F64)
    return _narrow(_odd_f64(wide), expr.dtype)


def _u64(value: int) -> Expr:
    return const(U64, value)


def _min(a: Expr, b: Expr) -> Expr:
    return apply("min", a, b)


def _storage(dtype: DType) -> DType:
    return U8 if dtype.bits == 8 else U16


def _odd_f64(operand: Expr) -> Expr:
    """f64, exact or rounded to odd, so that one more rounding to a narrow format is the only one."""
    if operand.dtype.is_float or operand.dtype.bits <= 32:
        return convert(operand, F64)
    signed = operand.dtype.kind is Kind.SIGNED
    bits = bitcast(operand, U64)
    negative = apply("lt", operand, const(operand.dtype, 0)) if signed else None
    magnitude = apply("select", negative, apply("sub", _u64(0), bits), bits) if negative is not None else bits
    lost = convert(apply("ne", apply("and", magnitude, _u64(0x7FF)), _u64(0)), U64)
    sticky = apply("or", apply("shr", magnitude, _u64(11)), lost)
    scaled = apply("mul", convert(sticky, F64), const(F64, 0x40A0000000000000))  # 2048.0
    value = apply("select", apply("ge", magnitude, _u64(1 << 53)), scaled, convert(magnitude, F64))
    return apply("select", negative, apply("neg", value), value) if negative is not None else value


def _narrow(operand: Expr, target: DType) -> Expr:
    fmt = NARROW[target]
    bits = bitcast(operand, U64)
    magnitude = apply("and", bits, _u64((1 << 63) - 1))
    code = _rounded(magnitude, fmt)
    code = apply("select", apply("gt", code, _u64(fmt.greatest)), _u64(fmt.overflow), code)
    sign = apply("shl", apply("shr", bits, _u64(63)), _u64(fmt.width - 1))
    signed = apply("or", code, sign)
    if not fmt.negative_zero:
        signed = apply("select", apply("eq", code, _u64(0)), _u64(0), signed)
    nan = apply("gt", magnitude, _u64(0x7FF << _F64_MANTISSA))
    chosen = apply("select", nan, _u64(fmt.nan), signed)
    return bitcast(convert(chosen, _storage(target)), target)


def _rounded(magnitude: Expr, fmt: NarrowFormat) -> Expr:
    """Codes without sign or upper end: nearest, ties to even, subnormals kept."""
    smallest = _u64(1 - fmt.bias + _F64_BIAS)
    exponent = apply("shr", magnitude, _u64(_F64_MANTISSA))
    subnormal = apply("lt", exponent, smallest)
    below = apply("select", subnormal, _min(apply("sub", smallest, exponent), _u64(20)), _u64(0))
    fraction = apply("and", magnitude, _u64((1 << _F64_MANTISSA) - 1))
    significand = apply("or", fraction, _u64(1 << _F64_MANTISSA))
    rebased = apply("sub", magnitude, _u64((_F64_BIAS - fmt.bias) << _F64_MANTISSA))
    source = apply("select", subnormal, significand, rebased)
    shift = apply("add", below, _u64(_F64_MANTISSA - fmt.mantissa_bits))
    shift = _min(shift, _u64(62))
    half = apply("sub", apply("shl", _u64(1), apply("sub", shift, _u64(1))), _u64(1))
    odd = apply("and", apply("shr", source, shift), _u64(1))
    return apply("shr", apply("add", apply("add", source, half), odd), shift)


def _widen(operand: Expr) -> Expr:
    """The exact f32 value of a narrow float."""
    fmt = NARROW[operand.dtype]
    code = convert(bitcast(operand, _storage(operand.dtype)), U32)
    sign_bit = 1 << (fmt.width - 1)
    sign = apply("shl", apply("and", code, const(U32, sign_bit)), const(U32, 32 - fmt.width))
    magnitude = apply("and", code, const(U32, sign_bit - 1))
    moved = apply("shl", magnitude, const(U32, 23 - fmt.mantissa_bits))
    rebased = apply("add", moved, const(U32, ((127 - fmt.bias) << 23)))
    normal = bitcast(rebased, F32)
    if fmt.bias != 127:
        step = 1 - fmt.bias - fmt.mantissa_bits
        tiny = apply("mul", convert(magnitude, F32), const(F32, (step + 127) << 23))
        subnormal = apply("lt", magnitude, const(U32, 1 << fmt.mantissa_bits))
        normal = apply("select", subnormal, tiny, normal)
    value = apply("or", bitcast(normal, U32), sign)
    nan = const(U32, 0x7FC00000)
    if fmt.infinity is not None:
        infinite = apply("eq", magnitude, const(U32, fmt.infinity))
        value = apply("select", infinite, apply("or", const(U32, 0x7F800000), sign), value)
        value = apply("select", apply("gt", magnitude, const(U32, fmt.infinity)), nan, value)
    elif fmt.negative_zero:
        value = apply("select", apply("eq", magnitude, const(U32, fmt.nan)), nan, value)
    else:
        value = apply("select", apply("eq", code, const(U32, fmt.nan)), nan, value)
    return bitcast(value, F32)
