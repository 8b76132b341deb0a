"""Tests for NaN that a kernel writes by integers, as a comparison of floats: fewer instructions, and no constants."""

from __future__ import annotations

from repro.ir.expressions import Apply, Expr, apply, bitcast, const
from repro.ir.types import BOOL, F32, U32
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val


def operand(expr: Apply) -> Expr | None:
    """The f32 that an expression finds to be NaN or not by its bits (`ops.canonical_nan_expr`)."""
    if expr.op != "gt":
        return None
    magnitude = expr.children[0]
    bits = magnitude.children[0] if isinstance(magnitude, Apply) and magnitude.op == "and" else None
    if not isinstance(bits, Apply) or bits.op != "bitcast" or bits.children[0].dtype is not F32:
        return None
    tested = bits.children[0]
    return tested if expr is _by_integers(tested) else None


def _by_integers(value: Expr) -> Expr:
    magnitude = apply("and", bitcast(value, U32), const(U32, 0x7FFFFFFF))
    return apply("gt", magnitude, const(U32, 0x7F800000))


def test(f: Function, value: Val) -> Val:
    """Which lanes are NaN. Behind a fence: LLVM takes `x != x ? NaN : x` for x."""
    apart = scalars.intrinsic(f, "arithmetic.fence", value)
    return f.let(f"fcmp uno {apart.typed}, {apart.text}", BOOL, value.width)
