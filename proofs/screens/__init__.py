"""The screens: every elementary function as an unevaluated pair of f64, good to 2^-90 and better.

They share nothing with the functions under proof but the operator notation. Most are Taylor's series after an
argument reduction by a small table; each function's text says how it goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proofs.double_double import Pair
from proofs.screens import error_function, exponential, inverse_trigonometric, logarithm, roots, trigonometric

Interval = tuple[float, float]

_WHOLE: Interval = (-(2.0**500), 2.0**500)
_POSITIVE: Interval = (2.0**-900, 2.0**900)
_ARC: Interval = (-1.0, 1.0)
_TURNS: Interval = (-(2.0**128), 2.0**128)
_EXPONENT: Interval = (-exponential.GREATEST, exponential.GREATEST)


@dataclass(frozen=True)
class Screen:
    """One function of f64 arguments and the relative error of its pair.

    The bound holds for finite arguments in `domain`, an interval for each argument (where its end is a pole, only
    inside), at magnitudes 0 or at least 2^-330, and for results of pow from e^-600 to e^600. Beyond those ends
    the functions that overflow or underflow give their value at the end: far outside f32.
    """

    name: str
    function: Callable[..., Pair]
    error_log2: int
    domain: tuple[Interval, ...]


_ALL = (
    Screen("exp", exponential.exp, -100, (_EXPONENT,)),
    Screen("exp2", exponential.exp2, -100, ((-860.0, 860.0),)),
    Screen("expm1", exponential.expm1, -100, (_EXPONENT,)),
    Screen("sinh", exponential.sinh, -100, (_EXPONENT,)),
    Screen("cosh", exponential.cosh, -100, (_EXPONENT,)),
    Screen("tanh", exponential.tanh, -100, (_WHOLE,)),
    Screen("log", logarithm.log, -100, (_POSITIVE,)),
    Screen("log2", logarithm.log2, -100, (_POSITIVE,)),
    Screen("log10", logarithm.log10, -100, (_POSITIVE,)),
    Screen("log1p", logarithm.log1p, -100, ((-1.0, 2.0**500),)),
    Screen("asinh", logarithm.asinh, -98, (_WHOLE,)),
    Screen("acosh", logarithm.acosh, -98, ((1.0, 2.0**500),)),
    Screen("atanh", logarithm.atanh, -98, (_ARC,)),
    Screen("sin", trigonometric.sin, -100, (_TURNS,)),
    Screen("cos", trigonometric.cos, -100, (_TURNS,)),
    Screen("tan", trigonometric.tan, -100, (_TURNS,)),
    Screen("asin", inverse_trigonometric.asin, -100, (_ARC,)),
    Screen("acos", inverse_trigonometric.acos, -100, (_ARC,)),
    Screen("atan", inverse_trigonometric.atan, -100, (_WHOLE,)),
    Screen("atan2", inverse_trigonometric.atan2, -100, (_WHOLE, _WHOLE)),
    Screen("erf", error_function.erf, -100, (_WHOLE,)),
    Screen("erfc", error_function.erfc, -100, ((-(2.0**500), error_function.GREATEST),)),
    Screen("cbrt", roots.cbrt, -100, (_WHOLE,)),
    Screen("rsqrt", roots.rsqrt, -100, (_POSITIVE,)),
    Screen("pow", roots.pow, -93, (_POSITIVE, _WHOLE)),
)

SCREENS: dict[str, Screen] = {screen.name: screen for screen in _ALL}
"""By name."""
