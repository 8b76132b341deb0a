"""Random small graphs over the core ops: legal by construction, with operands that hold what breaks things."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from repro.ir.graph import Graph, Value, argument, constant
from repro.ir.scalars import SCALARS
from repro.ir.types import BOOL, CANONICAL_NAN, DTYPES, F32, F64, I32, I64, Array, DType, Kind, TensorType
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS
from repro.ops import (
    bitcast_to,
    branch,
    broadcast,
    broadcast_to,
    canonical_nan,
    compare,
    concatenate,
    convert_to,
    convolution,
    cumulative,
    dot,
    elementwise,
    gather,
    iota,
    loop,
    pad,
    reduce_axes,
    reshape,
    reverse,
    scalar,
    scatter,
    select,
    slice_,
    sort,
    transpose,
    while_,
    window_extent,
    window_reduce,
)

COMPUTING = tuple(dtype for dtype in DTYPES if dtype.computes)
LARGEST = 20_000
"""Elements of a value, at most."""
SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, 2.5, 1e-40, -1e-45, 3e38, 65504.0, 65520.0, 448.0)
EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 65)
REDUCED = (0, 1, 2, 31, 32, 33, 63, 100, 4095, 4097)
TERMS = (0, 1, 3, 16, 511, 512, 513, 4100)
SCALAR_NAMES = tuple(name for name in SCALARS if name not in ("convert", "bitcast", "select"))


@dataclass
class Case:
    """A graph and how to fill its arguments: an index range for some, a seed for all."""

    graph: Graph
    limits: list[tuple[int, int] | None]
    seed: int
    wildness: float

    def inputs(self) -> list[Array]:
        rng = np.random.default_rng(self.seed)
        pairs = zip(self.graph.arguments, self.limits, strict=True)
        return [fill_array(kind, limits, rng, self.wildness) for kind, limits in pairs]


def fill_array(kind: TensorType, limits: tuple[int, int] | None, rng: np.random.Generator, wild: float) -> Array:
    """Ordinary values, of which a part (`wild`) is replaced by special ones; any bits for narrow floats."""
    dtype, shape = kind.dtype, kind.shape
    if limits is not None:
        return rng.integers(*limits, shape, endpoint=True).astype(dtype.storage)
    if dtype is BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    chosen = rng.random(shape) < wild
    if dtype.is_float and dtype.computes:
        scale = np.exp2(rng.integers(-3, 4, shape)) if wild < 0.5 else np.exp2(rng.integers(-120, 120, shape))
        ordinary = np.asarray(rng.standard_normal(shape) * scale, dtype.storage)
        with np.errstate(over="ignore", under="ignore"):
            special = np.asarray(rng.choice(SPECIALS, shape), dtype.storage)
        return np.where(chosen, special, ordinary)
    ends = np.iinfo(dtype.storage)
    anything = rng.integers(ends.min, ends.max, shape, dtype=dtype.storage, endpoint=True)
    if dtype.is_float:
        return anything
    small = rng.integers(0 if ends.min == 0 else -4, 9, shape).astype(dtype.storage)
    edges = rng.choice(np.array([ends.min, ends.max, 0, 1], dtype.storage), shape)
    return np.where(chosen, edges, np.where(rng.random(shape) < 0.3, anything, small)).astype(dtype.storage)


@dataclass
class Maker:
    """Draws a graph node by node; every value made so far may be an operand again."""

    draw: st.DrawFn
    kinds: list[TensorType] = field(default_factory=list[TensorType])
    limits: list[tuple[int, int] | None] = field(default_factory=list[tuple[int, int] | None])
    pool: list[Value] = field(default_factory=list[Value])

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def fresh(self, dtype: DType, shape: Sequence[int], limits: tuple[int, int] | None = None) -> Value:
        kind = TensorType(dtype, tuple(shape))
        self.kinds.append(kind)
        self.limits.append(limits)
        return argument(len(self.kinds) - 1, kind)

    def shape(self, rank: int, room: int = LARGEST, extents: Sequence[int] = EXTENTS) -> tuple[int, ...]:
        made: list[int] = []
        for _ in range(rank):
            fitting = [extent for extent in extents if extent * math.prod(made) <= room]
            made.append(self.pick(fitting or [1]))
        return tuple(made)

    def any(self, dtypes: Sequence[DType] = DTYPES, rank: int = 0) -> Value:
        """A value of one of the types and at least a rank; a new argument where there is none, or by chance."""
        found = [v for v in self.pool if v.dtype in dtypes and v.rank >= rank]
        if found and self.number(0, 3):
            return found[-1 - min(self.number(0, 3), len(found) - 1)]
        preferred = [dtype for dtype in (F32, F64, I32) if dtype in dtypes]
        dtype = self.pick(preferred if preferred and self.number(0, 2) else dtypes)
        return self.fresh(dtype, self.shape(self.number(rank, max(3, rank)), 4000))

    def like(self, value: Value, dtype: DType | None = None) -> Value:
        """Another operand of the same shape (and type): one there is, broadcast, converted, or new."""
        dtype = dtype or value.dtype
        if self.number(0, 4) == 0:
            return value if value.dtype is dtype else convert_to(value, dtype)
        for other in reversed(self.pool):
            if other is not value and other.dtype is dtype and _broadcasts(other.shape, value.shape):
                return broadcast_to(other, value.shape)
        if self.number(0, 2) == 0:
            data = fill_array(TensorType(dtype, ()), None, np.random.default_rng(self.number(0, 99)), 0.3)
            return broadcast_to(constant(data, dtype), value.shape)
        return self.fresh(dtype, value.shape)


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    if len(shape) > len(to):
        return False
    return all(extent in (1, wanted) for extent, wanted in zip(shape[::-1], to[::-1], strict=False))


# ── one step of each family ─────────────────────────────────────────────────────────────────────────


def scalar_step(m: Maker) -> Value:
    name = m.pick(SCALAR_NAMES)
    op = SCALARS[name]
    a = m.any([dtype for dtype in COMPUTING if dtype.kind in op.kinds])
    if name in ("shl", "shr") and m.number(0, 1):
        return elementwise(name, a, m.fresh(a.dtype, a.shape, (0, a.dtype.bits + 1)))
    return elementwise(name, a, *(m.like(a) for _ in range(op.arity - 1)))


def function_step(m: Maker) -> Value:
    a = m.any((F32, F64))
    if m.number(0, 9) == 0:
        return elementwise(m.pick(tuple(BINARY_FUNCTIONS)), a, m.like(a))
    return elementwise(m.pick(tuple(FUNCTIONS)), a)


def select_step(m: Maker) -> Value:
    a = m.any()
    condition = compare("lt", a, m.like(a)) if a.dtype.computes and m.number(0, 1) else m.like(a, BOOL)
    return select(condition, a, m.like(a))


def convert_step(m: Maker) -> Value:
    value = m.any()
    for _ in range(m.number(1, 2)):
        value = convert_to(value, m.pick(DTYPES))
    return value


def bits_step(m: Maker) -> Value:
    value = m.any([*CANONICAL_NAN, *(dtype for dtype in COMPUTING if dtype.is_integer)])
    same = [d for d in DTYPES if d.bits == value.dtype.bits and d is not BOOL and (d.computes or d in CANONICAL_NAN)]
    return bitcast_to(canonical_nan(value), m.pick(same))


def move_step(m: Maker) -> Value:
    value = m.any(rank=1)
    match m.number(0, 7):
        case 0:
            return transpose(value, m.draw(st.permutations(range(value.rank))))
        case 1:
            return reshape(value, _factors(m, value.type.elements))
        case 2:
            return reverse(value, sorted(m.draw(st.sets(st.sampled_from(range(value.rank)), min_size=1))))
        case 3:
            return _slice(m, value)
        case 4:
            return _pad(m, value)
        case 5 | 6:
            return _concatenate(m, value)
        case _:
            extra = m.pick((2, 3, 5))
            if value.type.elements * extra > LARGEST:
                return value
            at = m.number(0, value.rank)
            axes = [axis + (axis >= at) for axis in range(value.rank)]
            return broadcast(value, (*value.shape[:at], extra, *value.shape[at:]), axes)


def _factors(m: Maker, elements: int) -> tuple[int, ...]:
    made: list[int] = []
    for _ in range(m.number(0, 3)):
        divisors = [n for n in (1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 32, 33) if elements % n == 0]
        made.append(m.pick(divisors))
        elements //= made[-1]
    made.insert(m.number(0, len(made)), elements)
    return tuple(made)


def _slice(m: Maker, value: Value) -> Value:
    starts = [m.number(0, extent // 2) for extent in value.shape]
    limits = [m.number(start, extent) for start, extent in zip(starts, value.shape, strict=True)]
    if m.number(0, 5):
        limits = [max(limit, min(start + 1, n)) for limit, start, n in zip(limits, starts, value.shape, strict=True)]
    return slice_(value, starts, limits, [m.number(1, 3) for _ in value.shape])


def _pad(m: Maker, value: Value) -> Value:
    low, high = ([m.number(0, 2) for _ in value.shape] for _ in range(2))
    if math.prod(n + a + b for n, a, b in zip(value.shape, low, high, strict=True)) > LARGEST:
        return value
    return (
        pad(value, low, high, m.like(reshape(slice_(value, [0] * value.rank, [1] * value.rank), ())))
        if (value.type.elements)
        else value
    )


def _concatenate(m: Maker, value: Value) -> Value:
    axis = m.number(0, value.rank - 1)
    parts = [value]
    for _ in range(m.number(1, 2)):
        shape = list(value.shape)
        if m.number(0, 2):
            parts.append(m.like(value))
            continue
        shape[axis] = m.pick((0, 1, 2, 5))
        parts.append(m.fresh(value.dtype, shape))
    if sum(part.type.elements for part in parts) > LARGEST:
        return value
    return concatenate(parts, axis)


def gather_step(m: Maker) -> Value:
    table = m.any(rank=1)
    axes = _some_axes(m, table.rank)
    low, high = -2, max(table.shape[axis] for axis in axes) + 1
    window = math.prod(n for axis, n in enumerate(table.shape) if axis not in axes)
    batch = m.shape(m.number(0, 2), LARGEST // max(window, 1), (0, 1, 2, 3, 9, 20))
    return gather(table, m.fresh(I64, (*batch, len(axes)), (low, high)), axes)


def scatter_step(m: Maker) -> Value:
    table = m.any(rank=1)
    axes = _some_axes(m, table.rank)
    low, high = -2, max(table.shape[axis] for axis in axes) + 1
    rest = tuple(n for axis, n in enumerate(table.shape) if axis not in axes)
    batch = m.shape(m.number(0, 2), 40, (0, 1, 2, 3, 9, 20))
    kinds = table.dtype.kind is not Kind.BOOL and table.dtype.computes
    combiner = m.pick(("set", "add", "mul", "min", "max") if kinds else ("set",))
    updates = m.fresh(table.dtype, (*batch, *rest))
    return scatter(combiner, table, m.fresh(I64, (*batch, len(axes)), (low, high)), updates, axes)


def _some_axes(m: Maker, rank: int) -> list[int]:
    return m.draw(st.lists(st.sampled_from(range(rank)), min_size=1, max_size=rank, unique=True))


def reduce_step(m: Maker) -> Value:
    value = m.any(COMPUTING, rank=1)
    if m.number(0, 1):
        extent = m.pick(REDUCED)
        shape = list(m.shape(m.number(0, 2), LARGEST // max(extent, 1), (1, 2, 3, 5, 9, 17)))
        shape.insert(m.number(0, len(shape)), extent)
        value = m.fresh(value.dtype, shape)
    axes = sorted(_some_axes(m, value.rank))
    arg = math.prod(value.shape[axis] for axis in axes) > 0
    return reduce_axes(m.pick(_combiners(value.dtype, arg)), value, axes, _order(m, value.dtype))


def _combiners(dtype: DType, arg: bool) -> tuple[str, ...]:
    positions = ("argmax", "argmin") if arg else ()
    if dtype is BOOL:
        return ("and", "or", *positions)
    bits = () if dtype.is_float else ("and", "or")
    return ("add", "mul", "min", "max", *bits, *positions)


def _order(m: Maker, dtype: DType) -> str | None:
    return None


def window_step(m: Maker) -> Value:
    value = m.any([dtype for dtype in COMPUTING if dtype is not BOOL], rank=1)
    window, strides, dilations, low, high = ([] for _ in range(5))
    for _ in value.shape:
        plain = m.number(0, 1)
        window.append(1 if plain else m.number(1, 4))
        strides.append(1 if plain else m.number(1, 3))
        dilations.append(1 if plain else m.number(1, 3))
        low.append(0 if plain else m.number(0, 2))
        high.append(0 if plain else m.number(0, 2))
    parts = zip(value.shape, window, strides, dilations, low, high, strict=True)
    if math.prod(window_extent(*part) for part in parts) * math.prod(window) > 40_000 or not value.type.elements:
        return value
    return window_reduce(m.pick(_combiners(value.dtype, True)), value, window, strides, dilations, low, high)


def cumulative_step(m: Maker) -> Value:
    value = m.any([dtype for dtype in COMPUTING if dtype is not BOOL], rank=1)
    return cumulative(m.pick(("add", "mul", "min", "max")), value, m.number(0, value.rank - 1))


def sort_step(m: Maker) -> Value:
    value = m.any(COMPUTING, rank=1)
    axis = m.number(0, value.rank - 1)
    if value.type.elements * value.shape[axis] > 60_000:
        return value
    values, indices = sort(value, axis, bool(m.number(0, 1)))
    m.pool.append(indices)
    return values


# ── contractions ────────────────────────────────────────────────────────────────────────────────────


def _number_type(m: Maker) -> DType:
    return m.pick((F32, F32, F32, F64, I32, I64))


def dot_step(m: Maker) -> Value:
    """Axes of both operands in any order; K as one axis or as two."""
    dtype, k = _number_type(m), m.pick(TERMS)
    contract = (k,) if k < 2 or k % 3 or m.number(0, 1) else (3, k // 3)
    batch = m.shape(m.number(0, 2), 3, (1, 2, 3))
    room = max(60_000 // max(k * math.prod(batch), 1), 1)
    rows = m.shape(m.number(0, 2), min(room, 40), (1, 2, 3, 5, 7, 9, 17, 33))
    columns = m.shape(m.number(0, 2), max(1, room // math.prod(rows)), (1, 2, 3, 4, 5, 8, 16, 17, 33, 65))
    left, left_places = _mixed(m, dtype, (*batch, *rows, *contract))
    right, right_places = _mixed(m, dtype, (*batch, *columns, *contract))
    lead = len(batch)
    pairs = (
        (left_places[:lead], right_places[:lead]),
        (left_places[len(left_places) - len(contract) :], right_places[len(right_places) - len(contract) :]),
    )
    return dot(left, right, pairs[1], pairs[0])


def _mixed(m: Maker, dtype: DType, extents: Sequence[int]) -> tuple[Value, list[int]]:
    """An operand with axes of these extents in a random order, and where each went; perhaps with a prologue."""
    order = m.draw(st.permutations(range(len(extents))))
    value = m.fresh(dtype, [extents[axis] for axis in order])
    match m.number(0, 5):
        case 0:
            value = elementwise("abs", value)
        case 1 if value.rank and value.type.elements:
            value = reverse(value, (value.rank - 1,))
        case 2 if value.rank > 1:
            back = m.draw(st.permutations(range(value.rank)))
            return transpose(value, back), [list(back).index(order.index(axis)) for axis in range(len(extents))]
        case _:
            pass
    return value, [order.index(axis) for axis in range(len(extents))]


def convolution_step(m: Maker) -> Value:
    dtype, rank, groups = _number_type(m), m.number(1, 2), m.pick((1, 1, 2, 3))
    channels = m.pick((1, 2, 3, 4, 60, 130)) if groups == 1 else m.pick((1, 2, 3))
    taps = [m.pick((1, 2, 3, 5)) for _ in range(rank)]
    spatial = [m.pick((1, 4, 7, 8, 13)) if rank == 2 else m.pick((1, 7, 16, 33, 70)) for _ in range(rank)]
    batch, filters = m.pick((1, 2, 3)), groups * m.pick((1, 2, 3, 5, 6))
    x = m.fresh(dtype, (batch, channels * groups, *spatial))
    w = m.fresh(dtype, (filters, channels, *taps))
    strides = [m.number(1, 3) for _ in range(rank)]
    steps = [m.pick((1, 1, 2, 3, -1, -2)) for _ in range(rank)]
    offsets = [m.number(-4, 4) if m.number(0, 1) else 0 for _ in range(rank)]
    holes = [m.pick((1, 1, 2, 3)) for _ in range(rank)]
    output = [m.number(1, max(1, n * hole // stride)) for n, hole, stride in zip(spatial, holes, strides, strict=True)]
    work = batch * filters * channels * math.prod(taps)
    output[-1] = max(1, min(output[-1], 150_000 // (work * math.prod(output[:-1]))))
    return convolution(x, w, output, strides, steps, offsets, holes, groups)


# ── control ─────────────────────────────────────────────────────────────────────────────────────────


def _small(m: Maker, value: Value) -> Value:
    """One or two ops that keep a value's type: the body of a region."""
    other = reverse(value, (value.rank - 1,)) if value.rank and m.number(0, 1) else value
    if not value.dtype.computes or value.dtype is BOOL:
        return other
    if value.rank and m.number(0, 2) == 0:
        return cumulative("max", elementwise("sub", value, other), value.rank - 1)
    return elementwise(m.pick(("add", "sub", "mul", "min")), value, other)


def loop_step(m: Maker) -> Value:
    carried, second = m.any(), m.any()
    count = m.pick((0, 1, 2, 5))
    row = m.shape(m.number(0, 2), 40)
    scanned = m.fresh(m.pick((F32, I32, BOOL)), (count, *row))
    swap = carried.type == second.type

    def body(i: Value, a: Value, b: Value, r: Value, fixed: Value) -> Sequence[Value]:
        number = convert_to(i, F32)
        after = (b, _small(m, a)) if swap else (_small(m, a), b)
        return (*after, r, _small(m, r), number, fixed, b)

    if (carried.type.elements + second.type.elements) * max(count, 1) > LARGEST:
        return carried
    results = loop(count, (carried, second), (scanned,), (carried,), body)
    m.pool.extend(results[1:])
    return results[0]


def while_step(m: Maker) -> Value:
    value = m.any()
    start = m.fresh(I64, (), (-1, 4))

    def body(i: Value, go: Value, left: Value, a: Value, b: Value, fixed: Value) -> Sequence[Value]:
        fewer = elementwise("sub", left, scalar(1, I64))
        return compare("gt", fewer, scalar(0, I64)), fewer, b, _small(m, a)

    other = m.like(value)
    go = compare("gt", start, scalar(0, I64))
    results = while_((go, start, value, other), (value,), body, m.pick((1 << 62, 2)))
    m.pool.extend(results[1:3])
    return results[3]


def branch_step(m: Maker) -> Value:
    value, other = m.any(), m.any()
    condition = m.fresh(BOOL, ())
    results = branch(
        condition, (value, other), lambda a, b: (_small(m, a), b, a), lambda a, b: (a, _small(m, b), _small(m, a))
    )
    m.pool.extend(results[1:])
    return results[0]


def iota_step(m: Maker) -> Value:
    shape = m.shape(m.number(1, 3), 3000)
    return iota(shape, m.number(0, len(shape) - 1))


Step = Callable[[Maker], Value]
FAMILIES: tuple[tuple[Step, int], ...] = (
    (scalar_step, 5),
    (function_step, 2),
    (select_step, 2),
    (convert_step, 3),
    (bits_step, 1),
    (move_step, 5),
    (gather_step, 2),
    (scatter_step, 1),
    (reduce_step, 4),
    (window_step, 2),
    (cumulative_step, 1),
    (sort_step, 1),
    (dot_step, 3),
    (convolution_step, 3),
    (loop_step, 1),
    (while_step, 1),
    (branch_step, 1),
    (iota_step, 1),
)
STEPS: tuple[Step, ...] = tuple(step for step, weight in FAMILIES for _ in range(weight))


@st.composite
def cases(draw: st.DrawFn, most: int = 8) -> Case:
    """A graph of a few nodes; the last value and some others are its results, one of them perhaps twice."""
    maker = Maker(draw)
    for _ in range(draw(st.integers(1, most))):
        maker.pool.append(draw(st.sampled_from(STEPS))(maker))
    others = draw(st.lists(st.sampled_from(maker.pool), max_size=3))
    results = tuple(canonical_nan(value) for value in (maker.pool[-1], *others))
    graph = Graph(tuple(maker.kinds), results)
    return Case(graph, maker.limits, draw(st.integers(0, 1 << 32)), draw(st.sampled_from((0.0, 0.02, 0.3, 0.9))))
