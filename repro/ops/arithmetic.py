"""Constructors of the elementwise ops, apart from their records so that gradient rules of any op may use them."""

from __future__ import annotations

from repro.ir.graph import Value
from repro.ir.types import CANONICAL_NAN, DType
from repro.ops.record import make


def elementwise(name: str, *operands: Value) -> Value:
    """An elementwise op by name; operands of one shape."""
    return make(name, *operands).value


def add(a: Value, b: Value) -> Value:
    return elementwise("add", a, b)


def sub(a: Value, b: Value) -> Value:
    return elementwise("sub", a, b)


def mul(a: Value, b: Value) -> Value:
    return elementwise("mul", a, b)


def div(a: Value, b: Value) -> Value:
    return elementwise("div", a, b)


def neg(a: Value) -> Value:
    return elementwise("neg", a)


def minimum(a: Value, b: Value) -> Value:
    return elementwise("min", a, b)


def maximum(a: Value, b: Value) -> Value:
    return elementwise("max", a, b)


def compare(op: str, a: Value, b: Value) -> Value:
    """`op` is one of eq, ne, lt, le, gt, ge."""
    return elementwise(op, a, b)


def select(condition: Value, a: Value, b: Value) -> Value:
    return elementwise("select", condition, a, b)


def convert_to(value: Value, dtype: DType) -> Value:
    return value if value.dtype is dtype else make("convert", value, to=dtype.name).value


def bitcast_to(value: Value, dtype: DType) -> Value:
    return value if value.dtype is dtype else make("bitcast", value, to=dtype.name).value


def canonical_nan(value: Value) -> Value:
    return make("canonical_nan", value).value if value.dtype in CANONICAL_NAN else value
