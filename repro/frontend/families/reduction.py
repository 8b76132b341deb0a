"""Reductions over axes, positions of the greatest and least, running sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import BOOL, F64
from repro.ops import (
    add,
    broadcast_to,
    compare,
    convert_to,
    div,
    elementwise,
    fill,
    mul,
    pad,
    reduce_axes,
    reduce_keep,
    reshape,
    reverse,
    scalar,
    select,
    slice_,
    sub,
)
from repro.ops.running import cumulative

Axes = tuple[int, ...]
Formula = Callable[[Value, Axes], Value]
"""A reduction that drops the axes."""

# ── formulas ────────────────────────────────────────────────────────────────────────────────────────


def _extreme(combiner: str) -> Formula:
    """max or min; of bools, with false < true, or and and."""
    boolean = {"max": "or", "min": "and"}[combiner]

    def formula(x: Value, axes: Axes) -> Value:
        return reduce_axes(boolean if x.dtype is BOOL else combiner, x, axes)

    return formula


def mean_of(x: Value, axes: Axes) -> Value:
    """sum(x) / count."""
    total = reduce_axes("add", x, axes)
    return div(total, fill(math.prod(x.shape[axis] for axis in axes), total.type))


def _sum_square(x: Value, axes: Axes) -> Value:
    """sum(x * x)."""
    return reduce_axes("add", mul(x, x), axes)


def _l1(x: Value, axes: Axes) -> Value:
    """sum(|x|)."""
    return reduce_axes("add", elementwise("abs", x), axes)


def _l2(x: Value, axes: Axes) -> Value:
    """sqrt(sum(x * x)); of integers, the root in f64."""
    return _in_floats("sqrt", _sum_square(x, axes))


def _log_sum(x: Value, axes: Axes) -> Value:
    """log(sum(x)); of integers, the logarithm in f64."""
    return _in_floats("log", reduce_axes("add", x, axes))


def _in_floats(function: str, x: Value) -> Value:
    wide = x if x.dtype.is_float else convert_to(x, F64)
    return convert_to(elementwise(function, wide), x.dtype)


def _log_sum_exp(x: Value, axes: Axes) -> Value:
    """m = max(x), or 0 where that is not finite; log(sum(exp(x - m))) + m; integers in f64."""
    wide = x if x.dtype.is_float else convert_to(x, F64)
    greatest = reduce_keep("max", wide, axes)
    infinite = compare("eq", elementwise("abs", greatest), fill(math.inf, greatest.type))
    shift = select(infinite, fill(0, greatest.type), greatest)
    total = reduce_axes("add", elementwise("exp", sub(wide, broadcast_to(shift, wide.shape))), axes)
    return convert_to(add(elementwise("log", total), reshape(shift, total.shape)), x.dtype)


_FORMULAS: dict[str, Formula] = {
    "ReduceSum": lambda x, axes: reduce_axes("add", x, axes),
    "ReduceProd": lambda x, axes: reduce_axes("mul", x, axes),
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceMean": mean_of,
    "ReduceSumSquare": _sum_square,
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}
_CORE = ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")
"""A core reduction and nothing more."""

_AXES_AS_INPUT = {name: 13 if name == "ReduceSum" else 18 for name in _FORMULAS}
"""The opset from which the axes are an input."""


def _keep(x: Value, reduced: Value, axes: Sequence[int]) -> Value:
    """The reduced axes back as extent 1."""
    return reshape(reduced, [1 if axis in axes else extent for axis, extent in enumerate(x.shape)])


def _reduce(ctx: NodeContext, x: Value, axes: Axes) -> Value:
    formula = _FORMULAS[ctx.op_type]
    if ctx.op_type in _CORE:
        reduced = formula(x, axes)
    else:
        reduced = ctx.composite(ctx.op_type, (x,), lambda x: formula(x, axes), axes=axes).value
    return _keep(x, reduced, axes) if ctx.attr_bool("keepdims", True) else reduced


def reduce_by_attribute(ctx: NodeContext, x: Value) -> Value:
    """Axes as an attribute; without one, all."""
    given = ctx.attr_ints("axes", ()) or range(x.rank)
    return _reduce(ctx, x, tuple(sorted(ctx.axes(given, x.rank))))


def reduce_by_input(ctx: NodeContext, x: Value, axes: Value | None = None) -> Value:
    """Axes as an input; without any, all, or with noop_with_empty_axes none."""
    given: Sequence[int] = () if axes is None or not axes.type.elements else ctx.static_ints(1)
    if not given and not ctx.attr_bool("noop_with_empty_axes"):
        given = range(x.rank)
    return _reduce(ctx, x, tuple(sorted(ctx.axes(given, x.rank))))


for _name, _since in _AXES_AS_INPUT.items():
    onnx_op(_name, until=_since - 1)(reduce_by_attribute)
    onnx_op(_name, since=_since)(reduce_by_input)

# ── positions ───────────────────────────────────────────────────────────────────────────────────────


@onnx_op("ArgMax")
@onnx_op("ArgMin")
def arg_extreme(ctx: NodeContext, x: Value) -> Value:
    """The first position, or with select_last_index the last one; ties and NaN by rule 5."""
    axis = ctx.axis(ctx.attr_int("axis", 0), x.rank)
    last = ctx.attr_bool("select_last_index")
    position = reduce_axes(ctx.op_type.lower(), reverse(x, (axis,)) if last else x, (axis,))
    if last:
        position = sub(fill(x.shape[axis] - 1, position.type), position)
    return _keep(x, position, (axis,)) if ctx.attr_bool("keepdims", True) else position


# ── running sums and products ───────────────────────────────────────────────────────────────────────


@onnx_op("CumSum", since=11)
@onnx_op("CumProd", since=26)
def running(ctx: NodeContext, x: Value, axis: Value) -> Value:
    """Element k combines elements 0..k from the first on; exclusive: 0..k-1, the first being 0 (1 for products)."""
    along = ctx.axis(ctx.static_int(1), x.rank)
    if not x.type.elements:
        return x
    combiner, nothing = ("add", 0) if ctx.op_type == "CumSum" else ("mul", 1)
    backwards = ctx.attr_bool("reverse")
    result = cumulative(combiner, reverse(x, (along,)) if backwards else x, along)
    if ctx.attr_bool("exclusive"):
        limits = [extent - (position == along) for position, extent in enumerate(x.shape)]
        low = [int(position == along) for position in range(x.rank)]
        kept = slice_(result, [0] * x.rank, limits)
        result = pad(kept, low, [0] * x.rank, scalar(nothing, x.dtype))
    return reverse(result, (along,)) if backwards else result
