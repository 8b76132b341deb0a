"""Ordered reductions as LLVM IR: each order of the loop IR, exactly (rules 5, 7, 10, 11).

Two ways to be fast with one order: across lanes that hold different outputs (each lane runs the whole
order for its own output), or along the reduction's own axis, where the order itself has lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from repro.ir import index as ix
from repro.ir.expressions import Axis, Chain, Exact, Lanes, Load, Reduce, Sequential, topological
from repro.ir.types import BOOL, F32, F64, I32, I64
from repro.targets.llvm import scalars, short_runs, tables
from repro.targets.llvm.body import Body
from repro.targets.llvm.extremes import Extreme, in_pairs
from repro.targets.llvm.memory import FAR_BYTES
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.terms import Terms
from repro.targets.llvm.text import Val, element, integer, vector

RUN_BYTES = 4 << 10
"""Of runs that are long enough to be fetched ahead by hardware."""
AHEAD_BYTES, MOST_RUNS = 2 << 10, 4
"""Of shorter ones that are asked for ahead, and how many: runs a power of two apart share a set of each cache."""
SIDE_BY_SIDE = 4
"""Vectors that a reduction of any order combines apart."""


@dataclass(frozen=True)
class Run:
    """A reduction along its own axis, in any number of steps of a multiple of `lanes` terms."""

    reduce: Reduce
    lanes: int
    start: Sequence[Val]
    step: Callable[[Val, Sequence[Val], int], Sequence[Val]]
    """The state with so many more terms, from one on."""
    finish: Callable[[int, Sequence[Val]], Val]
    """The value, after so many of the terms."""


def emit(body: Body, reduction: Reduce, scope: Scope) -> Val:
    """The reduction's value in a scope: a scalar, or one per lane of the scope where it depends on them."""
    return Reduction(body, reduction, scope).value()


class Reduction(Terms):
    kept_at: Val | None = None
    """Where terms are kept too."""

    def value(self) -> Val:
        if self.count == 0:
            return self.empty()
        match self.reduce.order:
            case Chain() as order:
                return self.chain(order)
            case Lanes() as order:
                return self.lanes(order)
            case Sequential():
                return self.plain()
            case Exact():
                if self.reduce.combiner.startswith("arg"):
                    return self.position()
                along = self.width == 1 and self.body.lanes > 1 and self.count >= self.body.lanes
                return self.exact_along() if along and self.dtype is not BOOL else self.exact_across()

    def empty(self) -> Val:
        """No positions at all: an empty sum is +0.0 (rule 10), any other the identity."""
        if self.reduce.dtype is not self.dtype or self.reduce.combiner in ("add", "fma"):
            return scalars.constant(self.f, self.reduce.dtype, 0, self.width)
        return self.identity()

    def exact_across(self) -> Val:
        """In any order: a few in pairs, so that combiners of several steps do not wait for each other."""
        if self.width > 1 and self._is_extreme():
            return self._extreme_across()
        return in_pairs(self.combine, self.written_out(self.term)) if self.few() else self.plain()

    def _extreme_across(self) -> Val:
        extreme = Extreme(self.f, self.reduce.combiner, self.dtype, self.width)
        start = extreme.start(self.identity())
        if self.few():
            return extreme.each(extreme.step(start, self.written_out(self.term)))

        def step(scope: Scope, state: list[Val]) -> Sequence[Val]:
            return extreme.step(state, [self.term(scope)])

        return extreme.each(self.body.nest(self.reduce.axes, self.scope, self.roots, start, step))

    # one accumulator, ascending ─────────────────────────────────────────────────────────────────────

    def plain(self) -> Val:
        if self.few():
            return reduce(self.combine, self.written_out(self.term))

        def step(scope: Scope, state: list[Val]) -> Sequence[Val]:
            return [self.combine(state[0], self.term(scope))]

        return self.body.nest(self.reduce.axes, self.scope, self.roots, [self.identity()], step)[0]

    def position(self) -> Val:
        """The first index of the extreme: NaN greatest for both, -0 equal to +0."""
        greatest = self.reduce.combiner == "argmax"
        if self.few():
            return self._position_written(greatest)

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            scope = self.at(flat)
            value, (best, where) = self.terms(scope)[0], state
            better = self._better(value, best, greatest)
            unset = scalars.compare(self.f, "lt", where, scalars.constant(self.f, I64, 0, self.width))
            take = scalars.binary(self.f, "or", better, unset)
            present = self.present(scope, self.width)
            take = take if present is None else scalars.binary(self.f, "and", take, present)
            here = self.f.splat(flat, self.width)
            return [scalars.select(self.f, take, value, best), scalars.select(self.f, take, here, where)]

        start = [self.constant(0), scalars.constant(self.f, I64, -1, self.width)]
        self.body.hoist(self.roots, self.scope)
        where = self.f.loop(integer(0), integer(self.count), 1, start, step)[1]
        zero = scalars.constant(self.f, I64, 0, self.width)
        return scalars.select(self.f, scalars.compare(self.f, "lt", where, zero), zero, where)

    def _position_written(self, greatest: bool) -> Val:
        """The same, term by term, with the numbers of terms in 32 bits."""
        every, found = scalars.constant(self.f, BOOL, 1, self.width), self.written_out(self.terms_there)
        (best, there), where = found[0], scalars.constant(self.f, I32, 0, self.width)
        for number, (value, present) in enumerate(found[1:], 1):
            take = self._better(value, best, greatest)
            if there is not None:
                take = scalars.binary(self.f, "or", take, scalars.binary(self.f, "xor", there, every))
            if present is not None:
                take = scalars.binary(self.f, "and", take, present)
            best = scalars.select(self.f, take, value, best)
            where = scalars.select(self.f, take, scalars.constant(self.f, I32, number, self.width), where)
            if there is not None:
                there = None if present is None else scalars.binary(self.f, "or", there, present)
        return scalars.convert(self.f, where, I64)

    def terms_there(self, scope: Scope) -> tuple[Val, Val | None]:
        """The only term, and whether it is there; None where all are."""
        return self.terms(scope)[0], self.present(scope, self.width)

    def _better(self, value: Val, best: Val, greatest: bool) -> Val:
        if self.dtype not in (F32, F64):
            return scalars.compare(self.f, "gt" if greatest else "lt", value, best)
        low, high = (best, value) if greatest else (value, best)  # NaN is greatest: high may be one, low not
        more = self.f.let(f"fcmp ugt {high.typed}, {low.text}", BOOL, self.width)
        number = self.f.let(f"fcmp ord {low.typed}, {low.text}", BOOL, self.width)
        return scalars.binary(self.f, "and", more, number)

    # chains (rule 7) ────────────────────────────────────────────────────────────────────────────────

    def chain(self, order: Chain) -> Val:
        self.body.hoist(self.roots, self.scope)
        zero = self.constant(0)
        if self.count <= order.panel:
            total = self.body.nest(self.reduce.axes, self.scope, self.roots, [zero], self.link)[0]
        else:
            total = self.blocks(order, zero)
        return scalars.apply(self.f, "add", self.dtype, [total, zero])

    def link(self, scope: Scope, state: list[Val]) -> Sequence[Val]:
        a, b = self.terms(scope)
        longer = scalars.fma(self.f, a, b, state[0])
        present = self.present(scope, self.width)
        return [longer if present is None else scalars.select(self.f, present, longer, state[0])]

    def panel(self, begin: Val, size: int, zero: Val) -> Val:
        end = self._least(self.f.add(begin, integer(size)), self.count)

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            return self.link(self.at(flat), state)

        return self.f.loop(begin, end, 1, [zero], step)[0]

    def blocks(self, order: Chain, zero: Val) -> Val:
        """Panels summed within blocks, blocks summed; each sum starts from its first."""
        per_block = order.panel * order.panels_per_block

        def block(begin: Val, totals: list[Val]) -> Sequence[Val]:
            end = self._least(self.f.add(begin, integer(per_block)), self.count)

            def panel(start: Val, sums: list[Val]) -> Sequence[Val]:
                return [self._first_or_add(start, begin, sums[0], self.panel(start, order.panel, zero))]

            inner = self.f.loop(begin, end, order.panel, [zero], panel)[0]
            return [self._first_or_add(begin, integer(0), totals[0], inner)]

        return self.f.loop(integer(0), integer(self.count), per_block, [zero], block)[0]

    def _first_or_add(self, at: Val, first: Val, total: Val, value: Val) -> Val:
        is_first = self.f.let(f"icmp eq i64 {at.text}, {first.text}", BOOL)
        summed = scalars.apply(self.f, "add", self.dtype, [total, value])
        return self.f.let(f"select {is_first.typed}, {value.typed}, {summed.typed}", self.dtype, value.width)

    def _least(self, value: Val, bound: int) -> Val:
        return scalars.least(self.f, value, integer(bound))

    # lanes (rule 10) ────────────────────────────────────────────────────────────────────────────────

    def lanes(self, order: Lanes) -> Val:
        self.body.hoist(self.roots, self.scope)
        if self.width == 1 and self.body.lanes > 1 and self.count >= self.body.lanes:
            return self.levels(order, self.count, lambda begin, end: self.leaf_along(order, begin, end))
        if self.count <= order.lanes and self.few():
            return self.folded(order, self.written_out(self.term))
        return self.levels(order, self.count, lambda begin, end: self.leaf_across(order, begin, end))

    def levels(self, order: Lanes, count: int, leaf: Callable[[Val, Val], Val]) -> Val:
        """The sum of `count` terms from sums of leaves; sums of several leaves follow the same rule."""
        if count <= order.leaf:
            return leaf(integer(0), integer(count))
        leaves = -(-count // order.leaf)

        def sums(begin: Val, end: Val) -> Val:
            def of_leaf(number: Val) -> Val:
                start = self.f.scaled(number, order.leaf)
                stop = self._least(self.f.add(start, integer(order.leaf)), count)
                return leaf(start, stop)

            return self.in_memory(order, begin, end, of_leaf)

        return self.levels(order, leaves, sums)

    def leaf_across(self, order: Lanes, begin: Val, end: Val) -> Val:
        """Each lane has sums of its own."""
        return self.in_memory(order, begin, end, lambda flat: self.term(self.at(flat)))

    def in_memory(self, order: Lanes, begin: Val, end: Val, term: Callable[[Val], Val]) -> Val:
        """Running sums on the stack, one per lane of the order; `begin` is a multiple of the lanes."""
        kind = vector(element(self.dtype), self.width)
        store = self.f.alloca(f"[{order.lanes} x {kind}]")
        start = self.identity()
        for lane in range(order.lanes):
            self.f.line(f"store {start.typed}, ptr {self._slot(store, kind, integer(lane))}, align {self.dtype.bytes}")

        def step(flat: Val, _: list[Val]) -> Sequence[Val]:
            value = term(flat)
            lane = self.f.let(f"and i64 {flat.text}, {order.lanes - 1}", I64)
            slot = self._slot(store, kind, lane)
            old = self.f.let(f"load {kind}, ptr {slot}, align {self.dtype.bytes}", self.dtype, self.width)
            self.f.line(f"store {self.combine(old, value).typed}, ptr {slot}, align {self.dtype.bytes}")
            return ()

        self.f.loop(begin, end, 1, (), step)
        partial = [
            self.f.let(
                f"load {kind}, ptr {self._slot(store, kind, integer(lane))}, align {self.dtype.bytes}",
                self.dtype,
                self.width,
            )
            for lane in range(order.lanes)
        ]
        return self.folded(order, partial)

    def folded(self, order: Lanes, partial: Sequence[Val]) -> Val:
        """What the first lanes of the order hold, folded by halves: the others are absent, and would change nothing."""
        partial, half = list(partial), order.lanes // 2
        while half:
            pairs = zip(partial, partial[half:], strict=False)
            partial[: max(0, len(partial) - half)] = [self.combine(a, b) for a, b in pairs]
            partial, half = partial[:half], half // 2
        return partial[0]

    def _slot(self, store: str, kind: str, lane: Val) -> str:
        return self.f.let(f"getelementptr inbounds {kind}, ptr {store}, {lane.typed}", I64).text

    def leaf_along(self, order: Lanes, begin: Val, end: Val) -> Val:
        """The order's lanes are the lanes of a vector: 32 consecutive terms at a time."""
        before = self.body.ahead
        self.body.ahead = self.runs_ahead() or before
        if self.kept_at is None and short_runs.pays(self.reduce, order):
            found = short_runs.ShortRuns(self, order).leaf(begin, end)
            self.body.ahead = before
            return self.fold(found)
        lanes, start = order.lanes * self.vectors_at_once(order.lanes), list[Val]()
        if lanes > order.lanes and self.count >= lanes:
            begin, start = self.several(order.lanes, lanes, begin, end)
        summed = start[0] if start and self.count % lanes == 0 else self.along(order.lanes, begin, end, start)
        self.body.ahead = before
        return self.fold(summed)

    def vectors_at_once(self, width: int) -> int:
        """Vectors of terms that are computed beside each other: of functions whose steps wait for each other, as many
        as go together (`Road`)."""
        roads = (self.body.roads.get(expr) for expr in topological(self.reduce.terms))
        return max([1, *(road.lanes * road.together // width for road in roads if road is not None)])

    def several(self, width: int, lanes: int, begin: Val, end: Val) -> tuple[Val, list[Val]]:
        """Runs of so many lanes, each lane of the order's still adding its terms one after another: where they end, and
        the sums."""
        stop = self.f.add(begin, self._whole(begin, end, lanes))

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            return self.more(width, flat, state, lanes)

        return stop, self.f.loop(begin, stop, lanes, [self.identity(width)], step)

    def more(self, width: int, flat: Val, state: Sequence[Val], lanes: int) -> Sequence[Val]:
        """The sums with so many more terms."""
        value = self.term(self.lane_scope(flat, lanes, None), lanes)
        self.keep(flat, value)
        parts = (tables.lanes_of(self.f, value, first, width) for first in range(0, lanes, width))
        return [reduce(self.combine, parts, state[0])]

    def keep(self, flat: Val, value: Val) -> None:
        if self.kept_at is not None:
            self.body.hold(self.kept_at, flat, value)

    def run(self) -> Run | None:
        """The reduction step by step, if it goes along its own axis in one run."""
        order, along = self.reduce.order, self.width == 1 and 1 < self.body.lanes <= self.count
        if not along or self.dtype is BOOL or self.reduce.combiner.startswith("arg"):
            return None
        if isinstance(order, Lanes) and self.count <= order.leaf:
            self.body.hoist(self.roots, self.scope)
            return self._run_of_lanes(order.lanes)
        if isinstance(order, Exact):
            self.body.hoist(self.roots, self.scope)
            return self._run_of_extremes() if self._is_extreme() else self._run_of_lanes(self.body.lanes)
        return None

    def _run_of_lanes(self, width: int) -> Run:
        def finish(whole: int, state: Sequence[Val]) -> Val:
            return self.fold(self.along(width, integer(whole), integer(self.count), state))

        def step(flat: Val, state: Sequence[Val], lanes: int) -> Sequence[Val]:
            return self.more(width, flat, state, lanes)

        lanes = width * self.vectors_at_once(width)
        return Run(self.reduce, lanes, [self.identity(width)], step, finish)

    def _run_of_extremes(self) -> Run:
        """The greatest or least float, a register's lanes apart; what is left over in the order's own lanes."""
        width = self.body.machine.lanes(self.dtype.bits)
        extreme = Extreme(self.f, self.reduce.combiner, self.dtype, width)

        def step(flat: Val, state: Sequence[Val], lanes: int) -> Sequence[Val]:
            return extreme.step(list(state), self.side_by_side(flat, width, lanes // width))

        def finish(whole: int, state: Sequence[Val]) -> Val:
            found = [extreme.value(list(state), self.fold(state[0], extreme.further))] if whole else []
            if whole < self.count:
                found.append(self.fold(self.along(self.body.lanes, integer(whole), integer(self.count))))
            return reduce(self.combine, found)

        return Run(self.reduce, width * SIDE_BY_SIDE, extreme.start(self.identity(width)), step, finish)

    def _whole(self, begin: Val, end: Val, lanes: int) -> Val:
        """How many of the terms are in whole runs of a power of two."""
        length = self.f.let(f"sub i64 {end.text}, {begin.text}", I64)
        return self.f.let(f"and i64 {length.text}, {-lanes}", I64)

    def runs_ahead(self) -> tuple[Axis, int] | None:
        """The axis along which later terms are asked for, and how far. Of runs that are long, or follow each other
        in memory, what lies some pages behind: hardware fetches less far. Of short runs that lie apart, later
        ones: hardware fetches ahead only within a run."""
        if self.body.ahead is None and self._far():
            return self.reduce.axes[-1], FAR_BYTES // self.dtype.bytes
        if len(self.reduce.axes) < 2:
            return None
        *_, apart, along = self.reduce.axes
        run = along.extent * self.dtype.bytes
        return (apart, min(MOST_RUNS, -(-AHEAD_BYTES // run))) if run < RUN_BYTES else None

    def _far(self) -> bool:
        """Whether terms come from beyond the second-level cache in long runs, or in such as follow each other."""
        *before, along = (*self.body.kernel.axes, *self.reduce.axes)
        apart = next((axis for axis in reversed(before) if axis.extent > 1), None)
        loads = [e for term in self.reduce.terms for e in topological([term]) if isinstance(e, Load)]
        large = [e for e in loads if self.body.kernel.buffers[e.buffer].nbytes > self.body.machine.l2_bytes]
        long = along.extent * self.dtype.bytes >= 2 * FAR_BYTES
        beside = all(ix.coefficient(e.offset, along) == 1 for e in large)
        follow = apart is not None and all(ix.coefficient(e.offset, apart) == along.extent for e in large)
        return bool(large) and beside and (long or follow)

    def along(self, width: int, begin: Val, end: Val, start: Sequence[Val] = ()) -> Val:
        stop = self.f.add(begin, self._whole(begin, end, width))

        def chunk(flat: Val, state: list[Val], mask: Val | None = None) -> Sequence[Val]:
            value = self.term(self.lane_scope(flat, width, mask), width)
            self.keep(flat, value)
            return [self.combine(state[0], value)]

        start = start or [self.identity(width)]
        summed = self.f.loop(begin, stop, width, start, lambda flat, state: chunk(flat, state))
        if self.count % width == 0:
            return summed[0]

        def tail(flat: Val, state: list[Val]) -> Sequence[Val]:
            lanes = self.f.add(self.f.splat(flat, width), self.f.lanes(width))
            mask = scalars.compare(self.f, "lt", lanes, self.f.splat(end, width))
            return chunk(flat, state, mask)

        return self.f.loop(stop, end, width, summed, tail)[0]

    def lane_scope(self, flat: Val, width: int, mask: Val | None) -> Scope:
        return self.body.lane_scope(self.scope, self.reduce.axes, flat, width, mask, aligned=True)

    def fold(self, value: Val, combine: Callable[[Val, Val], Val] | None = None) -> Val:
        """Lane j with lane j + half, down to one."""
        width = value.width
        while width > 1:
            half = width // 2
            parts: list[Val] = []
            for first in (0, half):
                picks = ", ".join(f"i32 {lane}" for lane in range(first, first + half))
                if half == 1:
                    parts.append(self.f.let(f"extractelement {value.typed}, i64 {first}", self.dtype))
                    continue
                text = f"shufflevector {value.typed}, {value.type} poison, <{half} x i32> <{picks}>"
                parts.append(self.f.let(text, self.dtype, half))
            value = (combine or self.combine)(*parts)
            width = half
        return value

    def exact_along(self) -> Val:
        """Any order will do, so several vectors are on the way at once: a combiner may take longer than a load."""
        self.body.hoist(self.roots, self.scope)
        if self._is_extreme():
            return self.alone(self._run_of_extremes())
        width, end = self.body.lanes, integer(self.count)
        whole = self.count - self.count % (width * SIDE_BY_SIDE)

        def chunks(flat: Val, state: list[Val]) -> Sequence[Val]:
            return [self.combine(*pair) for pair in zip(state, self.side_by_side(flat, width), strict=True)]

        start = [self.identity(width)]
        if whole:
            made = self.f.loop(integer(0), integer(whole), width * SIDE_BY_SIDE, start * SIDE_BY_SIDE, chunks)
            start = [reduce(self.combine, made)]
        return self.fold(self.along(width, integer(whole), end, start))

    def _is_extreme(self) -> bool:
        return Extreme.pays(self.reduce.combiner, self.dtype, self.body.machine)

    def alone(self, run: Run) -> Val:
        """A reduction in a loop of its own."""
        whole = self.count - self.count % run.lanes

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            return run.step(flat, state, run.lanes)

        state = self.f.loop(integer(0), integer(whole), run.lanes, run.start, step) if whole else run.start
        return run.finish(whole, state)

    def side_by_side(self, flat: Val, width: int, count: int = SIDE_BY_SIDE) -> list[Val]:
        """Vectors of terms that follow each other."""
        places = [self.f.add(flat, integer(width * number)) for number in range(count)]
        return [self.term(self.lane_scope(place, width, None), width) for place in places]
