"""Ops that only move elements: every dtype, no arithmetic, free to fuse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.ir import index as ix
from repro.ir.expressions import Expr
from repro.ir.graph import Node, Value, constant
from repro.ir.types import F32, Array, TensorType, to_storage
from repro.ops.arithmetic import convert_to
from repro.ops.record import Access, Attributes, Axes, ByElement, Op, Sample, make, register

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]


_F = TensorType(F32, (3, 4, 5))


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
    return (reshape(sum_over(cotangents[0], summed), extents),)


def sum_over(value: Value, axes: Sequence[int]) -> Value:
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
            Sample((TensorType(F32, (4, 1)),), lambda v: broadcast(v, (3, 4, 5), (1, 2))),
            Sample((TensorType(F32, ()),), lambda v: broadcast(v, (7,), ())),
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
            Sample((_F,), lambda v: reshape(v, (12, 5))),
            Sample((_F,), lambda v: reshape(v, (2, 30, 1))),
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
            Sample((_F,), lambda v: transpose(v, (2, 0, 1))),
            Sample((_F,), lambda v: transpose(v, (0, 2, 1))),
        ),
    )
)

# ── reverse ─────────────────────────────────────────────────────────────────────────────────────────


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
        samples=lambda: (Sample((_F,), lambda v: reverse(v, (0, 2))),),
    )
)
