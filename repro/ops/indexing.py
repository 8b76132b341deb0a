"""Gather and scatter by computed indices. Out of range: gather gives +0, scatter drops (rule 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from repro.ir import index as ix
from repro.ir.expressions import Expr, apply, const
from repro.ir.graph import Node, Value
from repro.ir.scalars import SCALARS
from repro.ir.types import BOOL, F32, I64, Array, TensorType
from repro.numerics import numpy_scalars
from repro.ops.arithmetic import compare, convert_to, div, elementwise, mul, select
from repro.ops.guards import guard
from repro.ops.movement import broadcast, fill, reshape, transpose
from repro.ops.record import (
    Access,
    Attributes,
    Axes,
    ByElement,
    ByNests,
    Nest,
    Op,
    Sample,
    make,
    register,
)
from repro.ops.structure import iota

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]


def _window_axes(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis in range(rank) if axis not in axes)


def _check(name: str, operand: TensorType, indices: TensorType, axes: Sequence[int]) -> None:
    if indices.dtype is not I64 or not indices.rank or indices.shape[-1] != len(axes):
        raise TypeError(f"{name}: indices {indices} are not i64[..., {len(axes)}]")
    if len(set(axes)) != len(axes) or any(not 0 <= axis < operand.rank for axis in axes):
        raise TypeError(f"{name}: axes {tuple(axes)} do not fit {operand}")


def _points(indices: Array, shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[Array, ...], Array]:
    """Per axis the clipped coordinate of each point, and which points are inside."""
    inside = np.ones(indices.shape[:-1], dtype=bool)
    places: list[Array] = []
    for position, axis in enumerate(axes):
        along = indices[..., position]
        inside = inside & (along >= 0) & (along < shape[axis])
        places.append(np.clip(along, 0, max(shape[axis] - 1, 0)))
    return tuple(places), inside


def _point_at(indices: Access, batch: Index, shape: Sequence[int], axes: Sequence[int]) -> tuple[list[Expr], Expr]:
    """The point's coordinates and the condition that it is inside, as expressions."""
    places, conditions = list[Expr](), list[Expr]()
    for position, axis in enumerate(axes):
        place = indices((*batch, ix.number(position)))
        places.append(place)
        conditions.append(ix.inside(place, shape[axis]))
    return places, ix.both(*conditions)


# ── gather ──────────────────────────────────────────────────────────────────────────────────────────


def _gather_type(attributes: Attributes, types: Types, _: object) -> Types:
    operand, indices = types
    axes = attributes["axes"]
    _check("gather", operand, indices, axes)
    window = tuple(operand.shape[axis] for axis in _window_axes(operand.rank, axes))
    return (TensorType(operand.dtype, (*indices.shape[:-1], *window)),)


def _gather_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    operand, indices = operands
    axes = node["axes"]
    if not operand.size:
        return (np.zeros(node.types[0].shape, operand.dtype),)
    places, inside = _points(indices, operand.shape, axes)
    window = _window_axes(operand.ndim, axes)
    picked = operand.transpose((*axes, *window))[places]
    mask = inside.reshape(inside.shape + (1,) * len(window))
    return (np.where(mask, picked, np.zeros((), operand.dtype)).reshape(node.types[0].shape),)


def _gather_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], __: Axes) -> Expr:
    operand, indices = node.operands
    axes, nb = node["axes"], indices.rank - 1
    places, inside = _point_at(operands[1], index[:nb], operand.shape, axes)
    if _stay_inside(node):
        inside = ix.TRUE
    at = dict(zip((*axes, *_window_axes(operand.rank, axes)), (*places, *index[nb:]), strict=True))
    picked = guard(operands[0](tuple(at[axis] for axis in range(operand.rank))), inside)
    if inside is ix.TRUE:
        return picked
    return apply("select", inside, picked, const(operand.dtype, 0))


def gather(operand: Value, indices: Value, axes: Sequence[int], inside: bool = False) -> Value:
    """`indices` i64 [batch..., len(axes)] are points on `axes`; result [batch..., other axes of operand].

    `inside`: they cannot leave the operand, because of how they were made, and need no report.
    """
    return make("gather", operand, indices, axes=tuple(axes), **_mark(inside)).value


def _mark(inside: bool) -> dict[str, Any]:
    return {"inside": True} if inside else {}


def _stay_inside(node: Node) -> bool:
    """Whether no index of a gather or scatter can leave the operand: nothing is to be asked as it runs."""
    return "inside" in node.attributes


def _gather_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """Contributions of an element one by one in ascending order, starting from the first (rule 12); +0.0 without any.

    x + -0.0 == x for every x, so that -0.0 is the place to start from where some index points. Linear in the indices.
    """
    operand, indices = node.operands
    axes, wide, inside = node["axes"], _wide(operand.type), _stay_inside(node)
    if not operand.type.elements:
        return fill(0, operand.type), None
    start = select(_touched(operand.type, indices, axes, inside), fill(-0.0, wide), fill(0, wide))
    total = scatter("add", start, indices, convert_to(cotangents[0], wide.dtype), axes, inside)
    return convert_to(total, operand.dtype), None


def _wide(kind: TensorType) -> TensorType:
    """Narrow floats are added in f32 and rounded once (rule 3)."""
    return kind if kind.dtype.computes else TensorType(F32, kind.shape)


def _over_windows(flags: Value, shape: Sequence[int], axes: Sequence[int]) -> Value:
    """A value for each point, [extents of `axes`], as one for each element of the shape."""
    order = sorted(range(len(axes)), key=lambda position: axes[position])
    return broadcast(transpose(flags, order), shape, sorted(axes))


def _touched(operand: TensorType, indices: Value, axes: Sequence[int], inside: bool) -> Value:
    """Whether some index points at each element: bool of the operand's shape."""
    extents = tuple(operand.shape[axis] for axis in axes)
    truth = fill(True, TensorType(BOOL, indices.shape[:-1]))
    marks = scatter("set", fill(False, TensorType(BOOL, extents)), indices, truth, range(len(axes)), inside)
    return _over_windows(marks, operand.shape, axes)


def _gather_samples() -> Iterable[Sample]:
    table = TensorType(F32, (7, 5, 3))
    yield Sample((table, TensorType(I64, (4, 2, 1))), lambda t, i: gather(t, i, (1,)), (None, (-1, 5)))
    yield Sample((table, TensorType(I64, (6, 2))), lambda t, i: gather(t, i, (0, 2)), (None, (-1, 7)))


register(
    Op(
        "gather",
        infer=_gather_type,
        reference=_gather_reference,
        gradient=_gather_gradient,
        lowering=ByElement(_gather_element),
        samples=_gather_samples,
        meaning="elements or windows at computed points",
    )
)

# ── scatter ─────────────────────────────────────────────────────────────────────────────────────────


def _scatter_type(attributes: Attributes, types: Types, _: object) -> Types:
    operand, indices, updates = types
    axes, combiner = attributes["axes"], attributes["combiner"]
    _check("scatter", operand, indices, axes)
    if combiner != "set" and operand.dtype.kind not in SCALARS[combiner].kinds:
        raise TypeError(f"scatter by {combiner} is not defined on {operand.dtype}")
    window = tuple(operand.shape[axis] for axis in _window_axes(operand.rank, axes))
    if updates != TensorType(operand.dtype, (*indices.shape[:-1], *window)):
        raise TypeError(f"scatter into {operand} at {indices}: updates are {updates}")
    return (operand,)


def _scatter_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    operand, indices, updates = operands
    axes, dtype, combiner = node["axes"], node.types[0].dtype, node["combiner"]
    window = _window_axes(operand.ndim, axes)
    order = (*axes, *window)
    result = operand.transpose(order).copy()
    places, inside = _points(indices, operand.shape, axes)
    for point in np.ndindex(*indices.shape[:-1]):
        if not inside[point]:
            continue
        place = tuple(int(along[point]) for along in places)
        if combiner == "set":
            result[place] = updates[point]
        else:
            pair = (np.asarray(result[place]), np.asarray(updates[point]))
            result[place] = numpy_scalars.evaluate(combiner, dtype, [dtype, dtype], pair)
    return (np.ascontiguousarray(result.transpose([order.index(axis) for axis in range(len(order))])),)


def _scatter_nests(
    node: Node, operands: tuple[Access, ...], result: Callable[[Expr], Expr], axes: Axes
) -> Sequence[Nest]:
    operand, indices, _ = node.operands
    shape, along = operand.shape, node["axes"]
    everywhere = tuple(axes.fresh(extent) for extent in shape)
    copy = Nest(everywhere, 0, ix.linear(everywhere, shape), operands[0](everywhere))
    batch = tuple(axes.fresh(extent) for extent in indices.shape[:-1])
    window_axes = _window_axes(operand.rank, along)
    window = tuple(axes.fresh(shape[axis]) for axis in window_axes)
    places, inside = _point_at(operands[1], batch, shape, along)
    if _stay_inside(node):
        inside = ix.TRUE
    at = dict(zip((*along, *window_axes), (*places, *window), strict=True))
    offset = ix.linear(tuple(at[axis] for axis in range(operand.rank)), shape)
    update = operands[2]((*batch, *window))
    if node["combiner"] != "set":
        update = apply(node["combiner"], guard(result(offset), inside), update)
    when = None if inside is ix.TRUE else inside
    return copy, Nest((*batch, *window), len(batch), offset, update, when)


def scatter(
    combiner: str, operand: Value, indices: Value, updates: Value, axes: Sequence[int], inside: bool = False
) -> Value:
    """`operand` with `updates` [batch..., window...] put at points on `axes`, one by one in ascending order.

    `combiner` is set, add, mul, min or max; f16 and bf16 can only be set. `inside` as in `gather`.
    """
    return make("scatter", operand, indices, updates, axes=tuple(axes), combiner=combiner, **_mark(inside)).value


# its gradients ──────────────────────────────────────────────────────────────────────────────────────


def _scatter_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    operand, _, updates = node.operands
    if not operand.type.elements or not updates.type.elements:
        return cotangents[0], None, fill(0, updates.type)
    rule = {"add": _of_added, "set": _of_set, "mul": _of_multiplied, "min": _of_extreme, "max": _of_extreme}
    given, update = rule[node["combiner"]](node, cotangents[0])
    return given, None, update


def _numbers(shape: Sequence[int]) -> Value:
    """Each element's row-major number: the order in which updates come."""
    return reshape(iota((math.prod(shape),), 0), shape)


def _of_added(node: Node, g: Value) -> tuple[Value, Value]:
    """g, and g at each update's point (+0.0 for one that is dropped)."""
    return g, gather(g, node.operands[1], node["axes"], _stay_inside(node))


def _of_set(node: Node, g: Value) -> tuple[Value, Value]:
    """g where no update points; g at the point of each update that is the last there."""
    operand, indices, updates = node.operands
    axes, points = node["axes"], indices.shape[:-1]
    extents, over = tuple(operand.shape[axis] for axis in axes), range(len(axes))
    none = fill(-1, TensorType(I64, extents))
    last = scatter("set", none, indices, _numbers(points), over)
    wins = compare("eq", gather(last, indices, over), _numbers(points))
    kept = select(_over_windows(compare("eq", last, none), operand.shape, axes), g, fill(0, g.type))
    chosen = broadcast(wins, updates.shape, range(len(points)))
    return kept, select(chosen, gather(g, indices, axes), fill(0, updates.type))


def _of_multiplied(node: Node, g: Value) -> tuple[Value, Value]:
    """g * (product of the updates); for an update u that is not zero (g * y) / u, or, where one factor of y is zero and
    is u, g * (product of the other factors); else +0.0."""
    operand, indices, updates = node.operands
    axes, one, zero = node["axes"], fill(1, operand.type), fill(0, operand.type)
    nothing, own_one = fill(0, updates.type), fill(1, updates.type)
    of_updates = scatter("mul", one, indices, updates, axes)
    is_zero, own_zero = compare("eq", operand, zero), compare("eq", updates, nothing)
    others = scatter("mul", select(is_zero, one, operand), indices, select(own_zero, own_one, updates), axes)
    zeros = scatter("add", select(is_zero, one, zero), indices, select(own_zero, own_one, nothing), axes)
    slope = mul(g, others)
    at_zeros, at_slope = gather(zeros, indices, axes), gather(slope, indices, axes)
    alone = select(compare("eq", at_zeros, own_one), at_slope, nothing)
    plain = select(compare("eq", at_zeros, nothing), div(at_slope, updates), nothing)
    return mul(g, of_updates), select(own_zero, alone, plain)


def _same(a: Value, b: Value) -> Value:
    """Equal, or both NaN."""
    nans = elementwise("and", compare("ne", a, a), compare("ne", b, b))
    return elementwise("or", compare("eq", a, b), nans)


def _of_extreme(node: Node, g: Value) -> tuple[Value, Value]:
    """g goes to the first that is the extreme: the operand's element, then the updates in ascending order."""
    operand, indices, updates = node.operands
    axes, result = node["axes"], node.value
    from_operand = _same(operand, result)
    numbers = _numbers(updates.shape)
    beyond = fill(updates.type.elements, numbers.type)
    hits = select(_same(updates, gather(result, indices, axes)), numbers, beyond)
    first = scatter("min", fill(updates.type.elements, TensorType(I64, operand.shape)), indices, hits, axes)
    free = select(from_operand, fill(-1, first.type), first)
    wins = compare("eq", gather(free, indices, axes), numbers)
    chosen = select(wins, gather(g, indices, axes), fill(0, updates.type))
    return select(from_operand, g, fill(0, g.type)), chosen


def _scatter_samples() -> Iterable[Sample]:
    table = TensorType(F32, (7, 5))
    for combiner in ("set", "add", "mul", "min", "max"):
        yield Sample(
            (table, TensorType(I64, (9, 1)), TensorType(F32, (9, 5))),
            lambda t, i, u, c=combiner: scatter(c, t, i, u, (0,)),
            (None, (-1, 7), None),
        )
    yield Sample(
        (table, TensorType(I64, (3, 4, 2)), TensorType(F32, (3, 4))),
        lambda t, i, u: scatter("add", t, i, u, (0, 1)),
        (None, (0, 5), None),
    )


register(
    Op(
        "scatter",
        infer=_scatter_type,
        reference=_scatter_reference,
        gradient=_scatter_gradient,
        lowering=ByNests(_scatter_nests),
        samples=_scatter_samples,
        expensive=True,
        meaning="updates at computed points, ascending (rule 12)",
    )
)
