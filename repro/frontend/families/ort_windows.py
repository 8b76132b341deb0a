"""Gradients of convolutions and pools as ONNX Runtime's training graphs name them: the core ops' own rules.

MaxPoolGrad and AveragePoolGrad stand in the default domain, where ONNX has no such operators.
"""

from __future__ import annotations

from collections.abc import Callable

from repro.frontend.context import NodeContext
from repro.frontend.families.convolution import conv, conv_transpose
from repro.frontend.families.ort_common import MICROSOFT, pooled_shape, pullback, pullback_of_linear
from repro.frontend.families.pooling import average_pool
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import I64, TensorType
from repro.ops import gather, reduce_axes, reshape


def _of_convolution(
    ctx: NodeContext, dy: Value, x: Value, w: Value, forward: Callable[[NodeContext, Value, Value], Value]
) -> tuple[Value, ...]:
    """dX and dW by the convolution's rules, and the bias's sum(dY) over all but the channels."""
    of_bias = reduce_axes("add", dy, [axis for axis in range(dy.rank) if axis != 1])
    return *pullback(ctx, dy, (x, w), lambda x, w: forward(ctx, x, w)), of_bias


@onnx_op("ConvGrad", domain=MICROSOFT)
def conv_grad(ctx: NodeContext, dy: Value, x: Value, w: Value) -> tuple[Value, ...]:
    """See `_of_convolution`."""
    return _of_convolution(ctx, dy, x, w, conv)


@onnx_op("ConvTransposeGrad", domain=MICROSOFT)
def conv_transpose_grad(ctx: NodeContext, dy: Value, x: Value, w: Value) -> tuple[Value, ...]:
    """See `_of_convolution`."""
    return _of_convolution(ctx, dy, x, w, conv_transpose)


@onnx_op("MaxPoolGrad")
@onnx_op("MaxPoolGrad", domain=MICROSOFT)
def max_pool_grad(ctx: NodeContext, dy: Value, indices: Value) -> Value:
    """+0, to which each dY is added at its offset in the whole of what was pooled, ascending (rule 12)."""
    if ctx.attr_int("storage_order", 0):
        raise ctx.error("offsets in column-major order have no gradient here", "storage_order=1", "storage_order=0")
    if indices.shape != dy.shape or indices.dtype is not I64:
        raise ctx.error("the indices do not fit", str(indices.type), f"i64 of the shape of {dy.type}")
    kind = TensorType(dy.dtype, pooled_shape(ctx, dy, 1))
    ctx.check_size(kind.shape, kind.dtype)
    points = reshape(indices, (indices.type.elements, 1))

    def picked(x: Value) -> Value:
        return reshape(gather(reshape(x, (kind.elements,)), points, (0,)), dy.shape)

    return pullback_of_linear(dy, kind, picked)


@onnx_op("AveragePoolGrad")
@onnx_op("AveragePoolGrad", domain=MICROSOFT)
def average_pool_grad(ctx: NodeContext, dy: Value) -> Value:
    """The pullback of AveragePool: windows summed over dY / count."""
    kind = TensorType(dy.dtype, pooled_shape(ctx, dy))
    ctx.check_size(kind.shape, kind.dtype)
    return pullback_of_linear(dy, kind, lambda x: average_pool(ctx, x))
