"""How a step of one operand lies in shared memory, and which of its elements each thread brings.

Terms lie side by side ([line][term]) or lines do ([term][line]).
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.errors import InternalError
from repro.ir.types import I32, I64
from repro.targets.gpu.access import Access
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.outputs import Outputs
from repro.targets.gpu.tiles import WARP, Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, element, integer


@dataclass(frozen=True)
class Step:
    """Which terms are brought: from `start` up to `limit` (i32), whose entries in tables of terms begin at `slot`."""

    start: Val
    limit: Val
    slot: Val


@dataclass(frozen=True)
class Dealing:
    """What a thread has of each step: lines that are `apart` from one another, and terms one after another; and how the
    step lies: elements from one row of what lies side by side to the next, and all of them."""

    along: int
    apart: int
    lines: int
    terms: int
    stride: int
    elements: int


def dealt(plan: Plan, side: int, access: Access) -> Dealing:
    """How a step is shared out. Raises InternalError where that leaves threads with different shares."""
    plan = plan.seen(side)
    lines, depth, threads = plan.tile.block[side], plan.tile.depth, plan.tile.threads
    if not access.even(plan, side):
        raise InternalError(f"a step of {lines} x {depth} is not shared out evenly by {access.wide}")
    along = access.along(plan, side)
    apart = threads // along if access.by_term else along * access.wide
    terms = 1 if access.by_term else depth // (threads // along)
    beside, rows = (along * access.wide, lines) if access.terms_beside else (lines, depth)
    stride = beside + (plan.chunk if access.by_term else _padding(along * access.wide, terms, plan.chunk))
    return Dealing(along, apart, lines // apart, terms, stride, stride * rows)


def _padding(together: int, terms: int, chunk: int) -> int:
    """Elements beside a row, so that rows which one warp writes meet other banks; none where these are too near."""
    rows = WARP // together
    return WARP // rows // terms if rows > 1 and terms * chunk <= WARP // rows else 0


class Share:
    """One thread's share of each step: runs of `wide` elements. `by_term`: a run is of terms, else of lines."""

    def __init__(self, body: GpuBody, plan: Plan, side: int, access: Access, outputs: Outputs) -> None:
        self.body, self.f, self.plan, self.side, self.first = body, body.f, plan, side, outputs.first[side]
        self.by_term, self.wide, self.dtype = access.by_term, access.wide, plan.contraction.reduce.dtype
        self.axes, self.extent = plan.axes(side), plan.contraction.extents[1 + side]
        dealing = dealt(plan, side, access)
        self.apart, self.lines, self.terms = dealing.apart, dealing.lines, dealing.terms
        self.stride, self.bytes = dealing.stride, dealing.elements * self.dtype.bytes
        """Elements from one row of what lies side by side to the next; all of a step."""
        f = self.f
        fast, slow = (scalars.binary(f, how, outputs.thread, integer(dealing.along)) for how in ("urem", "udiv"))
        fast = f.scaled(fast, self.wide * (self.terms if self.by_term else 1))
        line, term = (slow, fast) if self.by_term else (fast, f.scaled(slow, self.terms))
        self.own_lines = [f.add(line, integer(number * self.apart)) for number in range(self.lines)]
        last, beyond = integer(plan.tile.depth - self.wide), dealing.along * self.wide > plan.tile.depth
        found = scalars.select(f, scalars.compare(f, "lt", term, last), term, last) if self.by_term and beyond else term
        self.ahead = scalars.convert(f, found, I32)
        """The first of the thread's terms, counted from the step's."""
        outer, inner = (line, term) if access.terms_beside else (term, line)
        self.place = f.add(f.scaled(outer, self.stride), inner)
        self.steps = (self.apart * self.stride, 1) if access.terms_beside else (self.apart, self.stride)
        """Elements of shared memory from one of the thread's lines (terms) to the next."""

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The thread's runs: which of its lines, which of its terms."""
        return [(line, term) for term in range(self.terms) for line in range(self.lines)]

    def exists(self, at: Val, step: Step, ahead: int = 0) -> Val | None:
        """Whether the term so many places ahead of another is one of the step's; None where all are. If panels end with
        a step, or the other operand has zeros for terms that are not, it is enough that there is such a term: what
        zeros do is seen to at the end (rule 8)."""
        plan, f = self.plan, self.f
        if not plan.ragged:
            return None
        contraction, other = plan.contraction, 1 - self.side
        if contraction.absent_in != other and not plan.in_steps:
            return scalars.compare(f, "lt", f.add(at, integer(ahead, I32)), step.limit)
        if plan.last_panel % plan.tile.depth == 0:
            return None
        return scalars.compare(f, "lt", at, integer(contraction.extents[3] - ahead, I32))

    def line_scope(self, line: Val, outer: Scope) -> Scope:
        """The scope of a line; those beyond the last stand for it, and what they give is never stored."""
        f = self.f
        place = f.add(self.first, line)
        if not self.plan.whole(self.side):
            last = integer(self.extent - (1 if self.by_term else self.wide))
            place = scalars.select(f, scalars.compare(f, "lt", place, last), place, last)
        return Scope(outer, dict(zip(self.axes, self.body.split(place, self.axes), strict=True)))

    def there(self, line: Val) -> Val | None:
        """Whether a line exists; None where all do."""
        if self.plan.whole(self.side):
            return None
        return scalars.compare(self.f, "lt", self.f.add(self.first, line), integer(self.extent))

    def slot(self, shared: str, run: tuple[int, int]) -> str:
        """The address of one of the thread's runs, where the step begins at an address."""
        first, far = self.element(shared, self.place), run[0] * self.steps[0] + run[1] * self.steps[1]
        return self.element(first, integer(far)) if far else first

    def element(self, shared: str, place: Val) -> str:
        """The address of an element in shared memory."""
        kind = element(self.dtype)
        return self.f.let(f"getelementptr inbounds {kind}, ptr addrspace(3) {shared}, {place.typed}", I64).text
