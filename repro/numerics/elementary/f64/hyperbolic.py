"""sinh, cosh and tanh, f64 to f64, as branch-free sequences.

With e^|x| = m 2^n as a pair: 2 cosh x and 2 sinh |x| are 2^n (m +- 2^-2n / m), and tanh |x| is
(m - 2^-n) / (m + 2^-n) for e^2|x|, each added up as a pair before the one rounding.
"""

from __future__ import annotations

from repro.numerics.elementary.f64 import exponential_constants as k
from repro.numerics.elementary.f64.exponential import at_most, exp_pair, expm1_of_reduced, reduce, scale
from repro.numerics.elementary.pairs import Pair, divide, fast_two_sum
from repro.numerics.elementary.value import Value, clamp, fma, polynomial, power_of_two, select, with_sign_of

_GREATEST = 720.0
_NEGLIGIBLE = 40
"""Beyond this n, 2^-2n is nothing beside 1."""


def _exponentials(size: Value) -> tuple[Value, Pair, Pair]:
    """(n, m, w): e^size = m 2^n and e^-size = w 2^n, for size >= 0."""
    n, (m, low) = exp_pair(clamp(size, 0.0, _GREATEST))
    w = 1.0 / m
    factor = power_of_two(at_most(n, _NEGLIGIBLE) * -2)
    return n, (m, low), (w * factor, w * (fma(-w, m, 1.0) - w * low) * factor)


def sinh(x: Value) -> Value:
    size = abs(x)
    n, m, w = _exponentials(size)
    high, e = fast_two_sum(m[0], -w[0])
    far = scale(high + (e + (m[1] - w[1])), n - 1)
    z = size * size
    near = fma(size, z * polynomial(z, k.SINH), size)
    return with_sign_of(select(size < 0.75, near, far), x)


def cosh(x: Value) -> Value:
    n, m, w = _exponentials(abs(x))
    high, e = fast_two_sum(m[0], w[0])
    return scale(high + (e + (m[1] + w[1])), n - 1)


def tanh(x: Value) -> Value:
    size = clamp(abs(x), 0.0, 22.0)
    n, r = reduce(size * 2.0)
    q, q_low = fast_two_sum(*expm1_of_reduced(r))
    s, e = fast_two_sum(x.same(1.0), q)
    factor = power_of_two(-n)
    top, e_top = fast_two_sum(s, -factor)
    bottom, e_bottom = fast_two_sum(s, factor)
    low = e + q_low
    first = n.equals(0)
    above = (select(first, q, top), select(first, q_low, e_top + low))
    high, rest = divide(above, (bottom, e_bottom + low))
    return select(size < 2.0**-28, x, with_sign_of(high + rest, x))
