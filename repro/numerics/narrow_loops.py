"""Conversions from and to the narrow floats as loop IR over integers, so that every target rounds alike (rule 3).

Hardware converts differ (some flush subnormals, some take a library call): a target takes one only where it gives these
bits for every value (`llvm/halves.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir.expressions import Apply, Expr, apply, bitcast, const, convert
from repro.ir.types import F32, F64, U8, U16, U32, U64, DType, Kind
from repro.numerics.narrow_formats import NARROW, NarrowFormat


def is_narrow(expr: Expr) -> bool:
    """Whether it is a conversion that this module writes out."""
    if not isinstance(expr, Apply) or expr.op != "convert":
        return False
    return not (expr.dtype.computes and expr.children[0].dtype.computes)


def legalise(expr: Expr, operand: Expr) -> Expr:
    """A narrow conversion of `operand` to `expr`'s type in operations that every target has, and conversions between a
    narrow float and f32: from a narrow float all go by f32."""
    if not operand.dtype.computes:
        return _widen(operand) if expr.dtype is F32 else convert(convert(operand, F32), expr.dtype)
    return _narrow(operand if operand.dtype is F32 else _odd_f64(operand), expr.dtype)


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


@dataclass(frozen=True)
class _Wide:
    """The float format that is rounded from, and unsigned integers of its width."""

    unsigned: DType
    mantissa_bits: int
    bias: int

    def __call__(self, value: int) -> Expr:
        return const(self.unsigned, value)


_WIDE = {F32: _Wide(U32, 23, 127), F64: _Wide(U64, 52, 1023)}


def _narrow(operand: Expr, target: DType) -> Expr:
    fmt, wide = NARROW[target], _WIDE[operand.dtype]
    width = wide.unsigned.bits
    bits = bitcast(operand, wide.unsigned)
    magnitude = apply("and", bits, wide((1 << (width - 1)) - 1))
    code = _rounded(magnitude, fmt, wide)
    code = apply("select", apply("gt", code, wide(fmt.greatest)), wide(fmt.overflow), code)
    sign = apply("shl", apply("shr", bits, wide(width - 1)), wide(fmt.width - 1))
    signed = apply("or", code, sign)
    if not fmt.negative_zero:
        signed = apply("select", apply("eq", code, wide(0)), wide(0), signed)
    infinity = ((1 << (width - 1 - wide.mantissa_bits)) - 1) << wide.mantissa_bits
    nan = apply("gt", magnitude, wide(infinity))
    chosen = apply("select", nan, wide(fmt.nan), signed)
    return bitcast(convert(chosen, _storage(target)), target)


def _rounded(magnitude: Expr, fmt: NarrowFormat, wide: _Wide) -> Expr:
    """Codes without sign or upper end: nearest, ties to even, subnormals kept."""
    always = wide(wide.mantissa_bits - fmt.mantissa_bits)
    if fmt.bias == wide.bias:
        return _shifted(magnitude, always, wide)
    smallest = wide(1 - fmt.bias + wide.bias)
    exponent = apply("shr", magnitude, wide(wide.mantissa_bits))
    subnormal = apply("lt", exponent, smallest)
    nothing_left = wide(fmt.mantissa_bits + 2)
    below = apply("select", subnormal, _min(apply("sub", smallest, exponent), nothing_left), wide(0))
    fraction = apply("and", magnitude, wide((1 << wide.mantissa_bits) - 1))
    significand = apply("or", fraction, wide(1 << wide.mantissa_bits))
    rebased = apply("sub", magnitude, wide((wide.bias - fmt.bias) << wide.mantissa_bits))
    return _shifted(apply("select", subnormal, significand, rebased), apply("add", below, always), wide)


def _shifted(source: Expr, shift: Expr, wide: _Wide) -> Expr:
    """source / 2^shift to the nearest integer, ties to even."""
    half = apply("sub", apply("shl", wide(1), apply("sub", shift, wide(1))), wide(1))
    odd = apply("and", apply("shr", source, shift), wide(1))
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
