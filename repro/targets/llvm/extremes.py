"""The greatest or least of many floats in few steps, where a machine has no instruction for rule 5's maximum.

What it has gives the second operand where one is NaN or both are zeros (AVX-512: orders zeros, and gives the number).
So the extreme is found among numbers, and beside it whether there was a NaN, and which signs there were, where either
shows (`Needs`). Where the greatest is a zero nothing is above it, so it is -0 only if every sign is set; where the
least is one nothing is below it, so it is +0 only if none is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repro.ir.types import BOOL, CANONICAL_NAN, F32, F64, U32, U64, DType
from repro.machines import Machine
from repro.targets.llvm import scalars
from repro.targets.llvm.row_sums import Needs
from repro.targets.llvm.text import Function, Val

_BITS = {F32: U32, F64: U64}
_PACKED = {F32: "ps", F64: "pd"}
WHOLE_BITS, SIGN_OF_RESULT = 512, 4
"""Of VRANGEPS: the register whose form states a rounding too; the result keeps its sign (0: the first operand's)."""
State = list[Val]
"""In each lane the extreme of the numbers so far, and what is noted beside it."""


def in_pairs(combine: Callable[[Val, Val], Val], values: Sequence[Val]) -> Val:
    """All of them in an order of which few steps wait for each other: those side by side first."""
    while len(values) > 1:
        joined = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = [*joined, *values[2 * len(joined) :]]
    return values[0]


@dataclass(frozen=True)
class _Note:
    """What is noted beside the extreme of numbers, and the extreme that it makes of that."""

    start: Val
    of: Callable[[Sequence[Val]], Val]
    join: Callable[[Val, Val], Val]
    found: Callable[[Val], Val]
    """In which lanes."""
    decided: Callable[[Val, Val], Val]
    """Of the extreme so far, by whether it was found."""


@dataclass(frozen=True)
class Extreme:
    """A running maximum or minimum of vectors of floats."""

    f: Function
    combiner: str
    dtype: DType
    width: int
    machine: Machine
    needs: Needs

    @staticmethod
    def pays(combiner: str, dtype: DType, machine: Machine) -> bool:
        """Whether one step of rule 5's takes several instructions."""
        return combiner in ("max", "min") and dtype in _BITS and not machine.ordered_extremes

    def start(self, identity: Val) -> State:
        """Of no terms; the identity is the infinity that anything replaces."""
        return [identity, *(note.start for note in self._notes())]

    def of(self, terms: Sequence[Val]) -> State:
        """The state of some terms."""
        return [in_pairs(self.further, terms), *(note.of(terms) for note in self._notes())]

    def step(self, state: State, terms: Sequence[Val]) -> State:
        """The state with more terms."""
        joins = [self.further, *(note.join for note in self._notes())]
        return [join(a, b) for join, a, b in zip(joins, self.of(terms), state, strict=True)]

    def value(self, state: State, folded: Val) -> Val:
        """Rule 5's extreme of the terms of all lanes; `folded` is the furthest of the state's numbers."""
        return self._decided(folded, state, lambda found: scalars.any_lane(self.f, found))

    def each(self, state: State) -> Val:
        """Rule 5's extreme of the terms of each lane."""
        return self._decided(state[0], state, lambda found: found)

    def _decided(self, furthest: Val, state: State, where: Callable[[Val], Val]) -> Val:
        for note, noted in zip(self._notes(), state[1:], strict=True):
            furthest = note.decided(furthest, where(note.found(noted)))
        return furthest

    def _notes(self) -> list[_Note]:
        """Signs decide between zeros; a NaN is the extreme whatever else there is."""
        found = list[_Note]()
        if self.needs.zeros and not self._ordered(self.width):
            start = self._constant(-1 if self.combiner == "max" else 0)
            found.append(_Note(start, self._signs, self._sign, self._sign_decides, self._zero_by_sign))
        if self.needs.nan:
            found.append(_Note(self._constant(0), self._unordered, self._or, self._some, self._nan_where))
        return found

    def _ordered(self, width: int) -> bool:
        """Whether one instruction orders numbers and zeros of so many lanes."""
        return self.machine.orders_zeros and self.machine.has_register_of(width * self.dtype.bits)

    def further(self, a: Val, b: Val) -> Val:
        """Of numbers: one instruction, which gives b where both are zeros, or orders these if they show. Of a NaN and a
        number: either."""
        if self.needs.zeros and self._ordered(a.width):
            return self._range(a, b)
        if self.needs.zeros and self._ordered(self.width):
            return scalars.apply(self.f, self.combiner, self.dtype, [a, b])
        return scalars.select(self.f, scalars.compare(self.f, "gt" if self.combiner == "max" else "lt", a, b), a, b)

    def _range(self, a: Val, b: Val) -> Val:
        kind, lanes, bits = a.type, max(8, a.width), a.width * self.dtype.bits
        name = f"llvm.x86.avx512.mask.range.{_PACKED[self.dtype]}.{bits}"
        rounding = ["i32 4"] if bits == WHOLE_BITS else []
        mask, which = f"i{lanes} -1", f"i32 {SIGN_OF_RESULT | (self.combiner == 'max')}"
        kinds = [kind, kind, "i32", kind, f"i{lanes}", *("i32" for _ in rounding)]
        self.f.declared[f"declare {kind} @{name}({', '.join(kinds)})"] = None
        arguments = [a.typed, b.typed, which, f"{kind} zeroinitializer", mask, *rounding]
        return self.f.let(f"call {kind} @{name}({', '.join(arguments)})", self.dtype, a.width)

    def _bits(self, value: Val) -> Val:
        return scalars.bitcast(self.f, value, _BITS[self.dtype])

    def _constant(self, bits: int) -> Val:
        return scalars.constant(self.f, _BITS[self.dtype], bits, self.width)

    # signs: all of them set (max), or any (min) ─────────────────────────────────────────────────────

    def _signs(self, terms: Sequence[Val]) -> Val:
        return in_pairs(self._sign, [self._bits(term) for term in terms])

    def _sign(self, a: Val, b: Val) -> Val:
        return scalars.binary(self.f, "and" if self.combiner == "max" else "or", a, b)

    def _sign_decides(self, noted: Val) -> Val:
        """Whether there was one that does (max: +, min: -)."""
        sign = scalars.binary(self.f, "and", noted, self._constant(1 << (self.dtype.bits - 1)))
        return scalars.compare(self.f, "eq" if self.combiner == "max" else "ne", sign, self._constant(0))

    def _zero_by_sign(self, furthest: Val, found: Val) -> Val:
        is_max, width = self.combiner == "max", furthest.width
        zeros = [scalars.constant(self.f, self.dtype, bits, width) for bits in (0, 1 << (self.dtype.bits - 1))]
        zero = scalars.select(self.f, found, zeros[not is_max], zeros[is_max])
        is_zero = scalars.compare(self.f, "eq", furthest, zeros[0])
        return scalars.select(self.f, is_zero, zero, furthest)

    # NaN: all bits set where there was one ──────────────────────────────────────────────────────────

    def _unordered(self, terms: Sequence[Val]) -> Val:
        """One test finds a NaN in either of two."""
        pairs = zip(terms[::2], [*terms[1::2], terms[-1]][: -(-len(terms) // 2)], strict=True)
        return in_pairs(
            self._or, [self._where(self.f.let(f"fcmp uno {a.typed}, {b.text}", BOOL, a.width)) for a, b in pairs]
        )

    def _or(self, a: Val, b: Val) -> Val:
        return scalars.binary(self.f, "or", a, b)

    def _where(self, condition: Val) -> Val:
        kind = self._constant(0).type
        return self.f.let(f"sext {condition.typed} to {kind}", _BITS[self.dtype], self.width)

    def _some(self, noted: Val) -> Val:
        return scalars.compare(self.f, "ne", noted, self._constant(0))

    def _nan_where(self, furthest: Val, found: Val) -> Val:
        nan = scalars.constant(self.f, self.dtype, CANONICAL_NAN[self.dtype], furthest.width)
        return scalars.select(self.f, found, nan, furthest)
