"""Unevaluated sums of two f64 (double-double), for sequences that need more than 53 bits half-way.

A pair is (high, low) with |low| at most about an ulp of high. Error-free transforms: Knuth's and Dekker's sums,
and the product by fma; the rest after Joldes, Muller and Popescu, "Tight and rigorous error bounds for basic
building blocks of double-word arithmetic" (ACM TOMS 44, 2017), without their last renormalisations where a
following step does not need them.
"""

from __future__ import annotations

from repro.numerics.elementary.value import Number, Value, fast_two_sum, fma, sqrt, two_sum

__all__ = ["Pair", "divide", "fast_two_sum", "multiply", "root", "square", "two_product", "two_sum"]

Pair = tuple[Value, Value]


def two_product(a: Value, b: Value | Number) -> Pair:
    """(p, e): p = fl(a * b), p + e = a * b, unless e underflows."""
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
    """a / b to about 2^-102, by one division: its quotient and its remainder times the reciprocal."""
    reciprocal = 1.0 / b[0]
    q = a[0] * reciprocal
    rest = fma(-q, b[0], a[0]) + (a[1] - q * b[1])
    return q, rest * reciprocal


def root(a: Pair) -> Pair:
    """sqrt(a) to about 2^-102, for a normal a > 0."""
    r = sqrt(a[0])
    return r, (fma(-r, r, a[0]) + a[1]) / (r + r)
