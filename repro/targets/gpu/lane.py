"""One of several lanes by itself: what is seldom is computed for the lanes that need it, one after another.

In all lanes at once it would take as many times the registers, which a thread holds for as long as it runs, and a warp
as many times the instructions, though one lane of one thread needs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir.expressions import Axis, Expr
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val


@dataclass(kw_only=True)
class Lane(Scope):
    """Of the values that are known further out, its own lane."""

    f: Function
    number: int

    def lookup(self, axis: Axis) -> Val | None:
        return self._own(super().lookup(axis))

    def find(self, expr: Expr) -> Val | None:
        found = self._own(super().find(expr))
        if found is not None:
            self.known[expr] = found
        return found

    @property
    def vector(self) -> Scope | None:
        return None

    def _own(self, value: Val | None) -> Val | None:
        if value is None or value.width == 1:
            return value
        return lane_of(self.f, value, self.number)


def lane_of(f: Function, value: Val, number: int) -> Val:
    """One of a vector's lanes."""
    return f.let(f"extractelement {value.typed}, i64 {number}", value.dtype)


def every_lane(f: Function, value: Val) -> list[Val]:
    """All lanes of a value."""
    return [value] if value.width == 1 else [lane_of(f, value, number) for number in range(value.width)]
