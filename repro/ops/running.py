"""Running reductions along an axis: sequential (rule 11)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Expr, apply
from repro.ir.graph import Node, Value
from repro.ir.types import F32, I32, Array, TensorType
from repro.numerics import numpy_scalars
from repro.ops.elementwise import add, mul
from repro.ops.guards import guard
from repro.ops.loops import loop
from repro.ops.movement import fill, reverse, transpose
from repro.ops.record import Access, Axes, ByNests, Nest, Op, Sample, make, register
from repro.ops.slicing import pad, slice_
from repro.ops.structure import scalar


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


def running_before(combiner: str, value: Value, axis: int) -> Value:
    """`cumulative` without the element itself: element k combines elements 0..k-1, the first is the identity."""
    identity = scalar(0 if combiner == "add" else 1, value.dtype)
    edge = tuple(int(a == axis) for a in range(value.rank))
    limits = tuple(extent - at for extent, at in zip(value.shape, edge, strict=True))
    return cumulative(combiner, pad(slice_(value, (0,) * value.rank, limits), edge, (0,) * value.rank, identity), axis)


def _cumulative_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """add: the running sum of g from the last element. mul: (product before) * s, s' = g + (next x) * s from the last.

    s[i] is the sum over k >= i of g[k] times the elements between i and k: no division, so zeros do no harm.
    """
    x, g, axis = node.operands[0], cotangents[0], node["axis"]
    if node["combiner"] == "add":
        return (reverse(cumulative("add", reverse(g, (axis,)), axis), (axis,)),)
    if node["combiner"] != "mul":
        raise InternalError(f"cumulative {node['combiner']} has no gradient")
    order = (axis, *(a for a in range(x.rank) if a != axis))
    rows, slopes = (reverse(transpose(value, order), (0,)) for value in (x, g))
    none = fill(0, TensorType(x.dtype, rows.shape[1:]))

    def step(_: Value, behind: Value, following: Value, row: Value, slope: Value) -> Sequence[Value]:
        total = add(slope, mul(following, behind))
        return total, row, total

    sums = reverse(loop(x.shape[axis], (none, none), (rows, slopes), (), step)[2], (0,))
    inside = transpose(sums, [order.index(a) for a in range(x.rank)])
    return (mul(running_before("mul", x, axis), inside),)


register(
    Op(
        "cumulative",
        infer=lambda _, types, __: (types[0],),
        reference=_cumulative_reference,
        gradient=_cumulative_gradient,
        lowering=ByNests(_cumulative_nests, running=True),
        samples=lambda: (
            Sample((TensorType(F32, (3, 40)),), lambda v: cumulative("add", v, 1)),
            Sample((TensorType(F32, (6, 5)),), lambda v: cumulative("add", v, 0)),
            Sample((TensorType(I32, (7,)),), lambda v: cumulative("mul", v, 0)),
        ),
        expensive=True,
        meaning="running reduction along an axis",
    )
)
