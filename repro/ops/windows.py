"""Reductions over sliding windows; padding is absent (rules 5 and 10)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Expr, apply, reduce
from repro.ir.graph import Node, Value
from repro.ir.types import BOOL, F32, I64, Array, TensorType
from repro.numerics.sums import reduce_reference
from repro.ops.elementwise import add, compare, select
from repro.ops.guards import guard
from repro.ops.indexing import scatter
from repro.ops.movement import broadcast, fill, reshape
from repro.ops.record import Access, Attributes, Axes, ByElement, Op, Sample, make, register
from repro.ops.reduction import ORDERS, default_order
from repro.ops.slicing import pad, slice_
from repro.ops.structure import integers, iota, scalar

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]


def window_extent(extent: int, window: int, stride: int, dilation: int, low: int, high: int) -> int:
    """Number of window positions along an axis."""
    return max(0, (extent + low + high - ((window - 1) * dilation + 1)) // stride + 1)


def _holes(attributes: Attributes, rank: int) -> tuple[int, ...]:
    """On each axis, how far apart the operand's elements stand: 1, unless the node says otherwise."""
    return attributes.get("input_dilations", (1,) * rank)


def _window_type(attributes: Attributes, types: Types, _: object) -> Types:
    names = ("window", "strides", "dilations", "low", "high")
    spaced = (n * hole for n, hole in zip(types[0].shape, _holes(attributes, types[0].rank), strict=True))
    parts = zip(spaced, *(attributes[name] for name in names), strict=True)
    shape = tuple(window_extent(n, w, s, d, low, high) for n, w, s, d, low, high in parts)
    if not types[0].dtype.computes:
        raise TypeError(f"window_reduce on {types[0].dtype}: narrow floats compute in f32")
    dtype = I64 if attributes["combiner"].startswith("arg") else types[0].dtype
    return (TensorType(dtype, shape),)


def _window_positions(node: Node) -> tuple[Array, Array]:
    """Offset into the operand of each (output, window position), and whether it is inside."""
    shape, out = node.operands[0].shape, node.types[0].shape
    rank = len(shape)
    offset, present = np.zeros((1,) * (2 * rank), dtype=np.int64), np.ones((1,) * (2 * rank), dtype=bool)
    stride = 1
    for axis in reversed(range(rank)):
        outer = np.arange(out[axis]).reshape([-1 if i == axis else 1 for i in range(2 * rank)])
        inner = np.arange(node["window"][axis]).reshape([-1 if i == rank + axis else 1 for i in range(2 * rank)])
        place = outer * node["strides"][axis] - node["low"][axis] + inner * node["dilations"][axis]
        hole = _holes(node.attributes, rank)[axis]
        position = place // hole
        present = present & (place % hole == 0) & (position >= 0) & (position < shape[axis])
        offset = offset + np.clip(position, 0, max(shape[axis] - 1, 0)) * stride
        stride *= shape[axis]
    full = (*out, *node["window"])
    return (
        np.broadcast_to(offset, full).reshape(*out, -1),
        np.broadcast_to(present, full).reshape(*out, -1),
    )


def _window_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    kind = node.types[0]
    if not kind.elements:
        return (np.zeros(kind.shape, kind.dtype.storage),)
    offset, present = _window_positions(node)
    flat = operands[0].reshape(-1)
    terms = flat[offset] if flat.size else np.zeros(offset.shape, flat.dtype)
    result = reduce_reference(node["combiner"], ORDERS[node["order"]], [terms], present)
    if kind.dtype is I64 and node["combiner"].startswith("arg"):
        result = np.take_along_axis(offset, np.asarray(result)[..., None], axis=-1)[..., 0]
    return (np.asarray(result, dtype=kind.dtype.storage).reshape(kind.shape),)


def _window_at(node: Node, index: Index, taps: Index) -> tuple[Index, Expr]:
    places = tuple(
        ix.add(ix.scale(i, s), ix.scale(t, d), ix.number(-low))
        for i, t, s, d, low in zip(index, taps, node["strides"], node["dilations"], node["low"], strict=True)
    )
    shape, holes = node.operands[0].shape, _holes(node.attributes, len(places))
    position = tuple(ix.floordiv(place, hole) for place, hole in zip(places, holes, strict=True))
    filled = (ix.compare("eq", ix.mod(place, hole), 0) for place, hole in zip(places, holes, strict=True))
    return position, ix.both(*filled, *(ix.inside(p, n) for p, n in zip(position, shape, strict=True)))


def _window_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], axes: Axes) -> Expr:
    taps = tuple(axes.fresh(extent) for extent in node["window"])
    position, present = _window_at(node, index, taps)
    term = guard(operands[0](position), present)
    bound = tuple(tap for tap in taps if tap.extent > 1) or taps[-1:]
    present_or_none = None if present is ix.TRUE else present
    found = reduce(node["combiner"], ORDERS[node["order"]], bound, [term], present_or_none)
    if not node["combiner"].startswith("arg"):
        return found
    where = iter(ix.delinear(found, [tap.extent for tap in bound]))
    chosen = tuple(next(where) if tap in bound else ix.number(0) for tap in taps)
    at, _inside = _window_at(node, index, chosen)
    padded = (low > 0 or high > 0 for low, high in zip(node["low"], node["high"], strict=True))
    shape = node.operands[0].shape
    kept = (_clipped(p, n) if reaches else p for p, n, reaches in zip(at, shape, padded, strict=True))
    return ix.linear(tuple(kept), shape)


def _repeats(node: Node) -> bool:
    return math.prod(node["window"]) > math.prod(node["strides"])


def _clipped(position: Expr, extent: int) -> Expr:
    """A window that lies in the padding has no greatest element: its position stays in the operand."""
    return apply("min", apply("max", position, ix.number(0)), ix.number(max(extent - 1, 0)))


def window_reduce(
    combiner: str,
    value: Value,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    input_dilations: Sequence[int] | None = None,
) -> Value:
    """Reduce over sliding windows on every axis; padding is absent. argmax gives row-major offsets (i64).

    With input_dilations, that many places (the element's own and holes behind it, which are absent) stand for
    each element along an axis.
    """
    holes: dict[str, Any] = {} if input_dilations is None else {"input_dilations": tuple(input_dilations)}
    node = make(
        "window_reduce",
        value,
        combiner=combiner,
        order=default_order(combiner, value.dtype),
        window=tuple(window),
        strides=tuple(strides),
        dilations=tuple(dilations),
        low=tuple(low),
        high=tuple(high),
        **holes,
    )
    return node.value


# its gradients ──────────────────────────────────────────────────────────────────────────────────────


def _window_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    combiner, x, g = node["combiner"], node.operands[0], cotangents[0]
    if not x.dtype.is_float or combiner.startswith("arg"):
        return (None,)
    if not x.type.elements or not g.type.elements:
        return (fill(0, x.type),)
    match combiner:
        case "add":
            return (_gradient_of_sums(node, g),)
        case "min" | "max" if "input_dilations" not in node.attributes:
            return (_gradient_of_extremes(node, g),)
        case _:
            raise InternalError(f"window_reduce {combiner} has no gradient")


def _gradient_of_sums(node: Node, g: Value) -> Value:
    """The window sum (rule 10) over g's windows that hold an element, ascending; holes of a stride are absent."""
    x, rank = node.operands[0], g.rank
    window, strides, dilations, low = (node[name] for name in ("window", "strides", "dilations", "low"))
    holes = _holes(node.attributes, rank)
    reach = [(w - 1) * d for w, d in zip(window, dilations, strict=True)]
    absent = scalar(-0.0, g.dtype)
    apart = all(s > r and (d == 1 or r == 0) for s, r, d in zip(strides, reach, dilations, strict=True))
    if apart and math.prod(holes) == 1:  # no windows overlap: each sum is one cotangent
        return _placed(_repeated(g, window, strides, absent), low, x.shape, absent)
    parts = zip(x.shape, holes, g.shape, strides, low, strict=True)
    before = [r - start for r, start in zip(reach, low, strict=True)]
    behind = [(extent - 1) * hole + 1 - n * stride + start for extent, hole, n, stride, start in parts]
    spaced = None if math.prod(strides) == 1 else strides
    return window_reduce("add", g, window, holes, dilations, before, behind, spaced)


def _repeated(value: Value, copies: Sequence[int], strides: Sequence[int], between: Value) -> Value:
    """Along each axis every element `copies` times, then `between` up to the stride."""
    shape = value.shape
    apart = reshape(value, tuple(extent for n in shape for extent in (n, 1)))
    wide = tuple(extent for n, count in zip(shape, copies, strict=True) for extent in (n, count))
    high = tuple(amount for count, stride in zip(copies, strides, strict=True) for amount in (0, stride - count))
    padded = pad(broadcast(apart, wide, range(len(wide))), (0,) * len(wide), high, between)
    return reshape(padded, tuple(n * stride for n, stride in zip(shape, strides, strict=True)))


def _placed(value: Value, low: Sequence[int], shape: Sequence[int], outside: Value) -> Value:
    """Element p of the result is element p + low of the value, or `outside`."""
    starts = [min(start, n) for start, n in zip(low, value.shape, strict=True)]
    limits = [min(start + extent, n) for start, extent, n in zip(low, shape, value.shape, strict=True)]
    kept = slice_(value, starts, limits)
    return pad(kept, (0,) * len(shape), [extent - n for extent, n in zip(shape, kept.shape, strict=True)], outside)


MOST_CANDIDATES = 32
"""Windows that may hold one element, above which their contributions are scattered and not looked for."""


def _gradient_of_extremes(node: Node, g: Value) -> Value:
    """+0.0 + the g of each window whose first extreme element (rule 5) this is, one by one, ascending."""
    x = node.operands[0]
    places = ("window", "strides", "dilations", "low", "high")
    chosen = window_reduce(f"arg{node['combiner']}", x, *(node[name] for name in places))
    zero, g = fill(0, x.type), _without_empty_windows(node, g)
    parts = zip(node["window"], node["strides"], node["dilations"], strict=True)
    candidates = [(w - 1) * d // s + 1 for w, s, d in parts]
    if math.prod(candidates) > MOST_CANDIDATES:
        count = g.type.elements
        flat = reshape(zero, (x.type.elements,)), reshape(chosen, (count, 1)), reshape(g, (count,))
        return reshape(scatter("add", *flat, (0,)), x.shape)
    own, total = reshape(iota((x.type.elements,), 0), x.shape), zero
    for back in product(*(range(count - 1, -1, -1) for count in candidates)):
        here = _window_back(node, chosen, back, scalar(-1, I64))
        slope = _window_back(node, g, back, scalar(0, g.dtype))
        total = add(total, select(compare("eq", here, own), slope, zero))
    return total


def _window_back(node: Node, value: Value, back: Sequence[int], outside: Value) -> Value:
    """For each element of the operand, the value of the last window that starts by then, or of one that many before."""
    strides, low, shape = node["strides"], node["low"], node.operands[0].shape
    needed = [(extent - 1 + start) // stride + 1 for extent, start, stride in zip(shape, low, strides, strict=True)]
    shifted = _placed(pad(value, back, (0,) * value.rank, outside), (0,) * value.rank, needed, outside)
    return _placed(_repeated(shifted, strides, strides, outside), low, shape, outside)


def _without_empty_windows(node: Node, g: Value) -> Value:
    """g, +0.0 where a window lies in the padding and has no extreme element."""
    for axis, extent in enumerate(node.operands[0].shape):
        starts = np.arange(g.shape[axis])[:, None] * node["strides"][axis] - node["low"][axis]
        places = starts + np.arange(node["window"][axis]) * node["dilations"][axis]
        holds = ((places >= 0) & (places < extent)).any(axis=1)
        if not holds.all():
            g = select(broadcast(integers(holds, BOOL), g.shape, (axis,)), g, fill(0, g.type))
    return g


def _window_samples() -> Iterable[Sample]:
    image = TensorType(F32, (2, 3, 9, 8))
    for combiner in ("add", "max", "argmax"):
        yield Sample(
            (image,),
            lambda v, c=combiner: window_reduce(c, v, (1, 1, 3, 2), (1, 1, 2, 1), (1,) * 4, (0, 0, 1, 1), (0, 0, 1, 0)),
        )
        yield Sample(
            (image,),
            lambda v, c=combiner: window_reduce(c, v, (1, 1, 2, 3), (1,) * 4, (1, 1, 3, 2), (0,) * 4, (0,) * 4),
        )
        yield Sample(  # windows that lie in the padding
            (TensorType(F32, (2, 4)),),
            lambda v, c=combiner: window_reduce(c, v, (1, 2), (1, 1), (1, 6), (0, 2), (1, 3)),
        )
        yield Sample(  # windows over padding alone
            (TensorType(F32, (2, 0)),),
            lambda v, c=combiner: window_reduce(c, v, (1, 2), (1, 1), (1, 1), (0, 2), (0, 1)),
        )


register(
    Op(
        "window_reduce",
        infer=_window_type,
        reference=_window_reference,
        gradient=_window_gradient,
        lowering=ByElement(_window_element, reduces=True, repeats=_repeats),
        samples=_window_samples,
        expensive=True,
        meaning="reduction over sliding windows; positions in the padding are absent",
    )
)
