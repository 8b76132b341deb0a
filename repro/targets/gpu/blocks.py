"""A step over blocks of rows as one launch: a block of threads takes one block of rows and runs every kernel on it.

What is local to the block of rows lies in dynamic shared memory, behind it what the kernels need there for themselves.
A barrier stands between kernels. Each of them is a function of its own in the module, which LLVM puts into the entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from repro.errors import InternalError
from repro.ir.loops import Kernel
from repro.ir.program import LOCAL, Buffer, Call, Program, RowBlocks, walk
from repro.ir.types import I64
from repro.machines import GpuMachine
from repro.targets.gpu import elementwise, gate, plain, rows
from repro.targets.gpu.body import GpuBody, Seat, barrier, pieces, special
from repro.targets.gpu.contraction import Block
from repro.targets.gpu.joining import Joining
from repro.targets.gpu.launch import GpuKernel, Launch
from repro.targets.gpu.roads import suited
from repro.targets.gpu.within import THREADS, Road, Tiled, road
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val, integer
from repro.targets.llvm.toolchain import assembly

NEAR = "@near"
"""All of the block's shared memory."""


def calls_of(program: Program) -> dict[RowBlocks, Call]:
    """Each step over blocks of rows as the host launches it: a call of a kernel behind the program's own, with the
    buffers that are not local. Steps that differ in their buffers alone have one code."""
    numbers: dict[str, int] = {}
    found: dict[RowBlocks, Call] = {}
    for step in walk(program.steps):
        if isinstance(step, RowBlocks):
            shape = _Shape.of(program, step)
            number = numbers.setdefault(shape.text, len(program.kernels) + len(numbers))
            found[step] = Call(number, shape.buffers, shape.depths)
    return found


def codes(program: Program, machine: GpuMachine) -> tuple[GpuKernel, ...]:
    """The code of each kernel that `calls_of` numbers, in its order."""
    shapes: dict[str, _Shape] = {}
    for step in walk(program.steps):
        if isinstance(step, RowBlocks):
            shape = _Shape.of(program, step)
            shapes.setdefault(shape.text, shape)
    return tuple(_emit(shape, machine) for shape in shapes.values())


@dataclass(frozen=True)
class _Part:
    """One kernel of the step. Each of its buffers is an argument of the step by number, or local at an offset; a scalar
    is an argument by number, or a digit of the block's index."""

    kernel: Kernel
    arguments: tuple[int | None, ...]
    offsets: tuple[int, ...]
    scalars: tuple[tuple[bool, int], ...]
    """Whether it is a digit, and which."""
    carried: frozenset[int]

    @property
    def text(self) -> str:
        places = [f"b{a}" if a is not None else f"+{o}" for a, o in zip(self.arguments, self.offsets, strict=True)]
        numbers = [("digit" if digit else "loop") + str(number) for digit, number in self.scalars]
        return " ".join([f"call sha256:{self.kernel.digest}", *places, *numbers])


@dataclass(frozen=True)
class _Shape:
    """A step without the numbers that its program gives buffers and loops."""

    extents: tuple[int, ...]
    parts: tuple[_Part, ...]
    local_bytes: int
    buffers: tuple[int, ...]
    depths: tuple[int, ...]

    @staticmethod
    def of(program: Program, step: RowBlocks) -> _Shape:
        held = [b for call in step.body for b in call.buffers]
        buffers = tuple(dict.fromkeys(b for b in held if program.buffers[b].role != LOCAL))
        loops = _outer(program, step)
        depths = tuple(sorted({depth for call in step.body for depth in call.scalars if depth < loops}))
        written = frozenset(b for call in step.body for b in _written(program, call))
        parts = tuple(_part(program, call, buffers, depths, loops, written) for call in step.body)
        local = [program.buffers[b] for b in held if program.buffers[b].role == LOCAL]
        return _Shape(step.extents, parts, max((_end(each) for each in local), default=0), buffers, depths)

    @property
    def text(self) -> str:
        return "\n".join([f"blocks {' '.join(map(str, self.extents))}", *(part.text for part in self.parts)])

    @property
    def symbol(self) -> str:
        return f"blocks_{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"

    @property
    def count(self) -> int:
        product = 1
        for extent in self.extents:
            product *= extent
        return product


def _end(buffer: Buffer) -> int:
    return -(-(buffer.position + buffer.nbytes) // 64) * 64


def _outer(program: Program, step: RowBlocks) -> int:
    """How many loops stand around a step: its last digits are the kernels' last scalars."""
    call = step.body[0]
    return call.scalars[-1] + 1 - len(step.extents)


def _written(program: Program, call: Call) -> list[int]:
    parameters = program.kernels[call.kernel].buffers
    return [buffer for buffer, each in zip(call.buffers, parameters, strict=True) if each.writable]


def _part(
    program: Program, call: Call, buffers: Sequence[int], depths: Sequence[int], loops: int, written: frozenset[int]
) -> _Part:
    arguments = tuple(buffers.index(b) if b in buffers else None for b in call.buffers)
    offsets = tuple(0 if b in buffers else program.buffers[b].position for b in call.buffers)
    numbers = tuple((d >= loops, d - loops if d >= loops else depths.index(d)) for d in call.scalars)
    carried = frozenset(position for position, buffer in enumerate(call.buffers) if buffer in written)
    return _Part(program.kernels[call.kernel], arguments, offsets, numbers, carried)


# code ───────────────────────────────────────────────────────────────────────────────────────────────


def _emit(shape: _Shape, machine: GpuMachine) -> GpuKernel:
    room = machine.shared_bytes - shape.local_bytes
    lines, roads, declared = list[str](), list[Road](), dict[str, None]()
    for number, part in enumerate(shape.parts):
        kernel = suited(part.kernel, machine)
        chosen = road(kernel, part.carried, room, machine)
        if chosen is None:
            raise InternalError(f"kernel k_{part.kernel.digest[:16]} has no road within a block of rows")
        f = _function(kernel, chosen, shape.local_bytes, machine)
        declared |= f.declared
        roads.append(chosen)
        head = ", ".join([*(f"ptr %b{n}" for n in range(len(kernel.buffers))), *(f"i64 %s{n}" for n in range(len(kernel.scalars)))])
        lines += [f"define internal void @part{number}({head}) alwaysinline nounwind {{", "entry:", *f.entry, *f.lines, "}"]
    entry = _entry(shape)
    declared |= entry.declared
    shared = shape.local_bytes + max((each.bytes for each in roads if isinstance(each, Tiled)), default=0)
    once = dict.fromkeys(line for text in declared for line in pieces(text))
    attributes = f'nounwind "nvvm.maxntid"="{THREADS}" "nvvm.minctasm"="1"'
    text = [f'target triple = "{machine.triple}"', f"{NEAR} = external addrspace(3) global [0 x i8], align 64", *once, *lines]
    text += [f"define ptx_kernel void @{shape.symbol}({_parameters(shape)}) {attributes} {{", "entry:", *entry.lines, "}"]
    ptx, llvm = assembly("\n".join(text) + "\n", machine)
    types = frozenset(kind for part in shape.parts for kind in gate.fma_types(part.kernel))
    gate.check_code(f"GPU code {shape.symbol}", types, ptx, llvm)
    return GpuKernel(ptx, (Launch(shape.symbol, shape.count, THREADS, shared),), schedule="; ".join(each.text for each in roads))


def _parameters(shape: _Shape) -> str:
    """A buffer that the step writes may be read by others of its kernels: nothing is said of it."""
    written = {a for part in shape.parts for a, b in zip(part.arguments, part.kernel.buffers, strict=True) if b.writable}
    made = [f"ptr {'' if n in written else 'noalias readonly '}%b{n}" for n in range(len(shape.buffers))]
    return ", ".join([*made, *(f"i64 %s{n}" for n in range(len(shape.depths)))])


def _entry(shape: _Shape) -> Function:
    """The digits of the block's index, and the kernels one after another."""
    f = Function()
    index, digits = special(f, "ctaid"), list[Val]()
    for extent in reversed(shape.extents[1:]):
        digits.insert(0, scalars.binary(f, "urem", index, integer(extent)))
        index = scalars.binary(f, "udiv", index, integer(extent))
    digits.insert(0, index)
    for number, part in enumerate(shape.parts):
        if number:
            barrier(f)
        pointers = [
            f"ptr {_local(offset)}" if argument is None else f"ptr %b{argument}"
            for argument, offset in zip(part.arguments, part.offsets, strict=True)
        ]
        values = [digits[n].typed if digit else f"i64 %s{n}" for digit, n in part.scalars]
        f.line(f"call void @part{number}({', '.join([*pointers, *values])})")
    f.line("ret void")
    return f


def _shared(offset: int) -> str:
    return f"getelementptr inbounds (i8, ptr addrspace(3) {NEAR}, i64 {offset})"


def _local(offset: int) -> str:
    return f"addrspacecast (ptr addrspace(3) {_shared(offset)} to ptr)"


def _function(kernel: Kernel, chosen: Road, local_bytes: int, machine: GpuMachine) -> Function:
    f = Function()
    match chosen:
        case Tiled():
            _tiles(f, kernel, chosen, local_bytes, machine)
        case rows.Plan():
            rows.seated(f, kernel, chosen, machine, THREADS)
        case elementwise.Plan():
            elementwise.seated(f, kernel, chosen, machine, THREADS)
        case _:
            plain.seated(f, kernel, machine, THREADS)
    f.line("ret void")
    return f


def _tiles(f: Function, kernel: Kernel, chosen: Tiled, first: int, machine: GpuMachine) -> None:
    """The blocks of the contraction's grid, as many at a time as there are groups."""
    plan, groups = chosen.plan, chosen.groups
    totals = first + groups * chosen.steps_bytes
    if plan.splits > 1:
        f.line(f"%workspace = getelementptr i8, ptr {_local(totals)}, i64 0")
    group = scalars.binary(f, "udiv", special(f, "tid"), integer(plan.tile.threads)) if groups > 1 else integer(0)
    steps = f.let(f"getelementptr inbounds i8, ptr addrspace(3) {_shared(first)}, {f.scaled(group, chosen.steps_bytes).typed}", I64)

    def block(at: Val, _: list[Val]) -> Sequence[Val]:
        seat = Seat(f.add(at, group), plan.tile.threads, steps.text)
        Block(GpuBody(f, kernel, machine, seat=seat), kernel, plan).emit()
        f.effect("llvm.nvvm.cp.async.wait.group", ["i32"], ["i32 0"])
        barrier(f)
        return ()

    if plan.grid == groups:
        block(integer(0), [])
    else:
        f.loop(integer(0), integer(plan.grid), groups, (), block)
    if plan.splits > 1:
        joining = Joining(GpuBody(f, kernel, machine), kernel, plan)

        def output(at: Val, _: list[Val]) -> Sequence[Val]:
            joining.output(at)
            return ()

        f.loop(special(f, "tid"), integer(joining.outputs), THREADS, (), output)
