"""The elementary functions (rule 14) as scalar loop-IR sequences: the same bits wherever they run.

Each takes and returns an expression of f32 or f64. An f32 function is the f64 sequence between two
conversions, so its result is the correctly rounded one but for about one input in 2^27.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from repro.ir.loops import Expr
from repro.ir.types import F32, F64, Array, DType
from repro.numerics import interpret
from repro.numerics.elementary import error_function, exponential, f32, f64, logarithm, power, trigonometric
from repro.numerics.elementary.value import Value

_SEQUENCES: dict[str, Callable[..., Value]] = {
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
    "asin": trigonometric.asin,
    "acos": trigonometric.acos,
    "atan": trigonometric.atan,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "tanh": exponential.tanh,
    "asinh": logarithm.asinh,
    "acosh": logarithm.acosh,
    "atanh": logarithm.atanh,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "cbrt": power.cbrt,
    "rsqrt": power.rsqrt,
    "pow": power.pow,
}

_NARROW_SEQUENCES: dict[str, Callable[..., Value]] = {
    name: partial(_SEQUENCES[name], mantissa_bits=24) for name in ("sin", "cos", "tan")
}
"""Shorter sequences for arguments that are widened f32 values."""


def _function(name: str) -> Callable[..., Expr]:
    def build(*operands: Expr) -> Expr:
        dtype = operands[0].dtype
        if dtype is F64:
            return f64.SEQUENCES[name](*map(Value, operands)).expr
        if dtype is not F32:
            raise TypeError(f"{name} is not defined on {dtype}")
        if name in f32.SEQUENCES:
            return f32.SEQUENCES[name](*map(Value, operands)).expr
        sequence = _NARROW_SEQUENCES.get(name, _SEQUENCES[name])
        return sequence(*(Value(operand).to(F64) for operand in operands)).to(F32).expr

    build.__name__ = build.__qualname__ = name
    return build


BINARY_FUNCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {name: _function(name) for name in ("pow", "atan2")}
"""By name: pow of the base and the exponent, atan2 of y and x."""

FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    name: _function(name) for name in _SEQUENCES if name not in BINARY_FUNCTIONS
}
"""By name, those of one operand."""


def evaluate(name: str, arrays: Sequence[Array], dtype: DType) -> Array:
    """The function on storage arrays (f32 or f64), by the sequence above."""
    function = BINARY_FUNCTIONS[name] if name in BINARY_FUNCTIONS else FUNCTIONS[name]
    return interpret.evaluate(function, arrays, [dtype] * len(arrays))
