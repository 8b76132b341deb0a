"""Unevaluated sums of two f64s, |low| <= half an ulp of high: about 106 bits.

Sources: Dekker, "A floating-point technique for extending the available precision" (1971); Knuth, The Art of
Computer Programming 2, 4.2.2; Joldes, Muller, Popescu, "Tight and rigorous error bounds for basic building blocks of
double-word arithmetic" (2017).
"""

from __future__ import annotations

from repro.numerics.elementary.value import Value, fma

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


def two_product(a: Value, b: Value) -> Pair:
    """(p, e): p = fl(a * b), p + e = a * b."""
    p = a * b
    return p, fma(a, b, -p)
