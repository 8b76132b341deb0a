"""Sequences and optionals. They exist at import only: each is known value by value."""

from __future__ import annotations

from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.frontend.scope import Item, Items, check_sequence
from repro.ir.graph import Value
from repro.ir.types import BOOL, I64
from repro.ops import concatenate, reshape, scalar, slice_


def _sequence(ctx: NodeContext, item: Item) -> tuple[Value, ...]:
    if not isinstance(item, Items):
        raise ctx.error("an input is not a sequence", "a tensor" if item else "nothing", "a sequence")
    return item.values


def _position(ctx: NodeContext, index: int, extent: int) -> int:
    place = ctx.static_int(index)
    if not -extent <= place < extent:
        raise ctx.error("a position is outside the sequence", str(place), f"{-extent} to {extent - 1}")
    return place % extent


@onnx_op("SequenceConstruct", since=11, moves=True)
def construct(_: NodeContext, *values: Value) -> Items:
    return Items(values)


@onnx_op("SequenceEmpty", since=11, moves=True)
def empty(_: NodeContext) -> Items:
    return Items(())


@onnx_op("SequenceLength", since=11, moves=True)
def length(ctx: NodeContext, sequence: Item) -> Value:
    return scalar(len(_sequence(ctx, sequence)), I64)


@onnx_op("SequenceAt", since=11, moves=True)
def at(ctx: NodeContext, sequence: Item, _: Value) -> Value:
    values = _sequence(ctx, sequence)
    return values[_position(ctx, 1, len(values))]


@onnx_op("SequenceErase", since=11, moves=True)
def erase(ctx: NodeContext, sequence: Item, place: Value | None = None) -> Items:
    values = _sequence(ctx, sequence)
    index = len(values) - 1 if place is None else _position(ctx, 1, len(values))
    return Items((*values[:index], *values[index + 1 :]))


@onnx_op("SequenceInsert", since=11, moves=True)
def insert(ctx: NodeContext, sequence: Item, value: Value, place: Value | None = None) -> Items:
    values = _sequence(ctx, sequence)
    index = len(values) if place is None else ctx.static_int(2)
    if not -len(values) <= index <= len(values):
        raise ctx.error("a position is outside the sequence", str(index), f"{-len(values)} to {len(values)}")
    index = index + len(values) if index < 0 else index
    return Items((*values[:index], value, *values[index:]))


@onnx_op("SplitToSequence", since=11, moves=True)
def split(ctx: NodeContext, value: Value, sizes: Value | None = None) -> Items:
    """Pieces along an axis: of one size (the last may be smaller), of given sizes, or of extent 1."""
    axis = ctx.axis(ctx.attr_int("axis", 0), value.rank)
    extent = value.shape[axis]
    if sizes is None:
        check_sequence(extent)
        pieces = [1] * extent
    elif sizes.rank == 0:
        step = ctx.static_int(1)
        if step < 1:
            raise ctx.error("the size of a piece is not positive", str(step), "1 or more")
        check_sequence(-(-extent // step))
        pieces = [min(step, extent - start) for start in range(0, extent, step)]
    else:
        pieces = list(ctx.static_ints(1))
    if sum(pieces) != extent or min(pieces, default=0) < 0:
        raise ctx.error("the pieces do not fill the axis", f"sizes {pieces}", f"sizes that sum to {extent}")
    keep = sizes is not None or ctx.attr_bool("keepdims", True)
    return Items(tuple(_piece(value, axis, stop - size, stop, keep) for size, stop in _ends(pieces)))


def _ends(pieces: list[int]) -> list[tuple[int, int]]:
    stop, found = 0, list[tuple[int, int]]()
    for size in pieces:
        stop += size
        found.append((size, stop))
    return found


def _piece(value: Value, axis: int, start: int, stop: int, keep: bool) -> Value:
    starts = [start if other == axis else 0 for other in range(value.rank)]
    limits = [stop if other == axis else extent for other, extent in enumerate(value.shape)]
    picked = slice_(value, starts, limits)
    return picked if keep else reshape(picked, (*value.shape[:axis], *value.shape[axis + 1 :]))


@onnx_op("ConcatFromSequence", since=11, moves=True)
def concat(ctx: NodeContext, sequence: Item) -> Value:
    values = _sequence(ctx, sequence)
    if not values:
        raise ctx.error("an empty sequence has nothing to concatenate", expected="one value or more")
    fresh = ctx.attr_bool("new_axis")
    axis = ctx.axis(ctx.attr_int("axis"), values[0].rank + fresh)
    if fresh:
        values = tuple(reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in values)
    return concatenate(values, axis)


@onnx_op("SequenceMap", since=17, moves=True)
def sequence_map(ctx: NodeContext, sequence: Item, *others: Item) -> tuple[Item, ...]:
    """The body on each value in turn; further sequences are read in step, tensors as they are."""
    body, values = ctx.attr_graph("body"), _sequence(ctx, sequence)
    rows: list[tuple[Item, ...]] = []
    for index, value in enumerate(values):
        rest = [_sequence(ctx, other)[index] if isinstance(other, Items) else other for other in others]
        rows.append(ctx.importer.subgraph(ctx, body, (value, *rest)))
    columns = zip(*rows, strict=True) if rows else [() for _ in range(ctx.outputs)]
    return tuple(Items(tuple(item for item in column if isinstance(item, Value))) for column in columns)


@onnx_op("Optional", since=15, moves=True)
def optional(_: NodeContext, value: Item = None) -> Item:
    return value


@onnx_op("OptionalHasElement", since=15, moves=True)
def has_element(_: NodeContext, value: Item = None) -> Value:
    return scalar(value is not None, BOOL)


@onnx_op("OptionalGetElement", since=15, moves=True)
def get_element(ctx: NodeContext, value: Value | Items | None) -> Item:
    if value is None:
        raise ctx.error("the optional is empty", expected="an element")
    return value
