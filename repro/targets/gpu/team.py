"""Reductions that the threads of a team run together: the 32 lanes of rule 10 are 32 threads.

A team shares every outer axis of the kernel, so all its threads take the same way through its code. It is one of

- a warp, whose lanes exchange values by shuffles;
- a block of several warps, for long rows: leaves are dealt out to the warps, and meet in shared memory;
- a column of a block: 16 teams side by side, thread t of a block being lane t / 16 of team t mod 16, so that
  neighbours in memory are read by neighbouring threads, 64 bytes at a time of f32, where the reduced axis is not the
  fast one. They meet in shared memory. Of 32 teams a multiprocessor had room for one block of 64 registers a thread,
  and read nothing while that folds its lanes.

Where threads have gone apart (inside the terms of another reduction, over inner axes), a reduction is each thread's
own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from repro.ir.expressions import Apply, Exact, Expr, Lanes, Reduce, topological
from repro.ir.types import BOOL, I32, I64, DType
from repro.targets.gpu.body import WARP, barrier
from repro.targets.gpu.lane import every_lane
from repro.targets.llvm import reductions, scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.terms import identity_bits
from repro.targets.llvm.text import Function, Val, element, integer

COLUMNS = 16
"""Teams that stand side by side in a block."""
AHEAD = 8
"""Terms that a thread reads before it adds the first of them."""


def cooperative(reduce: Reduce) -> bool:
    """Whether a team can run a reduction."""
    ordered = isinstance(reduce.order, Exact) or (isinstance(reduce.order, Lanes) and reduce.order.lanes == WARP)
    plain = not reduce.combiner.startswith("arg") and reduce.terms[0].dtype is not BOOL
    return ordered and plain and terms_of(reduce) >= WARP


def terms_of(reduce: Reduce) -> int:
    return math.prod(axis.extent for axis in reduce.axes)


@dataclass
class Kept:
    """Terms of a reduction that each thread keeps, since the row's outputs are made of them: runs of `width`
    neighbours, dealt out to the team's threads in turn as outputs are."""

    reduce: Reduce
    term: Expr
    """The reduction's term, along the outputs' axes."""
    width: int
    values: list[Val] = field(default_factory=list[Val])


class Team:
    """One team's threads, and how its reductions are emitted. `columns`: teams stand side by side in the block."""

    def __init__(self, f: Function, thread: Val, warps: int, columns: bool) -> None:
        self.f, self.warps, self.columns = f, warps, columns
        beside = integer(COLUMNS if columns else WARP)
        low, high = (scalars.binary(f, how, thread, beside) for how in ("urem", "udiv"))
        self.lane = high if columns else low
        self.warp = high if not columns and warps > 1 else integer(0)
        self.neighbour = low if columns else integer(0)
        """A column's number in the block."""
        self.rank = thread if not columns and warps > 1 else self.lane
        """The thread's number in the team."""
        self.size = WARP if columns else WARP * warps
        self.together = True
        self.kept: Kept | None = None

    def runs(self, count: int, width: int) -> Sequence[Val]:
        """Where each of a thread's runs of neighbours begins, of as many as the team shares out evenly."""
        first = self.f.scaled(self.rank, width)
        return [self.f.add(first, integer(start)) for start in range(0, count, self.size * width)]

    @contextmanager
    def apart(self) -> Generator[None]:
        """While the threads of the team may take different ways."""
        before, self.together = self.together, False
        yield
        self.together = before

    def emit(self, body: Body, reduce: Reduce, scope: Scope) -> Val:
        """A reduction's value, in every thread."""
        if not self.together or not cooperative(reduce):
            with self.apart():
                return reductions.emit(body, reduce, scope)
        return _TeamReduction(self, body, reduce, scope).value()

    # exchange ───────────────────────────────────────────────────────────────────────────────────────

    def fold(self, value: Val, combine: Callable[[Val, Val], Val]) -> Val:
        """The lanes' values combined by halves: j with j + 16, then + 8, + 4, + 2, + 1; in every thread."""
        if self.columns:
            return self._fold_columns(value, combine)
        for distance in (16, 8, 4, 2, 1):
            value = combine(value, self._across(value, distance))
        return value

    def meet(self, value: Val, combine: Callable[[Val, Val], Val]) -> Val:
        """The values of all threads of the team combined, where order makes no difference; in every thread."""
        folded = self.fold(value, combine)
        if self.warps == 1 or self.columns:
            return folded
        area = shared_array(self.f, value.dtype, self.warps, "warps")
        self.write_once(area, self.warp, folded)
        barrier(self.f)
        parts = [self.read(area, integer(n), value.dtype) for n in range(self.warps)]
        barrier(self.f)
        return functools.reduce(combine, parts)

    def _across(self, value: Val, distance: int) -> Val:
        """Another lane's value: combining is commutative, so both lanes of a pair find the same."""
        f, dtype = self.f, value.dtype
        words = max(1, dtype.bits // 32)
        whole = _as_integer(f, value, 32 * words)
        parts = [_word(f, whole, n, words) for n in range(words)]
        ends = [integer(distance, I32), integer(31, I32)]
        moved = [f.call("llvm.nvvm.shfl.sync.bfly.i32", (I32, 1), [integer(-1, I32), part, *ends]) for part in parts]
        return _from_words(f, moved, dtype)

    def _fold_columns(self, value: Val, combine: Callable[[Val, Val], Val]) -> Val:
        f = self.f
        area = shared_array(f, value.dtype, WARP * COLUMNS, "lanes")
        self.write(area, f.add(f.scaled(self.lane, COLUMNS), self.neighbour), value)
        barrier(f)
        parts = [self.read(area, f.add(integer(n * COLUMNS), self.neighbour), value.dtype) for n in range(WARP)]
        barrier(f)
        return halved(parts, combine)

    def write_once(self, area: str, place: Val, value: Val) -> None:
        """A value that all lanes of a warp have, written by the first."""
        first = scalars.compare(self.f, "eq", self.lane, integer(0))
        self.f.when(first, lambda: self.write(area, place, value))

    def write(self, area: str, place: Val, value: Val) -> None:
        address = _slot(self.f, area, place, value.dtype)
        self.f.line(f"store {value.typed}, ptr addrspace(3) {address}, align {value.dtype.bytes}")

    def read(self, area: str, place: Val, dtype: DType) -> Val:
        address = _slot(self.f, area, place, dtype)
        return self.f.let(f"load {element(dtype)}, ptr addrspace(3) {address}, align {dtype.bytes}", dtype)


def halved(parts: list[Val], combine: Callable[[Val, Val], Val]) -> Val:
    """Values combined by halves, down to one."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [combine(parts[n], parts[n + half]) for n in range(half)]
    return parts[0]


def shared_array(f: Function, dtype: DType, count: int, role: str) -> str:
    """A named array in shared memory; equal ones are one, so who uses it leaves it behind a barrier."""
    name = f"@{role}_{dtype.name}_{count}"
    f.declared[f"{name} = internal addrspace(3) global [{count} x {element(dtype)}] undef, align {dtype.bytes}"] = None
    return name


def _slot(f: Function, area: str, place: Val, dtype: DType) -> str:
    return f.let(f"getelementptr inbounds {element(dtype)}, ptr addrspace(3) {area}, {place.typed}", I64).text


def _as_integer(f: Function, value: Val, bits: int) -> Val:
    own = f"i{value.dtype.bits}"
    raw = value if element(value.dtype) == own else f.let(f"bitcast {value.typed} to {own}", I64)
    if value.dtype.bits < bits:
        return f.let(f"zext {own} {raw.text} to i{bits}", I64 if bits == 64 else I32)
    return Val(raw.text, I64 if bits == 64 else I32)


def _word(f: Function, whole: Val, number: int, words: int) -> Val:
    if words == 1:
        return whole
    shifted = f.let(f"lshr i64 {whole.text}, {32 * number}", I64)
    return f.let(f"trunc i64 {shifted.text} to i32", I32)


def _from_words(f: Function, words: list[Val], dtype: DType) -> Val:
    kind, whole = f"i{dtype.bits}", words[0]
    if len(words) == 2:
        low, high = (f.let(f"zext i32 {word.text} to i64", I64) for word in words)
        whole = f.let(f"or i64 {low.text}, {f.let(f'shl i64 {high.text}, 32', I64).text}", I64)
    elif dtype.bits < 32:
        whole = f.let(f"trunc i32 {whole.text} to {kind}", dtype)
    if element(dtype) == kind:
        return Val(whole.text, dtype)
    return f.let(f"bitcast {kind} {whole.text} to {element(dtype)}", dtype)


class _TeamReduction:
    """One reduction, run by a team."""

    def __init__(self, team: Team, body: Body, reduce: Reduce, scope: Scope) -> None:
        self.team, self.body, self.f, self.reduce, self.scope = team, body, body.f, reduce, scope
        self.dtype, self.count = reduce.terms[0].dtype, terms_of(reduce)
        bits = identity_bits(reduce.combiner, self.dtype)
        self.identity = scalars.constant(self.f, self.dtype, bits, 1)
        self.ahead = AHEAD if _light(reduce) else 1

    def combine(self, a: Val, b: Val) -> Val:
        return scalars.apply(self.f, self.reduce.combiner, self.dtype, [a, b])

    def value(self) -> Val:
        self.body.hoist(self.reduce.children, self.scope)
        if isinstance(self.reduce.order, Exact):
            return self._exact()
        assert isinstance(self.reduce.order, Lanes)
        leaf = self.reduce.order.leaf
        if self.count <= leaf:
            return self._leaf(integer(0), integer(self.count), self.count % WARP == 0)
        return self._leaves(leaf, -(-self.count // leaf))

    # terms ──────────────────────────────────────────────────────────────────────────────────────────

    def term(self, flat: Val) -> Val:
        """The term at a flattened index, the identity where it is absent."""
        with self.team.apart():
            places = self.body.split(flat, self.reduce.axes)
            scope = Scope(self.scope, dict(zip(self.reduce.axes, places, strict=True)))
            value = self.body.value(self.reduce.terms[0], scope)
            if self.reduce.present is None:
                return value
            return scalars.select(self.f, self.body.value(self.reduce.present, scope), value, self.identity)

    def _run(self, begin: Val, end: Val, own: Val, step: int, whole: bool) -> Val:
        """A thread's terms begin + own, + step, + 2 step, ... below end, ascending from the identity; `whole`: each
        step is full."""
        f, turn = self.f, step * self.ahead

        def full(at: Val, state: list[Val]) -> Sequence[Val]:
            total = state[0]
            first = f.add(at, own)
            for value in [self.term(f.add(first, integer(n * step))) for n in range(self.ahead)]:
                total = self.combine(total, value)
            return [total]

        def single(at: Val, state: list[Val]) -> Sequence[Val]:
            flat = f.add(at, own)
            if whole:
                return [self.combine(state[0], self.term(flat))]
            inside = scalars.compare(f, "lt", flat, end)
            value = self.term(scalars.select(f, inside, flat, begin))
            return [self.combine(state[0], scalars.select(f, inside, value, self.identity))]

        length = f.let(f"sub i64 {end.text}, {begin.text}", I64)
        turns = scalars.binary(f, "udiv", length, integer(turn))
        middle = f.add(begin, f.scaled(turns, turn))
        state = f.loop(begin, middle, turn, [self.identity], full) if self.ahead > 1 else [self.identity]
        return f.loop(middle if self.ahead > 1 else begin, end, step, state, single)[0]

    # orders ─────────────────────────────────────────────────────────────────────────────────────────

    def _exact(self) -> Val:
        team, size = self.team, self.team.size
        if team.kept is not None and team.kept.reduce is self.reduce:
            return team.meet(self._keeping(team.kept), self.combine)
        mine = self._run(integer(0), integer(self.count), team.rank, size, self.count % size == 0)
        return team.meet(mine, self.combine)

    def _keeping(self, kept: Kept) -> Val:
        """The thread's terms combined, in runs, as loads bring them; any order is right."""
        f, axes, width = self.f, self.reduce.axes, kept.width
        with self.team.apart():
            for first in self.team.runs(self.count, width):
                lanes = self.body.lane_scope(self.scope, axes, first, width, None, aligned=True)
                kept.values.append(f.splat(self.body.value(self.reduce.terms[0], lanes), width))
        several = functools.reduce(self.combine, kept.values)
        return functools.reduce(self.combine, every_lane(f, several))

    def _leaf(self, begin: Val, end: Val, whole: bool) -> Val:
        return self.team.fold(self._run(begin, end, self.team.lane, WARP, whole), self.combine)

    def _leaves(self, leaf: int, leaves: int) -> Val:
        """Sums of leaves, themselves summed by the rule: leaf i belongs to lane i mod 32."""
        f, team = self.f, self.team
        if leaves > leaf:  # more than 16 million terms in many rows: each thread for itself
            with team.apart():
                return reductions.emit(self.body, self.reduce, self.scope)

        def one(number: Val) -> Val:
            begin = f.scaled(number, leaf)
            end = f.add(begin, integer(leaf))
            last = integer(self.count)
            end = scalars.select(f, scalars.compare(f, "lt", end, last), end, last)
            return self._leaf(begin, end, self.count % WARP == 0)

        if team.warps > 1 and not team.columns:
            return team.fold(self._dealt(one, leaves), self.combine)

        def take(number: Val, state: list[Val]) -> Sequence[Val]:
            value = one(number)
            mine = scalars.compare(f, "eq", scalars.binary(f, "and", number, integer(WARP - 1)), team.lane)
            return [scalars.select(f, mine, self.combine(state[0], value), state[0])]

        return team.fold(f.loop(integer(0), integer(leaves), 1, [self.identity], take)[0], self.combine)

    def _dealt(self, one: Callable[[Val], Val], leaves: int) -> Val:
        """Warp w takes leaves w, w + warps, ...; all sums meet in shared memory, and each lane adds its own."""
        f, team = self.f, self.team
        area = shared_array(f, self.dtype, leaves, "leaves")

        def take(number: Val, _: list[Val]) -> Sequence[Val]:
            team.write_once(area, number, one(number))
            return ()

        f.loop(team.warp, integer(leaves), team.warps, (), take)
        barrier(f)

        def longer(number: Val, state: list[Val]) -> Sequence[Val]:
            return [self.combine(state[0], team.read(area, number, self.dtype))]

        total = f.loop(team.lane, integer(leaves), WARP, [self.identity], longer)[0]
        barrier(f)
        return total


def _light(reduce: Reduce) -> bool:
    """Whether terms are cheap enough to write several of them out."""
    return sum(isinstance(e, Apply) for e in topological(reduce.children)) <= 24
