"""The greatest or least of many floats in few steps, where a machine has no instruction for rule 5's maximum.

What it has gives the second operand where one is NaN or both are zeros (AVX-512: orders zeros, and gives the number).
So the extreme is found among numbers, and
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
_PACKED = {F32: "ps", F64: "pd"}
WHOLE_BITS, SIGN_OF_RESULT = 512, 4
"""Of VRANGEPS: the register whose form states a rounding too; the result keeps its sign (0: the first operand's)."""
State = list[Val]
"""In each lane the extreme of the numbers so far, bits that are all set where there was a NaN, and in the highest bit
whether all signs are set (max) or any is (min); the last is left out where an instruction orders zeros."""


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
    machine: Machine

    @staticmethod
    def pays(combiner: str, dtype: DType, machine: Machine) -> bool:
        """Whether one step of rule 5's takes several instructions."""
        return combiner in ("max", "min") and dtype in _BITS and not machine.ordered_extremes

    def start(self, identity: Val) -> State:
        """Of no terms; the identity is the infinity that anything replaces."""
        return [identity, self._constant(0), *([] if self._ordered(self.width) else [self._bits(identity)])]

    def of(self, terms: Sequence[Val]) -> State:
        """The state of some terms. One test finds a NaN in either of two."""
        pairs = zip(terms[::2], [*terms[1::2], terms[-1]][: -(-len(terms) // 2)], strict=True)
        unordered = in_pairs(self._or, [self._where(self._unordered(a, b)) for a, b in pairs])
        signs = [] if self._ordered(self.width) else [in_pairs(self._sign, [self._bits(term) for term in terms])]
        return [in_pairs(self.further, terms), unordered, *signs]

    def step(self, state: State, terms: Sequence[Val]) -> State:
        """The state with more terms."""
        joins = (self.further, self._or, self._sign)
        return [join(a, b) for join, a, b in zip(joins, self.of(terms), state, strict=False)]

    def value(self, state: State, folded: Val) -> Val:
        """Rule 5's extreme of the terms of all lanes; `folded` is the furthest of the state's numbers."""
        return self._decided(folded, *(scalars.any_lane(self.f, each) for each in self._found(state)))

    def each(self, state: State) -> Val:
        """Rule 5's extreme of the terms of each lane."""
        return self._decided(state[0], *self._found(state))

    def _found(self, state: State) -> list[Val]:
        """Where there was a NaN, and where a sign that decides between zeros (max: +, min: -)."""
        _, unordered, *signs = state
        is_nan, top = scalars.compare(self.f, "ne", unordered, self._constant(0)), 1 << (self.dtype.bits - 1)
        decides = (scalars.binary(self.f, "and", each, self._constant(top)) for each in signs)
        wanted = "eq" if self.combiner == "max" else "ne"
        return [is_nan, *(scalars.compare(self.f, wanted, sign, self._constant(0)) for sign in decides)]

    def _decided(self, furthest: Val, is_nan: Val, found: Val | None = None) -> Val:
        nan = scalars.constant(self.f, self.dtype, CANONICAL_NAN[self.dtype], furthest.width)
        number = furthest if found is None else self._zero_by_sign(furthest, found)
        return scalars.select(self.f, is_nan, nan, number)

    def _zero_by_sign(self, furthest: Val, found: Val) -> Val:
        is_max, width = self.combiner == "max", furthest.width
        zeros = [scalars.constant(self.f, self.dtype, bits, width) for bits in (0, 1 << (self.dtype.bits - 1))]
        zero = scalars.select(self.f, found, zeros[not is_max], zeros[is_max])
        is_zero = scalars.compare(self.f, "eq", furthest, zeros[0])
        return scalars.select(self.f, is_zero, zero, furthest)

    def _ordered(self, width: int) -> bool:
        """Whether one instruction orders numbers and zeros of so many lanes."""
        return self.machine.orders_zeros and self.machine.has_register_of(width * self.dtype.bits)

    def further(self, a: Val, b: Val) -> Val:
        """Of numbers: one instruction, which gives b where both are zeros, or orders these. Of a NaN and a number:
        either."""
        if self._ordered(a.width):
            return self._range(a, b)
        if self._ordered(self.width):
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
