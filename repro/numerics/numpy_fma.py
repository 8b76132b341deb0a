"""Exact fused multiply-add on NumPy arrays, for f32 and f64 (rule 2), from operations that every CPU has."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from repro.ir.types import Array

_U64 = np.uint64
MIDPOINT_MASK = _U64(0x1FFFFFFF)
MIDPOINT = _U64(0x10000000)
MAGNITUDE = _U64(0x7FFFFFFFFFFFFFFF)
ONE = _U64(1)
F32_TINY = _U64((1023 - 126) << 52)
"""Bits of 2^-126 in f64: below it f32 has fewer bits, so midpoints lie elsewhere."""


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """(s, e) with s = fl(a + b) and s + e = a + b exactly (Knuth; Møller)."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def round_to_odd(s: Array, e: Array) -> Array:
    """s + e rounded to odd, where s = fl(s + e): rounding it again to fewer bits is then rounding once."""
    inexact = (e != 0) & np.isfinite(s) & np.isfinite(e)
    towards_zero = inexact & (np.signbit(e) != np.signbit(s))
    bits = (s.view(_U64) - towards_zero.astype(_U64)) | inexact.astype(_U64)
    return bits.view(np.float64)


class Hazard:
    """Notes where a rounded f64 sum may not be rounded again to f32: it is a midpoint of f32, or tiny in f32."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.met = np.zeros(shape, np.bool_)
        self._bits = np.empty(shape, _U64)
        self._flags = np.empty(shape, np.bool_)

    def note(self, sums: Array) -> None:
        bits = sums.view(_U64)
        np.bitwise_and(bits, MIDPOINT_MASK, out=self._bits)
        np.equal(self._bits, MIDPOINT, out=self._flags)
        np.logical_or(self.met, self._flags, out=self.met)
        np.bitwise_and(bits, MAGNITUDE, out=self._bits)
        np.subtract(self._bits, ONE, out=self._bits)  # zero wraps round and is no hazard
        np.less(self._bits, F32_TINY, out=self._flags)
        np.logical_or(self.met, self._flags, out=self.met)


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f32, rounded once. The product is exact in f64; the sum is rounded to odd where it matters."""
    product = np.asarray(np.multiply(a, b, dtype=np.float64))
    total = np.asarray(np.add(product, c, dtype=np.float64))
    result = np.asarray(total.astype(np.float32))
    bits = total.view(_U64)
    hazard = (bits & MIDPOINT_MASK) == MIDPOINT
    hazard |= (bits & MAGNITUDE) - ONE < F32_TINY  # as Hazard notes them
    if np.count_nonzero(hazard):
        chosen_product = np.broadcast_to(product, total.shape)[hazard]
        chosen_addend = np.broadcast_to(c, total.shape)[hazard].astype(np.float64)
        result[hazard] = round_to_odd(*two_sum(chosen_product, chosen_addend)).astype(np.float32)
    return result


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """(p, e) with p = fl(a * b) and p + e = a * b, by Dekker; exponents must be far from the ends."""
    p = a * b
    ta, tb = a * 134217729.0, b * 134217729.0
    ah, bh = ta - (ta - a), tb - (tb - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _within(x: Array, exponent: int) -> Array:
    magnitude = np.abs(x)
    return (magnitude >= 2.0**-exponent) & (magnitude <= 2.0**exponent)


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f64, rounded once (Boldo and Melquiond 2008), at any exponents."""
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    flat = [x.reshape(-1) for x in np.broadcast_arrays(a, b, c)]
    result = np.empty(flat[0].size)
    for start in range(0, result.size, BLOCK):
        block = slice(start, start + BLOCK)
        result[block] = _fma_block(*(x[block] for x in flat))
    return result.reshape(shape)


BLOCK = 8192
"""Elements at a time: what lies between the some 60 operations of each then stays in a cache."""


def _fma_block(a: Array, b: Array, c: Array) -> Array:
    plain = (a == 0) | (b == 0) | ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c)
    safe = _within(a, 400) & _within(b, 400) & ((c == 0) | _within(c, 900))
    # A finite product that overflows may not meet an infinite addend: there is no NaN in that sum.
    product = np.where(np.isfinite(a) & np.isfinite(b) & ~np.isfinite(c), 0.0, a * b)
    result = np.where(plain, product + c, _moderate(a, b, c)[0])
    extreme = ~plain & ~safe
    if np.count_nonzero(extreme):
        result[extreme] = _extreme(a[extreme], b[extreme], c[extreme])
    return result


def _moderate(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """a * b + c rounded once, and rounded to odd; exponents must be far from the ends."""
    high, low = _two_product(a, b)
    th, tl = two_sum(c, low)
    vh, vl = two_sum(high, th)
    rest = round_to_odd(*two_sum(tl, vl))
    return vh + rest, round_to_odd(*two_sum(vh, rest))


FAR = 400
"""Exponents further apart than this do not meet in one sum; they are brought this near, where they do not either."""


def _extreme(a: Array, b: Array, c: Array) -> Array:
    """The same at any finite exponents: significands first, their common exponent last."""
    (ma, ea), (mb, eb), (mc, ec) = (np.frexp(x) for x in (a, b, c))
    product = ea.astype(np.int64) + eb
    apart = np.where(c == 0, 0, ec - product)
    rounded, odd = _moderate(ma, mb, np.ldexp(mc, np.clip(apart, -FAR, FAR)))
    # An addend that was brought nearer is the greater part by far: its own exponent is the result's.
    exponent = product + (apart - np.clip(apart, -FAR, FAR)) * (apart > 0)
    position = np.frexp(rounded)[1] + exponent
    below = (position < _LEAST_NORMAL) & (rounded != 0)
    result = np.ldexp(np.where(below, odd, rounded), np.clip(exponent, -5000, 5000))
    for index in np.nonzero(below & (position == _LEAST_NORMAL - 1))[0]:
        result[index] = _fma_rational(float(a[index]), float(b[index]), float(c[index]))
    return result


_LEAST_NORMAL = -1021
"""frexp's exponent of the least normal f64. What is rounded to odd may be rounded again to 51 bits or fewer; a result
with 52 is computed in rationals."""


def _fma_rational(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        rounded = exact.numerator / exact.denominator  # integer division rounds correctly, subnormals too
    except OverflowError:
        rounded = float("inf") if exact > 0 else float("-inf")
    return -0.0 if rounded == 0 and exact < 0 else rounded
