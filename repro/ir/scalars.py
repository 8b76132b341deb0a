"""The scalar operations of the loop IR: one table, read by every emitter and by the reference.

The meaning of each is fixed by the contract (docs/numerics.md, rules 1 to 6); a target that cannot do
one in a single instruction writes a sequence with the same bits. There are no elementary functions
here: they are sequences over these operations (repro/numerics).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repro.ir.types import BOOL, DType, Kind

NUMBER = frozenset({Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT})
INTEGER = frozenset({Kind.SIGNED, Kind.UNSIGNED})
FLOAT = frozenset({Kind.FLOAT})
BITS = frozenset({Kind.SIGNED, Kind.UNSIGNED, Kind.BOOL})
ANY = NUMBER | {Kind.BOOL}


def _same(operands: Sequence[DType]) -> DType:
    if any(operand is not operands[0] for operand in operands):
        raise TypeError(f"operands differ: {operands}")
    return operands[0]


def _boolean(operands: Sequence[DType]) -> DType:
    _same(operands)
    return BOOL


def _select(operands: Sequence[DType]) -> DType:
    if operands[0] is not BOOL:
        raise TypeError(f"select's condition is {operands[0]}, not bool")
    return _same(operands[1:])


@dataclass(frozen=True)
class ScalarOp:
    """One scalar operation: operand count, the kinds it is defined on, its result type."""

    name: str
    arity: int
    kinds: frozenset[Kind]
    result: Callable[[Sequence[DType]], DType]
    meaning: str


def _table(*ops: ScalarOp) -> dict[str, ScalarOp]:
    return {op.name: op for op in ops}


SCALARS: dict[str, ScalarOp] = _table(
    ScalarOp("add", 2, NUMBER, _same, "IEEE sum; integers wrap"),
    ScalarOp("sub", 2, NUMBER, _same, "IEEE difference; integers wrap"),
    ScalarOp("mul", 2, NUMBER, _same, "IEEE product; integers wrap"),
    ScalarOp("div", 2, NUMBER, _same, "IEEE quotient; integers truncate, x/0 = 0, INT_MIN/-1 wraps"),
    ScalarOp("rem", 2, NUMBER, _same, "exact C remainder, sign of the dividend; integer x rem 0 = 0"),
    ScalarOp("fma", 3, FLOAT, _same, "a*b + c rounded once"),
    ScalarOp("sqrt", 1, FLOAT, _same, "correctly rounded square root"),
    ScalarOp("neg", 1, NUMBER, _same, "sign flipped (floats: the sign bit); integers wrap"),
    ScalarOp("abs", 1, NUMBER, _same, "sign cleared; INT_MIN stays"),
    ScalarOp("floor", 1, FLOAT, _same, "largest integer at most x, keeps -0"),
    ScalarOp("ceil", 1, FLOAT, _same, "smallest integer at least x, keeps -0"),
    ScalarOp("trunc", 1, FLOAT, _same, "towards zero, keeps -0"),
    ScalarOp("round", 1, FLOAT, _same, "nearest integer, ties to even, keeps -0"),
    ScalarOp("min", 2, NUMBER, _same, "as values: NaN wins, -0 < +0"),
    ScalarOp("max", 2, NUMBER, _same, "as values: NaN wins, -0 < +0"),
    ScalarOp("eq", 2, ANY, _boolean, "IEEE 754 equality"),
    ScalarOp("ne", 2, ANY, _boolean, "not eq: true for NaN"),
    ScalarOp("lt", 2, ANY, _boolean, "ordered less than"),
    ScalarOp("le", 2, ANY, _boolean, "ordered less or equal"),
    ScalarOp("gt", 2, ANY, _boolean, "ordered greater than"),
    ScalarOp("ge", 2, ANY, _boolean, "ordered greater or equal"),
    ScalarOp("and", 2, BITS, _same, "bitwise"),
    ScalarOp("or", 2, BITS, _same, "bitwise"),
    ScalarOp("xor", 2, BITS, _same, "bitwise"),
    ScalarOp("not", 1, BITS, _same, "bitwise; bool: logical"),
    ScalarOp("shl", 2, INTEGER, _same, "a shift by the width or more is 0 (amount read as unsigned)"),
    ScalarOp("shr", 2, INTEGER, _same, "signed: arithmetic, else logical; by the width or more is 0"),
    ScalarOp("select", 3, ANY, _select, "condition ? a : b, bit for bit"),
    ScalarOp("convert", 1, ANY, _same, "value conversion to the expression's type: rules 3 and 6"),
    ScalarOp("bitcast", 1, ANY, _same, "same bits, the expression's type, of equal width"),
)
"""`convert` and `bitcast` carry their result type on the expression itself. The narrow floats (f16, bf16,
f8) appear only as operand or result of load, store, select, convert and bitcast."""
