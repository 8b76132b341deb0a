"""The f64 functions (rule 14): one fixed sequence each, within 1 ULP of the true value for every argument.

The greatest errors found, in ULP: against MPFR on 0.4 (acosh) to 1.5 million arguments (breakpoints and their
neighbours, ends, any bits), against the double-double screens of `proofs` on 3 to 15 times 10^7 (evenly spread where
errors are greatest), and by `python -m proofs.doubles` on 10^8.

    exp    0.76    sin    0.72    sinh   0.70    erf    0.82
    exp2   0.77    cos    0.72    cosh   0.63    erfc   0.77
    expm1  0.64    tan    0.63    tanh   0.60    cbrt   0.51
    log    0.54    asin   0.67    asinh  0.54    rsqrt  0.51
    log2   0.55    acos   0.65    acosh  0.54    pow    0.77
    log10  0.56    atan   0.54    atanh  0.54    atan2  0.54
    log1p  0.54

Where results are subnormal they are rounded twice: the errors of exp, exp2 and pow elsewhere are below 0.63, that of
erf, met next to the subnormal numbers, below 0.72.
"""

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
