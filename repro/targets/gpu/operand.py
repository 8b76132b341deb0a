"""One operand of a contraction on its way through shared memory.

A step of K brings `depth` terms of the block's lines (rows of one operand, columns of the other) into shared memory,
in one of two layouts, as they lie in global memory: terms side by side ([line][term]) or lines ([term][line]).
A plain load is copied by `cp.async`, 16 bytes at a time where its address allows that, else an element; anything else
(what was fused into the operand, patches of a picture) is evaluated into registers while the step before is computed,
and stored after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.loops import Axis, Expr, Load, topological
from repro.ir.types import BOOL, I32, I64, U32
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.tiles import LANES, THREADS, WARPS, Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Scope
from repro.targets.llvm.text import Val, element, integer, vector


class Operand:
    """The rows' (side 0) or the columns' (side 1) operand of one block."""

    def __init__(self, body: GpuBody, plan: Plan, side: int, first: Val, outer: Scope, thread: Val) -> None:
        self.body, self.f, self.plan, self.side, self.first = body, body.f, plan, side, first
        contraction = plan.contraction
        self.term, self.reduce = contraction.terms[side], contraction.reduce
        self.axes = contraction.rows if side == 0 else contraction.columns
        self.extent = contraction.extents[1 + side]
        self.lines, self.depth = plan.tile.block[side], plan.tile.depth
        self.dtype, self.chunk = self.reduce.dtype, plan.chunk
        self.present = self.reduce.present if contraction.absent_in == side else None
        self.watched = contraction.absent_in is not None and contraction.absent_in != side
        """Whether the other operand is blanked: then this one must be finite, or the block takes the exact road."""
        self.by_term = self._run(self.reduce.axes, self.axes) > self._run(self.axes, self.reduce.axes)
        self.copied = isinstance(self.term, Load) and self.term.dtype is not BOOL
        whole = self.chunk if self.copied and self._wide() else 1
        self.wide = max(1, min(whole, self.lines * self.depth // THREADS))
        """Elements that are copied at a time."""
        self.stride = self.depth + self.chunk if self.by_term else self.lines
        self.elements = self.stride * (self.lines if self.by_term else self.depth)
        self._places(thread, outer)
        self.origin = self._origin(thread)
        self.base = body.f.scaled(self.origin, self.stride if self.by_term else 1)

    # layout ─────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, axes: Sequence[Axis], others: Sequence[Axis]) -> int:
        """How many neighbours in memory a load of the operand's matrix meets along the last of the axes."""
        loads = [e for e in topological([self.term]) if isinstance(e, Load)]
        matrix = [load for load in loads if load.free & frozenset(others)] or loads
        beside = bool(axes) and any(ix.coefficient(load.offset, axes[-1]) == 1 for load in matrix)
        return axes[-1].extent if beside else 0

    def _wide(self) -> bool:
        """Whether every run of a chunk along the layout's fast axis is 16 aligned bytes of the buffer."""
        assert isinstance(self.term, Load)
        if self.term.when is not None or self.present is not None:
            return False
        panels = self.plan.panels == 1 or self.plan.panel % self.chunk == 0
        extent, rest = self._together(self.term.offset, self.reduce.axes if self.by_term else self.axes)
        whole = extent > 1 and extent % self.chunk == 0 and ix.divisible(rest, self.chunk)
        return whole and (panels or not self.by_term)

    def _together(self, offset: Expr, axes: Sequence[Axis]) -> tuple[int, Expr]:
        """How far the last axes run through memory as one, and the offset without them."""
        extent = 1
        for axis in reversed(axes):
            if ix.coefficient(offset, axis) != extent:
                break
            offset, extent = ix.add(offset, ix.scale(axis, -extent)), extent * axis.extent
        return extent, offset

    def _places(self, thread: Val, outer: Scope) -> None:
        """Which elements of a step this thread brings: their lines' scopes, their terms, their places."""
        f, wide = self.f, self.wide
        along = (self.depth if self.by_term else self.lines) // wide
        fast = f.scaled(scalars.binary(f, "urem", thread, integer(along)), wide)
        slow = scalars.binary(f, "udiv", thread, integer(along))
        count, rest = divmod(self.lines * self.depth // wide, THREADS)
        if rest or THREADS % along:
            raise InternalError(f"a step of {self.lines} x {self.depth} is not shared out evenly by {wide}")
        steps = [f.add(slow, integer(number * (THREADS // along))) for number in range(count)]
        if self.by_term:
            self.items = [(self._line(step, outer), scalars.convert(f, fast, I32)) for step in steps]
        else:
            line = self._line(fast, outer)
            self.items = [(line, scalars.convert(f, step, I32)) for step in steps]
        self.slots = [f.add(f.scaled(step, self.stride), fast) for step in steps]

    def _line(self, line: Val, outer: Scope) -> Scope:
        """The scope of a line; those beyond the last stand for it, and what they give is never stored."""
        f = self.f
        place = f.add(self.first, line)
        if self.extent % self.lines:
            last = integer(self.extent - (1 if self.by_term else self.wide))
            place = scalars.select(f, scalars.compare(f, "lt", place, last), place, last)
        scope = Scope(outer, dict(zip(self.axes, self.body.split(place, self.axes), strict=True)))
        self.body.hoist([self.term, *([] if self.present is None else [self.present])], scope)
        return scope

    # bringing a step ────────────────────────────────────────────────────────────────────────────────

    @property
    def ragged(self) -> bool:
        """Whether some step holds fewer than `depth` terms."""
        terms = self.plan.contraction.extents[3]
        return terms % self.depth != 0 or (self.plan.panels > 1 and self.plan.panel % self.depth != 0)

    def fetch(self, start: Val, limit: Val, shared: str, finite: Val) -> tuple[list[Val], Val]:
        """Begin to bring the terms from `start` up to `limit` (i32): copies go to `shared`, other values are given."""
        values: list[Val] = []
        for (line, ahead), slot in zip(self.items, self.slots, strict=True):
            at = self.f.add(start, ahead)
            exists = scalars.compare(self.f, "lt", at, limit) if self.ragged else None
            if exists is not None:
                at = scalars.select(self.f, exists, at, start)
            places = self.body.split(scalars.convert(self.f, self._opaque(at), I64), self.reduce.axes)
            scope = Scope(line, dict(zip(self.reduce.axes, places, strict=True)))
            if self.copied:
                self._copy(scope, line, at, exists, self.address(shared, slot))
                continue
            value, finite = self._evaluate(scope, exists, finite)
            values.append(value)
        return values, finite

    def _opaque(self, at: Val) -> Val:
        """A term's number without its range, where it is split: knowing that it is small, LLVM would divide in 16 bits,
        which takes three times the instructions."""
        if len(self.reduce.axes) < 2:
            return at
        return self.f.let(f'call i32 asm "mov.b32 $0, $1;", "=r,r"({at.typed})', I32)

    def check(self, shared: str, finite: Val) -> Val:
        """Whether what this thread copied to `shared` is finite too; for an operand that must be."""
        if not (self.copied and self.watched):
            return finite
        f, kind = self.f, vector(element(self.dtype), self.wide)
        bytes_read = self.wide * self.dtype.bytes
        for slot in self.slots:
            address = self.address(shared, slot)
            value = f.let(f"load {kind}, ptr addrspace(3) {address}, align {bytes_read}", self.dtype, self.wide)
            for lane in range(self.wide):
                one = value if self.wide == 1 else f.let(f"extractelement {value.typed}, i64 {lane}", self.dtype)
                finite = self._still_finite(one, finite)
        return finite

    def _still_finite(self, value: Val, finite: Val) -> Val:
        bound = scalars.constant(self.f, self.dtype, 0x7F800000 if self.dtype.bits == 32 else 0x7FF0000000000000, 1)
        inside = scalars.compare(self.f, "lt", scalars.intrinsic(self.f, "fabs", value), bound)
        return scalars.binary(self.f, "and", finite, inside)

    def put(self, values: Sequence[Val], shared: str) -> None:
        """Store what `fetch` returned."""
        for value, slot in zip(values, self.slots, strict=False):
            address = self.address(shared, slot)
            self.f.line(f"store {value.typed}, ptr addrspace(3) {address}, align {self.dtype.bytes}")

    def address(self, shared: str, slot: Val) -> str:
        kind = element(self.dtype)
        return self.f.let(f"getelementptr inbounds {kind}, ptr addrspace(3) {shared}, {slot.typed}", I64).text

    def _conditions(self, scope: Scope, exists: Val | None, *more: Expr | None) -> Val | None:
        kept = exists
        for condition in more:
            if condition is not None:
                value = self.body.value(condition, scope)
                kept = value if kept is None else scalars.binary(self.f, "and", kept, value)
        return kept

    def _offset(self, offset: Expr, line: Scope, at: Val, scope: Scope) -> Val:
        """Of a term; where all terms of a line are one run of memory, without their axes."""
        extent, rest = self._together(offset, self.reduce.axes)
        if extent != self.plan.contraction.extents[3]:
            return self.body.value(offset, scope)
        return self.f.add(self.body.value(rest, line), scalars.convert(self.f, at, I64))

    @property
    def direct(self) -> bool:
        """Whether it is copied, and where its terms lie needs no division."""
        return self.copied and isinstance(self.term, Load) and (len(self.reduce.axes) == 1 or self._flat(self.term))

    def _flat(self, term: Load) -> bool:
        return self._together(term.offset, self.reduce.axes)[0] == self.plan.contraction.extents[3]

    def _copy(self, scope: Scope, line: Scope, at: Val, exists: Val | None, address: str) -> None:
        """cp.async; a source of no bytes gives zeros and touches no memory."""
        f, load = self.f, self.term
        assert isinstance(load, Load)
        kept = self._conditions(scope, exists, load.when, self.present)
        offset = self._offset(load.offset, line, at, scope)
        if kept is not None:
            offset = scalars.select(f, kept, offset, integer(0))
        source = self.body.pointer(load.buffer, offset)
        size = self.wide * self.dtype.bytes
        bytes_read = integer(size, U32)
        if kept is not None:
            bytes_read = scalars.select(f, kept, bytes_read, integer(0, U32))
        plain = f.let(f"addrspacecast ptr {source.text} to ptr addrspace(1)", I64)
        how = "cg" if size == 16 else "ca"
        name = f"llvm.nvvm.cp.async.{how}.shared.global.{size}"
        types, arguments = ["ptr addrspace(3)", "ptr addrspace(1)"], [address, plain.text]
        if kept is not None:
            name, types, arguments = f"{name}.s", [*types, "i32"], [*arguments, bytes_read.text]
        typed = [f"{kind} {value}" for kind, value in zip(types, arguments, strict=True)]
        f.effect(name, types, typed)

    def _evaluate(self, scope: Scope, exists: Val | None, finite: Val) -> tuple[Val, Val]:
        """The term's value, zero where it is absent, and whether all so far are finite."""
        f = self.f
        value = self.body.value(self.term, scope)
        kept = self._conditions(scope, exists, self.present)
        if kept is not None:
            value = scalars.select(f, kept, value, scalars.constant(f, self.dtype, 0, 1))
        if self.watched:
            finite = self._still_finite(value, finite)
        return value, finite

    # reading a step ─────────────────────────────────────────────────────────────────────────────────

    def place(self, number: Val) -> Val:
        """The line in the block of a thread's own line by number, as spread over warps and lanes.

        Lines are dealt out so that a warp's reads of shared memory meet no bank twice: chunk by chunk where lines lie
        side by side, else one by one.
        """
        f, v = self.f, self.group
        run, inside = scalars.binary(f, "udiv", number, integer(v)), scalars.binary(f, "urem", number, integer(v))
        return f.add(self.origin, f.add(f.scaled(run, LANES[self.side] * v), inside))

    def _origin(self, thread: Val) -> Val:
        """The thread's first line in the block."""
        f, side = self.f, self.side
        warp, lane = (scalars.binary(f, how, thread, integer(32)) for how in ("udiv", "urem"))
        how = "udiv" if side == 0 else "urem"
        warp = scalars.binary(f, how, warp, integer(WARPS[1]))
        lane = scalars.binary(f, how, lane, integer(LANES[1]))
        return f.add(f.scaled(warp, LANES[side] * self.own), f.scaled(lane, self.group))

    @property
    def own(self) -> int:
        """Lines of a thread."""
        return self.plan.tile.rows if self.side == 0 else self.plan.tile.columns

    @property
    def group(self) -> int:
        """A thread's lines that lie side by side."""
        return 1 if self.by_term else self.chunk

    def constant_place(self, number: int) -> int:
        """The part of `place` that the number decides."""
        v = self.group
        return number // v * LANES[self.side] * v + number % v

    def fragments(self, shared: str, term: int) -> list[list[Val]]:
        """A chunk of terms from `term` on, of each of the thread's lines: [term][line]."""
        f, chunk, kind = self.f, self.chunk, f"<{self.chunk} x {element(self.dtype)}>"

        def read(slot: int) -> Val:
            address = self.address(shared, f.add(self.base, integer(slot)))
            return f.let(f"load {kind}, ptr addrspace(3) {address}, align 16", self.dtype, chunk)

        def pick(vector: Val, lane: int) -> Val:
            return f.let(f"extractelement {vector.typed}, i64 {lane}", self.dtype)

        if self.by_term:
            lines = [read(self.constant_place(number) * self.stride + term) for number in range(self.own)]
            return [[pick(line, t) for line in lines] for t in range(chunk)]
        found: list[list[Val]] = []
        for t in range(chunk):
            first = (term + t) * self.stride
            runs = [read(first + self.constant_place(number)) for number in range(0, self.own, chunk)]
            found.append([pick(run, lane) for run in runs for lane in range(chunk)])
        return found
