"""Gather and scatter by computed indices. Out of range: gather gives +0, scatter drops (rule 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from repro.ir import index as ix
from repro.ir.graph import Node, Value
from repro.ir.loops import Expr, apply, const
from repro.ir.types import F32, I64, Array, TensorType
from repro.numerics import numpy_scalars
from repro.ops.movement import guard
from repro.ops.record import (
    PENDING,
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
    at = dict(zip((*axes, *_window_axes(operand.rank, axes)), (*places, *index[nb:]), strict=True))
    picked = guard(operands[0](tuple(at[axis] for axis in range(operand.rank))), inside)
    if inside is ix.TRUE:
        return picked
    return apply("select", inside, picked, const(operand.dtype, 0))


def gather(operand: Value, indices: Value, axes: Sequence[int]) -> Value:
    """`indices` i64 [batch..., len(axes)] are points on `axes`; result [batch..., other axes of operand]."""
    return make("gather", operand, indices, axes=tuple(axes)).value


def _gather_samples() -> Iterable[Sample]:
    table = TensorType(F32, (7, 5, 3))
    yield Sample((table, TensorType(I64, (4, 2, 1))), lambda t, i: gather(t, i, (1,)), (None, (-1, 5)))
    yield Sample((table, TensorType(I64, (6, 2))), lambda t, i: gather(t, i, (0, 2)), (None, (-1, 7)))


register(
    Op(
        "gather",
        infer=_gather_type,
        reference=_gather_reference,
        gradient=PENDING,
        lowering=ByElement(_gather_element),
        samples=_gather_samples,
        meaning="elements or windows at computed points",
    )
)

# ── scatter ─────────────────────────────────────────────────────────────────────────────────────────


def _scatter_type(attributes: Attributes, types: Types, _: object) -> Types:
    operand, indices, updates = types
    axes = attributes["axes"]
    _check("scatter", operand, indices, axes)
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
    at = dict(zip((*along, *window_axes), (*places, *window), strict=True))
    offset = ix.linear(tuple(at[axis] for axis in range(operand.rank)), shape)
    update = operands[2]((*batch, *window))
    if node["combiner"] != "set":
        update = apply(node["combiner"], guard(result(offset), inside), update)
    when = None if inside is ix.TRUE else inside
    return copy, Nest((*batch, *window), len(batch), offset, update, when)


def scatter(combiner: str, operand: Value, indices: Value, updates: Value, axes: Sequence[int]) -> Value:
    """`operand` with `updates` [batch..., window...] put at points on `axes`, one by one in ascending order.

    `combiner` is set, add, mul, min or max; f16 and bf16 can only be set.
    """
    return make("scatter", operand, indices, updates, axes=tuple(axes), combiner=combiner).value


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
        gradient=PENDING,
        lowering=ByNests(_scatter_nests),
        samples=_scatter_samples,
        expensive=True,
        meaning="updates at computed points, ascending (rule 12)",
    )
)
