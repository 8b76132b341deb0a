"""Ops that only move elements: every dtype, no arithmetic, free to fuse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.ir import index as ix
from repro.ir.expressions import FALSE, TRUE, Expr, Load, Reduce, apply, load
from repro.ir.graph import Node, Value, constant
from repro.ir.types import BOOL, F32, I64, Array, TensorType, to_storage
from repro.ops.arithmetic import convert_to, select
from repro.ops.record import Access, Attributes, Axes, ByElement, Op, Sample, make, register

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]


def guard(expr: Expr, condition: Expr) -> Expr:
    """The expression with every load inside made conditional: no access where the condition is false. The loads that
    decide on another load are among them."""
    if condition is TRUE:
        return expr
    memo: dict[Expr, Expr] = {}

    def visit(part: Expr) -> Expr:
        found = memo.get(part)
        if found is not None:
            return found
        children = tuple(visit(child) for child in part.children)
        if isinstance(part, Load):
            when = ix.both(*children[1:], condition)
            made: Expr = load(part.dtype, part.buffer, children[0], when)
        elif isinstance(part, Reduce):
            made = Reduce(part.dtype, part.fields, children)
        else:
            made = type(part)(part.dtype, part.fields, children)
        memo[part] = made
        return made

    return visit(expr)


_F = TensorType(F32, (3, 4, 5))


def _one(*types: TensorType) -> tuple[TensorType, ...]:
    return types


# ── broadcast ───────────────────────────────────────────────────────────────────────────────────────


def _broadcast_type(attributes: Attributes, types: Types, _: object) -> Types:
    shape, axes = attributes["shape"], attributes["axes"]
    if len(axes) != types[0].rank or tuple(sorted(set(axes))) != axes:
        raise TypeError(f"broadcast of {types[0]}: axes {axes} do not ascend, one for each operand axis")
    for extent, axis in zip(types[0].shape, axes, strict=True):
        if extent not in (1, shape[axis]):
            raise TypeError(f"broadcast of {types[0]} to {shape}: axis {axis} differs")
    return (TensorType(types[0].dtype, shape),)


def _broadcast_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    shape, axes = node["shape"], node["axes"]
    placed = [1] * len(shape)
    for extent, axis in zip(operands[0].shape, axes, strict=True):
        placed[axis] = extent
    return (np.broadcast_to(operands[0].reshape(placed), shape).copy(),)


def _broadcast_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    extents = node.operands[0].shape
    zero = ix.number(0)
    return operands[0](
        tuple(zero if extent == 1 else index[axis] for extent, axis in zip(extents, node["axes"], strict=True))
    )


def _broadcast_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    extents, axes = node.operands[0].shape, node["axes"]
    kept = {axis for extent, axis in zip(extents, axes, strict=True) if extent == node["shape"][axis]}
    summed = tuple(axis for axis in range(len(node["shape"])) if axis not in kept)
    return (reshape(_sum_over(cotangents[0], summed), extents),)


def _sum_over(value: Value, axes: Sequence[int]) -> Value:
    """The sum of rule 10 over axes, which are dropped; narrow floats in f32, rounded once (rule 3)."""
    if not axes:
        return value
    wide = value if value.dtype.computes else convert_to(value, F32)
    return convert_to(make("reduce", wide, combiner="add", axes=tuple(axes), order="lanes").value, value.dtype)


def broadcast(value: Value, shape: Sequence[int], axes: Sequence[int]) -> Value:
    """`axes[i]` is the result axis of operand axis i, ascending; extent 1 stretches."""
    if value.shape == tuple(shape):
        return value
    return make("broadcast", value, shape=tuple(shape), axes=tuple(axes)).value


def broadcast_to(value: Value, shape: Sequence[int]) -> Value:
    """NumPy's broadcasting: axes align at the end."""
    lead = len(shape) - value.rank
    return broadcast(value, shape, range(lead, len(shape)))


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape by NumPy's rule; raises TypeError where there is none."""
    try:
        return tuple(int(extent) for extent in np.broadcast_shapes(*(tuple(shape) for shape in shapes)))
    except ValueError:
        raise TypeError(f"shapes do not broadcast: {', '.join(str(tuple(shape)) for shape in shapes)}") from None


def fill(value: float | int | bool, of: TensorType) -> Value:
    """A tensor of one value."""
    one = constant(to_storage(np.asarray(value).astype(of.dtype.face), of.dtype), of.dtype)
    return broadcast(one, of.shape, ())


register(
    Op(
        "broadcast",
        infer=_broadcast_type,
        reference=_broadcast_reference,
        gradient=_broadcast_gradient,
        lowering=ByElement(_broadcast_element, moves=True),
        samples=lambda: (
            Sample(_one(TensorType(F32, (4, 1))), lambda v: broadcast(v, (3, 4, 5), (1, 2))),
            Sample(_one(TensorType(F32, ())), lambda v: broadcast(v, (7,), ())),
        ),
    )
)

# ── reshape ─────────────────────────────────────────────────────────────────────────────────────────


def _reshape_type(attributes: Attributes, types: Types, _: object) -> Types:
    made = TensorType(types[0].dtype, attributes["shape"])
    if made.elements != types[0].elements:
        raise TypeError(f"reshape of {types[0]} to {made.shape}: element counts differ")
    return (made,)


def _reshape_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    """Last axes that stay as they are keep their index: one that is out of range, in a guarded load, stays plain."""
    shape, source = node["shape"], node.operands[0].shape
    kept = next((n for n, (a, b) in enumerate(zip(reversed(shape), reversed(source), strict=False)) if a != b), None)
    kept = min(len(shape), len(source)) if kept is None else kept
    lead, behind = len(shape) - kept, len(source) - kept
    first = ix.delinear(ix.linear(index[:lead], shape[:lead]), source[:behind])
    return operands[0]((*first, *index[lead:]))


def _reshape_forward(node: Node, index: Index) -> Index:
    return ix.delinear(ix.linear(index, node.operands[0].shape), node["shape"])


def reshape(value: Value, shape: Sequence[int]) -> Value:
    return value if value.shape == tuple(shape) else make("reshape", value, shape=tuple(shape)).value


register(
    Op(
        "reshape",
        infer=_reshape_type,
        reference=lambda node, operands: (operands[0].reshape(node["shape"]),),
        gradient=lambda node, cotangents: (reshape(cotangents[0], node.operands[0].shape),),
        lowering=ByElement(_reshape_element, moves=True, forward=_reshape_forward),
        samples=lambda: (
            Sample(_one(_F), lambda v: reshape(v, (12, 5))),
            Sample(_one(_F), lambda v: reshape(v, (2, 30, 1))),
        ),
    )
)

# ── transpose ───────────────────────────────────────────────────────────────────────────────────────


def _transpose_type(attributes: Attributes, types: Types, _: object) -> Types:
    permutation = attributes["permutation"]
    if sorted(permutation) != list(range(types[0].rank)):
        raise TypeError(f"transpose of {types[0]}: {permutation} is no permutation of its axes")
    return (TensorType(types[0].dtype, tuple(types[0].shape[axis] for axis in permutation)),)


def _transpose_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    source = dict(zip(node["permutation"], index, strict=True))
    return operands[0](tuple(source[axis] for axis in range(len(index))))


def transpose(value: Value, permutation: Sequence[int]) -> Value:
    """Result axis i is operand axis `permutation[i]`."""
    if tuple(permutation) == tuple(range(value.rank)):
        return value
    return make("transpose", value, permutation=tuple(permutation)).value


def _transpose_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    permutation = node["permutation"]
    return (transpose(cotangents[0], [permutation.index(axis) for axis in range(len(permutation))]),)


register(
    Op(
        "transpose",
        infer=_transpose_type,
        reference=lambda node, operands: (np.ascontiguousarray(operands[0].transpose(node["permutation"])),),
        gradient=_transpose_gradient,
        lowering=ByElement(
            _transpose_element,
            moves=True,
            forward=lambda node, index: tuple(index[axis] for axis in node["permutation"]),
        ),
        samples=lambda: (
            Sample(_one(_F), lambda v: transpose(v, (2, 0, 1))),
            Sample(_one(_F), lambda v: transpose(v, (0, 2, 1))),
        ),
    )
)

# ── slice, reverse, pad, concatenate ────────────────────────────────────────────────────────────────


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
            Sample(_one(_F), lambda v: slice_(v, (1, 0, 2), (3, 4, 5))),
            Sample(_one(_F), lambda v: slice_(v, (0, 1, 0), (3, 4, 5), (2, 2, 3))),
        ),
    )
)


def _reverse_index(node: Node, index: Index) -> Index:
    shape = node.types[0].shape
    return tuple(
        ix.add(ix.number(shape[axis] - 1), ix.scale(position, -1)) if axis in node["axes"] else position
        for axis, position in enumerate(index)
    )


def _reverse_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    return operands[0](_reverse_index(node, index))


def reverse(value: Value, axes: Sequence[int]) -> Value:
    return make("reverse", value, axes=tuple(sorted(axes))).value


register(
    Op(
        "reverse",
        infer=lambda _, types, __: (types[0],),
        reference=lambda node, operands: (np.ascontiguousarray(np.flip(operands[0], node["axes"])),),
        gradient=lambda node, cotangents: (reverse(cotangents[0], node["axes"]),),
        lowering=ByElement(_reverse_element, moves=True, forward=_reverse_index),
        samples=lambda: (Sample(_one(_F), lambda v: reverse(v, (0, 2))),),
    )
)


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
    return inner, _sum_over(around, range(g.rank))


register(
    Op(
        "pad",
        infer=_pad_type,
        reference=_pad_reference,
        gradient=_pad_gradient,
        lowering=ByElement(_pad_element, moves=True),
        samples=lambda: (Sample(_one(_F, TensorType(F32, ())), lambda v, f: pad(v, (1, 0, 2), (0, 3, 1), f)),),
    )
)


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
        part = guard(operand((*index[:axis], position, *index[axis + 1 :])), inside)
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
            Sample(_one(_F, TensorType(F32, (3, 2, 5)), _F), lambda *vs: concatenate(vs, 1)),
            Sample(_one(TensorType(I64, (2,)), TensorType(I64, (3,))), lambda *vs: concatenate(vs, 0)),
        ),
    )
)
