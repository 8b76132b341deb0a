"""A kernel as one LLVM function that does a range of its work items.

    void k_<digest>(ptr b0, ..., i64 s0, ..., i64 begin, i64 end, ptr scratch)

A work item is one iteration of every outer axis, all of the inner ones, and a block of the vector axis; in
a contraction it is a block of outputs. Items are independent, so threads take ranges of them.

A kernel for which it matters whether the host has what its machine may lack (`Machine.beyond`) is there twice, and
has one more argument, `i64 features`: the lowest bit says which one to run. Both give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from repro.ir.loops import Kernel
from repro.ir.schedule import COLUMNS, GROUPS, PIXELS, Schedule
from repro.ir.types import BOOL, I64
from repro.machines import Machine
from repro.targets.llvm import beside, contraction, reductions, row_items
from repro.targets.llvm.body import Body
from repro.targets.llvm.grid import Grid
from repro.targets.llvm.group_lanes import GroupItem
from repro.targets.llvm.items import Items
from repro.targets.llvm.pixels import PixelItem
from repro.targets.llvm.rows import kept_bytes
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.sweeps import Layout
from repro.targets.llvm.text import Function, Val
from repro.targets.llvm.tiling import shape_of
from repro.targets.llvm.windows import WindowItem

KINDS: dict[str, type[contraction.Item]] = {COLUMNS: WindowItem, PIXELS: PixelItem, GROUPS: GroupItem}
"""The code of an item whose rows are read through a window, by what vectors run along."""


def symbol(kernel: Kernel) -> str:
    return f"k_{kernel.digest[:16]}"


def work_items(kernel: Kernel, schedule: Schedule) -> int:
    """How many independent items the kernel is cut into."""
    if schedule.tile is not None:
        return shape_of(kernel, schedule).items
    if any(axis.extent == 0 for axis in kernel.axes):
        return 0
    grid = Grid(kernel, schedule)
    return math.prod(axis.extent for axis in grid.outer) * grid.rows * grid.blocks


def run_together(kernel: Kernel, schedule: Schedule) -> bool:
    """Whether a thread's items are run as one."""
    return Grid(kernel, schedule).together if schedule.tile is None else schedule.tile.row_items


def scratch_bytes(kernel: Kernel, schedule: Schedule) -> int:
    """Bytes of private memory that a thread needs while it runs the kernel."""
    if schedule.sweep:
        return Layout(kernel, schedule).bytes
    return kept_bytes(kernel) if schedule.tile is None else shape_of(kernel, schedule).scratch_bytes


def asks(kernel: Kernel, schedule: Schedule, machine: Machine) -> bool:
    """Whether a kernel asks which features the host has."""
    return (
        bool(machine.beyond)
        and schedule.tile is not None
        and shape_of(kernel, schedule).contraction.unsigned is not None
    )


def emit(kernel: Kernel, schedule: Schedule, machine: Machine) -> str:
    """The LLVM module (text) of a kernel under a schedule."""
    name = symbol(kernel)
    if not asks(kernel, schedule, machine):
        return _module([_function(kernel, schedule, machine, name)], machine)
    with_it = _function(kernel, schedule, machine.with_beyond, f"{name}_beyond", "internal")
    without = _function(kernel, schedule, machine, f"{name}_plain", "internal")
    return _module([with_it, without, _choice(kernel, machine, with_it.name, without.name)], machine)


@dataclass(frozen=True)
class _Function:
    """A function's name, its text, and what stands before and behind functions."""

    name: str
    text: str
    before: Sequence[str] = ()
    behind: Sequence[str] = ()


def _module(functions: Sequence[_Function], machine: Machine) -> str:
    before = dict.fromkeys(line for each in functions for line in each.before)
    behind = dict.fromkeys(line for each in functions for line in each.behind)
    return (
        "\n".join([f'target triple = "{machine.triple}"', *before, *(each.text for each in functions), *behind]) + "\n"
    )


def _choice(kernel: Kernel, machine: Machine, with_it: str, without: str) -> _Function:
    """The function that runs one of two."""
    f, parameters = Function(), _parameters(kernel)
    has = f.let("trunc i64 %features to i1", BOOL)
    arguments = ", ".join(parameters)

    def run(name: str) -> Sequence[Val]:
        f.line(f"call void @{name}({arguments})")
        return ()

    f.either(has, lambda: run(with_it), lambda: run(without))
    f.line("ret void")
    return _Function(symbol(kernel), _definition(f, symbol(kernel), [*parameters, "i64 %features"], machine))


def _function(kernel: Kernel, schedule: Schedule, machine: Machine, name: str, linkage: str = "") -> _Function:
    f = Function()
    if schedule.tile is not None:
        shape = shape_of(kernel, schedule)
        if shape.row_items:
            row_items.emit(f, kernel, shape, machine)
        elif shape.window is None:
            contraction.emit(f, kernel, shape, machine, contraction.Item)
        else:
            contraction.emit(f, shape.window.kernel, shape, machine, KINDS[schedule.tile.lanes])
    elif work_items(kernel, schedule):
        _emit_items(f, kernel, schedule, machine)
    f.line("ret void")
    text = _definition(f, name, _parameters(kernel), machine, linkage)
    return _Function(name, text, tuple(f.declared), tuple(f.metadata))


def _parameters(kernel: Kernel) -> list[str]:
    buffers = [f"ptr noalias align 16 %b{number}" for number in range(len(kernel.buffers))]
    numbers = [f"i64 %s{number}" for number in range(len(kernel.scalars))]
    return [*buffers, *numbers, "i64 %begin", "i64 %end", "ptr noalias %scratch"]


def _definition(f: Function, name: str, parameters: Sequence[str], machine: Machine, linkage: str = "") -> str:
    head = f"define {linkage}{' ' if linkage else ''}void @{name}({', '.join(parameters)}) {machine.attributes} {{"
    return "\n".join([head, "entry:", *f.entry, *f.lines, "}"])


def _emit_items(f: Function, kernel: Kernel, schedule: Schedule, machine: Machine) -> None:
    body = Body(f, kernel, reductions.emit, machine)
    roots = [expr for store in kernel.stores for expr in store.expressions]
    top = Scope(None, {})
    body.hoist(roots, top)
    items = Items(body, kernel, schedule, roots)

    def item(number: Val, _: list[Val]) -> Sequence[Val]:
        items.item(number, top)
        return ()

    if schedule.sweep:
        items.sweep(Val("%begin", I64), Val("%end", I64), top)
    elif items.grid.together:
        items.together(Val("%begin", I64), Val("%end", I64), top)
    elif items.only_reduces():
        items.reductions(Val("%begin", I64), Val("%end", I64), top)
    elif items.reduced_ahead():
        items.rows(Val("%begin", I64), Val("%end", I64), top)
    else:
        begin, end, together = Val("%begin", I64), Val("%end", I64), beside.plan(kernel, items.grid, body)
        if together is not None:
            at = partial(items.at_outer, top=top)
            begin = beside.emit(body, roots, items.grid.outer, together, (begin, end), at, items.stores)
        f.loop(begin, end, 1, (), item)
    if f.metadata:
        f.effect(machine.fence, [], [])
