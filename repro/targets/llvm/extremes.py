"""The greatest or least of many floats in few steps, where a machine has no instruction for rule 5's maximum.

What it has gives the second operand where one is NaN or both are zeros. So the extreme is found among numbers, and
beside it whether there was a NaN, and which signs there were. Where the greatest is a zero nothing is above it, so it
is -0 only if every sign is set; where the least is one nothing is below it, so it is +0 only if none is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repro.ir.types import BOOL, CANONICAL_NAN, F32, F64, U32, U64, DType
from repro.machines import Machine
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val

_BITS = {F32: U32, F64: U64}
State = list[Val]
"""In each lane the extreme of the numbers so far, bits that are all set where there was a NaN, and in the highest bit
whether all signs are set (max) or any is (min)."""


def in_pairs(combine: Callable[[Val, Val], Val], values: Sequence[Val]) -> Val:
    """All of them in an order of which few steps wait for each other: those side by side first."""
    while len(values) > 1:
        joined = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = [*joined, *values[2 * len(joined) :]]
    return values[0]


@dataclass(frozen=True)
class Extreme:
    """A running maximum or minimum of vectors of floats."""

    f: Function
    combiner: str
    dtype: DType
    width: int

    @staticmethod
    def pays(combiner: str, dtype: DType, machine: Machine) -> bool:
        """Whether one step of rule 5's takes several instructions."""
        return combiner in ("max", "min") and dtype in _BITS and not machine.ordered_extremes

    def start(self, identity: Val) -> State:
        """Of no terms; the identity is the infinity that anything replaces."""
        return [identity, self._constant(0), self._bits(identity)]

    def step(self, state: State, terms: Sequence[Val]) -> State:
        """The state with more terms. One test finds a NaN in either of two."""
        extreme, unordered, signs = state
        pairs = zip(terms[::2], [*terms[1::2], terms[-1]][: -(-len(terms) // 2)], strict=True)
        tests = [self._where(self._unordered(a, b)) for a, b in pairs]
        highest = in_pairs(self.further, terms)
        signs = self._sign(signs, in_pairs(self._sign, [self._bits(term) for term in terms]))
        return [self.further(highest, extreme), self._or(unordered, in_pairs(self._or, tests)), signs]

    def value(self, state: State, folded: Val) -> Val:
        """Rule 5's extreme of the terms of all lanes; `folded` is the furthest of the state's numbers."""
        found, is_nan = (scalars.any_lane(self.f, each) for each in self._found(state))
        return self._decided(folded, found, is_nan)

    def each(self, state: State) -> Val:
        """Rule 5's extreme of the terms of each lane."""
        return self._decided(state[0], *self._found(state))

    def _found(self, state: State) -> tuple[Val, Val]:
        """Where there was a sign that decides between zeros (max: +, min: -), and where a NaN."""
        _, unordered, signs = state
        sign = scalars.binary(self.f, "and", signs, self._constant(1 << (self.dtype.bits - 1)))
        found = scalars.compare(self.f, "eq" if self.combiner == "max" else "ne", sign, self._constant(0))
        return found, scalars.compare(self.f, "ne", unordered, self._constant(0))

    def _decided(self, furthest: Val, found: Val, is_nan: Val) -> Val:
        is_max, width = self.combiner == "max", furthest.width
        zeros = [scalars.constant(self.f, self.dtype, bits, width) for bits in (0, 1 << (self.dtype.bits - 1))]
        zero = scalars.select(self.f, found, zeros[not is_max], zeros[is_max])
        is_zero = scalars.compare(self.f, "eq", furthest, zeros[0])
        number = scalars.select(self.f, is_zero, zero, furthest)
        nan = scalars.constant(self.f, self.dtype, CANONICAL_NAN[self.dtype], width)
        return scalars.select(self.f, is_nan, nan, number)

    def further(self, a: Val, b: Val) -> Val:
        """One instruction: b where either is NaN or both are zeros."""
        return scalars.select(self.f, scalars.compare(self.f, "gt" if self.combiner == "max" else "lt", a, b), a, b)

    def _sign(self, a: Val, b: Val) -> Val:
        return scalars.binary(self.f, "and" if self.combiner == "max" else "or", a, b)

    def _or(self, a: Val, b: Val) -> Val:
        return scalars.binary(self.f, "or", a, b)

    def _unordered(self, a: Val, b: Val) -> Val:
        return self.f.let(f"fcmp uno {a.typed}, {b.text}", BOOL, a.width)

    def _where(self, condition: Val) -> Val:
        """All bits set where it holds."""
        kind = self._constant(0).type
        return self.f.let(f"sext {condition.typed} to {kind}", _BITS[self.dtype], self.width)

    def _bits(self, value: Val) -> Val:
        return scalars.bitcast(self.f, value, _BITS[self.dtype])

    def _constant(self, bits: int) -> Val:
        return scalars.constant(self.f, _BITS[self.dtype], bits, self.width)
