"""The f64 functions (rule 14): one fixed sequence each, within 1 ULP of the true value for every argument."""

from __future__ import annotations

from collections.abc import Callable

from repro.numerics.elementary.f64 import (
    error_function,
    exponential,
    hyperbolic,
    inverse_hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    roots,
    trigonometric,
)
from repro.numerics.elementary.value import Value

SEQUENCES: dict[str, Callable[..., Value]] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "asin": inverse_trigonometric.asin,
    "acos": inverse_trigonometric.acos,
    "atan": inverse_trigonometric.atan,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "tanh": hyperbolic.tanh,
    "asinh": inverse_hyperbolic.asinh,
    "acosh": inverse_hyperbolic.acosh,
    "atanh": inverse_hyperbolic.atanh,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "cbrt": roots.cbrt,
    "rsqrt": roots.rsqrt,
    "pow": power.pow,
    "atan2": inverse_trigonometric.atan2,
}
"""By name; of f64 values, to one."""
