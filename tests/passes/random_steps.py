"""Random training steps: the next state is anything that the ops compute from the old one, in loops and branches too.

Values stay small (products and sums are clipped), so that a wrong one is not lost among NaNs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from repro.ir.graph import Graph, Value, argument, parameter
from repro.ir.text import print_graph
from repro.ir.types import BF16, F32, I64, Array, TensorType
from repro.ops import (
    add,
    branch,
    broadcast,
    compare,
    concatenate,
    convert_to,
    cumulative,
    dot,
    fill,
    gather,
    integers,
    iota,
    loop,
    maximum,
    minimum,
    mul,
    pad,
    reduce_axes,
    reshape,
    reverse,
    scalar,
    scatter,
    select,
    slice_,
    sub,
    transpose,
    while_,
)

ROWS, COLUMNS, PICKS = 12, 10, 8
SCALAR, VECTOR = TensorType(F32, ()), TensorType(F32, (ROWS,))
MATRIX, SQUARE = TensorType(F32, (ROWS, COLUMNS)), TensorType(F32, (ROWS, ROWS))
LOW = TensorType(F32, (5, COLUMNS))
STATE = (
    SCALAR,
    VECTOR,
    VECTOR,
    MATRIX,
    MATRIX,
    SQUARE,
    SQUARE,
    LOW,
    TensorType(BF16, MATRIX.shape),
    TensorType(I64, (5,)),
)
ARGUMENTS = (MATRIX, VECTOR, TensorType(I64, (PICKS,)))
COUNTS = ((0, 2, 16, 16, 17), (1, 2, 3))
"""Iterations of an outer and of an inner loop; bodies of 16 and more are shortened."""
FEW = (SCALAR, VECTOR, MATRIX)


@dataclass(frozen=True, eq=False)
class RandomStep:
    """A training step: a graph, which parameter takes which result, the state at first, the inputs of each run."""

    graph: Graph
    updates: tuple[tuple[int, int], ...]
    start: Sequence[Array]
    feed: Callable[[int, bool], list[Array]]
    """(number of the run, whether an index is to be out of range) -> inputs."""

    @property
    def outputs(self) -> list[int]:
        """Results that are no next values."""
        taken = {result for _, result in self.updates}
        return [result for result in range(len(self.graph.results)) if result not in taken]

    def state(self) -> list[Array]:
        return [array.copy() for array in self.start]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What hypothesis shows of one that fails."""
        printer.text(f"updates {self.updates}\n{print_graph(self.graph)}")


def _inputs(seed: int, number: int, stray: bool) -> list[Array]:
    random = np.random.default_rng((seed, number, 99))
    x, y, picks = (_drawn(kind, random) for kind in ARGUMENTS)
    if stray:
        picks[random.integers(PICKS)] = random.choice([-7, ROWS, 1 << 40])
    return [x, y, picks]


def _drawn(kind: TensorType, random: np.random.Generator) -> Array:
    """Numbers of a few bits around 0; indices that are in range on every axis."""
    if kind.dtype is I64:
        return np.asarray(random.integers(0, COLUMNS, kind.shape))
    values = np.asarray(random.integers(-16, 17, kind.shape) / 8, np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16) if kind.dtype is BF16 else values


@dataclass
class Scope:
    """What can be seen at a place of the graph: every value made so far may be an operand again."""

    draw: st.DrawFn
    pool: list[Value]
    picks: Value
    """i64[PICKS], in range unless a run is to be refused."""
    depth: int = 0
    counter: Value | None = None

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def any(self, rank: int = 0) -> Value:
        """Numbers; more often some of the last."""
        known = [value for value in self.pool if value.dtype is F32 and value.type.elements]
        found = [value for value in known if value.rank >= rank] or [fitted(known[-1], VECTOR)]
        return self.pick(found[-3:]) if self.number(0, 1) else self.pick(found)

    def of(self, kind: TensorType) -> Value:
        """A value of a type: one that has it, if there is any, or another brought to it."""
        found = [value for value in self.pool if value.type == kind]
        if found and self.number(0, 4):
            return self.pick(found)
        return fitted(self.any(), kind)

    def grow(self) -> None:
        families = FAMILIES if self.depth < 2 else FAMILIES[: -len(CONTROL)]
        self.pool.extend(self.pick(families)(self))

    def inside(self, values: Sequence[Value], picks: Value, counter: Value | None, most: int) -> Scope:
        """The scope of a region that sees these values, grown a little."""
        scope = Scope(self.draw, list(values), picks, self.depth + 1, counter)
        if counter is not None:
            scope.pool.append(broadcast(convert_to(counter, F32), VECTOR.shape, ()))
        for _ in range(self.number(0, most)):
            scope.grow()
        return scope


def fitted(value: Value, kind: TensorType) -> Value:
    """A value's elements, one after another, as a tensor of a type: cut off, or repeated."""
    flat = reshape(value, (value.type.elements,))
    times = -(-kind.elements // max(value.type.elements, 1))
    if times > 1:
        flat = reshape(broadcast(flat, (times, flat.type.elements), (1,)), (times * flat.type.elements,))
    return convert_to(reshape(slice_(flat, (0,), (kind.elements,)), kind.shape), kind.dtype)


def clipped(value: Value) -> Value:
    return minimum(maximum(value, fill(-2.0, value.type)), fill(2.0, value.type))


Family = Callable[[Scope], Sequence[Value]]


# ── by element, moved, reduced ──────────────────────────────────────────────────────────────────────


def arithmetic(scope: Scope) -> Sequence[Value]:
    a = scope.any()
    b = scope.of(a.type)
    return (scope.pick((add(a, b), sub(a, b), minimum(a, b), maximum(a, b), clipped(mul(a, b)))),)


def chosen(scope: Scope) -> Sequence[Value]:
    a = scope.any()
    b = scope.of(a.type)
    known = (compare("lt", a, b), *((triangle(scope, a.shape),) if a.rank else ()))
    return (select(scope.pick(known), scope.of(a.type), b),)


def moved(scope: Scope) -> Sequence[Value]:
    a = scope.any(1)
    axis = scope.number(0, a.rank - 1)
    if a.rank == 2 and scope.number(0, 1):
        return (transpose(a, (1, 0)),)
    if a.shape[axis] < 2 or scope.number(0, 1):
        return (reverse(a, (axis,)),)
    cut = [extent if place != axis else 1 for place, extent in enumerate(a.shape)]
    behind = slice_(a, [int(place == axis) for place in range(a.rank)], a.shape)
    return (concatenate((behind, slice_(a, [0] * a.rank, cut)), axis),)


def spread(scope: Scope) -> Sequence[Value]:
    """Each row beside its sum or maximum."""
    a = scope.any(1)
    axis = scope.number(0, a.rank - 1)
    found = clipped(reduce_axes(scope.pick(("add", "max")), a, (axis,)))
    wide = broadcast(found, a.shape, [place for place in range(a.rank) if place != axis])
    return sub(a, wide), found


def contracted(scope: Scope) -> Sequence[Value]:
    a, b = scope.any(1), scope.any(1)
    pairs = [(i, j) for i, n in enumerate(a.shape) for j, m in enumerate(b.shape) if n == m and n > 0]
    if not pairs or a.rank + b.rank > 4:
        a, b, pairs = scope.of(SQUARE), scope.of(MATRIX), [(1, 0)]
    i, j = scope.pick(pairs)
    return (clipped(dot(a, b, ((i,), (j,)))),)


def assembled(scope: Scope) -> Sequence[Value]:
    """Squares side by side, or each between zeros: products, sums that are repeated, or anything."""
    axis, parts = scope.number(0, 1), list[Value]()
    for _ in range(scope.number(2, 3)):
        sums = clipped(reduce_axes("add", scope.of(MATRIX), (1,)))
        product = clipped(dot(scope.of(SQUARE), scope.of(SQUARE), ((1,), (scope.number(0, 1),))))
        parts.append(scope.pick((product, broadcast(sums, SQUARE.shape, (scope.number(0, 1),)), scope.of(SQUARE))))
    whole = concatenate(parts, axis)
    if scope.number(0, 1):
        return (whole,)
    zero, total, at = scalar(0.0, F32), fill(0.0, whole.type), 0
    for part in parts:
        low, high = [0, 0], [0, 0]
        low[axis], high[axis] = at, whole.shape[axis] - at - ROWS
        total, at = add(total, pad(part, low, high, zero)), at + ROWS
    return (total,)


def learned(scope: Scope, before: Value) -> Value:
    """A value less a product, its square, its first rows or columns, or one of its elements; or a triangle of that."""
    rows, columns = before.shape
    left, right = (scope.of(TensorType(F32, (4, scope.pick((extent, ROWS))))) for extent in (rows, columns))
    turned = transpose(dot(right, left, ((0,), (0,))), (1, 0))
    product = scope.pick((dot(left, right, ((0,), (0,))), turned))
    one = broadcast(reshape(slice_(product, (0, 0), (1, 1)), ()), before.shape, ())
    taken = scope.pick((*(slice_(product, (0, 0), before.shape),) * 3, one))
    after = sub(before, scope.pick((taken, clipped(mul(taken, taken)))))
    return scope.pick((after, after, select(triangle(scope, before.shape), after, fill(0.0, before.type))))


def triangle(scope: Scope, shape: tuple[int, ...]) -> Value:
    """Above a diagonal, below it, or on it; of a vector some places."""
    first, last = iota(shape, 0), iota(shape, len(shape) - 1)
    end = last if len(shape) > 1 else fill(scope.number(0, ROWS), first.type)
    return compare(scope.pick(("lt", "ge", "eq")), first, end)


def running(scope: Scope) -> Sequence[Value]:
    a = scope.any(1)
    return (clipped(cumulative(scope.pick(("add", "max")), a, scope.number(0, a.rank - 1))),)


# ── by index ────────────────────────────────────────────────────────────────────────────────────────


def points(scope: Scope, count: int, axes: int) -> Value:
    """i64[count, axes]: indices given from outside, or by the iteration."""
    repeated = concatenate([scope.picks] * -(-count * axes // PICKS), 0)
    found = slice_(repeated, (0,), (count * axes,))
    if scope.counter is not None and scope.number(0, 1):
        last = minimum(scope.counter, scalar(COLUMNS - 1, I64))
        found = minimum(found, broadcast(last, found.shape, ()))
    elif not scope.number(0, 5):
        found = integers([3, 0, 3, 7, 2, 2, 9, 1] * -(-count * axes // PICKS))
        found = slice_(found, (0,), (count * axes,))
    return reshape(found, (count, axes))


def table_of(scope: Scope) -> tuple[Value, list[int]]:
    kind = scope.pick((VECTOR, MATRIX, SQUARE))
    axes = scope.pick(((0,),) if kind.rank == 1 else ((0,), (1,), (0, 1), (1, 0)))
    return scope.of(kind), list(axes)


def picked(scope: Scope) -> Sequence[Value]:
    table, axes = table_of(scope)
    return (gather(table, points(scope, scope.pick((1, 3, ROWS)), len(axes)), axes),)


def scattered(scope: Scope) -> Sequence[Value]:
    """Onto zeros, or onto what is known; added to, or overwritten."""
    table, axes = table_of(scope)
    begin = fill(0.0, table.type) if scope.number(0, 1) else table
    rest = [extent for axis, extent in enumerate(table.shape) if axis not in axes]
    count = scope.pick((1, 3, ROWS))
    updates = scope.of(TensorType(F32, (count, *rest)))
    made = scatter(scope.pick(("add", "add", "set", "max")), begin, points(scope, count, len(axes)), updates, axes)
    return (clipped(made),)


# ── control ─────────────────────────────────────────────────────────────────────────────────────────


def some(scope: Scope, most: int, least: int = 1) -> list[Value]:
    return [scope.any() for _ in range(scope.number(least, most))]


def looped(scope: Scope) -> Sequence[Value]:
    """Carried values become anything of their type: each other, themselves, what no iteration changes."""
    count = scope.pick(COUNTS[scope.depth])
    carried = some(scope, 3, 2)
    fixed = [scope.of(value.type) for value in [*carried, *some(scope, 1)]]
    scanned = [scope.of(TensorType(F32, (count, *scope.pick(FEW).shape))) for _ in range(scope.number(0, 1))]

    def body(i: Value, *values: Value) -> Sequence[Value]:
        inner = scope.inside(values[:-1], values[-1], i, 4)
        still = scope.inside(values[-1 - len(fixed) : -1], values[-1], None, 1)
        still.pool.extend(arithmetic(still))
        after = [(inner if scope.number(0, 2) else still).of(value.type) for value in carried]
        return (*after, *(inner.any() for _ in range(scope.number(0, 1))))

    return loop(count, carried, scanned, (*fixed, scope.picks), body)


def repeated(scope: Scope) -> Sequence[Value]:
    """As long as the counter says."""
    last, limit = scope.number(0, 3), scope.pick((2, 20))
    carried, fixed = some(scope, 2), some(scope, 2)

    def body(i: Value, _: Value, *values: Value) -> Sequence[Value]:
        inner = scope.inside(values[:-1], values[-1], i, 3)
        return compare("lt", i, scalar(last, I64)), *(inner.of(value.type) for value in carried)

    return while_((_positive(scope), *carried), (*fixed, scope.picks), body, limit)[1:]


def branched(scope: Scope) -> Sequence[Value]:
    kinds = [value.type for value in some(scope, 2)]

    def side(*values: Value) -> Sequence[Value]:
        inner = scope.inside(values[:-1], values[-1], None, 3)
        return [inner.of(kind) for kind in kinds]

    return branch(_positive(scope), (*some(scope, 3), scope.picks), side, side)


def _positive(scope: Scope) -> Value:
    return compare("ge", scope.of(SCALAR), scalar(0.0, F32))


CONTROL: tuple[Family, ...] = (looped, looped, repeated, branched)
FAMILIES: tuple[Family, ...] = (
    *(arithmetic,) * 5,
    chosen,
    *(moved,) * 2,
    *(spread,) * 2,
    contracted,
    *(assembled,) * 2,
    running,
    *(picked,) * 2,
    *(scattered,) * 3,
    *CONTROL,
)


# ── steps ───────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def steps(draw: st.DrawFn, most: int = 12) -> RandomStep:
    """State of some types, graph, next values: any value of the type, another tensor's old one, its own."""
    kinds = tuple(draw(st.lists(st.sampled_from(STATE), min_size=1, max_size=4)))
    x, y, picks = (argument(position, kind) for position, kind in enumerate(ARGUMENTS))
    old = [parameter(slot, kind) for slot, kind in enumerate(kinds)]
    scope = Scope(draw, [*old, *(convert_to(value, F32) for value in old), x, y], picks)
    for _ in range(draw(st.integers(3, most))):
        scope.grow()
    results = [*some(scope, 2), *(assembled(scope) if scope.number(0, 1) else ()), fitted(old[0], VECTOR)]
    outputs = [draw(st.sampled_from((value, reduce_axes("add", value, range(value.rank))))) for value in results]
    taught = [value.dtype is F32 and value.rank == 2 and not scope.number(0, 2) for value in old]
    after = [learned(scope, value) if each else scope.of(value.type) for each, value in zip(taught, old, strict=True)]
    updates = tuple((slot, len(outputs) + slot) for slot in range(len(kinds)))
    seed = draw(st.integers(0, 1 << 32))
    start = [_drawn(kind, np.random.default_rng((seed, slot))) for slot, kind in enumerate(kinds)]
    return RandomStep(Graph(ARGUMENTS, (*outputs, *after)), updates, start, partial(_inputs, seed))
