"""Sorting along an axis: stable, NaN greatest, -0 equal to +0, ties to the first index (rule 5)."""

from __future__ import annotations

import numpy as np

from repro.ir.graph import Node, Value
from repro.ir.types import F32, I32, I64, Array, TensorType
from repro.ops.elementwise import compare, convert_to, elementwise
from repro.ops.indexing import gather, scatter
from repro.ops.movement import broadcast, fill, reshape, transpose
from repro.ops.record import Attributes, ByExpansion, Op, Sample, make, register
from repro.ops.reduction import reduce_axes
from repro.ops.slicing import concatenate
from repro.ops.structure import iota

Types = tuple[TensorType, ...]


def _sort_type(attributes: Attributes, types: Types, _: object) -> Types:
    if not 0 <= attributes["axis"] < types[0].rank or not types[0].dtype.computes:
        raise TypeError(f"sort of {types[0]} along axis {attributes['axis']}")
    return types[0], TensorType(I64, types[0].shape)


def _sort_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    operand, axis = operands[0], node["axis"]
    keys = operand.astype(operand.dtype, copy=True)
    nan = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(keys.shape, bool)
    if keys.dtype.kind == "f":
        keys = np.where(nan, np.inf, keys) + keys.dtype.type(0)
    if node["descending"]:
        keys, nan = np.flip(keys, axis), np.flip(nan, axis)
    order = np.lexsort((keys, nan), axis=axis)  # stable; NaN after everything
    if node["descending"]:
        order = np.flip(keys.shape[axis] - 1 - order, axis)
    return np.take_along_axis(operand, order, axis), order.astype(np.int64)


def _less(a: Value, b: Value) -> Value:
    """Strictly before in ascending order, NaN last."""
    below = compare("lt", a, b)
    if not a.dtype.is_float:
        return below
    only_b = elementwise("and", compare("ne", b, b), compare("eq", a, a))
    return elementwise("or", below, only_b)


def _expand_sort(node: Node) -> tuple[Value, ...]:
    """rank of i = how many come before i; the element of rank r is where rank == r."""
    value, axis = node.operands[0], node["axis"]
    shape, extent = value.shape, value.shape[axis]
    if not value.type.elements:
        return value, iota(shape, axis)
    pairs = (*shape, extent)  # [..., i, ..., j]
    own_axes = tuple(range(len(shape)))
    other_axes = tuple(len(shape) if a == axis else a for a in own_axes)
    other_order = sorted(own_axes, key=lambda a: other_axes[a])
    own = broadcast(value, pairs, own_axes)
    other = broadcast(transpose(value, other_order), pairs, sorted(other_axes))
    first = compare("lt", iota(pairs, len(shape)), iota(pairs, axis))
    before = _less(own, other) if node["descending"] else _less(other, own)
    after = _less(other, own) if node["descending"] else _less(own, other)
    tie = elementwise("not", elementwise("or", before, after))
    precedes = elementwise("or", before, elementwise("and", tie, first))
    rank = reduce_axes("add", convert_to(precedes, I64), (len(shape),))
    slot = broadcast(transpose(rank, other_order), pairs, sorted(other_axes))
    here = convert_to(compare("eq", slot, iota(pairs, axis)), I32)
    indices = reduce_axes("argmax", here, (len(shape),))
    return _take(value, indices, axis), indices


def _take(value: Value, indices: Value, axis: int) -> Value:
    """NumPy's take_along_axis for indices of the value's rank."""
    return gather(value, _points(indices, axis), range(indices.rank))


def _points(indices: Value, axis: int) -> Value:
    """Whole points i64 [..., rank] of indices along one axis."""
    shape = indices.shape
    columns = [indices if a == axis else iota(shape, a) for a in range(len(shape))]
    return concatenate([reshape(column, (*shape, 1)) for column in columns], len(shape))


def _sort_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """Each cotangent goes back to where its value came from. No two go to one place."""
    value, axis = node.operands[0], node["axis"]
    if not value.type.elements:
        return (cotangents[0],)
    points = _points(Value(node, 1), axis)
    return (scatter("set", fill(0, value.type), points, cotangents[0], range(value.rank)),)


def sort(value: Value, axis: int, descending: bool = False) -> tuple[Value, Value]:
    """Sorted values and their i64 indices along an axis; equal elements keep ascending index order."""
    node = make("sort", value, axis=axis, descending=descending)
    return Value(node, 0), Value(node, 1)


take_along_axis = _take

register(
    Op(
        "sort",
        infer=_sort_type,
        reference=_sort_reference,
        gradient=_sort_gradient,
        lowering=ByExpansion(_expand_sort),
        samples=lambda: (
            Sample((TensorType(F32, (3, 20)),), lambda v: sort(v, 1)[0]),
            Sample((TensorType(F32, (9, 4)),), lambda v: sort(v, 0, descending=True)[1]),
            Sample((TensorType(I32, (25,)),), lambda v: sort(v, 0)[1], ((-3, 3),)),
        ),
        expensive=True,
        meaning="values and indices in order along an axis",
    )
)
