"""Where code is being written: the axes that are bound there, and the values known there."""

from __future__ import annotations

from dataclasses import dataclass, field

from repro.ir.expressions import Axis, Expr
from repro.targets.llvm.text import Val


@dataclass
class Scope:
    """Bound axes and the values computed so far here; those of the outer scopes are seen too."""

    outer: Scope | None
    bound: dict[Axis, Val]
    width: int = 1
    run: tuple[tuple[Axis, ...], Val] | None = None
    """Axes whose flattened (row-major) index is consecutive over the lanes, and that index in lane 0."""
    mask: Val | None = None
    """Lanes that exist; loads touch no others."""
    known: dict[Expr, Val] = field(default_factory=dict[Expr, Val])

    @property
    def axes(self) -> frozenset[Axis]:
        own = frozenset(self.bound)
        return own if self.outer is None else own | self.outer.axes

    def lookup(self, axis: Axis) -> Val | None:
        if axis in self.bound:
            return self.bound[axis]
        return None if self.outer is None else self.outer.lookup(axis)

    def find(self, expr: Expr) -> Val | None:
        """The value of an expression that is known here or further out."""
        found = self.known.get(expr)
        return found if found is not None or self.outer is None else self.outer.find(expr)

    @property
    def vector(self) -> Scope | None:
        """The nearest scope whose axes are lanes."""
        if self.width > 1:
            return self
        return None if self.outer is None else self.outer.vector


def lane_axes(scope: Scope) -> frozenset[Axis]:
    lanes = scope.vector
    return frozenset(lanes.bound) if lanes is not None else frozenset()
