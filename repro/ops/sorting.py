"""Sorting along an axis: stable, NaN greatest, -0 equal to +0, ties to the first index (rule 5)."""

from __future__ import annotations

import math

import numpy as np

from repro.ir.graph import Node, Value
from repro.ir.types import F32, F64, I32, I64, U64, Array, TensorType
from repro.ops.arithmetic import bitcast_to, compare, convert_to, elementwise, select, sub
from repro.ops.indexing import scatter
from repro.ops.movement import broadcast, fill, reshape
from repro.ops.points import take_along_axis, whole_points
from repro.ops.record import Attributes, ByExpansion, Op, Sample, make, register
from repro.ops.reduction import reduce_axes
from repro.ops.slicing import slice_
from repro.ops.sort_keys import LAST, PLACE_BITS, halves, is_narrow, key, packed, places_of, with_places
from repro.ops.sort_rows import is_selected, least
from repro.ops.structure import iota

Types = tuple[TensorType, ...]


def _count(attributes: Attributes, kind: TensorType) -> int:
    return attributes.get("count", kind.shape[attributes["axis"]])


def _sort_type(attributes: Attributes, types: Types, _: object) -> Types:
    kind, axis = types[0], attributes["axis"]
    if not 0 <= axis < kind.rank or not kind.dtype.computes:
        raise TypeError(f"sort of {kind} along axis {axis}")
    if not 0 <= (count := _count(attributes, kind)) <= kind.shape[axis]:
        raise TypeError(f"the first {count} of {kind} along axis {axis}")
    shape = (*kind.shape[:axis], count, *kind.shape[axis + 1 :])
    return TensorType(kind.dtype, shape), TensorType(I64, shape)


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
    order = np.take(order, range(node.types[1].shape[axis]), axis)
    return np.take_along_axis(operand, order, axis), order.astype(np.int64)


def _expand_sort(node: Node) -> tuple[Value, ...]:
    """The order of the keys, then the elements in it."""
    value, axis = node.operands[0], node["axis"]
    kind = node.types[0]
    if not kind.elements:
        return fill(0, kind), iota(kind.shape, axis)
    rows = reshape(value, (math.prod(kind.shape[:axis]), value.shape[axis], math.prod(kind.shape[axis + 1 :])))
    order = _narrow_order if is_narrow(value.dtype) else _wide_order
    indices = reshape(order(rows, kind.shape[axis], node["descending"]), kind.shape)
    return take_along_axis(value, indices, axis, inside=True), indices


def _narrow_order(rows: Value, count: int, descending: bool) -> Value:
    """Places of the first `count` of each row."""
    return places_of(least(packed(key(rows, descending)), count))


def _wide_order(rows: Value, count: int, descending: bool) -> Value:
    """The same, of keys of 64 bits; where few are asked for, of as many that they are among."""
    keys = key(rows, descending)
    if not is_selected(rows.shape[1], count):
        return _by_halves(keys, count)
    candidates = _candidates(keys, count)
    found = _by_halves(take_along_axis(keys, candidates, 1, inside=True), count)
    return take_along_axis(candidates, found, 1, inside=True)


def _by_halves(keys: Value, count: int) -> Value:
    """Places by their lower half, then stably by the upper one."""
    upper, lower = halves(keys)
    first = places_of(least(with_places(lower), keys.shape[1]))
    second = places_of(least(with_places(take_along_axis(upper, first, 1, inside=True)), count))
    return take_along_axis(first, second, 1, inside=True)


def _candidates(keys: Value, count: int) -> Value:
    """Places of the `count` least keys, equal ones in the order of their places: first those whose upper half is below
    that of the last one; of those that share it, the ones whose lower half is least."""
    upper, lower = halves(keys)
    first = least(with_places(upper), count)
    outer, _, inner = keys.shape
    last = slice_(first, (0, count - 1, 0), (outer, count, inner))
    equal = compare("eq", _upper(keys), _along(_upper(last), keys))
    shared = places_of(least(select(equal, with_places(lower), fill(LAST, keys.type)), count))
    below = compare("lt", _shifted(first), _along(_shifted(last), first))
    number = reduce_axes("add", convert_to(below, I64), (1,))
    behind = sub(iota(first.shape, 1), broadcast(number, first.shape, (0, 2)))
    behind = elementwise("max", behind, fill(0, behind.type))
    return select(below, places_of(first), take_along_axis(shared, behind, 1, inside=True))


def _shifted(keys: Value) -> Value:
    """The upper half, to be compared."""
    return elementwise("shr", keys, fill(PLACE_BITS, keys.type))


def _upper(keys: Value) -> Value:
    """The bits of the upper half, computed beside the one that is packed rather than read again from memory. They need
    no sign, which AVX2 shifts in by three instructions."""
    bits = bitcast_to(keys, U64)
    return elementwise("shr", bits, fill(PLACE_BITS, bits.type))


def _along(value: Value, like: Value) -> Value:
    """[outer, 1, inner] for each element of a row."""
    outer, _, inner = value.shape
    return broadcast(reshape(value, (outer, inner)), like.shape, (0, 2))


def _sort_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """Each cotangent goes back to where its value came from. No two go to one place."""
    value, axis = node.operands[0], node["axis"]
    if not node.types[0].elements:
        return (fill(0, value.type),)
    points = whole_points(Value(node, 1), axis)
    return (scatter("set", fill(0, value.type), points, cotangents[0], range(value.rank)),)


def sort(value: Value, axis: int, descending: bool = False, count: int | None = None) -> tuple[Value, Value]:
    """Sorted values and their i64 indices along an axis, the first `count` of them; equal elements keep ascending index
    order."""
    if count is None or count == value.shape[axis]:
        node = make("sort", value, axis=axis, descending=descending)
    else:
        node = make("sort", value, axis=axis, descending=descending, count=count)
    return Value(node, 0), Value(node, 1)


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
            Sample((TensorType(F32, (2, 600)),), lambda v: sort(v, 1, descending=True)[1]),
            Sample((TensorType(I32, (500, 3)),), lambda v: sort(v, 0)[1], ((-40, 40),)),
            Sample((TensorType(F64, (2, 30)),), lambda v: sort(v, 1)[1]),
            Sample((TensorType(U64, (40,)),), lambda v: sort(v, 0, count=7)[1], ((0, 9),)),
            Sample((TensorType(F32, (2, 331)),), lambda v: sort(v, 1, descending=True, count=3)[1]),
            Sample((TensorType(I32, (2, 163, 3)),), lambda v: sort(v, 1, count=4)[1], ((-40, 40),)),
        ),
        expensive=True,
        meaning="values and indices in order along an axis",
    )
)
