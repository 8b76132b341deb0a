"""Kernels cut into stages: each reduction over the axes that it depends on, then what is stored.

A stage is a loop nest of its own whose result lies in VMEM, so a row's maximum is taken once a row and not once an
element, and a contraction is a stage that the matrix unit can run. Cutting changes no order: reductions move whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from passes.rename import rebuilt
from repro.ir import index as ix
from repro.ir.loops import (
    FALSE,
    TRUE,
    Apply,
    Axis,
    Const,
    Expr,
    Kernel,
    Load,
    Reduce,
    Store,
    apply,
    const,
    load,
    topological,
)
from repro.ir.types import BOOL, I64, DType
from repro.targets.tpu_sim.codegen import contractions
from repro.targets.tpu_sim.codegen.contractions import Contraction


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
    contraction: Contraction | None = None
    """The only store's value, where the matrix unit is to compute it."""

    @property
    def roots(self) -> list[Expr]:
        return [expr for store in self.stores for expr in store.expressions]

    @property
    def reduce(self) -> Reduce | None:
        """The reduction that the stage computes, where that is all it does."""
        value = self.stores[0].value
        return value if len(self.stores) == 1 and isinstance(value, Reduce) else None


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

    def stored(self, value: Reduce) -> Expr:
        """The reduction over the axes that it depends on, computed by a stage; how it is read."""
        axes = tuple(axis for axis in self.kernel.axes if axis in value.free)
        found = contractions.find(value, axes, _beside(self.kernel))
        place, elements = contractions.flat(axes), contractions.extent_of(axes)
        if found is not None:
            place, elements = found.result.offset, found.result.elements
        number = len(self.kernel.buffers) + len(self.areas)
        self.stages.append(Stage(axes, 0, (Store(number, place, value),), found))
        self.areas.append(Area(value.dtype, elements))
        made = load(value.dtype, number, place)
        return made if found is None else apply("add", made, const(value.dtype, 0))


def _beside(kernel: Kernel) -> Axis | None:
    """The axis along which what is stored lies side by side."""
    offset = kernel.stores[0].offset
    return next((axis for axis in kernel.axes if axis.extent > 3 and ix.coefficient(offset, axis) == 1), None)


def cut(kernel: Kernel, known: frozenset[Axis] = frozenset()) -> Stages:
    """The kernel in stages. One whose iterations are serial stays whole. `known` are axes whose values are given."""
    if any(axis.extent == 0 for axis in kernel.axes):
        return Stages((), ())
    if kernel.serial:
        return Stages((Stage(kernel.axes, kernel.serial, kernel.stores),), ())
    cutter, memo = _Cutter(kernel), dict[Expr, Expr]()
    every = known.union(kernel.axes)
    for expr in kernel.expressions:
        made = rebuilt(expr, tuple(memo[child] for child in expr.children))
        if isinstance(made, Reduce) and made.free <= every:
            made = cutter.stored(made)
        memo[expr] = made
    stores = tuple(
        Store(s.buffer, memo[s.offset], memo[s.value], None if s.when is None else memo[s.when]) for s in kernel.stores
    )
    return Stages((*cutter.stages, Stage(kernel.axes, 0, stores)), tuple(cutter.areas))


def substitute(roots: Sequence[Expr], values: dict[Axis, Expr]) -> list[Expr]:
    """The expressions with axes replaced by index expressions, in the indices' normal form; conditions that the ranges
    of indices decide are decided."""
    memo: dict[Expr, Expr] = {**values}
    for expr in topological(roots):
        if expr not in memo:
            memo[expr] = _decided(rebuilt(expr, tuple(memo[child] for child in expr.children)))
    return [memo[root] for root in roots]


def _decided(expr: Expr) -> Expr:
    match expr:
        case Apply(op=("lt" | "ge" | "eq") as op, children=(left, Const(dtype=dtype) as right)) if dtype is I64:
            return ix.compare(op, left, right.bits - (1 << 64) * (right.bits >> 63))
        case Apply(op="and", children=(left, right)) if expr.dtype is BOOL:
            return ix.both(left, right)
        case Apply(op="select", children=(condition, yes, no)) if condition in (TRUE, FALSE):
            return yes if condition is TRUE else no
        case Load(when=when) if when is TRUE:
            return load(expr.dtype, expr.buffer, expr.offset)
        case _:
            return expr


def loads(roots: Sequence[Expr]) -> list[Load]:
    return [expr for expr in topological(roots) if isinstance(expr, Load)]
