"""exp, exp2 and expm1, f64 to f64, as branch-free sequences.

x = n ln 2 + r with |r| <= ln(2)/2 (Cody and Waite 1980), then e^r = 1 + r + r^2/2 + r^3 Q(r). The leading terms are
added without error, so that the last addition alone rounds at the result's precision.
"""

from __future__ import annotations

from repro.ir.types import I64, U64
from repro.numerics.elementary.f64 import exponential_constants as k
from repro.numerics.elementary.pairs import Pair, fast_two_sum, square, two_product, two_sum
from repro.numerics.elementary.value import Value, clamp, nearest_integer, polynomial, power_of_two, select


def scale(mantissa: Value, n: Value) -> Value:
    """mantissa * 2^n for |n| up to 2000, rounded once when it becomes subnormal."""
    half = ((n + 4096).as_bits(U64) >> 1).as_bits(I64) - 2048
    return (mantissa * power_of_two(half)) * power_of_two(n - half)


def at_most(n: Value, limit: int) -> Value:
    """The lesser of an i64 and a number."""
    return select(n > limit, limit, n)


def reduce(x: Value) -> tuple[Value, Pair]:
    """(n, r): x = n ln 2 + r, |r| <= ln(2)/2, r to 2^-76; n is i64; for |x| below 2000."""
    whole, n = nearest_integer(x * k.LOG2_E)
    high = x - whole * k.LN2_SHORT
    low = whole * k.LN2_REST
    r = high - low
    return n, (r, (high - r) - low)


def exp_of_reduced(r: Pair) -> Pair:
    """e^r for |r| <= ln(2)/2: the high part is 1 + r rounded, the low part is below 0.07; to 2^-56.5."""
    high, low = r
    s, e = fast_two_sum(high.same(1.0), high)
    above = high * high * (0.5 + high * polynomial(high, k.EXP))
    return s, e + ((low + low * (high + above)) + above)


def exp_pair(x: Value, rest: Value | None = None) -> tuple[Value, Pair]:
    """(n, m): e^(x + rest) = m 2^n with m in [0.7, 1.5], to 2^-56.5; |x| below 2000, `rest` tiny beside 1."""
    n, (r, low) = reduce(x)
    return n, fast_two_sum(*exp_of_reduced((r, low if rest is None else low + rest)))


def expm1_of_reduced(r: Pair) -> Pair:
    """e^r - 1 for |r| <= ln(2)/2, to 2^-58 of itself; the low part reaches 0.007."""
    high, low = r
    h, h_low = square(high)
    q, e = fast_two_sum(high, 0.5 * h)
    return q, e + ((low + low * high) + (0.5 * h_low + h * (high * polynomial(high, k.EXP))))


def exp(x: Value) -> Value:
    n, r = reduce(clamp(x, -760.0, 720.0))
    s, low = exp_of_reduced(r)
    return scale(s + low, n)


def exp2(x: Value) -> Value:
    clamped = clamp(x, -1100.0, 1030.0)
    whole, n = nearest_integer(clamped)
    r = clamped - whole
    high, rest = two_product(r, k.LN2)
    s, low = exp_of_reduced((high, rest + r * k.LN2_LOW))
    return scale(s + low, n)


def expm1(x: Value) -> Value:
    n, r = reduce(clamp(x, -50.0, 720.0))
    q, q_low = expm1_of_reduced(r)
    s, e = fast_two_sum(x.same(1.0), q)
    unscaled, e_last = two_sum(s, -power_of_two(-at_most(n, 100)))
    scaled = scale(unscaled + (e_last + (e + q_low)), n)
    return select(x.equals(0.0), x, select(n.equals(0), q + q_low, scaled))
