"""Intervals of f32 arguments on which one value is the correctly rounded one throughout.

A rule is one of two kinds. `monotone`: the function is monotone on the interval, and MPFR gives the same result at
both ends. `undefined`: the function has no real value anywhere on it, and MPFR gives NaN at both ends. So millions of
arguments need no evaluation; `check` asks MPFR about the ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from proofs import mpfr
from repro.errors import InternalError
from repro.ir.types import CANONICAL_NAN, F32

_GREATEST = 2.0**128 - 2.0**104
_LEAST = 2.0**-149
_AFTER_ONE = 1.0 + 2.0**-23
_BEFORE_ONE = 1.0 - 2.0**-24
_INFINITY, _MINUS_ONE, _ZERO, _NAN = 0x7F800000, 0xBF800000, 0, CANONICAL_NAN[F32]


@dataclass(frozen=True)
class Rule:
    """Arguments low..high (one sign, low nearer to zero) have the result `bits`."""

    kind: str
    low: float
    high: float
    bits: int

    @property
    def span(self) -> tuple[int, int]:
        """First and last bit pattern."""
        return mpfr.to_bits(self.low, F32), mpfr.to_bits(self.high, F32)


def _monotone(low: float, high: float, bits: int) -> Rule:
    return Rule("monotone", low, high, bits)


def _undefined(low: float, high: float) -> Rule:
    return Rule("undefined", low, high, _NAN)


_NEGATIVE = (_undefined(-_LEAST, -math.inf),)
_BEYOND_ONE = (_undefined(_AFTER_ONE, math.inf), _undefined(-_AFTER_ONE, -math.inf))

RULES: dict[str, tuple[Rule, ...]] = {
    "exp": (_monotone(600.0, math.inf, _INFINITY), _monotone(-600.0, -math.inf, _ZERO)),
    "exp2": (_monotone(860.0, math.inf, _INFINITY), _monotone(-860.0, -math.inf, _ZERO)),
    "expm1": (_monotone(600.0, math.inf, _INFINITY), _monotone(-600.0, -math.inf, _MINUS_ONE)),
    "sinh": (_monotone(600.0, math.inf, _INFINITY), _monotone(-600.0, -math.inf, 0xFF800000)),
    "cosh": (_monotone(600.0, math.inf, _INFINITY), _monotone(-600.0, -math.inf, _INFINITY)),
    "erfc": (_monotone(10.5, math.inf, _ZERO),),
    "log": _NEGATIVE,
    "log2": _NEGATIVE,
    "log10": _NEGATIVE,
    "rsqrt": _NEGATIVE,
    "log1p": (_undefined(-_AFTER_ONE, -math.inf),),
    "acosh": (_undefined(0.0, _BEFORE_ONE), _undefined(-0.0, -math.inf)),
    "atanh": _BEYOND_ONE,
    "asin": _BEYOND_ONE,
    "acos": _BEYOND_ONE,
}
"""By function; every other argument but NaN is screened."""

NAN_SPANS = ((0x7F800001, 0x7FFFFFFF), (0xFF800001, 0xFFFFFFFF))
"""Bit patterns of NaN arguments: the result is NaN."""


def spans(name: str) -> list[tuple[int, int, int]]:
    """(first, last, result): bit patterns of arguments that a rule decides."""
    return [(*rule.span, rule.bits) for rule in RULES.get(name, ())] + [(*span, _NAN) for span in NAN_SPANS]


def check(name: str) -> None:
    """Raise InternalError where MPFR does not agree with a rule at an end of its interval."""
    for rule in RULES.get(name, ()):
        for end in (rule.low, rule.high):
            found = mpfr.rounded(name, [end], F32)
            if found != rule.bits:
                raise InternalError(f"a rule for {name} says 0x{rule.bits:08x} at {end}; MPFR says 0x{found:08x}")


def describe(names: Iterable[str]) -> Iterator[str]:
    """The rules in words, one a line."""
    for name in names:
        for rule in RULES.get(name, ()):
            yield f"{name} on [{rule.low!r}, {rule.high!r}]: {rule.kind}, 0x{rule.bits:08x}"
