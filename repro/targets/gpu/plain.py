"""The plain road: each thread does one work item, whatever the kernel is."""

from __future__ import annotations

from passes.vectors import choose
from repro.ir.loops import Kernel
from repro.machines import Machine
from repro.targets.gpu.body import Entry, GpuBody, assemble, block_size, blocks_for, global_thread
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Scope
from repro.targets.llvm.kernel import Items, symbol, work_items
from repro.targets.llvm.text import Function, integer


def emit(kernel: Kernel, machine: Machine) -> GpuKernel:
    """One thread for each work item of the scalar schedule."""
    schedule = choose(kernel, machine)
    items = work_items(kernel, schedule)
    block = block_size(max(items, 1), 128)
    f = Function()
    body = GpuBody(f, kernel, machine)
    number = global_thread(f, block, max(items, 1))

    def item() -> None:
        roots = [expr for store in kernel.stores for expr in store.expressions]
        top = Scope(None, {})
        body.hoist(roots, top)
        Items(body, kernel, schedule, roots).item(number, top)

    if items:
        f.when(scalars.compare(f, "lt", number, integer(items)), item)
    f.line("ret void")
    ptx = assemble(kernel, [Entry(symbol(kernel), f, block)], machine)
    launches = (Launch(symbol(kernel), blocks_for(items, block), block),) if items else ()
    return GpuKernel(ptx, launches, schedule=f"plain {schedule.text}")
