"""What is asked of a routine before it may run on a chip: memory, registers, bundles, counters."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.loops import Kernel
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.isa import Move, instruction_text
from repro.targets.tpu_sim.operands import LANES, REGISTERS
from repro.targets.tpu_sim.program import TILE_BYTES, Bundle, Loop, Routine, Statement, WhenAny


def check(routine: Routine, kernel: Kernel | None, chip: Chip) -> None:
    """Raises FaultError where the routine is not a program of this chip, or not one of this kernel's signature."""
    if kernel is not None:
        wanted = [(b.dtype, b.elements, b.writable) for b in kernel.buffers]
        if wanted != [(a.dtype, a.elements, a.writable) for a in routine.arguments]:
            raise FaultError("out of range", "its arguments are not the kernel's buffers", routine.name)
        if kernel.scalars != routine.counters:
            raise FaultError("out of range", "its counters are not the kernel's scalars", routine.name)
    _areas(routine, chip)
    _body(routine, routine.body, set(), chip)


def _areas(routine: Routine, chip: Chip) -> None:
    if routine.vmem_bytes > chip.vmem_bytes:
        found, room = f"{routine.vmem_bytes} bytes", f"at most {chip.vmem_bytes} on {chip.name}"
        raise FaultError("vmem overflow", "its areas do not fit", routine.name, found, room)
    last = 0
    for area in sorted(routine.areas, key=lambda each: each.address):
        if area.address % TILE_BYTES or area.elements % LANES:
            raise FaultError("misaligned tile", f"an area of {area.elements} elements at {area.address}", routine.name)
        if area.address < last:
            raise FaultError("overlapping areas", f"an area at {area.address}, before {last}", routine.name)
        last = area.end


def _body(routine: Routine, body: Sequence[Statement], open_counters: set[str], chip: Chip) -> None:
    for statement in body:
        match statement:
            case Bundle():
                _bundle(routine, statement, chip)
            case Loop():
                if statement.counter in open_counters or statement.count < 0:
                    raise FaultError("out of range", f"loop {statement.counter} of {statement.count}", routine.name)
                _body(routine, statement.body, open_counters | {statement.counter}, chip)
            case WhenAny():
                _body(routine, statement.body, open_counters, chip)


def _bundle(routine: Routine, bundle: Bundle, chip: Chip) -> None:
    written = set[int]()
    for instruction in bundle.instructions:
        used = {reg.number for reg in instruction.reads}
        target = instruction.writes
        named = used | (set() if target is None else {target.number})
        if any(number >= REGISTERS for number in named) and not isinstance(instruction, Move):
            where = f"{routine.name}: {instruction_text(instruction)}"
            raise FaultError("register file", f"uses r{max(named)}", where, expected=f"below r{REGISTERS}")
        if written & used or (target is not None and target.number in written):
            where = f"{routine.name}: {instruction_text(instruction)}"
            raise FaultError("bundle", "depends on another instruction of its bundle", where)
        if target is not None:
            written.add(target.number)
