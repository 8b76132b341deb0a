"""asinh, acosh and atanh, f64 to f64, as branch-free sequences: logarithms of 1 + t with t as a pair."""

from __future__ import annotations

import math
from dataclasses import replace

from repro.numerics.elementary.f64.logarithm import log_of_sum, split
from repro.numerics.elementary.pairs import Pair, divide, fast_two_sum, root, square, two_sum
from repro.numerics.elementary.value import Value, select, with_sign_of

_FAR = 2.0**28
"""From here on asinh x and acosh x are log 2x to 2^-58."""
_NEAR = 2.0**-28
"""Below, asinh x and atanh x are x to 2^-57."""


def _log1p_or_log_twice(t: Pair, far: Value, x: Value) -> Value:
    """log(1 + t), or log 2x where `far`."""
    u, low = two_sum(x.same(1.0), t[0])
    parts = split(select(far, x, u))
    octaves = select(far, parts.e + 1, parts.e)
    return log_of_sum(replace(parts, e=octaves), select(far, 0.0, low + t[1]))


def asinh(x: Value) -> Value:
    """log(1 + t), t = x + (sqrt(1 + x^2) - 1)."""
    size = abs(x)
    z, z_low = square(size)
    radicand, e = two_sum(z.same(1.0), z)
    r, r_low = root((radicand, e + z_low))
    less, e = fast_two_sum(r, r.same(-1.0))
    t, t_low = two_sum(size, less)
    result = _log1p_or_log_twice((t, t_low + (e + r_low)), size >= _FAR, size)
    ended = (size < _NEAR) | ~(size < math.inf)
    return select(ended, x, with_sign_of(result, x))


def acosh(x: Value) -> Value:
    """log(1 + t), t = d + sqrt(2d + d^2) with d = x - 1."""
    d = x - 1.0
    z, z_low = square(d)
    radicand, e = two_sum(2.0 * d, z)
    r, r_low = root((radicand, e + z_low))
    t, t_low = two_sum(d, r)
    result = _log1p_or_log_twice((t, t_low + r_low), x >= _FAR, x)
    ended = select(x.equals(1.0), 0.0, select(x < math.inf, result, x))
    return select(x >= 1.0, ended, math.nan)


def atanh(x: Value) -> Value:
    """log(1 + t) / 2, t = 2x / (1 - x)."""
    size = abs(x)
    t, t_low = divide((2.0 * size, x.same(0.0)), two_sum(x.same(1.0), -size))
    u, low = two_sum(x.same(1.0), t)
    result = 0.5 * log_of_sum(split(u), low + t_low)
    ended = select(size.equals(1.0), math.inf, select(size <= 1.0, result, math.nan))
    return select(size < _NEAR, x, with_sign_of(ended, x))
