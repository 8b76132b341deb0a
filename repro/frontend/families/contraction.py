"""Contractions: Gemm and MatMul. K in storage order, by chains (rules 7 to 9)."""

from __future__ import annotations

from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ops import add, broadcast_shape, broadcast_to, convert_to, dot, fill, matmul, mul, reshape


def scaled(value: Value, factor: float) -> Value:
    """`value * factor`, left out where the factor is one: x * 1 == x, for every x."""
    if factor == 1.0:
        return value
    return mul(value, convert_to(fill(factor, value.type), value.dtype))


@onnx_op("Gemm", since=7)
def gemm(ctx: NodeContext, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha * (A' B') + beta * C, each its own rounded operation (rule 9)."""
    contract = (0 if ctx.attr_bool("transA") else 1, 1 if ctx.attr_bool("transB") else 0)
    if a.rank != 2 or b.rank != 2:
        raise ctx.error("Gemm takes matrices", f"{a.type} and {b.type}", "two tensors of rank 2")
    result = scaled(dot(a, b, ((contract[0],), (contract[1],))), ctx.attr_float("alpha", 1.0))
    if c is None:
        return result
    return add(result, broadcast_to(scaled(c, ctx.attr_float("beta", 1.0)), result.shape))


@onnx_op("MatMul")
def matmul_numpy(ctx: NodeContext, a: Value, b: Value) -> Value:
    """NumPy's matmul. A right operand without batch axes lets the left one's flatten into rows (rule 8)."""
    if a.rank == 0 or b.rank == 0:
        raise ctx.error("MatMul takes no scalars", f"{a.type} and {b.type}", "tensors of rank 1 or more")
    left = reshape(a, (1, *a.shape)) if a.rank == 1 else a
    right = reshape(b, (*b.shape, 1)) if b.rank == 1 else b
    if right.rank > 2:
        batch = broadcast_shape(left.shape[:-2], right.shape[:-2])
        left = broadcast_to(left, (*batch, *left.shape[-2:]))
        right = broadcast_to(right, (*batch, *right.shape[-2:]))
    result = matmul(left, right)
    shape = list(result.shape)
    if b.rank == 1:
        del shape[-1]
    if a.rank == 1:
        del shape[-1 if b.rank == 1 else -2]
    return reshape(result, shape)
