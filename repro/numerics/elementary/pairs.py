"""Unevaluated sums of two f64s, |low| <= half an ulp of high: about 106 bits.

Sources: Dekker, "A floating-point technique for extending the available precision" (1971); Knuth, The Art of
Computer Programming 2, 4.2.2; Joldes, Muller, Popescu, "Tight and rigorous error bounds for basic building blocks of
double-word arithmetic" (2017).
"""

from __future__ import annotations

from repro.numerics.elementary.value import Number, Value, fma, sqrt

Pair = tuple[Value, Value]


def two_sum(a: Value, b: Value) -> Pair:
    """(s, e): s = fl(a + b), s + e = a + b (Knuth)."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def fast_two_sum(a: Value, b: Value) -> Pair:
    """(s, e) as two_sum, for |a| >= |b| or a = 0 (Dekker)."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Value, b: Value | Number) -> Pair:
    """(p, e): p = fl(a * b), p + e = a * b."""
    p = a * b
    return p, fma(a, b, -p)


def square(a: Value) -> Pair:
    """a * a, exactly."""
    return two_product(a, a)


def multiply(a: Pair, b: Pair) -> Pair:
    """a * b to about 2^-102; |low| may reach two ulps of high."""
    p, e = two_product(a[0], b[0])
    return p, e + (a[0] * b[1] + a[1] * b[0])


def divide(a: Pair, b: Pair) -> Pair:
    """a / b to about 2^-102, by one division; |low| may reach two ulps of high."""
    reciprocal = 1.0 / b[0]
    q = a[0] * reciprocal
    rest = fma(-q, b[0], a[0]) + (a[1] - q * b[1])
    return q, rest * reciprocal


def root(a: Pair) -> Pair:
    """sqrt(a) to about 2^-102, for a > 0 well inside the normal range."""
    r = sqrt(a[0])
    return r, (fma(-r, r, a[0]) + a[1]) / (r + r)
