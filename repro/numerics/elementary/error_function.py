"""erf and erfc, f64 to f64, as branch-free sequences."""

from __future__ import annotations

from repro.numerics.elementary import constants as k
from repro.numerics.elementary.exponential import clamp, exp_parts, scale
from repro.numerics.elementary.value import Value, is_negative, polynomial, select, two_product, with_sign_of


def _near_zero(x: Value) -> Value:
    """erf for |x| < 1."""
    return x * polynomial(x * x, k.ERF_SMALL)


def _complement(size: Value) -> Value:
    """erfc for x >= 15/16: e^(-x^2) times a smooth factor."""
    x = clamp(size, 0.9375, 28.0)
    square, lost = two_product(x, x)
    m, n = exp_parts(-square, -lost)
    smooth = polynomial((x - 2.5) / (x + 2.5), k.ERFC_SCALED)
    return scale(m * (smooth / (1.0 + 2.0 * x)), n)


def erf(x: Value) -> Value:
    size = abs(x)
    return select(size < 1.0, _near_zero(x), with_sign_of(1.0 - _complement(size), x))


def erfc(x: Value) -> Value:
    size = abs(x)
    far = _complement(size)
    outer = select(is_negative(x), 2.0 - far, far)
    return select(size < 0.9375, 1.0 - _near_zero(x), outer)
