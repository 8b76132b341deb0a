"""Where the greatest or least term is (`argmax`, `argmin`): the first of equal ones, a NaN being greater than any
number, and -0 equal to +0.

Along their own axis terms go by vectors: each lane knows the furthest of its terms and that one's number, and lanes are
compared at the end, where of equal terms the one with the lesser number counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from passes.vectors import POSITIONS_BESIDE, position_along
from repro.ir.types import BOOL, F32, F64, I32, I64
from repro.targets.llvm import scalars, tables
from repro.targets.llvm.along import Along
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, integer

Best = tuple[Val, Val]
"""In each lane a term and its number."""


class Positions:
    """A reduction whose value is a term's number."""

    def __init__(self, terms: Along) -> None:
        self.terms, self.f, self.width = terms, terms.f, terms.width
        self.greatest = terms.reduce.combiner == "argmax"

    def value(self) -> Val:
        """The number; 0 where there is no term."""
        terms = self.terms
        along = terms.is_along() and position_along(terms.reduce, terms.body.machine)
        if terms.few() and not along:
            return self._written()
        terms.body.hoist(terms.roots, terms.scope)
        if not along:
            where = self._one_by_one(0, (terms.constant(0), scalars.constant(self.f, I64, -1, self.width)))
            zero = scalars.constant(self.f, I64, 0, self.width)
            return scalars.select(self.f, scalars.compare(self.f, "lt", where, zero), zero, where)
        lanes = POSITIONS_BESIDE * terms.body.machine.lanes(terms.dtype.bits)
        whole = terms.count // lanes * lanes
        return self._one_by_one(whole, self._along(whole, lanes))

    def _further(self, value: Val, best: Val) -> Val:
        """Whether a term replaces one before it."""
        if value.dtype not in (F32, F64):
            return scalars.compare(self.f, "gt" if self.greatest else "lt", value, best)
        low, high = (best, value) if self.greatest else (value, best)  # NaN is greatest: `high` may be one, `low` not
        more = self.f.let(f"fcmp ugt {high.typed}, {low.text}", BOOL, value.width)
        number = self.f.let(f"fcmp ord {low.typed}, {low.text}", BOOL, value.width)
        return scalars.binary(self.f, "and", more, number)

    def _either(self, take: Val, new: Best, old: Best) -> Best:
        return scalars.select(self.f, take, new[0], old[0]), scalars.select(self.f, take, new[1], old[1])

    # term by term ───────────────────────────────────────────────────────────────────────────────────

    def _one_by_one(self, begin: int, start: Best) -> Val:
        """The position with the terms from a number on; -1 of `start` is none."""
        f, terms = self.f, self.terms
        if begin == terms.count:
            return start[1]

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            scope, (best, where) = terms.at(flat), state
            value = terms.terms(scope)[0]
            unset = scalars.compare(f, "lt", where, scalars.constant(f, I64, 0, self.width))
            take = scalars.binary(f, "or", self._further(value, best), unset)
            present = terms.present(scope, self.width)
            take = take if present is None else scalars.binary(f, "and", take, present)
            return self._either(take, (value, f.splat(flat, self.width)), (best, where))

        return f.loop(integer(begin), integer(terms.count), 1, start, step)[1]

    def _written(self) -> Val:
        """All terms in the code one after another, with their numbers in 32 bits."""
        every, found = scalars.constant(self.f, BOOL, 1, self.width), self.terms.written_out(self._there)
        (best, there), where = found[0], scalars.constant(self.f, I32, 0, self.width)
        for number, (value, present) in enumerate(found[1:], 1):
            take = self._further(value, best)
            if there is not None:
                take = scalars.binary(self.f, "or", take, scalars.binary(self.f, "xor", there, every))
            if present is not None:
                take = scalars.binary(self.f, "and", take, present)
            best, where = self._either(take, (value, scalars.constant(self.f, I32, number, self.width)), (best, where))
            if there is not None:
                there = None if present is None else scalars.binary(self.f, "or", there, present)
        return scalars.convert(self.f, where, I64)

    def _there(self, scope: Scope) -> tuple[Val, Val | None]:
        """The only term, and whether it is there; None where all are."""
        return self.terms.terms(scope)[0], self.terms.present(scope, self.width)

    # along the terms' own axis ──────────────────────────────────────────────────────────────────────

    def _along(self, end: int, lanes: int) -> Best:
        """Of the terms up to a multiple of so many, which go side by side."""
        f, width = self.f, lanes // POSITIONS_BESIDE

        def taken(flat: Val) -> list[Best]:
            first = scalars.convert(f, f.add(f.splat(flat, width), f.lanes(width)), I32)
            values = self.terms.side_by_side(flat, width, POSITIONS_BESIDE)
            apart = (scalars.constant(f, I32, place * width, width) for place in range(POSITIONS_BESIDE))
            return [(value, f.add(first, each)) for value, each in zip(values, apart, strict=True)]

        def step(flat: Val, state: list[Val]) -> Sequence[Val]:
            pairs = zip(taken(flat), zip(state[::2], state[1::2], strict=True), strict=True)
            return [part for new, old in pairs for part in self._either(self._further(new[0], old[0]), new, old)]

        start = [part for each in taken(integer(0)) for part in each]
        state = f.loop(integer(lanes), integer(end), lanes, start, step)
        found = list(zip(state[::2], state[1::2], strict=True))
        while len(found) > 1:
            found = [self._of_two(a, b) for a, b in zip(found[::2], found[1::2], strict=True)]
        best, where = self._folded(found[0])
        return best, scalars.convert(f, where, I64)

    def _folded(self, best: Best) -> Best:
        width = best[0].width
        while width > 1:
            width //= 2
            low, high = ([tables.lanes_of(self.f, each, first, width) for each in best] for first in (0, width))
            best = self._of_two((low[0], low[1]), (high[0], high[1]))
        return best

    def _of_two(self, a: Best, b: Best) -> Best:
        """Of equal terms the one with the lesser number."""
        f = self.f
        not_less = scalars.binary(f, "xor", self._further(a[0], b[0]), scalars.constant(f, BOOL, 1, a[0].width))
        sooner = scalars.binary(f, "and", not_less, scalars.compare(f, "lt", b[1], a[1]))
        return self._either(scalars.binary(f, "or", self._further(b[0], a[0]), sooner), b, a)
