"""Reductions, each with its order as data: over axes, over windows, running along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.graph import Node, Value
from repro.ir.loops import Exact, Expr, Order, Sequential, apply, const, reduce
from repro.ir.types import BOOL, F32, I32, I64, Array, DType, TensorType
from repro.numerics import numpy_scalars
from repro.numerics.contract import LANES_ORDER
from repro.numerics.sums import reduce_reference
from repro.ops.movement import broadcast, guard, reshape
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
    if node["combiner"] != "add":
        raise InternalError(f"the gradient of reduce {node['combiner']} is pending: only add has one")
    shape = node.operands[0].shape
    return (broadcast(cotangents[0], shape, _kept(shape, node["axes"])),)


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

# ── window reduce ───────────────────────────────────────────────────────────────────────────────────


def window_extent(extent: int, window: int, stride: int, dilation: int, low: int, high: int) -> int:
    """Number of window positions along an axis."""
    return max(0, (extent + low + high - ((window - 1) * dilation + 1)) // stride + 1)


def _window_type(attributes: Attributes, types: Types, _: object) -> Types:
    names = ("window", "strides", "dilations", "low", "high")
    parts = zip(types[0].shape, *(attributes[name] for name in names), strict=True)
    shape = tuple(window_extent(n, w, s, d, low, high) for n, w, s, d, low, high in parts)
    if not types[0].dtype.computes:
        raise TypeError(f"window_reduce on {types[0].dtype}: narrow floats compute in f32")
    dtype = I64 if attributes["combiner"].startswith("arg") else types[0].dtype
    return (TensorType(dtype, shape),)


def _window_positions(node: Node) -> tuple[Array, Array]:
    """Offset into the operand of each (output, window position), and whether it is inside."""
    shape, out = node.operands[0].shape, node.types[0].shape
    rank = len(shape)
    offset, present = np.zeros((1,) * (2 * rank), dtype=np.int64), np.ones((1,) * (2 * rank), dtype=bool)
    stride = 1
    for axis in reversed(range(rank)):
        outer = np.arange(out[axis]).reshape([-1 if i == axis else 1 for i in range(2 * rank)])
        inner = np.arange(node["window"][axis]).reshape([-1 if i == rank + axis else 1 for i in range(2 * rank)])
        position = outer * node["strides"][axis] - node["low"][axis] + inner * node["dilations"][axis]
        present = present & (position >= 0) & (position < shape[axis])
        offset = offset + np.clip(position, 0, shape[axis] - 1) * stride
        stride *= shape[axis]
    full = (*out, *node["window"])
    return (
        np.broadcast_to(offset, full).reshape(*out, -1),
        np.broadcast_to(present, full).reshape(*out, -1),
    )


def _window_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    kind = node.types[0]
    if not kind.elements:
        return (np.zeros(kind.shape, kind.dtype.storage),)
    offset, present = _window_positions(node)
    terms = operands[0].reshape(-1)[offset]
    result = reduce_reference(node["combiner"], ORDERS[node["order"]], [terms], present)
    if kind.dtype is I64 and node["combiner"].startswith("arg"):
        result = np.take_along_axis(offset, np.asarray(result)[..., None], axis=-1)[..., 0]
    return (np.asarray(result, dtype=kind.dtype.storage).reshape(kind.shape),)


def _window_at(node: Node, index: Index, taps: Index) -> tuple[Index, Expr]:
    position = tuple(
        ix.add(ix.scale(i, s), ix.scale(t, d), ix.number(-low))
        for i, t, s, d, low in zip(index, taps, node["strides"], node["dilations"], node["low"], strict=True)
    )
    shape = node.operands[0].shape
    return position, ix.both(*(ix.inside(p, n) for p, n in zip(position, shape, strict=True)))


def _window_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], axes: Axes) -> Expr:
    taps = tuple(axes.fresh(extent) for extent in node["window"])
    position, present = _window_at(node, index, taps)
    term = guard(operands[0](position), present)
    bound = tuple(tap for tap in taps if tap.extent > 1) or taps[-1:]
    present_or_none = None if present is ix.TRUE else present
    found = reduce(node["combiner"], ORDERS[node["order"]], bound, [term], present_or_none)
    if not node["combiner"].startswith("arg"):
        return found
    where = iter(ix.delinear(found, [tap.extent for tap in bound]))
    chosen = tuple(next(where) if tap in bound else ix.number(0) for tap in taps)
    at, _inside = _window_at(node, index, chosen)
    padded = (low > 0 or high > 0 for low, high in zip(node["low"], node["high"], strict=True))
    shape = node.operands[0].shape
    kept = (_clipped(p, n) if reaches else p for p, n, reaches in zip(at, shape, padded, strict=True))
    return ix.linear(tuple(kept), shape)


def _clipped(position: Expr, extent: int) -> Expr:
    """A window that lies in the padding has no greatest element: its position stays in the operand."""
    return apply("min", apply("max", position, ix.number(0)), ix.number(max(extent - 1, 0)))


def window_reduce(
    combiner: str,
    value: Value,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
) -> Value:
    """Reduce over sliding windows on every axis; padding is absent. argmax gives row-major offsets (i64)."""
    node = make(
        "window_reduce",
        value,
        combiner=combiner,
        order=default_order(combiner, value.dtype),
        window=tuple(window),
        strides=tuple(strides),
        dilations=tuple(dilations),
        low=tuple(low),
        high=tuple(high),
    )
    return node.value


def _window_samples() -> Iterable[Sample]:
    image = TensorType(F32, (2, 3, 9, 8))
    for combiner in ("add", "max", "argmax"):
        yield Sample(
            (image,),
            lambda v, c=combiner: window_reduce(c, v, (1, 1, 3, 2), (1, 1, 2, 1), (1,) * 4, (0, 0, 1, 1), (0, 0, 1, 0)),
        )
        yield Sample(
            (image,),
            lambda v, c=combiner: window_reduce(c, v, (1, 1, 2, 3), (1,) * 4, (1, 1, 3, 2), (0,) * 4, (0,) * 4),
        )
        yield Sample(  # windows that lie in the padding
            (TensorType(F32, (2, 4)),),
            lambda v, c=combiner: window_reduce(c, v, (1, 2), (1, 1), (1, 6), (0, 2), (1, 3)),
        )


register(
    Op(
        "window_reduce",
        infer=_window_type,
        reference=_window_reference,
        gradient=PENDING,
        lowering=ByElement(_window_element, reduces=True),
        samples=_window_samples,
        expensive=True,
        meaning="reduction over sliding windows; positions in the padding are absent",
    )
)

# ── running reductions ──────────────────────────────────────────────────────────────────────────────


def _cumulative_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    dtype, combiner = node.types[0].dtype, node["combiner"]
    source = np.moveaxis(operands[0], node["axis"], 0)
    result = np.empty_like(source)
    for step in range(source.shape[0]):
        pair = (result[step - 1], source[step])
        result[step] = source[0] if step == 0 else numpy_scalars.evaluate(combiner, dtype, [dtype, dtype], pair)
    return (np.ascontiguousarray(np.moveaxis(result, 0, node["axis"])),)


def _cumulative_nests(
    node: Node, operands: tuple[Access, ...], result: Callable[[Expr], Expr], axes: Axes
) -> Sequence[Nest]:
    shape, along = node.types[0].shape, node["axis"]
    variables = tuple(axes.fresh(extent) for extent in shape)
    offset = ix.linear(variables, shape)
    step = math.prod(shape[along + 1 :])
    later = ix.compare("ge", variables[along], 1)
    before = guard(result(ix.add(offset, ix.number(-step))), later)
    here = operands[0](variables)
    value = here if later is ix.FALSE else apply("select", later, apply(node["combiner"], before, here), here)
    nest = (variables[along], *(axis for axis in variables if axis is not variables[along]))
    return (Nest(nest, 1, offset, value),)


def cumulative(combiner: str, value: Value, axis: int) -> Value:
    """Running add or mul along an axis, sequential: element k combines elements 0..k (rule 11)."""
    if value.type.elements == 0:
        return value
    return make("cumulative", value, combiner=combiner, axis=axis).value


register(
    Op(
        "cumulative",
        infer=lambda _, types, __: (types[0],),
        reference=_cumulative_reference,
        gradient=PENDING,
        lowering=ByNests(_cumulative_nests),
        samples=lambda: (
            Sample((TensorType(F32, (3, 40)),), lambda v: cumulative("add", v, 1)),
            Sample((TensorType(F32, (6, 5)),), lambda v: cumulative("add", v, 0)),
            Sample((TensorType(I32, (7,)),), lambda v: cumulative("mul", v, 0)),
        ),
        expensive=True,
        meaning="running reduction along an axis",
    )
)
