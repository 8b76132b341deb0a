"""If, Loop and Scan: decided at build where that can be, else branches, loops and whiles with closed regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.errors import ReproError
from repro.frontend.context import NodeContext
from repro.frontend.folding import dependencies
from repro.frontend.registry import onnx_op
from repro.frontend.scope import Body, Item, Items, Region, check_sequence, nested_iteration
from repro.ir.graph import Graph, Value, argument, substitute
from repro.ir.types import BOOL, I64, TensorType
from repro.ops import (
    add,
    compare,
    concatenate,
    elementwise,
    make,
    reshape,
    reverse,
    scalar,
    slice_,
    static,
    transpose,
    while_,
)

_LIMIT = 1 << 62
_COUNTER = TensorType(I64, ())


def _flag(ctx: NodeContext, value: Value) -> Value:
    """A condition as bool[]."""
    if value.dtype is not BOOL or value.type.elements != 1:
        raise ctx.error("the condition is not one bool", str(value.type), "bool[]")
    return reshape(value, ())


def _tensors(ctx: NodeContext, items: Sequence[Item], what: str, advice: str | None = None) -> list[Value]:
    values = [item for item in items if isinstance(item, Value)]
    if len(values) != len(items):
        expected = "tensors, where this is decided at run time"
        raise ctx.error(f"{what} is no tensor", "a sequence or nothing", expected, advice)
    return values


# ── If ──────────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("If", moves=True)
def if_(ctx: NodeContext, condition: Value) -> tuple[Item, ...]:
    """The branch taken, in place, if the condition is known at build; else a branch of the program."""
    sides = {name: ctx.attr_graph(name) for name in ("then_branch", "else_branch")}
    for name, side in sides.items():
        if len(side.outputs) != ctx.outputs:
            found = f"{name} has {len(side.outputs)} outputs"
            raise ctx.error("a branch has the wrong number of outputs", found, f"{ctx.outputs}, as the node has")
    condition = _flag(ctx, condition)
    known = ctx.static_value(condition)
    if known is None:
        return _branch(ctx, condition, sides)
    taken = "then_branch" if bool(known) else "else_branch"
    return ctx.importer.subgraph(ctx, sides[taken], (), label=f".{taken}")


def _branch(ctx: NodeContext, condition: Value, sides: dict[str, Body]) -> tuple[Item, ...]:
    region, advice = Region([], ctx.scope, ctx.importer.folder.is_closed), ctx.sources(condition).fixed
    results = [
        _tensors(ctx, ctx.importer.subgraph(ctx, body, (), region, label=f".{name}"), f"an output of {name}", advice)
        for name, body in sides.items()
    ]
    types = [[value.type for value in side] for side in results]
    if types[0] != types[1]:
        raise ctx.error(
            "the branches of an If decided at run time have different results",
            found=f"{', '.join(map(str, types[0]))} and {', '.join(map(str, types[1]))}",
            expected="the same types on both sides",
            next=advice,
        )
    graphs = [Graph(tuple(region.types), tuple(side)) for side in results]
    return make("branch", condition, *region.captured, regions=graphs).results


# ── Loop ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Loop:
    """An ONNX Loop: `count` is None without a bound, `trips` the bound where only the run knows it."""

    ctx: NodeContext
    body: Body
    count: int | None
    trips: Value | None
    start: Value
    carried: tuple[Item, ...]

    @property
    def undecided(self) -> list[Value]:
        """What only the run knows of the count."""
        return [value for value in (self.trips, self.start) if value is not None and static(value) is None]

    @property
    def limit(self) -> int:
        return _LIMIT if self.count is None else min(self.count, _LIMIT)


@onnx_op("Loop", moves=True)
def loop_(ctx: NodeContext, trips: Value | None, start: Value | None, *carried: Item) -> tuple[Item, ...]:
    """A counted loop, a while, or its iterations one after another, where their shapes differ."""
    body = ctx.attr_graph("body")
    if len(body.outputs) < 1 + len(carried) or len(body.inputs) != 2 + len(carried):
        found = f"{len(body.inputs)} inputs, {len(body.outputs)} outputs"
        raise ctx.error("the loop's body does not fit", found, f"{2 + len(carried)} inputs, as many outputs or more")
    known = None if trips is None else ctx.static_value(trips)
    count = None if known is None else max(0, int(known.reshape(-1)[0]))
    first = scalar(True, BOOL) if start is None else _flag(ctx, start)
    flag = ctx.static_value(first)
    if flag is not None:
        first = scalar(bool(flag), BOOL)
        count = count if bool(flag) else 0
    spec = _Loop(ctx, body, count, reshape(trips, ()) if trips is not None and known is None else None, first, carried)
    try:
        return _as_region(spec)
    except ReproError as refusal:
        if spec.trips is None and flag is not None:
            return _unrolled(spec, refusal)
        refusal.next = refusal.next or ctx.sources(*spec.undecided).fixed
        raise


def _as_region(spec: _Loop) -> tuple[Value, ...]:
    """The loop as one node; raises where its body needs more than that, to be known at build."""
    ctx = spec.ctx
    carried = _tensors(ctx, spec.carried, "a loop-carried value")
    types = [_COUNTER, *(value.type for value in carried)]
    region = Region(list(types), ctx.scope, ctx.importer.folder.is_closed)
    arguments = [argument(index, kind) for index, kind in enumerate(types)]
    number = nested_iteration(ctx.scope, region, arguments[0], spec.count)
    inputs = [arguments[0], scalar(True, BOOL), *arguments[1:]]
    outputs = _tensors(ctx, ctx.importer.subgraph(ctx, spec.body, inputs, region, number), "an output of the body")
    results = tuple(outputs[1:])
    found, expected = [v.type for v in results[: len(carried)]], [v.type for v in carried]
    if found != expected:
        raise ctx.error(
            "a loop-carried value changes its type from one iteration to the next",
            found=", ".join(map(str, found)),
            expected=", ".join(map(str, expected)),
            next="fix the trip count and condition at build, so that the loop can be unrolled",
        )
    go = _flag(ctx, outputs[0])
    body = Graph(tuple(region.types), results)
    known = static(go)
    if known is not None and spec.trips is None and (spec.count is not None or not bool(known)):
        count = spec.limit if bool(known) else min(1, spec.limit)
        if spec.start == scalar(True, BOOL) or count == 0:
            return make(
                "loop", *carried, *region.captured, regions=(body,), count=count, carried=len(carried), scanned=0
            ).results
    if len(results) > len(carried):
        raise ctx.error(
            "a Loop whose count is only known at run time has scan outputs",
            found=f"{len(results) - len(carried)} scan outputs, whose length would depend on data",
            expected="a trip count and a condition known at build, or no scan outputs",
            next=ctx.sources(*spec.undecided, *_deciders(go, results, carried, region.captured)).fixed,
        )
    return _while(spec, carried, region.captured, body, go)


def _deciders(go: Value, results: Sequence[Value], carried: Sequence[Value], captured: Sequence[Value]) -> list[Value]:
    """What a loop is given that decides, in any iteration, whether another follows."""
    given, waiting, found = [*carried, *captured], [go], dict[int, Value]()
    while waiting:
        for node in dependencies([waiting.pop()]):
            place = node["index"] - 1 if node.op == "argument" else -1  # behind the counter
            if 0 <= place < len(given) and place not in found:
                found[place] = given[place]
                waiting += results[place : place + 1] if place < len(carried) else []
    return list(found.values())


def _while(
    spec: _Loop, carried: Sequence[Value], captured: Sequence[Value], body: Graph, go: Value
) -> tuple[Value, ...]:
    """carried[0] of the while says whether another iteration follows; the bound, if a run-time value, is fixed."""
    inner = Graph(body.arguments, (go, *body.results))
    fixed = (*captured, *(() if spec.trips is None else (spec.trips,)))
    start = spec.start
    if spec.trips is not None:
        start = elementwise("and", start, compare("gt", spec.trips, scalar(0, I64)))

    def step(i: Value, _: Value, *rest: Value) -> Sequence[Value]:
        visible = rest if spec.trips is None else rest[:-1]
        results = list(substitute(inner, (i, *visible)))
        if spec.trips is not None:
            more = compare("lt", add(i, scalar(1, I64)), rest[-1])
            results[0] = elementwise("and", results[0], more)
        return results

    return while_((start, *carried), fixed, step, spec.limit)[1:]


def _unrolled(spec: _Loop, refusal: ReproError) -> tuple[Item, ...]:
    """Iterations one after another, each with its own shapes; the condition must be known at build each time."""
    ctx, state, rows = spec.ctx, list(spec.carried), list[list[Value]]()
    step = 0
    while step < spec.limit:
        here = scalar(step, I64)
        number = nested_iteration(ctx.scope, None, here, spec.count)
        inputs = [here, scalar(True, BOOL), *state]
        outputs = ctx.importer.subgraph(ctx, spec.body, inputs, iteration=number)
        state = list(outputs[1 : 1 + len(state)])
        rows.append(_tensors(ctx, outputs[1 + len(state) :], "a scan output"))
        go = outputs[0]
        known = ctx.static_value(_flag(ctx, go)) if isinstance(go, Value) else None
        if known is None:
            raise refusal
        step += 1
        if not bool(known):
            break
    if not rows and len(spec.body.outputs) > 1 + len(state):
        raise refusal
    stacked = [_stack(ctx, list(column)) for column in zip(*rows, strict=True)]
    return (*state, *stacked)


def _stack(ctx: NodeContext, values: list[Value]) -> Value:
    if any(value.type != values[0].type for value in values):
        kinds = ", ".join(dict.fromkeys(str(value.type) for value in values))
        raise ctx.error("a scan output changes its type from one iteration to the next", kinds, "one type")
    return concatenate([reshape(value, (1, *value.shape)) for value in values], 0)


# ── Scan ────────────────────────────────────────────────────────────────────────────────────────────


def _scanned_count(ctx: NodeContext, inputs: int) -> int:
    scanned = ctx.attr_int("num_scan_inputs")
    if not 0 < scanned <= inputs:
        raise ctx.error("num_scan_inputs does not fit", str(scanned), f"1 to {inputs}")
    return scanned


@onnx_op("Scan", since=9, moves=True)
def scan(ctx: NodeContext, *inputs: Item) -> tuple[Item, ...]:
    """A counted loop over the rows of its scanned inputs, along the axes and in the directions asked for."""
    scanned = _scanned_count(ctx, len(inputs))
    values = _tensors(ctx, inputs, "an input")
    states, sequences = values[: len(values) - scanned], values[len(values) - scanned :]
    axes = ctx.attr_ints("scan_input_axes", (0,) * scanned)
    turned = ctx.attr_ints("scan_input_directions", (0,) * scanned)
    rows: list[Value] = []
    for value, axis, backwards in zip(sequences, axes, turned, strict=True):
        at = ctx.axis(axis, value.rank)
        moved = transpose(value, (at, *(other for other in range(value.rank) if other != at)))
        rows.append(reverse(moved, (0,)) if backwards else moved)
    count = rows[0].shape[0]
    if any(value.shape[0] != count for value in rows):
        raise ctx.error("scanned inputs differ in length", ", ".join(str(v.shape[0]) for v in rows), "one length")
    results = _scan_loop(ctx, ctx.attr_graph("body"), count, states, rows)
    stacks = [_placed(ctx, value, index) for index, value in enumerate(results[len(states) :])]
    return (*results[: len(states)], *stacks)


def _placed(ctx: NodeContext, value: Value, index: int) -> Value:
    """A stacked output in the direction and on the axis that the attributes ask for."""
    directions, axes = ctx.attr_ints("scan_output_directions", ()), ctx.attr_ints("scan_output_axes", ())
    if index < len(directions) and directions[index]:
        value = reverse(value, (0,))
    at = ctx.axis(axes[index], value.rank) if index < len(axes) else 0
    order = list(range(1, value.rank))
    order.insert(at, 0)
    return transpose(value, order)


def _scan_loop(
    ctx: NodeContext, body: Body, count: int, states: Sequence[Value], rows: Sequence[Value]
) -> tuple[Value, ...]:
    if len(body.outputs) < len(states) or ctx.outputs > len(body.outputs):
        raise ctx.error("the scan's body does not fit", f"{len(body.outputs)} outputs", f"{ctx.outputs} outputs")
    types = [_COUNTER, *(v.type for v in states), *(TensorType(v.dtype, v.shape[1:]) for v in rows)]
    region = Region(list(types), ctx.scope, ctx.importer.folder.is_closed)
    arguments = [argument(index, kind) for index, kind in enumerate(types)]
    number = nested_iteration(ctx.scope, region, arguments[0], count)
    outputs = _tensors(ctx, ctx.importer.subgraph(ctx, body, arguments[1:], region, number), "an output of the body")
    graph = Graph(tuple(region.types), tuple(outputs))
    attributes = {"count": count, "carried": len(states), "scanned": len(rows)}
    return make("loop", *states, *rows, *region.captured, regions=(graph,), **attributes).results


@onnx_op("Scan", since=8, until=8, moves=True)
def scan_batched(ctx: NodeContext, lengths: Value | None, *inputs: Item) -> tuple[Item, ...]:
    """Opset 8: every operand has a batch axis in front of the scanned one; each entry is scanned by itself."""
    if lengths is not None:
        raise ctx.error("sequence_lens of Scan is not supported", str(lengths.type), "full sequences")
    scanned = _scanned_count(ctx, len(inputs))
    values = _tensors(ctx, inputs, "an input")
    turned = ctx.attr_ints("directions", (0,) * scanned)
    split = len(values) - scanned
    batch = {value.shape[0] for value in values if value.rank}
    if len(batch) != 1 or any(value.rank < (2 if index >= split else 1) for index, value in enumerate(values)):
        raise ctx.error("operands do not share a batch", ", ".join(str(v.type) for v in values), "[batch, length, ...]")
    check_sequence(batch_size := batch.pop())
    columns: list[tuple[Value, ...]] = []
    for entry in range(batch_size):
        own = [_entry(value, entry) for value in values]
        rows = [reverse(row, (0,)) if back else row for row, back in zip(own[split:], turned, strict=True)]
        columns.append(_scan_loop(ctx, ctx.attr_graph("body"), rows[0].shape[0], own[:split], rows))
    return tuple(_stack(ctx, list(column)) for column in zip(*columns, strict=True))


def _entry(value: Value, index: int) -> Value:
    rest = value.shape[1:]
    picked = slice_(value, (index, *(0 for _ in rest)), (index + 1, *rest))
    return reshape(picked, rest)


__all__ = ["Items", "if_", "loop_", "scan", "scan_batched"]
