"""The plain road: each thread does one work item, whatever the kernel is."""

from __future__ import annotations

from collections.abc import Sequence

from passes.vectors import choose
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.machines import Machine
from repro.targets.gpu.body import (
    Entry,
    GpuBody,
    assemble,
    block_size,
    blocks_for,
    global_thread,
    special,
    workspace_as_buffer,
)
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.llvm import scalars
from repro.targets.llvm.kernel import Items, symbol, work_items
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer


def emit(kernel: Kernel, machine: Machine) -> GpuKernel:
    """One thread for each work item of the scalar schedule."""
    part, launch = entry(kernel, machine, symbol(kernel))
    launches = (launch,) if launch.grid else ()
    return GpuKernel(assemble(kernel, [part], machine), launches, schedule=f"plain {choose(kernel, machine).text}")


def entry(kernel: Kernel, machine: Machine, name: str, workspace: bool = False) -> tuple[Entry, Launch]:
    """One entry that runs the kernel, and its launch. `workspace`: that is the kernel's last buffer."""
    schedule = choose(kernel, machine)
    items = work_items(kernel, schedule)
    block = block_size(max(items, 1), 128)
    f = Function()
    if workspace:
        workspace_as_buffer(f, kernel)
    number = global_thread(f, block, max(items, 1))
    if items:
        f.when(scalars.compare(f, "lt", number, integer(items)), lambda: _item(f, kernel, schedule, machine, number))
    f.line("ret void")
    return Entry(name, f, block), Launch(name, blocks_for(items, block), block)


def seated(f: Function, kernel: Kernel, machine: Machine, threads: int) -> None:
    """The kernel by one block of so many threads."""
    schedule = choose(kernel, machine)

    def item(number: Val, _: list[Val]) -> Sequence[Val]:
        _item(f, kernel, schedule, machine, number)
        return ()

    f.loop(special(f, "tid"), integer(work_items(kernel, schedule)), threads, (), item)


def _item(f: Function, kernel: Kernel, schedule: Schedule, machine: Machine, number: Val) -> None:
    body, roots = GpuBody(f, kernel, machine), [expr for store in kernel.stores for expr in store.expressions]
    top = Scope(None, {})
    body.hoist(roots, top)
    Items(body, kernel, schedule, roots).item(number, top)
