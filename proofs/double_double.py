"""Double-double arithmetic over loop-IR scalars: a number is an unevaluated sum of two f64.

With u = 2^-53; every bound is relative to the exact result and holds while nothing overflows or underflows.
Algorithms and bounds, unless said otherwise: Joldes, Muller and Popescu, "Tight and rigorous error bounds for
basic building blocks of double-word arithmetic" (ACM TOMS 44, 2017), whose error-free sums are Knuth's (any
order) and Dekker's (the greater first). Products use fma, so none of their parts is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from repro.numerics.elementary import value
from repro.numerics.elementary.value import Value, f64, fma


def exact_product(a: Value, b: Value) -> tuple[Value, Value]:
    """(p, e): p = fl(a * b), p + e = a * b."""
    p = a * b
    return p, fma(a, b, -p)


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """(s, e): s = fl(a + b), s + e = a + b (Knuth)."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def fast_two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """(s, e) as two_sum, for |a| >= |b| or a = 0 (Dekker)."""
    s = a + b
    return s, b - (s - a)


@dataclass(frozen=True)
class Pair:
    """high + low, with |low| <= ulp(high) / 2."""

    high: Value
    low: Value

    def __add__(self, other: Pair | Value | float) -> Pair:
        """A pair beside: 3 u^2 + 13 u^3 (AccurateDWPlusDW); an f64: 2 u^2 (DWPlusFP)."""
        if not isinstance(other, Pair):
            s, e = two_sum(self.high, _value(other))
            return Pair(*fast_two_sum(s, self.low + e))
        s, e = two_sum(self.high, other.high)
        t, f = two_sum(self.low, other.low)
        v, w = fast_two_sum(s, e + t)
        return Pair(*fast_two_sum(v, f + w))

    def __sub__(self, other: Pair | Value | float) -> Pair:
        return self + (-other)

    def __mul__(self, other: Pair | Value | float) -> Pair:
        """A pair beside: 4 u^2 (DWTimesDW3; Muller and Rideau 2022); an f64: 2 u^2 (DWTimesFP3)."""
        if not isinstance(other, Pair):
            p, e = exact_product(self.high, _value(other))
            return Pair(*fast_two_sum(p, fma(self.low, _value(other), e)))
        p, e = exact_product(self.high, other.high)
        crossed = fma(self.low, other.high, fma(self.high, other.low, self.low * other.low))
        return Pair(*fast_two_sum(p, e + crossed))

    def __truediv__(self, other: Pair | Value | float) -> Pair:
        """A pair beside: 15 u^2 (DWDivDW2); an f64: 3 u^2 (DWDivFP3)."""
        divisor = other if isinstance(other, Pair) else exactly(_value(other))
        quotient = self.high / divisor.high
        product = divisor * quotient
        rest = (self.high - product.high) + (self.low - product.low)
        return Pair(*fast_two_sum(quotient, rest / divisor.high))

    def __radd__(self, other: float) -> Pair:
        return self + other

    def __rmul__(self, other: float) -> Pair:
        return self * other

    def __rsub__(self, other: float) -> Pair:
        return -self + other

    def __neg__(self) -> Pair:
        return Pair(-self.high, -self.low)

    def __abs__(self) -> Pair:
        return select(self.high < 0.0, -self, self)

    def __lt__(self, other: Pair) -> Value:
        return (self.high < other.high) | (self.high.equals(other.high) & (self.low < other.low))

    def scaled(self, factor: Value | float) -> Pair:
        """The product with a power of two, exact."""
        return Pair(self.high * factor, self.low * factor)


def _value(number: Value | float) -> Value:
    return number if isinstance(number, Value) else f64(number)


def exactly(x: Value | float) -> Pair:
    """An f64 as a pair."""
    return Pair(_value(x), f64(0.0))


def constant(words: Sequence[float]) -> Pair:
    """A pair of constants, from its high and low word."""
    high, low = words
    return Pair(f64(high), f64(low))


def exact_sum(a: Value, b: Value | float) -> Pair:
    """a + b, exactly."""
    return Pair(*two_sum(a, _value(b)))


def square(x: Pair) -> Pair:
    """x * x within 5 u^2: one product of the low word less than DWTimesDW3, and that below u^2 / 4."""
    p, e = exact_product(x.high, x.high)
    return Pair(*fast_two_sum(p, fma(x.high + x.high, x.low, e)))


def add_smaller(a: Pair, b: Pair | Value) -> Pair:
    """a + b for |b| <= |a| / 2, within 7 u^2.

    The sum is at least |a| / 2. Rounded are al + bl, which is below 3/2 u |a|, and its sum with the first error,
    which is below u |s| + 3/2 u |a|: in all u^2 (3 |a| + |s|) <= 7 u^2 |s|.
    """
    other = b if isinstance(b, Pair) else exactly(b)
    s, e = fast_two_sum(a.high, other.high)
    low = a.low if isinstance(b, Value) else a.low + other.low
    return Pair(*fast_two_sum(s, e + low))


def sqrt(x: Pair) -> Pair:
    """Within 25/8 u^2 (SQRTDWtoDW; Lefèvre, Louvet, Muller, Picot and Rideau 2023); 0 for 0."""
    root = value.sqrt(x.high)
    rest = fma(-root, root, x.high) + x.low
    correction = rest / (root + root)
    return Pair(*fast_two_sum(root, value.select(root > 0.0, correction, 0.0)))


@overload
def select(condition: Value, then: Pair, otherwise: Pair) -> Pair: ...
@overload
def select(condition: Value, then: Value, otherwise: Value) -> Value: ...
def select(condition: Value, then: Pair | Value, otherwise: Pair | Value) -> Pair | Value:
    """`then` where the condition holds; both sides of one kind."""
    if isinstance(then, Value):
        assert isinstance(otherwise, Value)
        return value.select(condition, then, otherwise)
    assert isinstance(otherwise, Pair)
    return Pair(
        value.select(condition, then.high, otherwise.high),
        value.select(condition, then.low, otherwise.low),
    )


def lookup(entries: Sequence[float], index: Value) -> Value:
    """Entry `index` (i64, 0 and up; past the end it is any), by selects on the index's bits."""
    left = [f64(entry) for entry in entries]
    bit = 0
    while len(left) > 1:
        odd = ((index >> bit) & 1).differs(0)
        left = [*left, left[-1]] if len(left) % 2 else left
        left = [value.select(odd, second, first) for first, second in zip(left[::2], left[1::2], strict=True)]
        bit += 1
    return left[0]


def lookup_pair(table: Sequence[Sequence[float]], index: Value) -> Pair:
    """Entry `index` of a table of pairs."""
    high, low = (lookup(column, index) for column in zip(*table, strict=True))
    return Pair(high, low)


def series(x: Pair, leading: Sequence[Sequence[float]], trailing: Sequence[float]) -> Pair:
    """A power series in x, lowest power first: `leading` coefficients as pairs, those of the `trailing` terms as f64.

    For a series whose rest, from any leading term on, is at most half that term. The trailing terms are summed
    in f64: they must be below 2^-50 of the first term.
    """
    total: Pair | Value = value.polynomial(x.high, trailing)
    for words in reversed(leading):
        total = add_smaller(constant(words), x * total)
    assert isinstance(total, Pair)
    return total
