"""GridSample and AffineGrid: elements at places that the data give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value, constant
from repro.ir.types import F32, I64, Array, DType
from repro.ops import (
    add,
    broadcast,
    compare,
    concatenate,
    convert_to,
    div,
    dot,
    elementwise,
    fill,
    gather,
    integers,
    iota,
    maximum,
    minimum,
    mul,
    reduce_axes,
    reshape,
    select,
    slice_,
    sub,
    transpose,
)

_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}
_PADDINGS = ("zeros", "border", "reflection")
_OFFSETS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""Taps around the whole place at or before a coordinate."""
_A = -0.75
"""Of Keys' cubic kernel."""


@dataclass(frozen=True)
class Sampling:
    mode: str
    padding: str
    corners: bool


# ── GridSample ──────────────────────────────────────────────────────────────────────────────────────


@onnx_op("GridSample", since=16)
def grid_sample(ctx: NodeContext, x: Value, grid: Value) -> Value:
    """Axis by axis, the last first: the sum (rule 10) of weight * element over the taps of each coordinate."""
    sampling = _sampling(ctx)
    rank = x.rank - 2
    if rank < 1 or grid.rank != x.rank or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        raise ctx.error(
            "the grid does not fit", f"{grid.type} for {x.type}", "[N, places..., axes] for [N, C, axes...]"
        )
    if rank != 2 and ctx.opset < 20:
        raise ctx.error("the rank of the input does not fit", str(x.type), "rank 4 below opset 20")
    if not x.dtype.is_float and sampling.mode != "nearest":
        raise ctx.error("integers are not interpolated", str(x.type), "floats, or mode nearest")
    shape = (*x.shape[:2], *grid.shape[1:-1])
    ctx.check_size(shape, x.dtype)
    if 0 in shape:
        return fill(0, x.type) if shape == x.shape else constant(np.zeros(shape, x.dtype.storage), x.dtype)
    if 0 in x.shape:
        raise ctx.error("an empty tensor cannot be sampled", str(x.type), "extents above 0")

    def body(x: Value, grid: Value) -> Value:
        return _sampled(x, grid, sampling)

    kept = {"mode": sampling.mode, "padding": sampling.padding, "align_corners": sampling.corners}
    return ctx.composite("GridSample", (x, grid), body, **kept).value


def _sampling(ctx: NodeContext) -> Sampling:
    known = ("bilinear", "nearest", "bicubic") if ctx.opset < 20 else ("linear", "nearest", "cubic")
    mode, padding = ctx.attr_str("mode", known[0]), ctx.attr_str("padding_mode", "zeros")
    if mode not in known or padding not in _PADDINGS:
        raise ctx.error("a mode is not known", f"{mode}, {padding}", f"{', '.join(known)}; {', '.join(_PADDINGS)}")
    return Sampling(_MODES[mode], padding, ctx.attr_bool("align_corners"))


@dataclass(frozen=True)
class _Taps:
    """What each place takes along one axis, [N, places..., taps] each: elements (i64, in range), whether they are
    there, and their weights; None where all are, and where there are none."""

    places: Value
    present: Value | None
    weights: Value | None


def _sampled(x: Value, grid: Value, sampling: Sampling) -> Value:
    """The last number of a point belongs to the first of the axes."""
    rank, places = x.rank - 2, list[Value]()
    for axis, extent in enumerate(x.shape[2:]):
        place = _denormalized(_column(grid, rank - 1 - axis), extent, sampling.corners)
        places.append(_inside(place, extent, sampling))
    found = sampled_at(x, places, sampling)
    return transpose(found, (0, found.rank - 1, *range(1, found.rank - 1)))


def sampled_at(x: Value, places: Sequence[Value], sampling: Sampling) -> Value:
    """[N, places..., C] of x [N, C, axes...]: `places` has each axis' coordinates, [N, places...], counted in
    elements."""
    taps = [_taps(place, extent, sampling, x.dtype) for place, extent in zip(places, x.shape[2:], strict=True)]
    found = _elements(x, taps)
    for each in reversed(taps):
        found = _over_last_taps(found, each.weights)
    return found


def _column(grid: Value, at: int) -> Value:
    """One number of each point."""
    starts, limits = [0] * grid.rank, list(grid.shape)
    starts[-1], limits[-1] = at, at + 1
    return reshape(slice_(grid, starts, limits), grid.shape[:-1])


def _elements(x: Value, taps: Sequence[_Taps]) -> Value:
    """[N, places..., taps of each axis..., C], +0 where one is not there."""
    lead = taps[0].places.shape[:-1]
    shape = (*lead, *(each.places.shape[-1] for each in taps))

    def spread(value: Value, axis: int) -> Value:
        return broadcast(value, shape, (*range(len(lead)), len(lead) + axis))

    columns = [iota(shape, 0), *(spread(each.places, axis) for axis, each in enumerate(taps))]
    points = concatenate([reshape(column, (*shape, 1)) for column in columns], len(shape))
    found = gather(x, points, (0, *range(2, x.rank)), inside=True)
    for axis, each in enumerate(taps):
        if each.present is not None:
            there = broadcast(spread(each.present, axis), found.shape, range(len(shape)))
            found = select(there, found, fill(0, found.type))
    return found


def _over_last_taps(found: Value, weights: Value | None) -> Value:
    """The axis of taps before the channels, summed up with its weights; without weights it is one tap."""
    axis = found.rank - 2
    if weights is None:
        return reshape(found, (*found.shape[:axis], found.shape[-1]))
    lead = weights.rank - 1
    return reduce_axes("add", mul(broadcast(weights, found.shape, (*range(lead), axis)), found), (axis,))


def _taps(x: Value, extent: int, sampling: Sampling, dtype: DType) -> _Taps:
    below = elementwise("floor", x)
    # A coordinate far outside would overflow an integer; beyond these no tap is there, whichever it is.
    whole = convert_to(minimum(maximum(below, fill(-4.0, x.type)), fill(extent + 4.0, x.type)), I64)
    offsets = integers(list(_OFFSETS[sampling.mode]))
    shape = (*x.shape, offsets.shape[0])
    raw = add(broadcast(whole, shape, range(x.rank)), broadcast(offsets, shape, (x.rank,)))
    present = _is_there(raw, extent) if sampling.padding == "zeros" else None
    weights = None if sampling.mode == "nearest" else _stacked(_weights(sub(x, below), sampling.mode))
    return _Taps(_in_range(raw, extent, sampling), present, None if weights is None else convert_to(weights, dtype))


def _stacked(values: Sequence[Value]) -> Value:
    return concatenate([reshape(value, (*value.shape, 1)) for value in values], values[0].rank)


def _denormalized(n: Value, extent: int, corners: bool) -> Value:
    """-1 to 1 over the centres of the outer elements ((n + 1) / 2 * (extent - 1)), or over their outer edges
    (((n + 1) * extent - 1) / 2)."""
    one, two = fill(1.0, n.type), fill(2.0, n.type)
    if corners:
        return mul(div(add(n, one), two), fill(float(extent - 1), n.type))
    return div(sub(mul(add(n, one), fill(float(extent), n.type)), one), two)


def _inside(x: Value, extent: int, sampling: Sampling) -> Value:
    """Coordinates rounded to even for `nearest`, then those beyond the borders moved as the padding says."""
    if sampling.mode == "nearest":
        x = elementwise("round", x)
    low, high = _borders(extent, sampling.corners)
    if sampling.padding == "border" and sampling.mode != "cubic":  # of a cubic, as PyTorch has it, taps alone are moved
        clamped = minimum(maximum(x, fill(0.0, x.type)), fill(extent - 1.0, x.type))
        return select(_beyond(x, low, high), clamped, x)
    return _reflected(x, low, high) if sampling.padding == "reflection" else x


def _borders(extent: int, corners: bool) -> tuple[float, float]:
    return (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)


def _beyond(x: Value, low: float, high: float) -> Value:
    return elementwise("or", compare("lt", x, fill(low, x.type)), compare("gt", x, fill(high, x.type)))


def _reflected(x: Value, low: float, high: float) -> Value:
    """Reflected at the borders until it lies between them: d beyond one of them, n = floor(d / span), r = d - n * span,
    r from the border that is met last."""
    if high == low:
        return fill(low, x.type)
    least, greatest, span = (fill(number, x.type) for number in (low, high, high - low))
    is_below = compare("lt", x, least)
    distance = select(is_below, sub(least, x), sub(x, greatest))
    count = elementwise("floor", div(distance, span))
    rest = sub(distance, mul(count, span))
    halves = mul(count, fill(0.5, x.type))
    from_low = compare("eq", is_below, compare("eq", halves, elementwise("floor", halves)))
    return select(_beyond(x, low, high), select(from_low, add(least, rest), sub(greatest, rest)), x)


def _in_range(place: Value, extent: int, sampling: Sampling) -> Value:
    """The element that a tap reads; where there is none, any."""
    if sampling.padding == "reflection":
        low, high = _borders(extent, sampling.corners)
        place = convert_to(_reflected(convert_to(place, F32), low, high), I64)
    return minimum(maximum(place, fill(0, place.type)), fill(extent - 1, place.type))


def _is_there(place: Value, extent: int) -> Value:
    return elementwise("and", compare("ge", place, fill(0, place.type)), compare("lt", place, fill(extent, place.type)))


def _weights(t: Value, mode: str) -> tuple[Value, ...]:
    """Of the taps for a coordinate t behind the whole place, 0 <= t < 1; cubic by Keys' kernel as ONNX writes it."""
    one, two = fill(1.0, t.type), fill(2.0, t.type)
    if mode == "linear":
        return sub(one, t), t
    return _far(add(t, one)), _near(t), _near(sub(one, t)), _far(sub(two, t))


def _near(x: Value) -> Value:
    """((a + 2) * x - (a + 3)) * x * x + 1"""
    inner = sub(mul(fill(_A + 2, x.type), x), fill(_A + 3, x.type))
    return add(mul(mul(inner, x), x), fill(1.0, x.type))


def _far(x: Value) -> Value:
    """((a * x - 5 a) * x + 8 a) * x - 4 a"""
    inner = add(mul(sub(mul(fill(_A, x.type), x), fill(5 * _A, x.type)), x), fill(8 * _A, x.type))
    return sub(mul(inner, x), fill(4 * _A, x.type))


# ── AffineGrid ──────────────────────────────────────────────────────────────────────────────────────


@onnx_op("AffineGrid", since=20)
def affine_grid(ctx: NodeContext, theta: Value, _: Value) -> Value:
    """A product (rule 8) of each place's coordinates from -1 to 1 and a 1, K running over these, with theta."""
    sizes = ctx.static_ints(1)
    rank = len(sizes) - 2
    if rank not in (2, 3) or theta.shape != (sizes[0], rank, rank + 1):
        raise ctx.error("theta and size do not fit", f"{theta.type}, size {list(sizes)}", "[N, 2, 3] or [N, 3, 4]")
    places = sizes[2:]
    ctx.check_size((sizes[0], *places, rank + 1), theta.dtype)
    base = constant(_base(places, ctx.attr_bool("align_corners")).astype(theta.dtype.storage), theta.dtype)

    def body(theta: Value) -> Value:
        found = dot(theta, base, ((2,), (1,)))  # [N, axes, places]
        return reshape(transpose(found, (0, 2, 1)), (sizes[0], *places, rank))

    return ctx.composite("AffineGrid", (theta,), body, places=places).value


def _base(places: Sequence[int], corners: bool) -> Array:
    """[places, axes + 1]: coordinates, those of the last axis first, and 1. An axis of one place is at 0."""
    axes = [_coordinates(extent, corners) for extent in places]
    rows = [(*reversed(point), 1.0) for point in product(*axes)]
    return np.array(rows, np.float64).reshape(-1, len(places) + 1)


def _coordinates(extent: int, corners: bool) -> list[float]:
    if corners:
        return [2 * i / (extent - 1) - 1 if extent > 1 else 0.0 for i in range(extent)]
    return [(2 * i + 1) / extent - 1 for i in range(extent)]
