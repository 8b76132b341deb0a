"""Contractions: floats by chains (rules 7 and 8), integers exactly; and dot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from repro.ir import index as ix
from repro.ir.expressions import Axis, Chain, Exact, Expr, apply, reduce
from repro.ir.graph import Node, Value
from repro.ir.types import F32, F64, I32, Array, DType, TensorType
from repro.numerics.contract import chain
from repro.numerics.sums import reduce_reference
from repro.ops.movement import transpose
from repro.ops.record import Access, Attributes, Axes, ByElement, Op, Sample, make, register

Types = tuple[TensorType, ...]
Index = tuple[Expr, ...]

MODES = ("chain", "exact")
"""Numerics modes of a contraction: `chain` for floats, `exact` for integers (wrapping). The seam for more."""


def mode_of(dtype: DType) -> str:
    return "chain" if dtype.is_float else "exact"


def contract(node: Node, bound: Sequence[Axis], a: Expr, b: Expr, present: Expr | None, order: Chain) -> Expr:
    if node["mode"] == "exact":
        return reduce("add", Exact(), bound, [apply("mul", a, b)], present)
    return reduce("fma", order, bound, [a, b], present)


def contract_reference(node: Node, a: Array, b: Array, present: Array | None, order: Chain) -> Array:
    if node["mode"] == "exact":
        with np.errstate(over="ignore"):
            return np.asarray(reduce_reference("add", Exact(), [a * b], present))
    return np.asarray(reduce_reference("fma", order, [a, b], present))


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
    return (contract_reference(node, rows, columns, None, chain()).reshape(kind.shape),)


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
    return contract(node, bound, a_term, b_term, None, chain())


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
    return gradient_of_left(node, cotangents[0], b), gradient_of_right(node, a, cotangents[0])


def _result_axes(node: Node) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Axes of a dot's result by role: batch, free of a, free of b."""
    batch = len(node["left_batch"])
    rows = batch + node.operands[0].rank - batch - len(node["left_contract"])
    return tuple(range(batch)), tuple(range(batch, rows)), tuple(range(rows, len(node.types[0].shape)))


def _behind(axes: Sequence[int], lead: int) -> tuple[int, ...]:
    return tuple(axis + lead for axis in axes)


def gradient_of_left(node: Node, g: Value, b: Value, iterated: bool = False) -> Value:
    """The cotangent of a dot's left operand. If `iterated`, g and b are stacked, and K runs (iteration, columns)."""
    a = node.operands[0]
    lb, rb, lc, rc = (node[name] for name in ("left_batch", "right_batch", "left_contract", "right_contract"))
    batch, _, columns = _result_axes(node)
    lead = int(iterated)
    over = (
        (*range(lead), *_behind(columns, lead)),
        (*range(lead), *_behind(_free(node.operands[1].rank, rb, rc), lead)),
    )
    da = dot(g, b, over, (_behind(batch, lead), _behind(rb, lead)))  # axes: batch, rows, rc ascending in b
    order = [*lb, *_free(a.rank, lb, lc), *(lc[rc.index(axis)] for axis in sorted(rc))]
    return transpose(da, [order.index(axis) for axis in range(a.rank)])


def gradient_of_right(node: Node, a: Value, g: Value, iterated: bool = False) -> Value:
    """The cotangent of a dot's right operand. If `iterated`, a and g are stacked, and K runs (iteration, rows)."""
    b = node.operands[1]
    lb, rb, lc, rc = (node[name] for name in ("left_batch", "right_batch", "left_contract", "right_contract"))
    batch, rows, _ = _result_axes(node)
    lead = int(iterated)
    over = (
        (*range(lead), *_behind(_free(node.operands[0].rank, lb, lc), lead)),
        (*range(lead), *_behind(rows, lead)),
    )
    db = dot(a, g, over, (_behind(lb, lead), _behind(batch, lead)))  # axes: batch, lc ascending in a, columns
    order = [*rb, *(rc[lc.index(axis)] for axis in sorted(lc)), *_free(b.rank, rb, rc)]
    return transpose(db, [order.index(axis) for axis in range(b.rank)])


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
