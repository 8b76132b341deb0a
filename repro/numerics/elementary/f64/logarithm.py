"""log, log2, log10 and log1p, f64 to f64, as branch-free sequences.

x = 2^e m with m in [45/64, 45/32), c the nearest of sixteen centres, m/c = 1 + f with |f| <= 1/32: then
log x = e log 2 + log c + log(1 + f), without a division (the reduction by a table goes back to Tang, "Table-driven
implementation of the logarithm function in IEEE floating-point arithmetic", 1990). Around 1 the centre is 1 and
its logarithm 0, so that small results keep their relative precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from repro.ir.types import F64, I64, U64
from repro.numerics.elementary.f64 import logarithm_constants as k
from repro.numerics.elementary.pairs import Pair, fast_two_sum, two_product, two_sum
from repro.numerics.elementary.value import Value, lookup, polynomial, power_of_two, select, small_integer_to_f64

_FIRST_BITS = 0x3FE6800000000000
"""45/64: the pieces are half as long below 1 as above, and every sixteenth of an octave's bits begins one."""
_SMALLEST_NORMAL = 2.0**-1022


@dataclass(frozen=True)
class Base:
    """What depends on a logarithm's base."""

    centres: Sequence[float]
    centres_rest: Sequence[float]
    octave: float
    octave_rest: float
    unit: float
    """The logarithm of e."""
    unit_low: float


NATURAL = Base(k.LOG_CENTRES, k.LOG_CENTRES_REST, k.LOG_OCTAVE, k.LOG_OCTAVE_REST, k.LOG_UNIT, k.LOG_UNIT_LOW)
BINARY = Base(k.LOG2_CENTRES, k.LOG2_CENTRES_REST, k.LOG2_OCTAVE, k.LOG2_OCTAVE_REST, k.LOG2_UNIT, k.LOG2_UNIT_LOW)
DECIMAL = Base(
    k.LOG10_CENTRES, k.LOG10_CENTRES_REST, k.LOG10_OCTAVE, k.LOG10_OCTAVE_REST, k.LOG10_UNIT, k.LOG10_UNIT_LOW
)


@dataclass(frozen=True)
class Parts:
    """x = 2^e m, m near the centre number `piece`."""

    e: Value
    """i64."""
    m: Value
    piece: Value
    """i64, modulo 16."""

    def known(self, base: Base) -> Pair:
        """The logarithm of 2^e times the centre: an exact sum of short parts, and the rest."""
        e = small_integer_to_f64(self.e)
        high = e * base.octave + lookup(self.piece, base.centres)
        return high, e * base.octave_rest + lookup(self.piece, base.centres_rest)

    def ratio(self, m_low: Value | None = None) -> Pair:
        """f = (m + m_low) / centre - 1, the high part exact but for the centre's reciprocal; m_low tiny beside m."""
        reciprocal = lookup(self.piece, k.RECIPROCALS)
        p, p_low = two_product(self.m, reciprocal)
        return p - 1.0, p_low if m_low is None else p_low + m_low * reciprocal


def split(x: Value) -> Parts:
    """The parts of a positive finite x."""
    subnormal = x < _SMALLEST_NORMAL
    bits = select(subnormal, x * 2.0**54, x).as_bits(I64)
    offset = (bits - _FIRST_BITS + (2048 << 52)).as_bits(U64)
    octaves = (offset >> 52).as_bits(I64) - 2048
    mantissa = (bits - (octaves << 52)).as_bits(F64)
    return Parts(select(subnormal, octaves - 54, octaves), mantissa, (offset >> 48).as_bits(I64))


def assembled(known: Pair, f: Pair, base: Base) -> Value:
    """`known` plus the logarithm of 1 + f; for known = 0 to 0.51 ulp where |f high| >= 2^53 |f low|."""
    high, low = f
    above = low - low * high + high * high * polynomial(high, k.LOG1P)
    if base.unit != 1.0:
        above = above * base.unit + high * base.unit_low
        high, product_low = two_product(high, base.unit)
        above = above + product_low
    total, e = fast_two_sum(known[0], high)
    return total + (e + (known[1] + above))


def with_ends(x: Value, result: Value) -> Value:
    """A logarithm's values at 0, below 0, infinity and NaN."""
    ended = select(x.equals(math.inf), math.inf, select(x.equals(0.0), -math.inf, result))
    return select(x >= 0.0, ended, math.nan)


def _logarithm(x: Value, base: Base) -> Value:
    parts = split(x)
    return with_ends(x, assembled(parts.known(base), parts.ratio(), base))


def log(x: Value) -> Value:
    return _logarithm(x, NATURAL)


def log2(x: Value) -> Value:
    return _logarithm(x, BINARY)


def log10(x: Value) -> Value:
    return _logarithm(x, DECIMAL)


def log_of_sum(parts: Parts, low: Value) -> Value:
    """log(u + low) for the parts of u above 2^-60, `low` at most half an ulp of u."""
    scaled = low * power_of_two(select(parts.e > 100, -100, -parts.e))  # beyond, `low` is nothing
    return assembled(parts.known(NATURAL), fast_two_sum(*parts.ratio(scaled)), NATURAL)


def log1p(x: Value) -> Value:
    u, low = two_sum(x.same(1.0), x)
    return select(x.equals(0.0), x, with_ends(u, log_of_sum(split(u), low)))
