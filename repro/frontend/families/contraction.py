"""Matrix products: Gemm, MatMul, MatMulInteger. K in storage order, by chains (rules 7 to 9)."""

from __future__ import annotations

from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import I32
from repro.ops import add, broadcast_shape, broadcast_to, convert_to, dot, fill, matmul, mul, reshape, sub


def scaled(ctx: NodeContext, value: Value, name: str) -> Value:
    """The value times the float attribute `name`, left out where that is one: x * 1 == x, for every x."""
    factor = ctx.attr_float(name, 1.0)
    if factor == 1.0:
        return value
    if not value.dtype.is_float and not factor.is_integer():
        raise ctx.error(f"attribute '{name}' does not fit integers", str(factor), "a whole number")
    return mul(value, fill(factor if value.dtype.is_float else int(factor), value.type))


@onnx_op("Gemm", until=10)
def gemm_with_c(ctx: NodeContext, a: Value, b: Value, c: Value) -> Value:
    return gemm(ctx, a, b, c)


@onnx_op("Gemm", since=11)
def gemm(ctx: NodeContext, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha * (A' B') + beta * C, each its own rounded operation (rule 9)."""
    contract = (0 if ctx.attr_bool("transA") else 1, 1 if ctx.attr_bool("transB") else 0)
    if a.rank != 2 or b.rank != 2:
        raise ctx.error("Gemm takes matrices", f"{a.type} and {b.type}", "two tensors of rank 2")
    result = scaled(ctx, dot(a, b, ((contract[0],), (contract[1],))), "alpha")
    if c is None:
        return result
    return add(result, broadcast_to(scaled(ctx, c, "beta"), result.shape))


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


def less_zero_point(value: Value, zero_point: Value | None) -> Value:
    """The quantized value as i32, less its zero point (one, or of a shape that broadcasts)."""
    wide = convert_to(value, I32)
    if zero_point is None:
        return wide
    zero = convert_to(zero_point, I32)
    return sub(wide, broadcast_to(reshape(zero, ()) if zero.type.elements == 1 else zero, wide.shape))


@onnx_op("MatMulInteger", since=10)
def matmul_integer(
    ctx: NodeContext, a: Value, b: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None
) -> Value:
    """(a - a_zero_point) (b - b_zero_point) in i32, wrapping; zero points of rank 1 are per row of a, column of b."""
    if a_zero_point is not None and a_zero_point.rank == 1 and a.rank > 1:
        a_zero_point = reshape(a_zero_point, (*a_zero_point.shape, 1))
    return matmul_numpy(ctx, less_zero_point(a, a_zero_point), less_zero_point(b, b_zero_point))
