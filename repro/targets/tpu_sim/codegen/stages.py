"""Kernels cut into stages: each reduction over the axes that it depends on, then what is stored.

A stage is a loop nest of its own whose result lies in VMEM, so a row's maximum is taken once a row and not once an
element, and a contraction is a stage that the matrix unit can run. Cutting changes no order: reductions move whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from passes.collapse import rebuilt
from repro.ir import index as ix
from repro.ir.loops import Axis, Expr, Kernel, Load, Reduce, Store, load, topological
from repro.ir.types import DType


@dataclass(frozen=True)
class Area:
    """Elements that a kernel keeps in VMEM between its stages."""

    dtype: DType
    elements: int


@dataclass(frozen=True)
class Stage:
    """`axes` in nest order, `serial` a prefix count of it, and stores. Buffers beyond the kernel's own are areas."""

    axes: tuple[Axis, ...]
    serial: int
    stores: tuple[Store, ...]

    @property
    def reduce(self) -> Reduce | None:
        """The reduction that the stage computes, where that is all it does."""
        value = self.stores[0].value
        return value if len(self.stores) == 1 and isinstance(value, Reduce) else None

    @property
    def iterations(self) -> int:
        return math.prod(axis.extent for axis in self.axes)


@dataclass(frozen=True)
class Stages:
    """A kernel's stages in order; area n is buffer `len(kernel.buffers) + n`."""

    stages: tuple[Stage, ...]
    areas: tuple[Area, ...]


class _Cutter:
    """Stages and areas so far."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.stages: list[Stage] = []
        self.areas: list[Area] = []

    def stored(self, value: Reduce, axes: tuple[Axis, ...]) -> Expr:
        """The reduction over the axes that it depends on, computed by a stage; where it is read."""
        used = tuple(axis for axis in axes if axis in value.free)
        place = ix.linear(used, [axis.extent for axis in used])
        number = len(self.kernel.buffers) + len(self.areas)
        self.stages.append(Stage(used, 0, (Store(number, place, value),)))
        self.areas.append(Area(value.dtype, math.prod(axis.extent for axis in used)))
        return load(value.dtype, number, place)


def cut(kernel: Kernel) -> Stages:
    """The kernel in stages. One whose iterations are serial stays whole."""
    if any(axis.extent == 0 for axis in kernel.axes):
        return Stages((), ())
    if kernel.serial:
        return Stages((Stage(kernel.axes, kernel.serial, kernel.stores),), ())
    cutter, memo = _Cutter(kernel), dict[Expr, Expr]()
    every = frozenset(kernel.axes)
    for expr in kernel.expressions:
        made = rebuilt(expr, tuple(memo[child] for child in expr.children))
        if isinstance(made, Reduce) and made.free <= every:
            made = cutter.stored(made, kernel.axes)
        memo[expr] = made
    stores = tuple(
        Store(s.buffer, memo[s.offset], memo[s.value], None if s.when is None else memo[s.when]) for s in kernel.stores
    )
    return Stages((*cutter.stages, Stage(kernel.axes, 0, stores)), tuple(cutter.areas))


def substitute(roots: Sequence[Expr], values: dict[Axis, Expr]) -> list[Expr]:
    """The expressions with axes replaced by index expressions, in the indices' normal form."""
    memo: dict[Expr, Expr] = {**values}
    for expr in topological(roots):
        if expr not in memo:
            memo[expr] = rebuilt(expr, tuple(memo[child] for child in expr.children))
    return [memo[root] for root in roots]


def loads(roots: Sequence[Expr]) -> list[Load]:
    return [expr for expr in topological(roots) if isinstance(expr, Load)]
