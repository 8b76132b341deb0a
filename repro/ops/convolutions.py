"""Convolution, forward and transposed, and its gradients, which are convolutions too (rules 7 and 8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, product
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


def _input_gradient_by_phases(node: Node, g: Value) -> Value:
    """The bits of `_input_gradient`, without the terms that a stride leaves absent."""
    whole = _input_gradient(node, g)
    return whole if all(stride == 1 for stride in node["strides"]) else _by_phases(whole.node)


# holes ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Phase:
    """Along one axis, the outputs p = count * q + r of one r: the taps at which they meet no hole, and how q reads the
    operand, with the holes that are left."""

    taps: range
    stride: int
    tap_step: int
    offset: int
    hole: int = 1

    @property
    def reads(self) -> tuple[int, int, int, int]:
        """What phases have in common that read the same places."""
        return len(self.taps), self.stride, self.tap_step, self.offset


def _phases(node: Node, axis: int) -> list[_Phase]:
    stride, step, offset, hole = (node[name][axis] for name in ("strides", "tap_steps", "offsets", "input_dilations"))
    taps = node.operands[1].shape[2 + axis]
    if not _same_panels(node, axis):
        return [_Phase(range(taps), stride, step, offset, hole)]
    count, every = hole // math.gcd(hole, stride), hole // math.gcd(hole, step)
    found = list[_Phase]()
    for r in range(count):
        first = next((t for t in range(every) if (r * stride + t * step + offset) % hole == 0), None)
        if first is None:
            found.append(_Phase(range(0), 0, 0, 0))
        else:
            start = (r * stride + first * step + offset) // hole
            found.append(_Phase(range(first, taps, every), count * stride // hole, every * step // hole, start))
    return found


def _rows(node: Node) -> tuple[list[list[_Phase]], list[int]]:
    """The phases of each axis, and the extent of one."""
    phases = [_phases(node, axis) for axis in range(len(node["output"]))]
    return phases, [-(-extent // len(each)) for extent, each in zip(node["output"], phases, strict=True)]


def _by_phases(node: Node) -> Value:
    """The bits of a convolution with holes, without the terms that holes leave absent.

    Outputs that differ by a multiple of the count see the same taps: each such set is a convolution of its
    own with these taps alone, its panels holding the channels that they hold with all taps.
    """
    phases, rows = _rows(node)
    lead = node.types[0].shape[:2]
    parts = [reshape(_phase(node, [each], rows), (*lead, 1, *rows)) for each in product(*phases)]
    return _put_together(node, reshape(concatenate(parts, 2), (*lead, *map(len, phases), *rows)))


def _put_together(node: Node, apart: Value) -> Value:
    """From [N, O, phases of each axis..., places of each axis...] to the outputs in their order."""
    rank, shape = len(node["output"]), node.types[0].shape
    order = [axis for d in range(rank) for axis in (2 + rank + d, 2 + d)]
    whole = [count * extent for count, extent in zip(apart.shape[2 : 2 + rank], apart.shape[2 + rank :], strict=True)]
    return slice_(reshape(transpose(apart, (0, 1, *order)), (*shape[:2], *whole)), (0,) * len(shape), shape)


def _phase(node: Node, members: Sequence[Sequence[_Phase]], rows: Sequence[int]) -> Value:
    """The outputs of phases that read the same places: [N, (group, member, O), rows...]."""
    (x, w), groups, phases = node.operands, node["groups"], members[0]
    if not all(phase.taps for phase in phases):
        return fill(0, TensorType(x.dtype, (x.shape[0], len(members) * w.shape[0], *rows)))
    kept = [_taps_of(w, each) for each in members]
    if len(kept) > 1:
        cut = (groups, 1, w.shape[0] // groups, *kept[0].shape[1:])
        together = concatenate([reshape(each, cut) for each in kept], 1)
        kept = [reshape(together, (len(members) * w.shape[0], *kept[0].shape[1:]))]
    return convolution(
        x,
        kept[0],
        output=rows,
        strides=[phase.stride for phase in phases],
        tap_steps=[phase.tap_step for phase in phases],
        offsets=[phase.offset for phase in phases],
        input_dilations=[phase.hole for phase in phases],
        groups=groups,
        panel=_panel(node, phases),
    )


def _taps_of(w: Value, phases: Sequence[_Phase]) -> Value:
    starts, stops, steps = zip(*((each.taps.start, each.taps.stop, each.taps.step) for each in phases), strict=True)
    return slice_(w, (0, 0, *starts), (*w.shape[:2], *stops), (1, 1, *steps))


def _panel(node: Node, phases: Sequence[_Phase]) -> int:
    """Terms of a phase that a panel of the node holds."""
    panel, taps = _order(node).panel, node.operands[1].shape[2:]
    left = [len(phase.taps) for phase in phases]
    if "panel" not in node.attributes:
        return panel // math.prod(taps) * math.prod(left)
    return panel // taps[-1] * left[-1] * math.prod(left[:-1]) // math.prod(taps[:-1])


def _same_panels(node: Node, axis: int) -> bool:
    """Whether each panel of the node holds as many terms of each phase of an axis.

    Panels of whole channels do. Those of whole rows do where the rows that a phase takes come around in each.
    """
    taps, last = node.operands[1].shape[2:], len(node["output"]) - 1
    if "panel" not in node.attributes or axis == last:
        return True
    every = node["input_dilations"][axis] // math.gcd(node["input_dilations"][axis], node["tap_steps"][axis])
    rows, below = node["panel"] // taps[last], math.prod(taps[axis + 1 : last])
    return every == 1 or (taps[axis] % every == 0 and rows % (every * below) == 0)


def _without_holes(node: Node) -> tuple[Value, ...] | None:
    """The bits of a convolution with holes, without the terms that they leave absent; phases beside each other that
    read the same places are outputs of one convolution."""
    removed = (axis for axis, hole in enumerate(node["input_dilations"]) if hole > 1 and _same_panels(node, axis))
    if not any(value.type.elements == 0 for value in (*node.operands, node.value)) and any(True for _ in removed):
        phases, rows = _rows(node)
        return (_put_together(node, _runs(node, phases, rows, ())),)
    return None


def _without_edges(node: Node) -> tuple[Value, ...] | None:
    """The bits of a convolution without holes, without the taps that only ever meet padding: of an image of one
    pixel, 8 of 9. Its panels hold the channels that they hold with all taps."""
    (x, w), rank = node.operands, len(node["output"])
    if "panel" in node.attributes or any(hole > 1 for hole in node["input_dilations"]):
        return None
    if any(value.type.elements == 0 for value in (x, w, node.value)):
        return None
    phases = [_met(node, axis) for axis in range(rank)]
    if all(len(each.taps) == taps for each, taps in zip(phases, w.shape[2:], strict=True)):
        return None
    return (_phase(node, [phases], node["output"]),)


def _met(node: Node, axis: int) -> _Phase:
    """All outputs of an axis, and the taps from the first to the last that meets an element for one of them."""
    stride, step, offset = (node[name][axis] for name in ("strides", "tap_steps", "offsets"))
    extent, last = node.operands[0].shape[2 + axis], (node["output"][axis] - 1) * stride
    ends = ((t * step + offset, t * step + offset + last) for t in range(node.operands[1].shape[2 + axis]))
    met = [t for t, (low, high) in enumerate(ends) if high >= 0 and low < extent]
    taps = range(met[0], met[-1] + 1) if met else range(0)
    return _Phase(taps, stride, step, offset + taps.start * step)


def _cheaper(node: Node) -> tuple[Value, ...] | None:
    return _without_holes(node) or _without_edges(node)


def _runs(
    node: Node, phases: Sequence[Sequence[_Phase]], rows: Sequence[int], chosen: Sequence[Sequence[_Phase]]
) -> Value:
    """[N, O, members of the runs that are chosen, all phases of the other axes, rows...]."""
    if len(chosen) < len(phases):
        runs = [list(run) for _, run in groupby(phases[len(chosen)], lambda phase: phase.reads)]
        return concatenate([_runs(node, phases, rows, (*chosen, run)) for run in runs], 2 + len(chosen))
    made, groups = _phase(node, list(product(*chosen)), rows), node["groups"]
    n, outputs = node.types[0].shape[:2]
    counts = list(map(len, chosen))
    split = reshape(made, (n, groups, math.prod(counts), outputs // groups, *rows))
    turned = transpose(split, (0, 1, 3, 2, *range(4, split.rank)))
    return reshape(turned, (n, outputs, *counts, *rows))


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
        lowering=ByElement(_convolution_element, reduces=True, overlaps=_overlaps, cheaper=_cheaper),
        samples=_convolution_samples,
        expensive=True,
        meaning="convolution, forward or transposed, grouped and dilated (rules 7 and 8)",
    )
)
