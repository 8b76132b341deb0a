"""What ONNX Runtime's gradient operators share: pullbacks of forward formulas, and extents that a node leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.autodiff import cotangents
from repro.frontend.context import NodeContext
from repro.ir.graph import Value, argument
from repro.ir.types import TensorType
from repro.ops import fill, reduce_axes, reshape

MICROSOFT = "com.microsoft"

POOLED_EXTENTS = "pooled_extents"
"""An attribute of our own: the spatial extents of what a pool was given."""

_STAND_IN = 1 << 30
"""The argument that stands for an operand whose gradient needs only its type; no region has that many."""


def pullback(
    ctx: NodeContext, cotangent: Value, operands: Sequence[Value], forward: Callable[..., Value]
) -> tuple[Value, ...]:
    """The cotangents of the operands of `forward`, by the core ops' rules; one composite, named as the operator.

    In a region of its own, because two operands may be one value of the model. An operand that no path reaches gets
    zeros.
    """

    def body(g: Value, *own: Value) -> tuple[Value, ...]:
        found = cotangents([(forward(*own), g)], own)
        return tuple(fill(0, x.type) if made is None else made for x, made in zip(own, found, strict=True))

    return ctx.composite(ctx.op_type, (cotangent, *operands), body).results


def pullback_of_linear(cotangent: Value, kind: TensorType, forward: Callable[[Value], Value]) -> Value:
    """The cotangent of the operand of a linear `forward` that the node does not have, of a type that it knows."""
    stand_in = argument(_STAND_IN, kind)
    (found,) = cotangents([(forward(stand_in), cotangent)], (stand_in,))
    return fill(0, kind) if found is None else found


def summed_to(value: Value, shape: Sequence[int]) -> Value:
    """The sum over the axes along which a tensor of a trailing shape was stretched."""
    lead = value.rank - len(shape)
    axes = [axis for axis in range(value.rank) if axis < lead or shape[axis - lead] == 1 != value.shape[axis]]
    return reshape(reduce_axes("add", value, axes), shape) if axes else value


def pooled_shape(ctx: NodeContext, dy: Value, indices: int | None = None) -> tuple[int, ...]:
    """The shape of what a pool was given, which its gradient's inputs do not say.

    Batch and channels are the cotangent's. The spatial extents are those of the attribute POOLED_EXTENTS; else of the
    operand of the MaxPool that made input `indices`; else those that the model notes for the output.
    """
    extents = _noted_extents(ctx)
    if ctx.has(POOLED_EXTENTS):
        extents = ctx.attr_ints(POOLED_EXTENTS)
    elif indices is not None:
        maker = ctx.scope.body.producer.get(ctx.node.input[indices])
        forward = None if maker is None else ctx.scope.body.nodes[maker]
        if forward is not None and forward.op_type == "MaxPool":
            known, item = ctx.scope.find(forward.input[0])
            extents = item.shape[2:] if known and isinstance(item, Value) else extents
    if len(extents) != dy.rank - 2 or min(extents, default=0) < 1:
        raise ctx.error(
            "the extents of what was pooled are not known",
            expected=f"the MaxPool that made its indices, or a shape noted for '{ctx.node.output[0]}'",
        )
    return (*dy.shape[:2], *extents)


def _noted_extents(ctx: NodeContext) -> tuple[int, ...]:
    """The spatial extents in the model's notes on the node's output; 0 for one that is open."""
    for item in ctx.importer.loaded.proto.graph.value_info:
        if item.name == ctx.node.output[0]:
            return tuple(int(dim.dim_value) for dim in item.type.tensor_type.shape.dim[2:])
    return ()
