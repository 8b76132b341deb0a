"""Stages on the vector unit, every lane an iteration of its own."""

from __future__ import annotations

from collections.abc import Sequence

from passes.rename import settled
from repro.ir.dependence import independent_axes
from repro.ir.loops import Kernel, Store
from repro.targets.tpu_sim.codegen import grid as grids
from repro.targets.tpu_sim.codegen.rows import bind_blocks
from repro.targets.tpu_sim.codegen.stages import Stage
from repro.targets.tpu_sim.codegen.values import Values
from repro.targets.tpu_sim.operands import LANES


def emit(values: Values, stage: Stage, kernel: Kernel) -> None:
    """Blocks of iterations, inside of the serial loops only where they depend on each other's writes."""
    parallel, serial = stage.axes[stage.serial :], stage.axes[: stage.serial]
    bound = grids.bind(grids.make(parallel, LANES, values.fresh(1)), values.fresh(2 * len(parallel) + 2))
    width = 1
    for cut, digit in zip(reversed(bound.grid.cuts), reversed(bound.digits), strict=True):
        values.digit(digit, width)
        width *= cut.count
    values.inside = bound.inside
    stores = _substituted(stage.stores, bound)
    apart = bound.grid.apart([store.offset for store in stage.stores])
    if not serial or independent_axes(kernel) >= frozenset(parallel):
        with values.loop(bound.grid.blocks, apart) as index:
            bind_blocks(values, bound, index)
            with values.loops(serial):
                _write(values, stores)
    else:
        with values.loops(serial), values.loop(bound.grid.blocks, apart) as index:
            bind_blocks(values, bound, index)
            _write(values, stores)


def _substituted(stores: Sequence[Store], bound: grids.Bound) -> list[Store]:
    made = list[Store]()
    for store in stores:
        offset, value, *when = settled(store.expressions, bound.values)
        made.append(Store(store.buffer, offset, value, when[0] if when else None))
    return made


def _write(values: Values, stores: Sequence[Store]) -> None:
    """All values are there before anything is written."""
    values.pin = len(values.levels) - 1
    for store in stores:
        values.value(store.value)
    for store in stores:
        values.store(store)
