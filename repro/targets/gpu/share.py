"""How a step of one operand lies in shared memory, and which of its elements each thread brings.

Terms lie side by side ([line][term], lines padded by a chunk so that they meet other banks) or lines do ([term][line]).
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.errors import InternalError
from repro.ir.types import I32, I64
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.tiles import Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Scope
from repro.targets.llvm.text import Val, element, integer


@dataclass(frozen=True)
class Step:
    """Which terms are brought: from `start` up to `limit` (i32), whose entries in tables of terms begin at `slot`."""

    start: Val
    limit: Val
    slot: Val


class Share:
    """One thread's share of each step: `count` runs of `wide` elements, of one term and several lines (`by_term`), or
    of one line and several terms, which are `apart` from one another. `first` is the block's first line."""

    def __init__(
        self, body: GpuBody, plan: Plan, side: int, first: Val, thread: Val, *, by_term: bool, wide: int
    ) -> None:
        self.body, self.f, self.plan, self.side, self.first = body, body.f, plan, side, first
        self.by_term, self.wide, self.dtype = by_term, wide, plan.contraction.reduce.dtype
        self.axes = plan.axes(side)
        self.extent = plan.contraction.extents[1 + side]
        self.lines, self.depth = plan.tile.block[side], plan.tile.depth
        self.stride = self.depth + plan.chunk if by_term else self.lines
        self.elements = self.stride * (self.lines if by_term else self.depth)
        self.count, rest = divmod(self.lines * self.depth // wide, plan.tile.threads)
        along = (self.depth if by_term else self.lines) // wide
        if rest or plan.tile.threads % along:
            raise InternalError(f"a step of {self.lines} x {self.depth} is not shared out evenly by {wide}")
        f = self.f
        fast = f.scaled(scalars.binary(f, "urem", thread, integer(along)), wide)
        slow = scalars.binary(f, "udiv", thread, integer(along))
        self.apart = plan.tile.threads // along if by_term else 1
        if by_term:
            self.own_lines = [f.add(slow, integer(number * self.apart)) for number in range(self.count)]
        else:
            self.own_lines, slow = [fast], f.scaled(slow, self.count)
        self.ahead = scalars.convert(f, fast if by_term else slow, I32)
        """The first of the thread's terms, counted from the step's."""
        self.place = f.add(f.scaled(slow, self.stride), fast)

    @property
    def bytes(self) -> int:
        """Of shared memory, for one step."""
        return self.elements * self.dtype.bytes

    def exists(self, at: Val, step: Step) -> Val | None:
        """Whether the term at a place is one of the step's; None where all are."""
        return scalars.compare(self.f, "lt", at, step.limit) if self.plan.ragged else None

    def line_scope(self, line: Val, outer: Scope) -> Scope:
        """The scope of a line; those beyond the last stand for it, and what they give is never stored."""
        f = self.f
        place = f.add(self.first, line)
        if not self.plan.whole(self.side):
            last = integer(self.extent - (1 if self.by_term else self.wide))
            place = scalars.select(f, scalars.compare(f, "lt", place, last), place, last)
        return Scope(outer, dict(zip(self.axes, self.body.split(place, self.axes), strict=True)))

    def slot(self, shared: str, number: int) -> str:
        """The address of the thread's run by number, where the step begins at an address."""
        first = self.element(shared, self.place)
        step = number * self.apart * self.stride
        return self.element(first, integer(step)) if step else first

    def element(self, shared: str, place: Val) -> str:
        """The address of an element in shared memory."""
        kind = element(self.dtype)
        return self.f.let(f"getelementptr inbounds {kind}, ptr addrspace(3) {shared}, {place.typed}", I64).text
