"""A second road to f32 functions: f32 arithmetic, for machines whose f64 units are few.

The value is found as an unevaluated sum of two f32s. Where that does not decide the rounding (one argument in
thousands), the first road, in f64, is taken. The results are those of the first road for every argument: `make
prove-roads` computes all 2^32 of them and compares their digests with those of the proof.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from repro.ir.expressions import lookup as table_lookup
from repro.ir.types import F32, I32, U32
from repro.numerics.elementary import single_constants as k
from repro.numerics.elementary.f32 import error_function, exponential
from repro.numerics.elementary.f32.wide import with_sign
from repro.numerics.elementary.pairs import Pair, divide, fast_two_sum, two_product, two_sum
from repro.numerics.elementary.value import Value, clamp, fma, horner, rarely, select

Coefficient = Value | float
Join = Callable[[Value, Value], Pair]

_SHIFTER = float(3 << 22)
"""1.5 * 2^23: added to a small value it leaves the nearest integer in an f32's low bits."""
_SHIFTER_BITS = 0x4B400000
_ERROR = 2.0**-36
"""Of the sums before rounding, relative, with room to spare."""


def _reduced(x: Value) -> tuple[Pair, Value]:
    """(r, n): x = n ln 2 + r with |r| <= ln(2)/2, n an i32; |x| below 2^7. The first difference is exact: n has 8 bits,
    the leading part of ln 2 sixteen."""
    shifted = fma(x, k.LOG2_E, _SHIFTER)
    n = shifted - _SHIFTER
    product, rest = two_product(n, -k.LN2_MIDDLE)
    high, low = two_sum(fma(n, -k.LN2_HIGH, x), product)
    return (high, low + fma(n, -k.LN2_LOW, rest)), shifted.as_bits(I32) - _SHIFTER_BITS


def _multiply(a: Pair, b: Pair) -> Pair:
    """a * b, but for the product of the lows."""
    product, rest = two_product(a[0], b[0])
    return product, fma(a[1], b[0], fma(a[0], b[1], rest))


def _series(r: Pair, total: Value, leading: Sequence[tuple[Coefficient, Coefficient]], join: Join) -> Pair:
    """Horner's rule in pairs; `total` is what stands in the first bracket, good to one f32."""
    (first, first_low), *others = leading
    high, low = join(r[0].same(first), r[0] * total)
    low = low + first_low
    for coefficient, rest in others:
        product, product_low = _multiply(r, (high, low))
        high, low = join(r[0].same(coefficient), product)
        low = low + (product_low if rest == 0.0 else product_low + rest)
    return fast_two_sum(high, low)


def _power_of_two(n: Value) -> Value:
    """2^n for an i32 n in -126..127."""
    return ((n + 127) << 23).as_bits(F32)


def _ends(sum_: Pair) -> tuple[Value, Value]:
    """The sum less and plus its error, rounded."""
    high, low = sum_
    return high + fma(high, -_ERROR, low), high + fma(high, _ERROR, low)


def exp(x: Value) -> Value:
    """2^n e^r in sums of two; subnormal results, which round once more, take the first road."""
    r, n = _reduced(clamp(x, -104.0, 89.0))
    least, most = _ends(_series(r, horner(r[0], k.EXP_TRAILING), k.EXP_LEADING, fast_two_sum))
    half = n >> 1
    none = x < -104.0
    found = select(none, 0.0, least * _power_of_two(half) * _power_of_two(n - half))
    return rarely((least.differs(most) | (x < -87.0)) & ~none, exponential.exp(x), found)


def tanh(x: Value) -> Value:
    """E / (E + 2) with E = e^(2|x|) - 1; below 2^-13 it rounds to x."""
    near = clamp(abs(x), 0.0, 10.0)
    r, n = _reduced(near * 2.0)
    less_one = _multiply(r, _series(r, horner(r[0], k.EXPM1_TRAILING), k.EXPM1_LEADING, fast_two_sum))
    scale = _power_of_two(n)
    first, first_low = fast_two_sum(scale, scale.same(-1.0))
    high, low = two_sum(first, scale * less_one[0])
    e = fast_two_sum(high, low + fma(scale, less_one[1], first_low))
    below, below_low = two_sum(e[0], e[0].same(2.0))
    least, most = _ends(fast_two_sum(*divide(e, (below, below_low + e[1]))))
    tiny = near < 2.0**-13
    found = select(tiny, near, least)
    seldom = exponential.tanh(x)
    return rarely(least.differs(most) & ~tiny, seldom, with_sign(found, x.as_bits(U32)))


def erf(x: Value) -> Value:
    """x P(|x|) by the first road's pieces; magnitudes below 2^-90 take that road, for want of room for low parts."""
    near = clamp(abs(x), 0.0, 3.93)
    product, rest = two_product(near, k.PIECES_A_UNIT)
    shifted = product - 0.5 + _SHIFTER
    piece = shifted.as_bits(I32)
    t, t_low = two_sum(product, _SHIFTER - shifted - 0.5)
    t_low = t_low + fma(near, k.PIECES_A_UNIT_LOW, rest)
    plain = [_lookup(piece, row) for row in k.ERF_TRAILING]
    total = plain[-1]
    for coefficient in reversed(plain[:-1]):
        total = fma(total, t, coefficient)
    leading = [(_lookup(piece, high), _lookup(piece, low)) for high, low in k.ERF_LEADING]
    value = _series((t, t_low), total, leading, two_sum)
    high, low = two_product(near, value[0])
    least, most = _ends((high, fma(near, value[1], low)))
    seldom = error_function.erf(x)
    small = (near < 2.0**-90) & near.differs(0.0)
    return rarely(least.differs(most) | small, seldom, with_sign(least, x.as_bits(U32)))


def _lookup(index: Value, row: Sequence[float]) -> Value:
    """row[index mod len(row)] for an i32 index; f32 entries."""
    return Value(table_lookup(F32, [struct.unpack("<I", struct.pack("<f", entry))[0] for entry in row], index.expr))


SEQUENCES: dict[str, Callable[[Value], Value]] = {"exp": exp, "tanh": tanh, "erf": erf}
"""By name."""
