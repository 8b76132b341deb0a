"""Index arithmetic against plain integers: what simplifies must still be the same number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from repro.ir import index as ix
from repro.ir.expressions import FALSE, TRUE, Affine, Axis, Const, Expr, IndexOp, apply, load
from repro.ir.types import I64


def value(expr: Expr, at: dict[Axis, int]) -> int:
    match expr:
        case Const():
            return expr.bits - (1 << 64) if expr.bits >> 63 else expr.bits
        case Axis():
            return at[expr]
        case Affine():
            return expr.constant + sum(
                k * value(child, at) for child, k in zip(expr.children, expr.coefficients, strict=True)
            )
        case IndexOp():
            inner = value(expr.children[0], at)
            return inner // expr.divisor if expr.op == "floordiv" else inner % expr.divisor
        case _:
            raise AssertionError(expr)


AXES = (ix.axis(0, 4), ix.axis(1, 6), ix.axis(2, 5))
POINTS = [dict(zip(AXES, point, strict=True)) for point in itertools.product(*(range(a.extent) for a in AXES))]


@st.composite
def indices(draw: st.DrawFn, depth: int = 3) -> tuple[Expr, Callable[[dict[Axis, int]], int]]:
    """An index, and the same number as a function of the axes written in plain Python."""
    if depth == 0 or draw(st.booleans()):
        axis = draw(st.sampled_from(AXES))
        return axis, lambda at: at[axis]
    expr, plain = draw(indices(depth - 1))
    other, other_plain = draw(indices(depth - 1))
    number = draw(st.integers(1, 12))
    kind = draw(st.sampled_from(["add", "scale", "shift", "floordiv", "mod"]))
    match kind:
        case "add":
            return ix.add(expr, other), lambda at: plain(at) + other_plain(at)
        case "scale":
            return ix.scale(expr, number - 6), lambda at: plain(at) * (number - 6)
        case "shift":
            return ix.add(expr, ix.number(number - 6)), lambda at: plain(at) + number - 6
        case "floordiv":
            return ix.floordiv(expr, number), lambda at: plain(at) // number
        case _:
            return ix.mod(expr, number), lambda at: plain(at) % number


@given(indices())
@settings(max_examples=400, deadline=None)
def test_simplified_indices_are_the_same_numbers(pair) -> None:
    expr, plain = pair
    low, high = ix.bounds(expr)
    for at in POINTS:
        found = value(expr, at)
        assert found == plain(at)
        assert low <= found <= high


@given(indices(), indices(), st.integers(-3, 3), st.integers(-10, 20), st.integers(1, 12))
@settings(max_examples=400, deadline=None)
def test_conditions_bound_what_they_are_of(pair, part, factor, start, extent) -> None:
    (other, other_plain), (bound, bound_plain) = pair, part
    shifted = ix.add(bound, ix.number(-start))
    condition = ix.inside(shifted, extent)
    low, high = ix.bounds_where(ix.add(other, ix.scale(bound, factor)), condition)
    for at in POINTS:
        if 0 <= bound_plain(at) - start < extent:
            assert low <= other_plain(at) + factor * bound_plain(at) <= high


def test_padding_keeps_a_row_in_its_own_places() -> None:
    row, output, tap = ix.axis(0, 9), ix.axis(1, 7), ix.axis(2, 3)
    place = ix.add(ix.scale(output, 2), tap, ix.number(-1))
    offset = ix.add(ix.scale(row, 14), place)
    assert ix.bounds(offset) == (-1, 8 * 14 + 13)
    assert ix.bounds_where(offset, ix.inside(place, 14)) == (0, 8 * 14 + 13)
    assert ix.bounds_where(offset, None) == ix.bounds(offset)


def test_a_loaded_index_is_bounded_where_it_is_clamped() -> None:
    read = load(I64, 0, ix.axis(0, 9))
    assert ix.bounds(apply("min", apply("max", read, ix.number(-2)), ix.number(5))) == (-2, 5)
    assert ix.bounds(apply("max", apply("min", ix.axis(0, 9), ix.number(5)), ix.number(2))) == (2, 5)
    assert ix.bounds(ix.add(ix.scale(apply("min", read, ix.number(5)), -3), ix.number(1)))[0] == -14


@given(indices(), st.integers(-10, 40), st.sampled_from(["lt", "ge", "eq"]))
@settings(max_examples=200, deadline=None)
def test_conditions_that_are_decided_are_right(pair, bound, op) -> None:
    expr, plain = pair
    condition = ix.compare(op, expr, bound)
    meaning = {"lt": int.__lt__, "ge": int.__ge__, "eq": int.__eq__}[op]
    if condition in (TRUE, FALSE):
        assert all(meaning(plain(at), bound) == (condition is TRUE) for at in POINTS)


@given(st.permutations([2, 3, 4, 5]), st.integers(1, 3))
def test_a_reshape_that_undoes_a_reshape_is_a_stride(extents, split) -> None:
    merged = (math.prod(extents[:split]), math.prod(extents[split:]))
    axes = tuple(ix.axis(number, extent) for number, extent in enumerate(extents))
    there = ix.delinear(ix.linear(axes, extents), merged)
    back = ix.delinear(ix.linear(there, merged), extents)
    assert back == axes
    assert ix.linear(there, merged) is ix.linear(axes, extents)


def test_a_split_axis_keeps_its_stride() -> None:
    fused = ix.axis(0, 24)
    rows, columns = ix.delinear(fused, (6, 4))
    assert ix.linear((rows, columns), (6, 4)) is fused
    assert ix.coefficient(ix.linear((rows, columns), (6, 4)), fused) == 1
