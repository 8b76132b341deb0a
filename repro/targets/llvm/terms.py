"""The terms of an ordered reduction as LLVM IR: one at a time, or all of a few; and running sums of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from repro.ir.expressions import Axis, Lanes, Reduce, topological
from repro.ir.types import BOOL, I64, DType
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, element, integer, vector

T = TypeVar("T")

WRITTEN_TERMS, WRITTEN_EXPRESSIONS = 32, 1024
"""Terms that stand in the code one after another, and expressions in all of them, at most."""


def identity_bits(combiner: str, dtype: DType) -> int:
    """What an absent term is, bit for bit without effect."""
    if combiner in ("add", "or", "fma"):
        return 1 << (dtype.bits - 1) if dtype.is_float and combiner == "add" else 0
    if combiner == "and":
        return 1 if dtype is BOOL else (1 << dtype.bits) - 1
    if combiner == "mul":
        return int(np.asarray(1, dtype.storage).view(f"u{dtype.bytes}"))
    if dtype is BOOL:
        return int(combiner == "min")
    if dtype.is_float:
        return int(np.asarray(np.inf if combiner == "min" else -np.inf, dtype.storage).view(f"u{dtype.bytes}"))
    ends = np.iinfo(dtype.storage)
    return int(ends.max if combiner == "min" else ends.min) & ((1 << dtype.bits) - 1)


class Terms:
    """A reduction in a scope: a scalar, or one value per lane of the scope where it depends on them."""

    def __init__(self, body: Body, reduction: Reduce, scope: Scope) -> None:
        self.body, self.f, self.reduce, self.scope = body, body.f, reduction, scope
        self.dtype = reduction.terms[0].dtype
        self.count = math.prod(axis.extent for axis in reduction.axes)
        lanes = scope.vector
        over_lanes = lanes is not None and bool(reduction.free & lanes.bound.keys())
        self.width = lanes.width if lanes is not None and over_lanes else 1
        self.roots = reduction.children

    # pieces ─────────────────────────────────────────────────────────────────────────────────────────

    def constant(self, bits: int, width: int | None = None) -> Val:
        return scalars.constant(self.f, self.dtype, bits, self.width if width is None else width)

    def identity(self, width: int | None = None) -> Val:
        return self.constant(identity_bits(self.reduce.combiner, self.dtype), width)

    def combine(self, a: Val, b: Val) -> Val:
        return scalars.apply(self.f, self.reduce.combiner, self.dtype, [a, b])

    def at(self, flat: Val) -> Scope:
        """The scope where the reduction's axes stand at a flattened index (scalar)."""
        return Scope(self.scope, dict(zip(self.reduce.axes, self.body.split(flat, self.reduce.axes), strict=True)))

    def terms(self, scope: Scope, width: int | None = None) -> list[Val]:
        wanted = self.width if width is None else width
        return [self.f.splat(self.body.value(term, scope), wanted) for term in self.reduce.terms]

    def present(self, scope: Scope, width: int) -> Val | None:
        if self.reduce.present is None:
            return None
        return self.f.splat(self.body.value(self.reduce.present, scope), width)

    def term(self, scope: Scope, width: int | None = None) -> Val:
        """The only term, or the identity where it is absent or its lane is masked off."""
        wanted = self.width if width is None else width
        value = self.terms(scope, wanted)[0]
        present = self.present(scope, wanted)
        mask = scope.mask if scope.mask is not None and scope.width == wanted else None
        if mask is not None:
            present = mask if present is None else scalars.binary(self.f, "and", present, mask)
        return value if present is None else scalars.select(self.f, present, value, self.identity(wanted))

    # few terms, in registers ────────────────────────────────────────────────────────────────────────

    def few(self) -> bool:
        """Whether the terms may stand in the code one after another."""
        return self.count <= WRITTEN_TERMS and self.count * len(list(topological(self.roots))) <= WRITTEN_EXPRESSIONS

    def written_out(self, term: Callable[[Scope], T]) -> list[T]:
        """Each term, ascending; what an axis decides is computed once for those behind it."""
        found = list[T]()

        def inside(axes: Sequence[Axis], scope: Scope) -> None:
            self.body.hoist(self.roots, scope)
            if not axes:
                found.append(term(scope))
                return
            for number in range(axes[0].extent):
                inside(axes[1:], Scope(scope, {axes[0]: integer(number)}))

        inside(self.reduce.axes, self.scope)
        return found


class Running:
    """Running sums on the stack, one per lane of an order."""

    def __init__(self, terms: Terms, order: Lanes) -> None:
        self.terms, self.f, self.order = terms, terms.f, order
        self.kind = vector(element(terms.dtype), terms.width)
        self.store = self.f.alloca(f"[{order.lanes} x {self.kind}]")
        start = terms.identity()
        for lane in range(order.lanes):
            self.f.line(f"store {start.typed}, {self._slot(integer(lane))}")

    def add(self, flat: Val, value: Val) -> None:
        """The term of a number onto its lane."""
        slot = self._slot(self.f.let(f"and i64 {flat.text}, {self.order.lanes - 1}", I64))
        self.f.line(f"store {self.terms.combine(self._at(slot), value).typed}, {slot}")

    def parts(self) -> list[Val]:
        """What each lane of the order has, to be folded."""
        return [self._at(self._slot(integer(lane))) for lane in range(self.order.lanes)]

    def _at(self, slot: str) -> Val:
        return self.f.let(f"load {self.kind}, {slot}", self.terms.dtype, self.terms.width)

    def _slot(self, lane: Val) -> str:
        place = self.f.let(f"getelementptr inbounds {self.kind}, ptr {self.store}, {lane.typed}", I64)
        return f"ptr {place.text}, align {self.terms.dtype.bytes}"
