"""Kernels cut into stages: each reduction over the axes that it depends on, then what is stored.

A stage is a loop nest of its own whose result lies in VMEM, so a row's maximum is taken once a row and not once an
element, and a contraction is a stage that the matrix unit can run. Cutting changes no order: reductions move whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from passes.rename import rebuilt, settled
from repro.ir import index as ix
from repro.ir.expressions import (
    Affine,
    Axis,
    Expr,
    Load,
    Reduce,
    apply,
    const,
    load,
    topological,
)
from repro.ir.loops import Kernel, Store
from repro.ir.types import DType
from repro.targets.tpu_sim.codegen import contractions, turning
from repro.targets.tpu_sim.codegen.contractions import Contraction
from repro.targets.tpu_sim.codegen.turning import Turn


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
    turn: Turn | None = None
    """How the only store's value, a load, is laid out anew by the transpose unit."""

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

    def turned(self, stage: Stage) -> list[Stage]:
        """The stage, after those that lay out loads that it would read with strides."""
        if stage.contraction is not None or stage.reduce is not None:
            return [stage]
        made, memo = list[Stage](), dict[Expr, Expr]()
        for expr in topological(stage.roots):
            found = turning.find(expr, stage.axes) if isinstance(expr, Load) else None
            if found is None or not isinstance(expr, Load):
                memo[expr] = rebuilt(expr, tuple(memo[child] for child in expr.children))
                continue
            number = len(self.kernel.buffers) + len(self.areas)
            self.areas.append(Area(expr.dtype, contractions.extent_of(found.axes)))
            made.append(Stage(found.axes, 0, (Store(number, found.offset, expr),), turn=found))
            memo[expr] = load(expr.dtype, number, found.offset)
        return [*made, Stage(stage.axes, 0, _through(stage.stores, memo))] if made else [stage]


def _through(stores: Sequence[Store], memo: dict[Expr, Expr]) -> tuple[Store, ...]:
    return tuple(
        Store(s.buffer, memo[s.offset], memo[s.value], None if s.when is None else memo[s.when]) for s in stores
    )


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
    given = known.union(kernel.axes)
    for expr in kernel.expressions:
        made = rebuilt(expr, tuple(memo[child] for child in expr.children))
        if isinstance(made, Reduce) and made.free <= given:
            made = cutter.stored(made)
        memo[expr] = made
    stores = _through(kernel.stores, memo)
    every = [*cutter.stages, Stage(kernel.axes, 0, stores)]
    return Stages(tuple(each for stage in every for each in cutter.turned(stage)), tuple(cutter.areas))


def merged(stage: Stage) -> Stage:
    """The stage with neighbouring axes that all its offsets treat as one run made one axis: lanes fill up."""
    if stage.serial or stage.reduce is not None:
        return stage
    for outer, inner in pairwise(stage.axes):
        if _one_run(stage.roots, outer, inner):
            axis = ix.axis(inner.number, outer.extent * inner.extent)
            values = settled(stage.roots, {outer: ix.number(0), inner: axis})
            memo = dict(zip(stage.roots, values, strict=True))
            axes = tuple(axis if each is inner else each for each in stage.axes if each is not outer)
            return merged(Stage(axes, 0, _through(stage.stores, memo)))
    return stage


def _one_run(roots: Sequence[Expr], outer: Axis, inner: Axis) -> bool:
    """Whether both occur in sums alone, the outer with the inner's whole run as its stride."""
    for expr in topological(roots):
        if outer not in expr.children and inner not in expr.children:
            continue
        strides = [ix.coefficient(expr, axis) for axis in (outer, inner)] if isinstance(expr, Affine) else [None]
        if None in strides or strides[0] != (strides[1] or 0) * inner.extent:
            return False
    return outer not in roots and inner not in roots


def loads(roots: Sequence[Expr]) -> list[Load]:
    return [expr for expr in topological(roots) if isinstance(expr, Load)]
