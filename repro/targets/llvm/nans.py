"""Tests for NaN that a kernel writes by integers, as a comparison of floats: fewer instructions, and no constants.

Outputs carry the canonical NaN (rule 4), and seldom any. So of several registers of them it is asked at once whether
there is one: a comparison for each two and a branch, in place of a comparison and a select for each. Where something
that was asked before can tell, it is a branch alone.
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial, reduce

from repro.ir.expressions import Apply, Const, Expr, apply, bitcast, const
from repro.ir.types import BOOL, CANONICAL_NAN, F32, U32, DType
from repro.machines import Machine
from repro.targets.llvm import scalars, tables
from repro.targets.llvm.text import Function, Val, literal


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


def behind(expr: Expr) -> Expr | None:
    """The f32 of which an expression is the value with all NaNs made one (`ops.canonical_nan_expr`)."""
    chosen = expr.children[0] if isinstance(expr, Apply) and expr.op == "bitcast" and expr.dtype is F32 else None
    if not isinstance(chosen, Apply) or chosen.op != "select":
        return None
    is_nan, one, bits = chosen.children
    tested = operand(is_nan) if isinstance(is_nan, Apply) else None
    canonical = tested is not None and bits is bitcast(tested, U32) and one is const(U32, CANONICAL_NAN[F32])
    return tested if canonical else None


def together(machine: Machine, width: int) -> bool:
    """Whether a value's registers are asked at once: where one instruction finds a NaN in either of two vectors, which
    a machine whose maximum keeps NaN does without."""
    lanes = machine.lanes(F32.bits)
    return 1 < lanes < width and width % lanes == 0 and not machine.ordered_extremes


def source(value: Expr, functions: Container[Expr]) -> Expr | None:
    """The function of which a value is NaN where that is, and nowhere else: what is between them are sums, products and
    quotients with constants, which are finite and not 0."""
    while value not in functions:
        if not isinstance(value, Apply):
            return None
        match value.op, value.children:
            case "neg", (only,):
                value = only
            case "add" | "sub" | "mul" | "div", (Const(bits=bits), other) if _is_usual(bits, value.dtype):
                value = other
            case "add" | "sub" | "mul" | "div", (other, Const(bits=bits)) if _is_usual(bits, value.dtype):
                value = other
            case _:
                return None
    return value


def _is_usual(bits: int, dtype: DType) -> bool:
    return dtype is F32 and 0 < bits & 0x7FFFFFFF < 0x7F800000


def made_one(f: Function, value: Val, lanes: int, some: Val | None = None) -> Val:
    """Values of several registers of so many lanes, with the canonical NaN in place of any; `some` holds if there is
    one, where that is known."""
    some = _some(f, value, lanes) if some is None else some
    nan = scalars.constant(f, F32, CANONICAL_NAN[F32], value.width)
    return f.either(some, lambda: [scalars.select(f, test(f, value), nan, value)], lambda: [value], seldom=True)[0]


def _some(f: Function, value: Val, lanes: int) -> Val:
    parts = [tables.lanes_of(f, value, first, lanes) for first in range(0, value.width, lanes)]
    pairs = zip(parts[::2], [*parts[1::2], parts[-1]], strict=False)
    found = [f.let(f"fcmp uno {a.typed}, {b.text}", BOOL, lanes) for a, b in pairs]
    return scalars.any_lane(f, reduce(partial(scalars.binary, f, "or"), found))


def unusual(f: Function, total: Val) -> Val:
    """Whether a sum is not above 0, or not below infinity: else quotients by it are numbers (`row_sums.quotients`)."""
    zero, infinity = literal(F32, 0), literal(F32, 0x7F800000)
    low = f.let(f"fcmp ule {total.typed}, {zero.text}", BOOL)
    return scalars.binary(f, "or", low, f.let(f"fcmp uge {total.typed}, {infinity.text}", BOOL))


def test(f: Function, value: Val) -> Val:
    """Which lanes are NaN. Behind a fence: LLVM takes `x != x ? NaN : x` for x."""
    apart = scalars.intrinsic(f, "arithmetic.fence", value)
    return f.let(f"fcmp uno {apart.typed}, {apart.text}", BOOL, value.width)
