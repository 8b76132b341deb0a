"""Contractions: dot and convolution. Floats by chains (rules 7 and 8), integers exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from repro.ir import index as ix
from repro.ir.graph import Node, Value
from repro.ir.loops import Axis, Exact, Expr, apply, reduce
from repro.ir.types import F32, F64, I32, Array, DType, TensorType
from repro.numerics.contract import chain
from repro.numerics.sums import reduce_reference
from repro.ops.movement import guard, transpose
from repro.ops.record import PENDING, Access, Attributes, Axes, ByElement, Op, Sample, make, register

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]

MODES = ("chain", "exact")
"""Numerics modes of a contraction: `chain` for floats, `exact` for integers (wrapping). The seam for more."""


def mode_of(dtype: DType) -> str:
    return "chain" if dtype.is_float else "exact"


def _contract(node: Node, bound: Sequence[Axis], a: Expr, b: Expr, present: Expr | None, unit: int) -> Expr:
    if node["mode"] == "exact":
        return reduce("add", Exact(), bound, [apply("mul", a, b)], present)
    return reduce("fma", chain(unit), bound, [a, b], present)


def _contract_reference(node: Node, a: Array, b: Array, present: Array | None, unit: int) -> Array:
    if node["mode"] == "exact":
        with np.errstate(over="ignore"):
            return np.asarray(reduce_reference("add", Exact(), [a * b], present))
    return np.asarray(reduce_reference("fma", chain(unit), [a, b], present))


# ── dot ─────────────────────────────────────────────────────────────────────────────────────────────


def _free(rank: int, *used: Sequence[int]) -> tuple[int, ...]:
    taken = {axis for axes in used for axis in axes}
    return tuple(axis for axis in range(rank) if axis not in taken)


def _dot_type(attributes: Attributes, types: Types, _: object) -> Types:
    a, b = types
    lb, rb, lc, rc = (attributes[name] for name in ("left_batch", "right_batch", "left_contract", "right_contract"))
    if a.dtype is not b.dtype or not a.dtype.computes:
        raise TypeError(f"dot of {a} and {b}: one dtype that computes is needed")
    for left, right in ((lb, rb), (lc, rc)):
        if [a.shape[axis] for axis in left] != [b.shape[axis] for axis in right]:
            raise TypeError(f"dot of {a} and {b}: extents of axes {left} and {right} differ")
    batch = [a.shape[axis] for axis in lb]
    rows = [a.shape[axis] for axis in _free(a.rank, lb, lc)]
    columns = [b.shape[axis] for axis in _free(b.rank, rb, rc)]
    return (TensorType(a.dtype, (*batch, *rows, *columns)),)


def _dot_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    a, b = operands
    kind = node.types[0]
    lb, rb, lc, rc = (node[name] for name in ("left_batch", "right_batch", "left_contract", "right_contract"))
    terms = math.prod(a.shape[axis] for axis in lc)
    if not terms or not kind.elements:
        return (np.zeros(kind.shape, kind.dtype.storage),)
    batch = math.prod(a.shape[axis] for axis in lb)
    rows = a.transpose((*lb, *_free(a.ndim, lb, lc), *lc)).reshape(batch, -1, 1, terms)
    columns = b.transpose((*rb, *_free(b.ndim, rb, rc), *rc)).reshape(batch, 1, -1, terms)
    return (_contract_reference(node, rows, columns, None, 1).reshape(kind.shape),)


def _dot_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], axes: Axes) -> Expr:
    a, b = node.operands
    lb, rb, lc, rc = (node[name] for name in ("left_batch", "right_batch", "left_contract", "right_contract"))
    left_free, right_free = _free(a.rank, lb, lc), _free(b.rank, rb, rc)
    bound = tuple(axes.fresh(a.shape[axis]) for axis in lc)
    if math.prod(axis.extent for axis in bound) == 0:
        return ix.const(node.types[0].dtype, 0)
    batch, rows = index[: len(lb)], index[len(lb) : len(lb) + len(left_free)]
    columns = index[len(lb) + len(left_free) :]
    left = dict(zip((*lb, *left_free, *lc), (*batch, *rows, *bound), strict=True))
    right = dict(zip((*rb, *right_free, *rc), (*batch, *columns, *bound), strict=True))
    a_term = operands[0](tuple(left[axis] for axis in range(a.rank)))
    b_term = operands[1](tuple(right[axis] for axis in range(b.rank)))
    if not bound:
        bound = (axes.fresh(1),)
    return _contract(node, bound, a_term, b_term, None, 1)


def dot(
    a: Value,
    b: Value,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Value:
    """Sum of products over paired axes; result axes: batch, free of a, free of b. K runs as `contract[0]` lists it."""
    node = make(
        "dot",
        a,
        b,
        left_batch=tuple(batch[0]),
        right_batch=tuple(batch[1]),
        left_contract=tuple(contract[0]),
        right_contract=tuple(contract[1]),
        mode=mode_of(a.dtype),
    )
    return node.value


def matmul(a: Value, b: Value) -> Value:
    """[..., m, k] x [..., k, n] with equal leading axes, or [..., m, k] x [k, n]."""
    if b.rank == 2:
        return dot(a, b, ((a.rank - 1,), (0,)))
    lead = range(a.rank - 2)
    return dot(a, b, ((a.rank - 1,), (b.rank - 2,)), (tuple(lead), tuple(lead)))


def _dot_gradient(node: Node, cotangents: tuple[Value, ...]) -> tuple[Value | None, ...]:
    """da = sum over b's free axes of g*b, db = sum over a's free axes of g*a, in storage order of those axes."""
    a, b = node.operands
    g = cotangents[0]
    lb, rb, lc, rc = (node[name] for name in ("left_batch", "right_batch", "left_contract", "right_contract"))
    left_free, right_free = _free(a.rank, lb, lc), _free(b.rank, rb, rc)
    nb, nl = len(lb), len(left_free)
    rows, columns = tuple(range(nb, nb + nl)), tuple(range(nb + nl, g.rank))
    batch = tuple(range(nb))
    da = dot(g, b, (columns, right_free), (batch, rb))  # axes: batch, rows, rc ascending in b
    db = dot(a, g, (left_free, rows), (lb, batch))  # axes: batch, lc ascending in a, columns
    left_order = [*lb, *left_free, *(lc[rc.index(axis)] for axis in sorted(rc))]
    right_order = [*rb, *(rc[lc.index(axis)] for axis in sorted(lc)), *right_free]
    return (
        transpose(da, [left_order.index(axis) for axis in range(a.rank)]),
        transpose(db, [right_order.index(axis) for axis in range(b.rank)]),
    )


def _dot_samples() -> Iterable[Sample]:
    for dtype in (F32, F64, I32):
        yield Sample((TensorType(dtype, (17, 33)), TensorType(dtype, (33, 35))), matmul)
    yield Sample((TensorType(F32, (3, 5, 8)), TensorType(F32, (3, 8, 6))), matmul)
    yield Sample((TensorType(F32, (3, 600)), TensorType(F32, (7, 600))), lambda a, b: dot(a, b, ((1,), (1,))))
    yield Sample((TensorType(F32, (4, 6, 5)), TensorType(F32, (5, 3, 6))), lambda a, b: dot(a, b, ((1, 2), (2, 0))))


register(
    Op(
        "dot",
        infer=_dot_type,
        reference=_dot_reference,
        gradient=_dot_gradient,
        lowering=ByElement(_dot_element, reduces=True),
        samples=_dot_samples,
        expensive=True,
        meaning="contraction of two tensors (rule 7)",
    )
)

# ── convolution ─────────────────────────────────────────────────────────────────────────────────────


def _convolution_type(attributes: Attributes, types: Types, _: object) -> Types:
    x, w = types
    groups, spatial = attributes["groups"], attributes["output"]
    if x.dtype is not w.dtype or x.rank != w.rank or x.rank < 3 or not x.dtype.computes:
        raise TypeError(f"convolution of {x} with {w}")
    if x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise TypeError(f"convolution of {x} with {w}: channels do not fit {groups} groups")
    if len(spatial) != x.rank - 2:
        raise TypeError(f"convolution of {x}: output extents {spatial} do not fit its rank")
    return (TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial)),)


def _unit(node: Node) -> int:
    """Terms of a unit that a panel may not cut: all taps of a channel (rule 8)."""
    return math.prod(node.operands[1].shape[2:])


def _convolution_element(node: Node, _: int, index: Index, operands: tuple[Access, ...], axes: Axes) -> Expr:
    x, w = (value.type for value in node.operands)
    groups, channels = node["groups"], w.shape[1]
    if not w.elements or not x.elements:
        return ix.const(x.dtype, 0)
    bound = tuple(axes.fresh(extent) for extent in w.shape[1:])
    channel, taps = bound[0], bound[1:]
    group = ix.floordiv(index[1], w.shape[0] // groups)
    position, conditions = list[Expr](), list[Expr]()
    for d, (i, tap) in enumerate(zip(index[2:], taps, strict=True)):
        place = ix.add(
            ix.scale(i, node["strides"][d]), ix.scale(tap, node["tap_steps"][d]), ix.number(node["offsets"][d])
        )
        hole = node["input_dilations"][d]
        conditions.append(ix.compare("eq", ix.mod(place, hole), 0))
        place = ix.floordiv(place, hole)
        conditions.append(ix.inside(place, x.shape[2 + d]))
        position.append(place)
    present = ix.both(*conditions)
    a = guard(operands[0]((index[0], ix.add(ix.scale(group, channels), channel), *position)), present)
    b = operands[1]((index[1], channel, *taps))
    return _contract(node, bound, b, a, None if present is ix.TRUE else present, _unit(node))


def _convolution_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    x, w = operands
    kind, groups = node.types[0], node["groups"]
    if not kind.elements or not w.size or not x.size:
        return (np.zeros(kind.shape, kind.dtype.storage),)
    out, kernel, spatial = kind.shape[2:], w.shape[2:], x.shape[2:]
    rank = len(out)
    offset, present, stride = np.zeros((1,) * 2 * rank, np.int64), np.ones((1,) * 2 * rank, bool), 1
    for d in reversed(range(rank)):
        outer = np.arange(out[d]).reshape([-1 if i == d else 1 for i in range(2 * rank)])
        inner = np.arange(kernel[d]).reshape([-1 if i == rank + d else 1 for i in range(2 * rank)])
        place = outer * node["strides"][d] + inner * node["tap_steps"][d] + node["offsets"][d]
        hole = node["input_dilations"][d]
        present = present & (place % hole == 0) & (place // hole >= 0) & (place // hole < spatial[d])
        offset = offset + np.clip(place // hole, 0, spatial[d] - 1) * stride
        stride *= spatial[d]
    pixels, taps = math.prod(out), math.prod(kernel)
    full = (*out, *kernel)
    offset = np.broadcast_to(offset, full).reshape(pixels, taps)
    mask = np.broadcast_to(present, full).reshape(pixels, 1, taps)
    n, channels, per_group = x.shape[0], w.shape[1], w.shape[0] // groups
    columns = x.reshape(n, groups, channels, -1)[..., offset]  # n, g, c, pixels, taps
    columns = columns.transpose(0, 1, 3, 2, 4).reshape(n, groups, 1, pixels, channels * taps)
    weights = w.reshape(1, groups, per_group, 1, channels * taps)
    keep = np.broadcast_to(mask, (pixels, channels, taps)).reshape(1, 1, 1, pixels, channels * taps)
    result = _contract_reference(node, weights, columns, None if keep.all() else keep, taps)
    return (result.reshape(kind.shape),)


def convolution(
    x: Value,
    w: Value,
    output: Sequence[int],
    strides: Sequence[int],
    tap_steps: Sequence[int],
    offsets: Sequence[int],
    input_dilations: Sequence[int] | None = None,
    groups: int = 1,
) -> Value:
    """x [N, C, spatial...] with w [O, C/groups, taps...] to [N, O, output...].

    Output position o and tap t read place = o*strides + t*tap_steps + offsets of the input with
    input_dilations - 1 holes between elements; places outside and holes are absent terms. A forward
    convolution has tap_steps = dilations, offsets = -padding; a transposed one has strides 1,
    tap_steps = -dilations, offsets = +padding and input_dilations = strides. K runs (channel, taps).
    """
    node = make(
        "convolution",
        x,
        w,
        output=tuple(output),
        strides=tuple(strides),
        tap_steps=tuple(tap_steps),
        offsets=tuple(offsets),
        input_dilations=tuple(input_dilations or (1,) * len(output)),
        groups=groups,
        mode=mode_of(x.dtype),
    )
    return node.value


def _convolution_samples() -> Iterable[Sample]:
    image, weights = TensorType(F32, (2, 4, 9, 8)), TensorType(F32, (6, 4, 3, 3))
    yield Sample((image, weights), lambda x, w: convolution(x, w, (9, 8), (1, 1), (1, 1), (-1, -1)))
    yield Sample((image, weights), lambda x, w: convolution(x, w, (4, 3), (2, 2), (1, 1), (0, 0)))
    grouped = TensorType(F32, (6, 2, 3, 2))
    yield Sample((image, grouped), lambda x, w: convolution(x, w, (7, 4), (1, 2), (2, 1), (-1, 0), groups=2))
    yield Sample((image, weights), lambda x, w: convolution(x, w, (17, 15), (1, 1), (-1, -1), (1, 1), (2, 2)))
    line = TensorType(F32, (1, 300, 7)), TensorType(F32, (3, 300, 5))
    yield Sample(line, lambda x, w: convolution(x, w, (7,), (1,), (1,), (-2,)))


register(
    Op(
        "convolution",
        infer=_convolution_type,
        reference=_convolution_reference,
        gradient=PENDING,
        lowering=ByElement(_convolution_element, reduces=True),
        samples=_convolution_samples,
        expensive=True,
        meaning="convolution, forward or transposed, grouped and dilated (rules 7 and 8)",
    )
)
