"""Quotients of many numbers by one, as a softmax has them: one division, and a product and two fused operations each.

With y the divisor's rounded reciprocal and q = x y, rounded, the quotient is q - (q d - x) y, where both operations are
fused (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). Markstein's proof
wants q within one ulp of the quotient, and here it may be one and a half away. It still holds for all pairs of
significands, as `make prove-divisors` shows: an error that large can round otherwise only where the quotient is so near
to the middle between two f32s that few pairs are, and each of these is tried.

That is so while nothing is subnormal or overflows. What may be, a NaN, or an unusual divisor is left to the division.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from repro.ir.expressions import Apply, Axis, Expr, Reduce
from repro.ir.types import F32
from repro.numerics.elementary.value import Value, fma, rarely, select

LEAST, MOST = 1.0, 2.0**100
"""Divisors that are taken: their reciprocals are normal, and no quotient overflows."""
DECIDED = 2.0**-100
"""The magnitude of a quotient from which on its remainder has no bits below the least subnormal number."""
NAN = float("nan")


def near(x: Value, d: Value) -> Value:
    """The quotient, if the divisor is usual, and the quotient neither too small nor infinite; with x = 0 too: that has
    its sign."""
    reciprocal = 1.0 / d
    q = x * reciprocal
    return fma(-fma(q, d, -x), reciprocal, q)


def quotient(x: Value, d: Value, exact: Value) -> Value:
    """`exact` where the common way does not decide the quotient. What only the divisor decides is compared with what
    belongs to each x: with NaN nothing is decided."""
    found, usual = near(x, d), (d >= LEAST) & (d <= MOST)
    large = abs(found) >= select(usual, d.same(DECIDED), NAN)
    return rarely(~(large | x.equals(select(usual, d.same(0.0), NAN))), exact, found)


def by_sums(expressions: Sequence[Expr], inner: Axis) -> Iterator[Apply]:
    """Divisions of f32s along an axis by a sum that is the same all along it. Other divisors are often below 1: the
    roots of optimizers and norms, scales of quantized values."""
    for expr in expressions:
        if isinstance(expr, Apply) and expr.op == "div" and expr.dtype is F32:
            x, d = expr.children
            summed = isinstance(d, Reduce) and d.combiner == "add"
            if summed and inner in x.free and inner not in d.free:
                yield expr
