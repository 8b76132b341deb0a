"""Kernels of independent outputs: a thread takes 16 bytes of neighbours, so that warps read and write whole lines.
Where rows do not hold whole runs of them (a vocabulary of 50257), it takes one at a time.

Where that is all that a thread would wait for, it takes several such runs, each as far from the next as the block has
threads, and asks for all of them before it computes: by Little's law a multiprocessor that has 25 to 36 bytes a
nanosecond from memory (3.35 and 4.8 TB/s over 132) wants some 40 KB under way at a latency of 1 us, and 2048 threads
that wait for 16 bytes each are 32 KB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from repro.ir import index as ix
from repro.ir.expressions import Apply, Axis, Expr, Load, Reduce
from repro.ir.loops import Kernel
from repro.ir.types import F64
from repro.machines import GpuMachine, Machine
from repro.targets.gpu import table_rows
from repro.targets.gpu.body import Entry, GpuBody, assemble, block_size, blocks_for, global_thread, run_width, special
from repro.targets.gpu.floor import commonly
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.llvm import scalars
from repro.targets.llvm.kernel import symbol
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer

LIGHT = 96
"""Scalar operations of an output up to which a thread takes several: beyond, code and registers are worth more."""
FLIGHT = 32
"""Bytes that a thread is to wait for at a time."""
PLAINEST = 16
"""Scalar operations of an output up to which it is plain: values of many are few registers."""
MOST, OTHERS = 16, 4
"""Outputs of a thread that takes several runs, if they are plain, and if they are not; of those two runs of neighbours
at least: of GELU's 2^26 elements, 144 us for two runs and 157 for one on an H200, each with 40 registers."""
FULL = 2 * 132 * 2048
"""Runs below which a thread takes one: a chip's threads, twice (132 multiprocessors of 2048)."""
CROWD, CROWDED = 64, 80
"""Words of constants that a thread loads for its outputs, and the registers that it has if there are so many. Left to
itself, the assembler asks for all of them before it computes: GELU's error function in f64 took 168."""
NEAR, LEAN = 4, 40
"""Words of a row with which a thread waits for it, where it has no other and computes nothing in f64, and the registers
that leave room for more threads then. GELU of 2^26 elements takes 144 us with 40 on an H200, which spill 12 bytes, 147
with 48, and 155 with the 62 that the assembler takes by itself."""


@dataclass(frozen=True)
class Plan:
    """The axis along which a thread takes `width` neighbours, `runs` times; the kernel's other axes, in their order."""

    axis: Axis
    others: tuple[Axis, ...]
    width: int
    runs: int = 1

    @property
    def groups(self) -> int:
        return -(-self.axis.extent // self.width)

    @property
    def places(self) -> int:
        """Of runs of neighbours: what threads take."""
        return math.prod(axis.extent for axis in self.others) * self.groups

    @property
    def block(self) -> int:
        """Threads of a block."""
        return block_size(self.places)

    @property
    def grid(self) -> int:
        return blocks_for(self.places, self.block * self.runs)

    @property
    def text(self) -> str:
        several = f" runs={self.runs}" if self.runs > 1 else ""
        return f"elementwise width={self.width}{several} along {self.axis.extent}"


def plan(kernel: Kernel) -> Plan | None:
    """None where neighbours are not stored side by side, or outputs are not independent and light."""
    if kernel.serial or any(axis.extent == 0 for axis in kernel.axes) or not _in_place(kernel):
        return None
    expressions = list(kernel.expressions)
    if any(isinstance(e, Reduce) for e in expressions) or sum(isinstance(e, Apply) for e in commonly(kernel)) > LIGHT:
        return None
    axis = max(kernel.axes, key=lambda axis: (run_width(kernel, axis), axis.extent), default=None)
    width = 1 if axis is None else run_width(kernel, axis)
    if axis is not None and axis.extent >= width > 1:
        return _of(kernel, axis, width)
    beside = [axis for axis in kernel.axes if all(ix.coefficient(s.offset, axis) == 1 for s in kernel.stores)]
    found = _several(kernel, _of(kernel, beside[0], 1)) if beside else None
    return found if found is not None and found.runs > 1 else None


def _of(kernel: Kernel, axis: Axis, width: int) -> Plan:
    return Plan(axis, tuple(other for other in kernel.axes if other is not axis), width)


def _several(kernel: Kernel, chosen: Plan) -> Plan:
    """The same with as many runs a thread as bring enough bytes at a time; one where the chip has few threads to run,
    or the values of several would take the registers of other threads."""
    if chosen.places < FULL or chosen.axis.extent % chosen.width:
        return chosen
    plain = sum(isinstance(e, Apply) for e in commonly(kernel)) <= PLAINEST
    most = MOST if plain else max(OTHERS, 2 * chosen.width)
    read = {e for e in commonly(kernel) if isinstance(e, Load) and chosen.axis in e.free}
    brought = chosen.width * sum(kernel.buffers[e.buffer].dtype.bytes for e in read)
    return replace(chosen, runs=max(1, min(most // chosen.width, FLIGHT // brought))) if brought else chosen


def _in_place(kernel: Kernel) -> bool:
    """Whether all that is read of what the kernel writes is the very element that the iteration writes."""
    written = {(store.buffer, store.offset) for store in kernel.stores}
    read = [(e.buffer, e.offset) for e in kernel.expressions if isinstance(e, Load)]
    return all(place in written for place in read if kernel.buffers[place[0]].writable)


def resident(kernel: Kernel, chosen: Plan, threads: int, machine: GpuMachine) -> int | None:
    """Blocks of so many threads that are to share a multiprocessor, where constants would take other threads'
    registers."""
    common = tuple(commonly(kernel))
    rows = {*table_rows.rows(common).values()}
    words = max((row.words for row in rows), default=0)
    if len(rows) == 1 and words >= NEAR and not any(expr.dtype is F64 for expr in common):
        return machine.register_file // (LEAN * threads)
    crowded = words * chosen.width * chosen.runs >= CROWD
    return machine.register_file // (CROWDED * threads) if crowded else None


def emit(kernel: Kernel, chosen: Plan, machine: GpuMachine) -> GpuKernel:
    """The code of a kernel, `width` outputs for each thread."""
    f, chosen = Function(), _several(kernel, chosen)
    _Outputs(GpuBody(f, kernel, machine), kernel, chosen).emit()
    f.line("ret void")
    least = resident(kernel, chosen, chosen.block, machine) or 1
    ptx = assemble(kernel, [Entry(symbol(kernel), f, chosen.block, least)], machine)
    launch = Launch(symbol(kernel), chosen.grid, chosen.block)
    return GpuKernel(ptx, (launch,), schedule=chosen.text)


def seated(f: Function, kernel: Kernel, chosen: Plan, machine: Machine, threads: int) -> None:
    """The kernel by one block of so many threads."""
    made = _Outputs(GpuBody(f, kernel, machine), kernel, chosen)

    def outputs(at: Val, _: list[Val]) -> Sequence[Val]:
        made.thread(at)
        return ()

    f.loop(special(f, "tid"), integer(chosen.places), threads, (), outputs)


class _Outputs:
    def __init__(self, body: GpuBody, kernel: Kernel, chosen: Plan) -> None:
        self.body, self.f, self.kernel, self.plan = body, body.f, kernel, chosen

    def emit(self) -> None:
        """A thread's runs lie a block's threads apart; where the last is beyond all places, it takes one by one."""
        f, plan = self.f, self.plan
        count, places = plan.block * plan.runs, plan.places
        first = global_thread(f, plan.block, places, count)
        numbers = [first, *(f.add(first, integer(n * plan.block)) for n in range(1, plan.runs))]

        def together() -> Sequence[Val]:
            return self._stores(*(self._run(*self._place(number)) for number in numbers))

        def apart() -> Sequence[Val]:
            f.loop(first, integer(places), plan.block, (), lambda at, _: self._alone(at))
            return ()

        inside = scalars.compare(f, "lt", numbers[-1], integer(places))
        if plan.runs == 1:
            f.when(inside, lambda: self.thread(first))
        elif places % count == 0:
            together()
        else:
            f.either(inside, together, apart)

    def _alone(self, number: Val) -> Sequence[Val]:
        self.thread(number)
        return ()

    def _place(self, number: Val) -> tuple[Scope, Val]:
        """Where a run begins: the values of the other axes, and the first place along the plan's own."""
        others = self.plan.others
        *rest, group = self.body.split(number, (*others, ix.axis(0, self.plan.groups)))
        return Scope(None, dict(zip(others, rest, strict=True))), self.f.scaled(group, self.plan.width)

    def _run(self, scope: Scope, first: Val) -> Scope:
        if self.plan.width == 1:
            return Scope(scope, {self.plan.axis: first})
        return self.body.lane_scope(scope, [self.plan.axis], first, self.plan.width, None, aligned=True)

    def thread(self, number: Val) -> None:
        f, axis, width = self.f, self.plan.axis, self.plan.width
        scope, first = self._place(number)

        def whole() -> Sequence[Val]:
            return self._stores(self._run(scope, first))

        def rest_of_row() -> Sequence[Val]:
            f.loop(first, integer(axis.extent), 1, (), lambda at, _: self._stores(Scope(scope, {axis: at})))
            return ()

        if axis.extent % width == 0:
            whole()
        else:
            f.either(scalars.compare(f, "le", first, integer(axis.extent - width)), whole, rest_of_row)

    def _ask(self, scopes: Sequence[Scope]) -> None:
        """All that is read in every run, before a branch in what is computed of the first would keep that of the next
        behind it."""
        for scope in scopes:
            for expr in commonly(self.kernel):
                if isinstance(expr, Load) and self.plan.axis in expr.free:
                    self.body.value(expr, scope)

    def _stores(self, *scopes: Scope) -> Sequence[Val]:
        """All values before any is stored. A condition that is the same for all outputs is asked once for all that a
        thread stores, in whole runs."""
        stores = self.kernel.stores
        if len(scopes) > 1:
            self._ask(scopes)
        values = [[self.body.value(store.value, scope) for store in stores] for scope in scopes]
        common = stores[0].when if len({store.when for store in stores}) == 1 else None

        def write(conditions: Sequence[Expr | None]) -> None:
            for scope, each in zip(scopes, values, strict=True):
                for store, value, when in zip(stores, each, conditions, strict=True):
                    self.body.store(store.buffer, store.offset, value, when, scope)

        if common is None or common.free:
            write([store.when for store in stores])
        else:
            self.f.when(self.body.value(common, Scope(None, {})), lambda: write([None] * len(stores)))
        return ()
