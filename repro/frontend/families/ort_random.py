"""Dropout with its mask packed into words, as ONNX Runtime's training graphs may have it."""

from __future__ import annotations

from repro.frontend.context import NodeContext
from repro.frontend.families.ort_activations import dropout_grad
from repro.frontend.families.ort_common import MICROSOFT
from repro.frontend.families.random import dropout
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import U32, TensorType
from repro.ops import broadcast, compare, convert_to, elementwise, fill, iota, pad, reduce_axes, reshape, scalar, slice_

_BITS = 32


@onnx_op("BitmaskDropout", domain=MICROSOFT)
def bitmask_dropout(
    ctx: NodeContext, x: Value, ratio: Value | None = None, training: Value | None = None
) -> tuple[Value, Value]:
    """Dropout; bit k of word i of the mask says whether element 32 * i + k is kept."""
    y, keep = dropout(ctx, x, ratio, training)
    return y, _packed(keep)


@onnx_op("BitmaskDropoutGrad", domain=MICROSOFT)
def bitmask_dropout_grad(
    ctx: NodeContext, dy: Value, mask: Value, ratio: Value | None = None, training: Value | None = None
) -> Value:
    """DropoutGrad with the mask unpacked."""
    words = -(-dy.type.elements // _BITS)
    if mask.type != TensorType(U32, (words,)):
        raise ctx.error("the mask does not fit", str(mask.type), f"u32[{words}] for {dy.type}")
    return dropout_grad(ctx, dy, _unpacked(mask, dy), ratio, training)


def _packed(keep: Value) -> Value:
    """sum(bit << k) of each 32 elements; bits behind the last element are 0."""
    count = keep.type.elements
    words = -(-count // _BITS)
    flat = reshape(convert_to(keep, U32), (count,))
    whole = reshape(pad(flat, (0,), (words * _BITS - count,), scalar(0, U32)), (words, _BITS))
    return reduce_axes("add", elementwise("shl", whole, _places(words)), (1,))


def _unpacked(mask: Value, like: Value) -> Value:
    words = mask.shape[0]
    shifted = elementwise("shr", broadcast(mask, (words, _BITS), (0,)), _places(words))
    bits = elementwise("and", shifted, fill(1, shifted.type))
    flat = slice_(reshape(bits, (words * _BITS,)), (0,), (like.type.elements,))
    return reshape(compare("ne", flat, fill(0, flat.type)), like.shape)


def _places(words: int) -> Value:
    return convert_to(iota((words, _BITS), 1), U32)
