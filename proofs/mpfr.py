"""Correctly rounded values of the elementary functions by MPFR: what the screens leave open is decided here."""

from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from repro.ir.types import CANONICAL_NAN, F32, F64, DType

gmpy2: Any = importlib.import_module("gmpy2")
"""MPFR in Python; it carries no types."""

Real = Any
"""A gmpy2.mpfr."""

FIRST_PRECISION = 160
LAST_PRECISION = 1 << 15
"""Bits; no rounding of an elementary function at an f32 or f64 is nearly as hard, but for exact cases."""

_NAMES = {"rsqrt": "rec_sqrt"}
"""MPFR's name, where it is another."""

MANTISSA_BITS = {F32: 24, F64: 53}
LEAST_EXPONENT = {F32: -149, F64: -1074}
"""log2 of the least subnormal."""
_FORMATS = {F32: ("<f", "<I"), F64: ("<d", "<Q")}


class UndecidedError(ArithmeticError):
    """A value so near to a rounding boundary that the last precision leaves it open."""


def from_bits(bits: int, dtype: DType) -> float:
    """The f32 or f64 of these bits."""
    number, raw = _FORMATS[dtype]
    return struct.unpack(number, struct.pack(raw, bits))[0]


def to_bits(number: float, dtype: DType) -> int:
    """The bits of a number that the type holds exactly."""
    form, raw = _FORMATS[dtype]
    return struct.unpack(raw, struct.pack(form, number))[0]


@lru_cache(maxsize=256)
def _function(name: str, precision: int) -> Callable[..., Real]:
    """Correctly rounded to `precision` bits, ties to even; exponents as wide as MPFR has them."""
    context = gmpy2.context(precision=precision, emax=gmpy2.get_emax_max(), emin=gmpy2.get_emin_min())
    return getattr(context, _NAMES.get(name, name))


def value(name: str, arguments: Sequence[float], precision: int) -> Real:
    """The function to `precision` bits; `rc` of the result is 0 where it is exact."""
    if name == "rsqrt" and arguments[0] == 0.0:  # 1 / sqrt(-0) is -inf (IEEE 754); MPFR gives +inf
        return gmpy2.mpfr(math.copysign(math.inf, arguments[0]))
    return _function(name, precision)(*(gmpy2.mpfr(argument, 53) for argument in arguments))


def rounded_integer(mantissa: int, exponent: int, dtype: DType) -> int:
    """Bits of mantissa * 2^exponent (mantissa > 0) rounded once, ties to even."""
    bits, least = MANTISSA_BITS[dtype], LEAST_EXPONENT[dtype]
    quantum = max(mantissa.bit_length() + exponent - bits, least)
    shift = quantum - exponent
    if shift <= 0:
        whole = mantissa << -shift
    else:
        whole, rest = mantissa >> shift, mantissa & ((1 << shift) - 1)
        half = 1 << (shift - 1)
        whole += rest > half or (rest == half and whole & 1)
    # A subnormal's bits are its count of quanta; a carry into the next binade is one in the exponent field too.
    infinity = ((1 << (dtype.bits - bits)) - 1) << (bits - 1)
    return min(((quantum - least) << (bits - 1)) + whole, infinity)


def parts(number: Real) -> tuple[int, int]:
    """|number| as mantissa * 2^exponent."""
    mantissa, exponent = number.as_mantissa_exp()
    return abs(int(mantissa)), int(exponent)


def rounded(name: str, arguments: Sequence[float], dtype: DType) -> int:
    """Bits of the correctly rounded value; a NaN is the canonical one.

    Ziv's loop: MPFR's value at a precision is off by at most half its unit, so where both ends of that
    interval round alike the value does too; if not, the precision is doubled. An exact value ends it.
    """
    precision = FIRST_PRECISION
    while precision <= LAST_PRECISION:
        number = value(name, arguments, precision)
        if gmpy2.is_nan(number):
            return CANONICAL_NAN[dtype]
        sign = int(gmpy2.is_signed(number)) << (dtype.bits - 1)
        if gmpy2.is_infinite(number) or gmpy2.is_zero(number):  # exact, or beyond MPFR's exponents
            return sign | to_bits(abs(float(number)), dtype)
        mantissa, exponent = parts(number)
        if number.rc == 0:
            return sign | rounded_integer(mantissa, exponent, dtype)
        unit = precision + 1 - mantissa.bit_length()
        wide, low = mantissa << unit, exponent - unit
        below, above = (rounded_integer(wide + off, low, dtype) for off in (-1, 1))
        if below == above:
            return sign | below
        precision *= 2
    raise UndecidedError(f"{name}{tuple(arguments)} is not decided by {LAST_PRECISION} bits")
