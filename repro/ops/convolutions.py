"""Convolution, forward and transposed, and its gradients, which are convolutions too (rules 7 and 8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from repro.ir import index as ix
from repro.ir.expressions import Chain, Expr
from repro.ir.graph import Node, Value
from repro.ir.types import F32, Array, TensorType
from repro.numerics.contract import PANELS_PER_BLOCK, chain
from repro.ops.contraction import contract, contract_reference, mode_of
from repro.ops.guards import guard
from repro.ops.movement import fill, reshape, transpose
from repro.ops.record import Access, Attributes, Axes, ByElement, Op, Sample, make, register
from repro.ops.slicing import concatenate, slice_

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]


def _convolution_type(attributes: Attributes, types: Types, _: object) -> Types:
    x, w = types
    groups, spatial = attributes["groups"], attributes["output"]
    if x.dtype is not w.dtype or x.rank != w.rank or x.rank < 3 or not x.dtype.computes:
        raise TypeError(f"convolution of {x} with {w}")
    if x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise TypeError(f"convolution of {x} with {w}: channels do not fit {groups} groups")
    if len(spatial) != x.rank - 2:
        raise TypeError(f"convolution of {x}: output extents {spatial} do not fit its rank")
    return (TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial)),)


def _order(node: Node) -> Chain:
    """Panels of whole units, a unit being all taps of a channel (rule 8), unless the node says otherwise."""
    if "panel" in node.attributes:
        return Chain(node["panel"], PANELS_PER_BLOCK)
    return chain(math.prod(node.operands[1].shape[2:]))


def _convolution_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], axes: Axes) -> Expr:
    x, w = (value.type for value in node.operands)
    groups, channels = node["groups"], w.shape[1]
    if not w.elements or not x.elements:
        return ix.const(x.dtype, 0)
    bound = tuple(axes.fresh(extent) for extent in w.shape[1:])
    channel, taps = bound[0], bound[1:]
    group = ix.floordiv(index[1], w.shape[0] // groups)
    position, conditions = list[Expr](), list[Expr]()
    for d, (i, tap) in enumerate(zip(index[2:], taps, strict=True)):
        place = ix.add(
            ix.scale(i, node["strides"][d]), ix.scale(tap, node["tap_steps"][d]), ix.number(node["offsets"][d])
        )
        hole = node["input_dilations"][d]
        conditions.append(ix.compare("eq", ix.mod(place, hole), 0))
        place = ix.floordiv(place, hole)
        conditions.append(ix.inside(place, x.shape[2 + d]))
        position.append(place)
    present = ix.both(*conditions)
    a = guard(operands[0]((index[0], ix.add(ix.scale(group, channels), channel), *position)), present)
    b = operands[1]((index[1], channel, *taps))
    return contract(node, bound, b, a, None if present is ix.TRUE else present, _order(node))


def _overlaps(node: Node) -> bool:
    """Whether windows share elements; the places of a weight gradient's windows are the elements of its result."""
    taps = min(math.prod(node.operands[1].shape[2:]), math.prod(node.types[0].shape[2:]))
    return taps > math.prod(node["strides"])


def _convolution_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    x, w = operands
    kind, groups = node.types[0], node["groups"]
    if not kind.elements or not w.size or not x.size:
        return (np.zeros(kind.shape, kind.dtype.storage),)
    out, kernel, spatial = kind.shape[2:], w.shape[2:], x.shape[2:]
    rank = len(out)
    offset, present, stride = np.zeros((1,) * 2 * rank, np.int64), np.ones((1,) * 2 * rank, bool), 1
    for d in reversed(range(rank)):
        outer = np.arange(out[d]).reshape([-1 if i == d else 1 for i in range(2 * rank)])
        inner = np.arange(kernel[d]).reshape([-1 if i == rank + d else 1 for i in range(2 * rank)])
        place = outer * node["strides"][d] + inner * node["tap_steps"][d] + node["offsets"][d]
        hole = node["input_dilations"][d]
        present = present & (place % hole == 0) & (place // hole >= 0) & (place // hole < spatial[d])
        offset = offset + np.clip(place // hole, 0, spatial[d] - 1) * stride
        stride *= spatial[d]
    pixels, taps = math.prod(out), math.prod(kernel)
    full = (*out, *kernel)
    offset = np.broadcast_to(offset, full).reshape(pixels, taps)
    mask = np.broadcast_to(present, full).reshape(pixels, 1, taps)
    n, channels, per_group = x.shape[0], w.shape[1], w.shape[0] // groups
    columns = x.reshape(n, groups, channels, -1)[..., offset]  # n, g, c, pixels, taps
    columns = columns.transpose(0, 1, 3, 2, 4).reshape(n, groups, 1, pixels, channels * taps)
    weights = w.reshape(1, groups, per_group, 1, channels * taps)
    keep = np.broadcast_to(mask, (pixels, channels, taps)).reshape(1, 1, 1, pixels, channels * taps)
    result = contract_reference(node, weights, columns, None if keep.all() else keep, _order(node))
    return (result.reshape(kind.shape),)


def convolution(
    x: Value,
    w: Value,
    output: Sequence[int],
    strides: Sequence[int],
    tap_steps: Sequence[int],
    offsets: Sequence[int],
    input_dilations: Sequence[int] | None = None,
    groups: int = 1,
    panel: int | None = None,
) -> Value:
    """x [N, C, spatial...] with w [O, C/groups, taps...] to [N, O, output...].

    Output position o and tap t read place = o*strides + t*tap_steps + offsets of the input with
    input_dilations - 1 holes between elements; places outside and holes are absent terms. A forward
    convolution has tap_steps = dilations, offsets = -padding; a transposed one has strides 1,
    tap_steps = -dilations, offsets = +padding and input_dilations = strides. K runs (channel, taps), in
    panels of `panel` terms; without it, of whole channels (rule 8).
    """
    own_panel: dict[str, Any] = {} if panel is None else {"panel": panel}
    node = make(
        "convolution",
        x,
        w,
        output=tuple(output),
        strides=tuple(strides),
        tap_steps=tuple(tap_steps),
        offsets=tuple(offsets),
        input_dilations=tuple(input_dilations or (1,) * len(output)),
        groups=groups,
        mode=mode_of(x.dtype),
        **own_panel,
    )
    return node.value


# its gradients ──────────────────────────────────────────────────────────────────────────────────────


def _convolution_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """Both are convolutions. With place = hole * p = stride * i + step * t + offset, as a forward one reads it,
    dx[p] reads g at stride * i = hole * p - step * t - offset, and dw[t] takes g's pixels i for its taps."""
    if all(hole == 1 for hole in node["input_dilations"]):
        return _input_gradient_by_phases(node, cotangents[0]), _weight_gradient(node, cotangents[0])
    return _input_gradient(node, cotangents[0]), _weight_gradient(node, cotangents[0])


def _swapped_weights(node: Node) -> Value:
    """w [(group, O), C, taps...] as [(group, C), O, taps...]."""
    w, groups = node.operands[1], node["groups"]
    grouped = reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
    swapped = transpose(grouped, (0, 2, 1, *range(3, grouped.rank)))
    return reshape(swapped, (groups * w.shape[1], w.shape[0] // groups, *w.shape[2:]))


def _input_gradient(node: Node, g: Value) -> Value:
    """K = (out channel, taps in storage order), panels of whole out channels."""
    return convolution(
        g,
        _swapped_weights(node),
        output=node.operands[0].shape[2:],
        strides=node["input_dilations"],
        tap_steps=[-step for step in node["tap_steps"]],
        offsets=[-offset for offset in node["offsets"]],
        input_dilations=node["strides"],
        groups=node["groups"],
    )


def _turned_input(x: Value, groups: int) -> Value:
    """x [batch, (group, C), spatial...] as [C, (group, batch), spatial...]."""
    grouped = reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    turned = transpose(grouped, (2, 1, 0, *range(3, grouped.rank)))
    return reshape(turned, (x.shape[1] // groups, groups * x.shape[0], *x.shape[2:]))


def _weight_gradient(node: Node, g: Value) -> Value:
    """K = (batch, pixels in storage order), panels of whole rows of the output.

    x as [C, (group, batch), spatial...], g as the weights [(group, O), batch, pixels...].
    """
    groups, spatial = node["groups"], tuple(range(2, g.rank))
    made = convolution(
        _turned_input(node.operands[0], groups),
        transpose(g, (1, 0, *spatial)),
        output=node.operands[1].shape[2:],
        strides=node["tap_steps"],
        tap_steps=node["strides"],
        offsets=node["offsets"],
        input_dilations=node["input_dilations"],
        groups=groups,
        panel=chain(max(1, g.shape[-1])).panel,
    )
    return transpose(made, (1, 0, *spatial))


@dataclass(frozen=True)
class _Phase:
    """Along one axis, the places p = stride * q + r of one r: the taps that reach them, and how q reads g."""

    taps: slice
    tap_step: int
    offset: int


def _phases(node: Node, axis: int) -> list[_Phase]:
    stride, step, offset = (node[name][axis] for name in ("strides", "tap_steps", "offsets"))
    every, found = stride // math.gcd(stride, step), list[_Phase]()
    for r in range(stride):
        first = next((t for t in range(every) if (t * step + offset - r) % stride == 0), None)
        if first is None:
            found.append(_Phase(slice(0, 0), 0, 0))
        else:
            found.append(
                _Phase(slice(first, None, every), -every * step // stride, (r - offset - first * step) // stride)
            )
    return found


def _input_gradient_by_phases(node: Node, g: Value) -> Value:
    """The bits of `_input_gradient`, without the terms that a stride leaves absent.

    Places that differ by a multiple of the stride see the same taps: each such set is a convolution of its
    own with these taps alone, its panels holding the out channels that they hold with all taps.
    """
    strides, shape, swapped = node["strides"], node.operands[0].shape, _swapped_weights(node)
    if all(stride == 1 for stride in strides):
        return _input_gradient(node, g)
    rows = [-(-extent // stride) for extent, stride in zip(shape[2:], strides, strict=True)]
    parts = [
        _phase(node, g, swapped, phases, rows) for phases in product(*(_phases(node, d) for d in range(len(rows))))
    ]
    stacked = concatenate([reshape(part, (*shape[:2], 1, *rows)) for part in parts], 2)
    apart = reshape(stacked, (*shape[:2], *strides, *rows))
    order = [axis for d in range(len(rows)) for axis in (2 + len(rows) + d, 2 + d)]
    whole = [extent * stride for extent, stride in zip(rows, strides, strict=True)]
    return slice_(reshape(transpose(apart, (0, 1, *order)), (*shape[:2], *whole)), (0,) * len(shape), shape)


def _phase(node: Node, g: Value, swapped: Value, phases: Sequence[_Phase], rows: Sequence[int]) -> Value:
    """The gradient at one phase's places."""
    extents = swapped.shape[2:]
    places = [range(extent)[phase.taps] for extent, phase in zip(extents, phases, strict=True)]
    if not all(places):
        return fill(0, TensorType(g.dtype, (g.shape[0], swapped.shape[0], *rows)))
    channels = chain(math.prod(extents)).panel // math.prod(extents)
    kept = slice_(
        swapped,
        (0, 0, *(place.start for place in places)),
        (*swapped.shape[:2], *extents),
        (1, 1, *(place.step for place in places)),
    )
    return convolution(
        g,
        kept,
        output=rows,
        strides=(1,) * len(rows),
        tap_steps=[phase.tap_step for phase in phases],
        offsets=[phase.offset for phase in phases],
        groups=node["groups"],
        panel=channels * math.prod(map(len, places)),
    )


def _convolution_samples() -> Iterable[Sample]:
    image, weights = TensorType(F32, (2, 4, 9, 8)), TensorType(F32, (6, 4, 3, 3))
    yield Sample((image, weights), lambda x, w: convolution(x, w, (9, 8), (1, 1), (1, 1), (-1, -1)))
    yield Sample((image, weights), lambda x, w: convolution(x, w, (4, 3), (2, 2), (1, 1), (0, 0)))
    grouped = TensorType(F32, (6, 2, 3, 2))
    yield Sample((image, grouped), lambda x, w: convolution(x, w, (7, 4), (1, 2), (2, 1), (-1, 0), groups=2))
    yield Sample((image, weights), lambda x, w: convolution(x, w, (17, 15), (1, 1), (-1, -1), (1, 1), (2, 2)))
    line = TensorType(F32, (1, 300, 7)), TensorType(F32, (3, 300, 5))
    yield Sample(line, lambda x, w: convolution(x, w, (7,), (1,), (1,), (-2,)))


register(
    Op(
        "convolution",
        infer=_convolution_type,
        reference=_convolution_reference,
        gradient=_convolution_gradient,
        lowering=ByElement(_convolution_element, reduces=True, overlaps=_overlaps),
        samples=_convolution_samples,
        expensive=True,
        meaning="convolution, forward or transposed, grouped and dilated (rules 7 and 8)",
    )
)
