"""Ops that take parts of tensors and put tensors together: slice, pad, concatenate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.ir import index as ix
from repro.ir.expressions import FALSE, TRUE, Expr, apply
from repro.ir.graph import Node, Value, constant
from repro.ir.types import BOOL, F32, I64, Array, TensorType
from repro.ops.arithmetic import select
from repro.ops.guards import guard
from repro.ops.movement import fill, reshape, sum_over
from repro.ops.record import Access, Attributes, Axes, ByElement, Op, Sample, make, register

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]

_F = TensorType(F32, (3, 4, 5))

# ── slice ───────────────────────────────────────────────────────────────────────────────────────────


def _slice_type(attributes: Attributes, types: Types, _: object) -> Types:
    extents: list[int] = []
    parts = zip(types[0].shape, attributes["starts"], attributes["limits"], attributes["strides"], strict=True)
    for extent, start, limit, stride in parts:
        if not (0 <= start <= extent and start <= limit <= extent and stride > 0):
            raise TypeError(f"slice of {types[0]}: {start}:{limit}:{stride} is out of range")
        extents.append(-(-(limit - start) // stride))
    return (TensorType(types[0].dtype, tuple(extents)),)


def _slice_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    parts = zip(node["starts"], node["limits"], node["strides"], strict=True)
    return (np.ascontiguousarray(operands[0][tuple(slice(*part) for part in parts)]),)


def _slice_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    moved = (
        ix.add(ix.scale(position, stride), ix.number(start))
        for position, start, stride in zip(index, node["starts"], node["strides"], strict=True)
    )
    return operands[0](tuple(moved))


def slice_(value: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None) -> Value:
    """`value[starts:limits:strides]`, all non-negative, one for each axis."""
    strides = tuple(strides or (1,) * value.rank)
    made = make("slice", value, starts=tuple(starts), limits=tuple(limits), strides=strides).value
    return value if made.type == value.type else made


def _slice_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """g at the positions that were taken, +0 elsewhere: strides are put back as trailing zeros of each element."""
    g, kind = cotangents[0], node.operands[0].type
    if not g.type.elements:
        return (fill(0, kind),)
    starts, strides = node["starts"], node["strides"]
    zero = constant(np.zeros((), g.dtype.storage), g.dtype)
    none = (0,) * (2 * g.rank)
    apart = reshape(g, [extent for pair in zip(g.shape, (1,) * g.rank, strict=True) for extent in pair])
    holes = pad(apart, none, [amount for stride in strides for amount in (0, stride - 1)], zero)
    spread = reshape(holes, [extent * stride for extent, stride in zip(g.shape, strides, strict=True)])
    room = [extent - start for extent, start in zip(kind.shape, starts, strict=True)]
    fitting = slice_(spread, (0,) * g.rank, [min(have, may) for have, may in zip(spread.shape, room, strict=True)])
    return (pad(fitting, starts, [may - have for have, may in zip(fitting.shape, room, strict=True)], zero),)


register(
    Op(
        "slice",
        infer=_slice_type,
        reference=_slice_reference,
        gradient=_slice_gradient,
        lowering=ByElement(_slice_element, moves=True),
        samples=lambda: (
            Sample((_F,), lambda v: slice_(v, (1, 0, 2), (3, 4, 5))),
            Sample((_F,), lambda v: slice_(v, (0, 1, 0), (3, 4, 5), (2, 2, 3))),
        ),
    )
)


# ── pad ─────────────────────────────────────────────────────────────────────────────────────────────


def _pad_type(attributes: Attributes, types: Types, _: object) -> Types:
    if types[1] != TensorType(types[0].dtype, ()):
        raise TypeError(f"pad of {types[0]} with {types[1]}: the fill is a scalar of its dtype")
    low, high = attributes["low"], attributes["high"]
    shape = tuple(n + a + b for n, a, b in zip(types[0].shape, low, high, strict=True))
    if min((*low, *high, *shape), default=0) < 0:
        raise TypeError(f"pad of {types[0]}: negative amount in {low}, {high}")
    return (TensorType(types[0].dtype, shape),)


def _pad_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    result = np.full(node.types[0].shape, operands[1], dtype=operands[0].dtype)
    inside = tuple(slice(a, a + n) for a, n in zip(node["low"], operands[0].shape, strict=True))
    result[inside] = operands[0]
    return (result,)


def _pad_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    moved = tuple(ix.add(i, ix.number(-a)) for i, a in zip(index, node["low"], strict=True))
    inside = ix.both(*(ix.inside(i, n) for i, n in zip(moved, node.operands[0].shape, strict=True)))
    if inside is FALSE:
        return operands[1](())
    value = guard(operands[0](moved), inside)
    return value if inside is TRUE else apply("select", inside, value, operands[1](()))


def pad(value: Value, low: Sequence[int], high: Sequence[int], fill_value: Value) -> Value:
    """`low`/`high` elements of the scalar `fill_value` before/after each axis."""
    if not any(low) and not any(high):
        return value
    return make("pad", value, fill_value, low=tuple(low), high=tuple(high)).value


def _pad_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """The inner part of g; of the fill, the sum (rule 10) over all positions of g with +0 at the inner ones."""
    g, shape, low = cotangents[0], node.operands[0].shape, node["low"]
    inner = slice_(g, low, [start + extent for start, extent in zip(low, shape, strict=True)])
    outside = pad(fill(False, TensorType(BOOL, shape)), low, node["high"], constant(np.ones((), np.bool_), BOOL))
    around = select(outside, g, fill(0, g.type))
    return inner, sum_over(around, range(g.rank))


register(
    Op(
        "pad",
        infer=_pad_type,
        reference=_pad_reference,
        gradient=_pad_gradient,
        lowering=ByElement(_pad_element, moves=True),
        samples=lambda: (Sample((_F, TensorType(F32, ())), lambda v, f: pad(v, (1, 0, 2), (0, 3, 1), f)),),
    )
)


# ── concatenate ─────────────────────────────────────────────────────────────────────────────────────


def _concatenate_type(attributes: Attributes, types: Types, _: object) -> Types:
    axis, shape = attributes["axis"], list(types[0].shape)
    for kind in types[1:]:
        same = kind.dtype is types[0].dtype and kind.rank == types[0].rank
        if not same or any(a != b for i, (a, b) in enumerate(zip(kind.shape, shape, strict=True)) if i != axis):
            raise TypeError(f"concatenate along axis {axis}: {', '.join(map(str, types))}")
        shape[axis] += kind.shape[axis]
    return (TensorType(types[0].dtype, tuple(shape)),)


def _concatenate_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    axis, start, result = node["axis"], 0, None
    for operand, value in zip(operands, node.operands, strict=True):
        extent = value.shape[axis]
        position = ix.add(index[axis], ix.number(-start))
        inside = ix.inside(position, extent)
        start += extent
        if inside is FALSE:
            continue
        place = ix.number(0) if extent == 1 else position
        part = guard(operand((*index[:axis], place, *index[axis + 1 :])), inside)
        result = part if result is None else apply("select", inside, part, result)
    if result is None:
        raise TypeError("concatenate of nothing")
    return result


def concatenate(values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else make("concatenate", *values, axis=axis).value


def _concatenate_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """The operands' own parts of g."""
    g, axis, made, start = cotangents[0], node["axis"], list[Value](), 0
    for operand in node.operands:
        end = start + operand.shape[axis]
        starts = [start if position == axis else 0 for position in range(g.rank)]
        made.append(slice_(g, starts, [end if p == axis else extent for p, extent in enumerate(g.shape)]))
        start = end
    return tuple(made)


register(
    Op(
        "concatenate",
        infer=_concatenate_type,
        reference=lambda node, operands: (np.concatenate(operands, axis=node["axis"]),),
        gradient=_concatenate_gradient,
        lowering=ByElement(_concatenate_element, moves=True),
        samples=lambda: (
            Sample((_F, TensorType(F32, (3, 2, 5)), _F), lambda *vs: concatenate(vs, 1)),
            Sample((TensorType(I64, (2,)), TensorType(I64, (3,))), lambda *vs: concatenate(vs, 0)),
        ),
    )
)
