"""A step over blocks of rows as one launch: a block of threads takes one block of rows and runs every kernel on it.

What is local to the block of rows lies in dynamic shared memory, behind it what the kernels need there for themselves.
A barrier stands between kernels. Each of them is a function of its own in the module, which LLVM puts into the entry.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.errors import InternalError
from repro.ir.loops import Kernel
from repro.ir.types import I64
from repro.machines import GpuMachine
from repro.targets.gpu import elementwise, gate, plain, rows
from repro.targets.gpu.body import GpuBody, Seat, assembly_of, barrier, pieces, special
from repro.targets.gpu.contraction import Block
from repro.targets.gpu.joining import Joining
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.gpu.steps import Shape
from repro.targets.gpu.within import Part, Plain, Road, Roads, Tiled, chosen, parts_of
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val, integer

NEAR = "@near"
"""All of the block's shared memory."""


def emit(shape: Shape, machine: GpuMachine) -> GpuKernel:
    """The code of a step. Raises InternalError where a block of threads cannot run it."""
    parts = parts_of(shape.step, shape.kernels, machine)
    made = chosen(parts, shape.local_bytes, machine)
    if made is None:
        raise InternalError(f"a block of threads cannot run {shape.text}")
    declared, lines, meetings = dict[str, None](), list[str](), list[bool]()
    for number, (part, road) in enumerate(zip(parts, made.roads, strict=True)):
        f, met = _function(part.kernel, road, made.threads, shape.local_bytes, machine)
        declared |= f.declared
        meetings.append(met)
        head = [f"ptr %b{n}" for n in range(len(part.kernel.buffers))]
        head += [f"i64 %s{n}" for n in range(len(part.kernel.scalars))]
        lines += [f"define internal void @part{number}({', '.join(head)}) alwaysinline nounwind {{"]
        lines += ["entry:", *f.entry, *f.lines, "}"]
    entry = _entry(shape, meetings)
    attributes = f'nounwind "nvvm.maxntid"="{made.threads}" "nvvm.minctasm"="{_resident(parts, made, machine)}"'
    lines += [
        f"define ptx_kernel void @{shape.symbol}({_parameters(shape)}) {attributes} {{",
        "entry:",
        *entry.lines,
        "}",
    ]
    once = dict.fromkeys(line for text in declared | entry.declared for line in pieces(text))
    head = [f'target triple = "{machine.triple}"', f"{NEAR} = external addrspace(3) global [0 x i8], align 64", *once]
    ptx, llvm = assembly_of("\n".join([*head, *lines]) + "\n", len(shape.writes) + shape.depths, machine)
    types = frozenset(kind for part in parts for kind in gate.fma_types(part.kernel))
    gate.check_code(f"GPU code {shape.symbol}", types, ptx, llvm)
    launch = Launch(shape.symbol, shape.blocks, made.threads, made.shared_bytes)
    return GpuKernel(ptx, (launch,), schedule=f"blocks threads={made.threads}; {made.text}")


def _resident(parts: Sequence[Part], made: Roads, machine: GpuMachine) -> int:
    """Blocks whose registers are to fit together: as many as there is shared memory for, fewer where constants take
    registers."""
    pairs = zip(parts, made.roads, strict=True)
    plans = ((part.kernel, road) for part, road in pairs if isinstance(road, elementwise.Plan))
    bounds = (elementwise.resident(kernel, plan, made.threads, machine) for kernel, plan in plans)
    return min([made.resident, *(bound for bound in bounds if bound is not None)])


def _parameters(shape: Shape) -> str:
    """Of a buffer that the step writes nothing is said: another of its kernels may read it."""
    made = [f"ptr {'' if writes else 'noalias readonly '}%b{n}" for n, writes in enumerate(shape.writes)]
    return ", ".join([*made, *(f"i64 %s{n}" for n in range(shape.depths))])


def _entry(shape: Shape, meetings: Sequence[bool]) -> Function:
    """The digits of the block's index, and the kernels one after another; `meetings`: at whose ends threads meet."""
    f, extents = Function(), shape.step.extents
    index, digits = special(f, "ctaid"), list[Val]()
    for extent in reversed(extents[1:]):
        digits.insert(0, scalars.binary(f, "urem", index, integer(extent)))
        index = scalars.binary(f, "udiv", index, integer(extent))
    counters = [*(Val(f"%s{n}", I64) for n in range(shape.depths)), index, *digits]
    for number, call in enumerate(shape.step.body):
        if number and not meetings[number - 1]:
            barrier(f)
        pointers = [f"ptr {_pointer(shape, buffer)}" for buffer in call.buffers]
        f.line(f"call void @part{number}({', '.join([*pointers, *(counters[d].typed for d in call.scalars)])})")
    f.line("ret void")
    return f


def _pointer(shape: Shape, buffer: int) -> str:
    return f"%b{buffer}" if buffer < shape.arguments else _local(shape.offsets[buffer - shape.arguments])


def _shared(offset: int) -> str:
    return f"getelementptr inbounds (i8, ptr addrspace(3) {NEAR}, i64 {offset})"


def _local(offset: int) -> str:
    return f"addrspacecast (ptr addrspace(3) {_shared(offset)} to ptr)"


def _function(kernel: Kernel, road: Road, threads: int, local_bytes: int, machine: GpuMachine) -> tuple[Function, bool]:
    """The code of a kernel, and whether threads meet at its end."""
    f, met = Function(), False
    match road:
        case Tiled():
            met = _tiles(f, kernel, road, threads, local_bytes, machine)
        case rows.Plan():
            rows.seated(f, kernel, road, machine, threads)
        case elementwise.Plan():
            elementwise.seated(f, kernel, road, machine, threads)
        case Plain():
            plain.seated(f, kernel, machine, threads)
    f.line("ret void")
    return f, met


def _tiles(f: Function, kernel: Kernel, chosen: Tiled, threads: int, first: int, machine: GpuMachine) -> bool:
    """The blocks of the contraction's grid, as many at a time as there are groups. Whether threads meet at its end."""
    plan, groups = chosen.plan, chosen.groups
    first = 0 if chosen.over else first
    totals = first + (0 if chosen.totals_over else groups * chosen.steps_bytes)
    if plan.splits > 1:
        f.line(f"%workspace = getelementptr i8, ptr {_local(totals)}, i64 0")
    group = scalars.binary(f, "udiv", special(f, "tid"), integer(plan.tile.threads)) if groups > 1 else integer(0)
    place = f.scaled(group, chosen.steps_bytes)
    steps = f.let(f"getelementptr inbounds i8, ptr addrspace(3) {_shared(first)}, {place.typed}", I64)

    def block(at: Val, _: list[Val]) -> Sequence[Val]:
        seat = Seat(f.add(at, group), plan.tile.threads, steps.text, chosen.over or chosen.totals_over)
        Block(GpuBody(f, kernel, machine, seat=seat), kernel, plan, machine).emit()
        f.effect("llvm.nvvm.cp.async.wait.group", ["i32"], ["i32 0"])
        return ()

    def ordered(at: Val, state: list[Val]) -> Sequence[Val]:
        """One after another: what steps lie in is used again."""
        block(at, state)
        barrier(f)
        return ()

    looped = plan.grid > groups
    if looped:
        f.loop(integer(0), integer(plan.grid), groups, (), ordered)
    else:
        block(integer(0), [])
    if plan.splits == 1:
        return looped
    if not looped:
        barrier(f)
    joining = Joining(GpuBody(f, kernel, machine), kernel, plan)

    def output(at: Val, _: list[Val]) -> Sequence[Val]:
        joining.output(at)
        return ()

    f.loop(special(f, "tid"), integer(joining.outputs), threads, (), output)
    return False
