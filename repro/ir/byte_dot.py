"""Sums of four products of bytes, as one expression: what some machines do in one instruction.

A quad is four bytes in an i32, the first lowest. The sum wraps as i32 does, so it is the same in whatever order it is
made, and so are sums of it.
"""

from __future__ import annotations

from repro.ir.expressions import Apply, Const, Expr, apply, const
from repro.ir.types import I32

BYTES = 4
"""Of a quad."""


def byte_dot(unsigned: Expr, signed: Expr) -> Expr:
    """The sum of the products of two quads' bytes, those of the one as unsigned, of the other as signed numbers."""
    total = _product(unsigned, signed, 0)
    for number in range(1, BYTES):
        total = apply("add", total, _product(unsigned, signed, number))
    return total


def factors(term: Expr) -> tuple[Expr, Expr] | None:
    """The quads that an expression is the byte dot of, the unsigned one first; None where it is something else."""
    first = term
    for _ in range(1, BYTES):
        if not isinstance(first, Apply) or first.op != "add":
            return None
        first = first.children[0]
    match first:
        case Apply(op="mul", children=(Apply(op="and", children=(unsigned, _)), Apply(op="shr", children=(up, _)))):
            found = (unsigned, up.children[0]) if isinstance(up, Apply) and unsigned.dtype is I32 else None
            return found if found is not None and byte_dot(*found) is term else None
        case _:
            return None


def inside(term: Expr) -> frozenset[Expr]:
    """What a byte dot is made of, beside its quads; nothing for other expressions."""
    quads = factors(term)
    if quads is None:
        return frozenset()
    found, waiting = set[Expr](), list(term.children)
    while waiting:
        expr = waiting.pop()
        if expr not in quads and expr not in found:
            found.add(expr)
            waiting += expr.children
    return frozenset(found)


def _product(unsigned: Expr, signed: Expr, number: int) -> Expr:
    low, high = 8 * number, 8 * (BYTES - 1 - number)
    byte = apply("and", apply("shr", unsigned, _i32(low)) if low else unsigned, _i32(0xFF))
    return apply("mul", byte, apply("shr", apply("shl", signed, _i32(high)), _i32(24)))


def _i32(value: int) -> Const:
    return const(I32, value)
