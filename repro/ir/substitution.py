"""Kernels rewritten in their own language: some expressions in the place of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repro.ir import index as ix
from repro.ir.expressions import Affine, Apply, Expr, IndexOp, Load, Lookup, Rarely, Reduce, load


class Substitution:
    """Expressions rebuilt with others in the place of some; index sums are simplified anew.

    With a condition, loads take place where it holds alone.
    """

    def __init__(self, known: Mapping[Any, Expr], exists: Expr | None) -> None:
        self.known: dict[Expr, Expr] = dict(known)
        self.exists = exists

    def of(self, root: Expr) -> Expr:
        stack = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if expr in self.known:
                continue
            if ready:
                self.known[expr] = self._rebuilt(expr, [self.known[child] for child in expr.children])
            else:
                stack.append((expr, True))
                stack.extend((child, False) for child in expr.children)
        return self.known[root]

    def _rebuilt(self, expr: Expr, children: list[Expr]) -> Expr:
        match expr:
            case Affine():
                terms = zip(children, expr.coefficients, strict=True)
                return ix.add(ix.number(expr.constant), *(ix.scale(child, k) for child, k in terms))
            case IndexOp():
                return (ix.floordiv if expr.op == "floordiv" else ix.mod)(children[0], expr.divisor)
            case Load():
                when = ix.both(self.exists, children[1] if expr.when is not None else None)
                return load(expr.dtype, expr.buffer, children[0], None if when is ix.both() else when)
            case Apply() | Rarely() | Lookup() | Reduce():
                return type(expr)(expr.dtype, expr.fields, tuple(children))
            case _:
                return expr
