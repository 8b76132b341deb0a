"""RotaryEmbedding, ONNX's and com.microsoft's."""

from __future__ import annotations

from repro.frontend.context import NodeContext
from repro.frontend.families.attention import split_heads
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import I64
from repro.ops import (
    add,
    broadcast,
    compare,
    concatenate,
    convert_to,
    fill,
    gather,
    iota,
    mul,
    reshape,
    select,
    slice_,
    sub,
    transpose,
)


def rotate(x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """(a, b) -> (cos * a - sin * b, sin * a + cos * b) over pairs of the last axis; cos and sin fit half of it.

    Pairs are neighbours if interleaved, else an element of the first half and one of the second.
    """
    half = x.shape[-1] // 2
    lead = x.shape[:-1]
    pairs = reshape(x, (*lead, half, 2) if interleaved else (*lead, 2, half))
    axis = x.rank if interleaved else x.rank - 1
    a, b = (reshape(_along(pairs, axis, side), (*lead, half)) for side in (0, 1))
    real, imaginary = sub(mul(cos, a), mul(sin, b)), add(mul(sin, a), mul(cos, b))
    sides = [reshape(side, (*lead, half, 1) if interleaved else (*lead, 1, half)) for side in (real, imaginary)]
    return reshape(concatenate(sides, axis), x.shape)


def _along(value: Value, axis: int, position: int) -> Value:
    starts = [position if i == axis else 0 for i in range(value.rank)]
    return slice_(value, starts, [start + 1 if i == axis else value.shape[i] for i, start in enumerate(starts)])


def rotary_formula(x: Value, cos: Value, sin: Value, positions: Value | None, turned: int, interleaved: bool) -> Value:
    """x [batch, heads, length, size]; the first `turned` of each head turn by the angles of their positions."""
    tables = [cos, sin] if positions is None else [_rows(table, positions) for table in (cos, sin)]
    shape = (*x.shape[:3], turned // 2)
    angles = [broadcast(table, shape, (0, 2, 3)) for table in tables]
    head = slice_(x, (0, 0, 0, 0), (*x.shape[:3], turned))
    result = rotate(head, angles[0], angles[1], interleaved)
    if turned == x.shape[3]:
        return result
    return concatenate((result, slice_(x, (0, 0, 0, turned), x.shape)), 3)


def _rows(table: Value, positions: Value) -> Value:
    """table[positions]; negative positions count from the end, as in ONNX's Gather."""
    positions = convert_to(positions, I64)
    behind = add(positions, fill(table.shape[0], positions.type))
    found = select(compare("lt", positions, fill(0, positions.type)), behind, positions)
    return gather(table, reshape(found, (*found.shape, 1)), (0,))


def _checked_tables(ctx: NodeContext, x: Value, cos: Value, sin: Value, positions: Value | None, half: int) -> None:
    batch, length = x.shape[0], x.shape[2]
    if positions is None:
        fits = cos.rank == 3 and cos.shape[0] in (1, batch) and cos.shape[1] in (1, length)
        expected = f"[{batch}, {length}, {half}]"
    else:
        fits, expected = cos.rank == 2, f"[positions, {half}]"
        if positions.shape != (batch, length):
            raise ctx.error("position_ids does not fit", str(positions.type), f"[{batch}, {length}]")
    if not fits or cos.shape[-1] != half or cos.shape != sin.shape:
        raise ctx.error("the tables of cosines and sines do not fit", f"{cos.type} and {sin.type}", expected)


def _rotary(ctx: NodeContext, x: Value, cos: Value, sin: Value, positions: Value | None, heads: int) -> Value:
    """RotaryEmbedding of either domain, as one composite over [batch, heads, length, size]."""
    flat = x.rank == 3
    if x.rank not in (3, 4):
        raise ctx.error("the input is of the wrong rank", str(x.type), "rank 3 or 4")
    split = split_heads(ctx, x, heads, "the input") if flat else x
    turned = ctx.attr_int("rotary_embedding_dim", 0) or split.shape[3]
    if turned % 2 or not 0 < turned <= split.shape[3]:
        raise ctx.error("the part to rotate is not of even size", str(turned), f"an even size up to {split.shape[3]}")
    _checked_tables(ctx, split, cos, sin, positions, turned // 2)
    interleaved = ctx.attr_bool("interleaved")
    operands = (split, cos, sin) if positions is None else (split, cos, sin, positions)
    y = ctx.composite(
        "RotaryEmbedding",
        operands,
        lambda x, cos, sin, *rest: rotary_formula(x, cos, sin, rest[0] if rest else None, turned, interleaved),
        turned=turned,
        interleaved=interleaved,
    ).value
    return reshape(transpose(y, (0, 2, 1, 3)), x.shape) if flat else y


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding(ctx: NodeContext, x: Value, cos: Value, sin: Value, positions: Value | None = None) -> Value:
    """See `rotary_formula`."""
    return _rotary(ctx, x, cos, sin, positions, ctx.attr_int("num_heads", 0))


@onnx_op("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding_microsoft(ctx: NodeContext, x: Value, positions: Value, cos: Value, sin: Value) -> Value:
    """The same; one position alone is that of the first token, and tables without heads give the head size."""
    if ctx.attr_bool("is_packed_batching"):
        raise ctx.error("packed batching is not supported", "is_packed_batching=1", "is_packed_batching=0")
    if x.rank != 3 and x.rank != 4:
        raise ctx.error("the input is of the wrong rank", str(x.type), "rank 3 or 4")
    length = x.shape[x.rank - 2] if x.rank == 4 else x.shape[1]
    if positions.type.elements == 1 and positions.shape != (x.shape[0], length):
        first = broadcast(reshape(convert_to(positions, I64), ()), (x.shape[0], length), ())
        positions = add(first, iota(first.shape, 1))
    heads = ctx.attr_int("num_heads", 0) or (x.shape[-1] // (2 * cos.shape[-1]) if x.rank == 3 else 0)
    return _rotary(ctx, x, cos, sin, positions, heads)
