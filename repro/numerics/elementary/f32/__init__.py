"""The f32 functions: correctly rounded for every input, in f64 arithmetic with one rounding at the end."""

from __future__ import annotations

from collections.abc import Callable

from repro.numerics.elementary.f32 import (
    arctangent2,
    complement,
    error_function,
    exponential,
    hyperbolic,
    inverse_hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    roots,
    tangent,
    trigonometric,
)
from repro.numerics.elementary.value import Value

SEQUENCES: dict[str, Callable[..., Value]] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "tanh": exponential.tanh,
    "erf": error_function.erf,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "pow": power.pow,
    "atan2": arctangent2.atan2,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "asinh": inverse_hyperbolic.asinh,
    "acosh": inverse_hyperbolic.acosh,
    "atanh": inverse_hyperbolic.atanh,
    "cbrt": roots.cbrt,
    "rsqrt": roots.rsqrt,
    "asin": inverse_trigonometric.asin,
    "acos": inverse_trigonometric.acos,
    "atan": inverse_trigonometric.atan,
    "tan": tangent.tan,
    "erfc": complement.erfc,
}
"""By name; of f32 values, to one."""
