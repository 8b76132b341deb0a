"""A kernel as PTX: the same emitter as on CPUs, in scalars, one work item for each thread of the grid."""

from __future__ import annotations

from repro.errors import InternalError
from repro.ir.loops import Kernel
from repro.ir.schedule import Schedule
from repro.machines import Machine
from repro.targets.llvm.kernel import emit_grid
from repro.targets.llvm.toolchain import assembly


def emit_ptx(kernel: Kernel, schedule: Schedule, machine: Machine) -> str:
    """PTX of one kernel; its grid must hold at least `work_items` threads, those beyond do nothing.

    No instruction in it is approximate, flushes subnormals or may be fused by the assembler: LLVM writes
    `.rn` forms where no fast-math flag stands.
    """
    if schedule.tile is not None or schedule.vector_width != 1:
        raise InternalError("PTX takes scalar schedules without tiles so far")
    return assembly(emit_grid(kernel, schedule, machine), machine)
