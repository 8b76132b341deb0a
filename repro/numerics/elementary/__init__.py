"""The elementary functions (rule 14) as scalar loop-IR sequences: the same bits wherever they run.

`f32`: correctly rounded, proven for every input by `make prove` (docs/elementary.md). `f64`: within 1 ULP, where the
sequence is the definition. Each takes and returns expressions of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from repro.ir.expressions import Expr
from repro.ir.types import F32, F64, Array, DType
from repro.numerics import interpret
from repro.numerics.elementary import f32, f64
from repro.numerics.elementary.value import Value

_SEQUENCES: Mapping[DType, Mapping[str, Callable[..., Value]]] = {F32: f32.SEQUENCES, F64: f64.SEQUENCES}
assert f32.SEQUENCES.keys() == f64.SEQUENCES.keys(), "a function that one of the types lacks"


def _function(name: str) -> Callable[..., Expr]:
    def build(*operands: Expr) -> Expr:
        dtype = operands[0].dtype
        if dtype not in _SEQUENCES:
            raise TypeError(f"{name} is not defined on {dtype}")
        return _SEQUENCES[dtype][name](*map(Value, operands)).expr

    build.__name__ = build.__qualname__ = name
    return build


BINARY_FUNCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {name: _function(name) for name in ("pow", "atan2")}
"""By name: pow of the base and the exponent, atan2 of y and x."""

FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    name: _function(name) for name in f64.SEQUENCES if name not in BINARY_FUNCTIONS
}
"""By name, those of one operand."""


def evaluate(name: str, arrays: Sequence[Array], dtype: DType) -> Array:
    """The function on storage arrays (f32 or f64), by its sequence."""
    function = BINARY_FUNCTIONS[name] if name in BINARY_FUNCTIONS else FUNCTIONS[name]
    return interpret.evaluate(function, arrays, [dtype] * len(arrays))
