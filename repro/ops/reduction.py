"""Reductions over axes, each with its order as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from repro.errors import InternalError
from repro.ir.expressions import Exact, Expr, Order, Sequential, const, reduce
from repro.ir.graph import Node, Value
from repro.ir.types import BOOL, F32, I32, I64, Array, DType, TensorType
from repro.numerics.contract import LANES_ORDER
from repro.numerics.sums import reduce_reference
from repro.ops.elementwise import compare, mul, select
from repro.ops.movement import broadcast, fill, reshape, reverse, transpose
from repro.ops.record import Access, Attributes, Axes, ByElement, Op, Sample, make, register
from repro.ops.running import running_before
from repro.ops.structure import iota

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]

ORDERS: dict[str, Order] = {"lanes": LANES_ORDER, "sequential": Sequential(), "exact": Exact()}
"""The orders that a reduction's `order` attribute names."""


def default_order(combiner: str, dtype: DType) -> str:
    """Rules 10 and 11: float sums and products in lanes; all else is exact in any order."""
    return "lanes" if dtype.is_float and combiner in ("add", "mul") else "exact"


def empty_value(combiner: str, dtype: DType) -> Expr:
    """The reduction of nothing: +0, 1, or the combiner's absorbing start (-inf for max...)."""
    if combiner in ("add", "or"):
        return const(dtype, 0)
    if combiner == "and":
        return const(dtype, 1 if dtype is BOOL else -1)
    if combiner == "mul":
        one = np.asarray(1, dtype=dtype.face)
        return const(dtype, int(one.view(f"u{dtype.bytes}")))
    if dtype.is_float:
        infinity = np.asarray(np.inf if combiner == "min" else -np.inf, dtype=dtype.face)
        return const(dtype, int(infinity.view(f"u{dtype.bytes}")))
    if dtype is BOOL:
        return const(dtype, 1 if combiner == "min" else 0)
    info = np.iinfo(dtype.face)
    return const(dtype, int(info.max if combiner == "min" else info.min))


def _kept(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(shape)) if axis not in axes)


def _reduce_type(attributes: Attributes, types: Types, _: object) -> Types:
    axes, shape = attributes["axes"], types[0].shape
    if tuple(sorted(set(axes))) != axes or any(not 0 <= axis < len(shape) for axis in axes):
        raise TypeError(f"reduce of {types[0]}: axes {axes} do not ascend within its rank")
    if not types[0].dtype.computes:
        raise TypeError(f"reduce on {types[0].dtype}: narrow floats compute in f32")
    kept = tuple(shape[axis] for axis in _kept(shape, axes))
    combiner = attributes["combiner"]
    if combiner.startswith("arg"):
        if math.prod(shape[axis] for axis in axes) == 0:
            raise TypeError(f"{combiner} of {types[0]} over no elements")
        return (TensorType(I64, kept),)
    return (TensorType(types[0].dtype, kept),)


def _constant_bits(expr: Expr, shape: Sequence[int]) -> Array:
    dtype = expr.dtype
    raw = np.asarray(expr.fields[0], dtype=f"u{dtype.bytes}").view(dtype.storage)
    return np.full(shape, raw, dtype=dtype.storage)


def _reduce_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    operand, axes, kind = operands[0], node["axes"], node.types[0]
    kept = _kept(operand.shape, axes)
    rows = np.ascontiguousarray(operand.transpose((*kept, *axes))).reshape(*kind.shape, -1) if operand.size else None
    if rows is None or not rows.shape[-1]:
        return (_constant_bits(empty_value(node["combiner"], kind.dtype), kind.shape),)
    result = reduce_reference(node["combiner"], ORDERS[node["order"]], [rows], None)
    return (np.asarray(result, dtype=kind.dtype.storage).reshape(kind.shape),)


def _reduce_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], axes: Axes) -> Expr:
    shape, reduced = node.operands[0].shape, node["axes"]
    if math.prod(shape[axis] for axis in reduced) == 0:
        return empty_value(node["combiner"], node.types[0].dtype)
    bound = {axis: axes.fresh(shape[axis]) for axis in reduced}
    kept = iter(index)
    position = tuple(bound[axis] if axis in bound else next(kept) for axis in range(len(shape)))
    return reduce(node["combiner"], ORDERS[node["order"]], tuple(bound.values()), [operands[0](position)])


def _reduce_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """add: g. mul: g * (what stands before * what stands behind). min, max: g at the first position (rule 5)."""
    combiner, x, axes = node["combiner"], node.operands[0], node["axes"]
    if not x.dtype.is_float or combiner.startswith("arg"):
        return (None,)
    if not x.type.elements:
        return (fill(0, x.type),)
    kept = _kept(x.shape, axes)
    g = broadcast(cotangents[0], x.shape, kept)
    match combiner:
        case "add":
            return (g,)
        case "mul":
            return (mul(g, _product_of_the_others(x, axes)),)
        case "min" | "max":
            first = broadcast(reduce_axes(f"arg{combiner}", x, axes), x.shape, kept)
            return (select(compare("eq", first, _positions(x.shape, axes)), g, fill(0, x.type)),)
        case _:
            raise InternalError(f"reduce {combiner} has no gradient")


def _positions(shape: Sequence[int], axes: Sequence[int]) -> Value:
    """Each element's row-major position in the reduced axes."""
    reduced = tuple(shape[axis] for axis in axes)
    return broadcast(reshape(iota((math.prod(reduced),), 0), reduced), shape, axes)


def _product_of_the_others(x: Value, axes: Sequence[int]) -> Value:
    """Running products from both ends, each without the element itself: no division, so zeros do no harm."""
    order = (*_kept(x.shape, axes), *axes)
    turned = transpose(x, order)
    flat = reshape(turned, (*turned.shape[: len(order) - len(axes)], math.prod(x.shape[axis] for axis in axes)))
    along = flat.rank - 1
    behind = reverse(running_before("mul", reverse(flat, (along,)), along), (along,))
    others = reshape(mul(running_before("mul", flat, along), behind), turned.shape)
    return transpose(others, [order.index(axis) for axis in range(x.rank)])


def reduce_axes(combiner: str, value: Value, axes: Sequence[int], order: str | None = None) -> Value:
    """Reduce over axes (dropped). add, mul, min, max, and, or; argmax, argmin give i64 positions."""
    if not axes and not combiner.startswith("arg"):
        return value
    named = order or default_order(combiner, value.dtype)
    return make("reduce", value, combiner=combiner, axes=tuple(sorted(axes)), order=named).value


def reduce_keep(combiner: str, value: Value, axes: Sequence[int]) -> Value:
    """`reduce_axes` with the reduced axes kept as extent 1."""
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(value.shape))
    return reshape(reduce_axes(combiner, value, axes), shape)


def _reduce_samples() -> Iterable[Sample]:
    def over(combiner: str, *axes: int) -> Callable[[Value], Value]:
        return lambda value: reduce_axes(combiner, value, axes)

    for combiner in ("add", "mul", "min", "max", "argmax", "argmin"):
        for shape, axes in (((5, 70), (1,)), ((70, 5), (0,)), ((3, 6, 7), (0, 2)), ((2, 4200), (1,))):
            yield Sample((TensorType(F32, shape),), over(combiner, *axes))
        yield Sample((TensorType(I32, (4, 9)),), over(combiner, 1))
    for combiner in ("and", "or"):
        yield Sample((TensorType(BOOL, (4, 9)),), over(combiner, 0))


register(
    Op(
        "reduce",
        infer=_reduce_type,
        reference=_reduce_reference,
        gradient=_reduce_gradient,
        lowering=ByElement(_reduce_element, reduces=True),
        samples=_reduce_samples,
        expensive=True,
        meaning="reduction over axes, in the order its attribute names",
    )
)
