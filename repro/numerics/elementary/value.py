"""Arithmetic notation for loop-IR scalars, so that a sequence reads as its formula."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from repro.ir.expressions import Expr, apply, bitcast, const, convert
from repro.ir.expressions import lookup as table_lookup
from repro.ir.expressions import rarely as rarely_taken
from repro.ir.types import F32, F64, I64, U32, U64, DType

Number = int | float


def literal(number: Number, dtype: DType) -> Expr:
    """A constant of that type; a float one is rounded once."""
    if not dtype.is_float:
        return const(dtype, int(number))
    form = {F32: ("<f", "<I"), F64: ("<d", "<Q")}[dtype]
    return const(dtype, struct.unpack(form[1], struct.pack(form[0], number))[0])


@dataclass(frozen=True)
class Value:
    """An expression with operators. A Python number beside it becomes a constant of its type."""

    expr: Expr

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    def _apply(self, op: str, other: Value | Number) -> Value:
        return Value(apply(op, self.expr, self.same(other).expr))

    def same(self, other: Value | Number) -> Value:
        """A number as a constant of this value's type."""
        return other if isinstance(other, Value) else Value(literal(other, self.dtype))

    def __add__(self, other: Value | Number) -> Value:
        return self._apply("add", other)

    def __sub__(self, other: Value | Number) -> Value:
        return self._apply("sub", other)

    def __mul__(self, other: Value | Number) -> Value:
        return self._apply("mul", other)

    def __truediv__(self, other: Value | Number) -> Value:
        return self._apply("div", other)

    def __radd__(self, other: Number) -> Value:
        return self.same(other) + self

    def __rsub__(self, other: Number) -> Value:
        return self.same(other) - self

    def __rmul__(self, other: Number) -> Value:
        return self.same(other) * self

    def __rtruediv__(self, other: Number) -> Value:
        return self.same(other) / self

    def __neg__(self) -> Value:
        return Value(apply("neg", self.expr))

    def __abs__(self) -> Value:
        return Value(apply("abs", self.expr))

    def __lt__(self, other: Value | Number) -> Value:
        return self._apply("lt", other)

    def __le__(self, other: Value | Number) -> Value:
        return self._apply("le", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self._apply("gt", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self._apply("ge", other)

    def equals(self, other: Value | Number) -> Value:
        return self._apply("eq", other)

    def differs(self, other: Value | Number) -> Value:
        return self._apply("ne", other)

    def __and__(self, other: Value | Number) -> Value:
        return self._apply("and", other)

    def __or__(self, other: Value | Number) -> Value:
        return self._apply("or", other)

    def __xor__(self, other: Value | Number) -> Value:
        return self._apply("xor", other)

    def __invert__(self) -> Value:
        return Value(apply("not", self.expr))

    def __lshift__(self, other: Value | Number) -> Value:
        return self._apply("shl", other)

    def __rshift__(self, other: Value | Number) -> Value:
        return self._apply("shr", other)

    def to(self, dtype: DType) -> Value:
        """The value converted."""
        return Value(convert(self.expr, dtype))

    def as_bits(self, dtype: DType) -> Value:
        """The bits read as another type."""
        return Value(bitcast(self.expr, dtype))


def select(condition: Value, then: Value | Number, otherwise: Value | Number) -> Value:
    """`then` where the condition holds; at least one side is a Value."""
    typed = then if isinstance(then, Value) else otherwise
    assert isinstance(typed, Value)
    return Value(apply("select", condition.expr, typed.same(then).expr, typed.same(otherwise).expr))


def rarely(condition: Value, seldom: Value, common: Value) -> Value:
    """`seldom` where the condition holds, else `common`; a target need not compute `seldom` where no lane takes it."""
    return Value(rarely_taken(condition.expr, seldom.expr, common.expr))


def lookup(index: Value, table: Sequence[float]) -> Value:
    """table[index mod len(table)] for an i64 index; f64 entries, their number a power of two."""
    entries = [struct.unpack("<Q", struct.pack("<d", entry))[0] for entry in table]
    return Value(table_lookup(F64, entries, index.expr))


def integer_lookup(index: Value, table: Sequence[int]) -> Value:
    """table[index mod len(table)] for an integer index; entries of the index's type."""
    return Value(table_lookup(index.dtype, table, index.expr))


def patched(x: Value, result: Value, results: Mapping[int, int]) -> Value:
    """The result, but for the arguments given by their bits: theirs are given by bits too."""
    bits = x.as_bits({F32: U32, F64: U64}[x.dtype])
    for argument, wanted in results.items():
        result = select(bits.equals(argument), Value(const(result.dtype, wanted)), result)
    return result


def sqrt(x: Value) -> Value:
    return Value(apply("sqrt", x.expr))


def fma(a: Value | Number, b: Value | Number, c: Value | Number) -> Value:
    """a * b + c, rounded once; at least one operand is a Value."""
    typed = next(operand for operand in (a, b, c) if isinstance(operand, Value))
    return Value(apply("fma", typed.same(a).expr, typed.same(b).expr, typed.same(c).expr))


def floor(x: Value) -> Value:
    return Value(apply("floor", x.expr))


def trunc(x: Value) -> Value:
    return Value(apply("trunc", x.expr))


def f64(number: float) -> Value:
    return Value(literal(number, F64))


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule; the lowest power comes first."""
    total = x.same(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def horner(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule in fused steps; the lowest power comes first."""
    total = x.same(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, coefficient)
    return total


def clamp(x: Value, low: float, high: float) -> Value:
    """x kept inside [low, high]; a NaN passes."""
    capped = select(x > high, high, x)
    return select(capped < low, low, capped)


def rational(numerator: int, denominator: int) -> float:
    """numerator / denominator, rounded once by Python's integers."""
    return float(Fraction(numerator, denominator))


SIGN = 1 << 63
_SHIFTER = float(3 << 51)
"""1.5 * 2^52: added to a value below 2^51 it leaves the nearest integer in the low bits."""
_SHIFTER_BITS = 0x4338000000000000


def nearest_integer(x: Value) -> tuple[Value, Value]:
    """The nearest integer, ties to even, as f64 and as i64; |x| < 2^51."""
    shifted = x + _SHIFTER
    return shifted - _SHIFTER, shifted.as_bits(I64) - _SHIFTER_BITS


def small_integer_to_f64(n: Value) -> Value:
    """An i64 of magnitude below 2^51 as f64."""
    return (n + _SHIFTER_BITS).as_bits(F64) - _SHIFTER


def power_of_two(n: Value) -> Value:
    """2^n for an i64 n in -1022..1023."""
    return ((n + 1023) << 52).as_bits(F64)


def with_sign_of(magnitude: Value, sign: Value) -> Value:
    """The magnitude (sign bit clear) with the sign bit of another f64."""
    return (magnitude.as_bits(U64) | (sign.as_bits(U64) & SIGN)).as_bits(F64)


def is_negative(x: Value) -> Value:
    """Whether an f64's sign bit is set."""
    return x.as_bits(I64) < 0
