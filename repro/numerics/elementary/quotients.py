"""Functions of x / sqrt(2), as GELU has one, on the roads that leave small arguments to the first one.

A quotient by a constant is x h + x l where h + l is the constant's reciprocal: a product and a fused operation, which
round to the quotient itself for every significand (Brisebarre and Muller, "Correctly rounded multiplication by
arbitrary precision constants", 2008). Where x l is subnormal they may not. A road that leaves such arguments undecided
computes from the product, and divides on its seldom side alone: the same results, for every x by `make prove-roads`.
"""

from __future__ import annotations

from collections.abc import Callable

from repro.ir.expressions import Apply, Expr, Rarely
from repro.ir.substitution import Substitution
from repro.ir.types import F32
from repro.numerics.elementary.value import Value, fma, literal

ROOT_OF_TWO = 1.4142135381698608
"""Its f32."""
HIGH, LOW = 0.7071067690849304, 2.4203234971764687e-08
"""The reciprocal of that: the greatest f32 below it and the rest, which is positive, so that products keep their sign.
"""
LEAVING = frozenset({"erf"})
"""Functions whose roads leave magnitudes below 2^-90 to the first one."""


def quotient(x: Expr) -> Expr:
    return (Value(x) / ROOT_OF_TWO).expr


def dividend(operand: Expr) -> Expr | None:
    """x, where the operand is its quotient."""
    if isinstance(operand, Apply) and operand.op == "div" and operand.children[1] is literal(ROOT_OF_TWO, F32):
        return operand.children[0]
    return None


def road(sequence: Callable[[Value], Value], name: str, operand: Expr) -> tuple[Expr, Rarely]:
    """What a road to the function of the operand starts from (the operand, or what that is a quotient of), and its
    value."""
    x = dividend(operand) if name in LEAVING else None
    near = operand if x is None else fma(Value(x), HIGH, Value(x) * LOW).expr
    value = sequence(Value(near)).expr
    assert isinstance(value, Rarely), "a road leaves something to the first one"
    if x is None:
        return operand, value
    exact = Substitution({near: operand, x: x, value.condition: value.condition}, None)
    return x, Rarely(value.dtype, value.fields, (value.condition, exact.of(value.seldom), value.common))
