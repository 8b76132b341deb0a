"""What a run need not do again: values made of constants alone, and constants laid out as register tiles read them.

Constants are a program's constant buffers and the parameters that no run of it changes. Calls that read nothing else
are made once, when a program is loaded, and so is a copy of a contraction's columns in the order [tile][term][column]:
the contraction reads that in place and packs nothing. How many columns a tile has is the machine's affair, so a target
runs this pass for itself.

No more memory is held for it. A value takes at most as much as what it is made of, and of a constant that several calls
read there is a copy only where all of them would have the same one, so that nobody reads the constant again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from passes.operands import with_term
from passes.plan import plan
from passes.rename import rewritten
from passes.sequences import bodies, by_first_use, renamed, with_bodies
from passes.windows import ungrouped
from repro.ir import index as ix
from repro.ir.contraction import Contraction, tiled_offset
from repro.ir.expressions import TRUE, Axis, Expr, Load, Reduce, Scalar, load, topological
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import CONSTANT, PARAMETER, PREPARED, TEMPORARY, Buffer, Call, Program, Step, touched, walk

TileOrders = Callable[[Kernel], Iterable[tuple[Contraction, int]]]
"""How the columns of a kernel would better lie for register tiles than they do, the best first: its contraction, and
how many columns stand side by side in a tile."""

PADDING = 64 << 10
"""Bytes by which a last tile that is not full may lengthen a small constant; a large one an eighth of itself."""


def at_load(program: Program, tile_orders: TileOrders) -> Program:
    """The program with what can be made once made once; itself where there is nothing."""
    return _laid_out(prepared(program), tile_orders)


def constant_buffers(program: Program) -> frozenset[int]:
    """The buffers that hold the same in every run."""
    return frozenset(
        number
        for number, buffer in enumerate(program.buffers)
        if buffer.role in (CONSTANT, PREPARED) or (buffer.role == PARAMETER and buffer.position not in program.written)
    )


# ── values made of constants ────────────────────────────────────────────────────────────────────────


def prepared(program: Program) -> Program:
    """The calls that read constants alone moved out of the run. Before other passes too, lest these run them in blocks
    of rows, as values that a run leaves itself."""
    constants, buffers = set(constant_buffers(program)), list(program.buffers)
    once, steps = list(program.once), list[Step]()
    writes = [buffer for step in walk(program.steps) for buffer, writes in _itself(program, step) if writes]
    for step in program.steps:
        made = _made(program, step, constants)
        if isinstance(step, Call) and made and all(writes.count(buffer) == 1 for buffer in made):
            once.append(step)
            constants |= made
            for buffer in sorted(made):
                count = sum(each.role == PREPARED for each in buffers)
                buffers[buffer] = replace(buffers[buffer], role=PREPARED, position=count)
        else:
            steps.append(step)
    if len(once) == len(program.once):
        return program
    planned, arena = plan(tuple(buffers), tuple(steps))
    if arena > program.arena_bytes:
        return program
    return replace(program, buffers=planned, steps=tuple(steps), once=tuple(once), arena_bytes=arena)


def _itself(program: Program, step: Step) -> list[tuple[int, bool]]:
    return list(touched(program, with_bodies(step, [() for _ in bodies(step)])))


def _made(program: Program, step: Step, constants: set[int]) -> set[int]:
    """The temporaries that a call makes of constants alone, in no more memory than those take; none for other steps."""
    if not isinstance(step, Call):
        return set()
    touching = list(touched(program, step))
    written = {buffer for buffer, writes in touching if writes}
    read = {buffer for buffer, writes in touching if not writes}
    apart = read <= constants and all(program.buffers[buffer].role == TEMPORARY for buffer in written)
    needed, given = (sum(program.buffers[buffer].nbytes for buffer in each) for each in (written, read))
    return written if apart and not _reads_written(program, step) and needed <= given else set()


def _reads_written(program: Program, call: Call) -> bool:
    kernel = program.kernels[call.kernel]
    return any(isinstance(e, Load) and kernel.buffers[e.buffer].writable for e in kernel.expressions)


# ── constants in the order of tiles ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Layout:
    """A contraction that reads its columns in the order of tiles: the kernel that makes it so from one buffer (position
    `operand` of the contraction's), and the contraction that reads what this wrote there."""

    operand: int
    copy: Kernel
    reader: Kernel


def _laid_out(program: Program, tile_orders: TileOrders) -> Program:
    constants = constant_buffers(program)
    layouts = [
        _layout(kernel, tile_orders, operands)
        for kernel, operands in zip(program.kernels, _given(program, constants), strict=True)
    ]
    wanted: dict[int, set[str | None]] = {}
    for step in walk(program.steps):
        for place, (buffer, _) in enumerate(_itself(program, step)):
            layout = layouts[step.kernel] if isinstance(step, Call) else None
            mine = layout is not None and layout.operand == place
            wanted.setdefault(buffer, set()).add(layout.copy.digest if mine and layout is not None else None)
    agreed = frozenset(buffer for buffer, copies in wanted.items() if buffer in constants and len(copies) == 1)
    made = _Made(program, layouts, agreed)
    steps = made.steps(program.steps)
    if not made.copies:
        return program
    once = (*program.once, *made.once)
    used, numbers = by_first_use(made.kernels, (*once, *steps))
    first, rest = (tuple(renamed(step, {}, numbers) for step in each) for each in (once, steps))
    calls = tuple(step for step in first if isinstance(step, Call))
    return replace(program, kernels=used, buffers=tuple(made.buffers), steps=rest, once=calls)


def _given(program: Program, constants: frozenset[int]) -> list[set[int]]:
    """Of each kernel the operands that are constants in every call."""
    found = [set(range(len(kernel.buffers))) for kernel in program.kernels]
    for step in walk(program.steps):
        if isinstance(step, Call):
            found[step.kernel] &= {place for place, buffer in enumerate(step.buffers) if buffer in constants}
    return found


class _Made:
    """The program's parts as copies are added to them."""

    def __init__(self, program: Program, layouts: Sequence[_Layout | None], sources: frozenset[int]) -> None:
        self.kernels, self.buffers = list(program.kernels), list(program.buffers)
        self.layouts, self.sources = layouts, sources
        self.once: list[Call] = []
        self.copies: dict[int, int] = {}
        """Of each constant that is laid out anew."""

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            self.call(step) if isinstance(step, Call) else with_bodies(step, [self.steps(b) for b, _ in bodies(step)])
            for step in steps
        )

    def call(self, call: Call) -> Call:
        layout = self.layouts[call.kernel]
        if layout is None or call.buffers[layout.operand] not in self.sources:
            return call
        source = call.buffers[layout.operand]
        if source not in self.copies:
            self._add(source, layout)
        operands = list(call.buffers)
        operands[layout.operand] = self.copies[source]
        return Call(self._kernel(layout.reader), tuple(operands), call.scalars)

    def _add(self, source: int, layout: _Layout) -> None:
        written = layout.copy.buffers[1]
        position = sum(buffer.role == PREPARED for buffer in self.buffers)
        self.copies[source] = len(self.buffers)
        self.buffers.append(Buffer(written.dtype, written.elements, PREPARED, position))
        self.once.append(Call(self._kernel(layout.copy), (source, self.copies[source])))

    def _kernel(self, kernel: Kernel) -> int:
        self.kernels.append(kernel)
        return len(self.kernels) - 1


def _layout(kernel: Kernel, tile_orders: TileOrders, constants: set[int]) -> _Layout | None:
    """How a contraction's columns are laid out, where that is worth it and takes no more memory."""
    if not constants:
        return None
    found = (_in_order(kernel, *order, tile_orders, constants) for order in tile_orders(kernel))
    return next((each for each in found if each is not None), None)


def _in_order(
    kernel: Kernel, contraction: Contraction, columns_per_tile: int, tile_orders: TileOrders, constants: set[int]
) -> _Layout | None:
    """The same of columns in one order."""
    kernel = ungrouped(kernel)
    term = contraction.terms[1]
    sources, inside = _read(term), topological([term])
    if contraction.absent_in == 1 or len(sources) != 1 or any(isinstance(e, Scalar | Reduce) for e in inside):
        return None
    (operand,) = sources
    batch = tuple(axis for axis in contraction.batch if axis in term.free)
    elements = _elements(contraction, batch, columns_per_tile)
    if operand not in constants or not _fits(contraction, batch, elements, kernel.buffers[operand]):
        return None
    held = BufferParameter(term.dtype, elements, False)
    reader = _reader(kernel, contraction, operand, held, _offset(contraction, batch, columns_per_tile))
    if any(isinstance(e, Load) and e.buffer == operand and e is not reader[1] for e in reader[0].expressions):
        return None
    if any(operand in _read(again.terms[1]) for again, _ in tile_orders(reader[0])):
        return None
    copy = _copy(contraction, batch, columns_per_tile, kernel.buffers[operand], replace(held, writable=True))
    return _Layout(operand, copy, reader[0])


def _read(term: Expr) -> set[int]:
    """The operands that a term reads."""
    return {e.buffer for e in topological([term]) if isinstance(e, Load)}


def _elements(contraction: Contraction, batch: Sequence[Axis], columns_per_tile: int) -> int:
    _, _, columns, terms = contraction.extents
    tiles = -(-columns // columns_per_tile)
    return math.prod(axis.extent for axis in batch) * tiles * columns_per_tile * terms


def _fits(contraction: Contraction, batch: Sequence[Axis], elements: int, source: BufferParameter) -> bool:
    _, _, columns, terms = contraction.extents
    size = contraction.terms[1].dtype.bytes
    plain = math.prod(axis.extent for axis in batch) * columns * terms * size
    given = source.elements * source.dtype.bytes
    return plain <= given and elements * size - plain <= max(PADDING, plain // 8)


def _offset(contraction: Contraction, batch: Sequence[Axis], columns_per_tile: int) -> Expr:
    """Where a term of the columns lies in the copy."""
    matrix = _elements(contraction, (), columns_per_tile)
    number = ix.linear(batch, [axis.extent for axis in batch])
    inside = tiled_offset(contraction.columns, contraction.reduce.axes, columns_per_tile)
    return ix.add(ix.scale(number, matrix), inside)


def _reader(
    kernel: Kernel, contraction: Contraction, operand: int, held: BufferParameter, offset: Expr
) -> tuple[Kernel, Expr]:
    """The contraction on the copy, and its load of that."""
    found = load(held.dtype, operand, offset)
    values = with_term([store.value for store in kernel.stores], contraction, 1, found)
    stores = tuple(replace(store, value=value) for store, value in zip(kernel.stores, values, strict=True))
    buffers = tuple(held if position == operand else each for position, each in enumerate(kernel.buffers))
    return replace(kernel, buffers=buffers, stores=stores), found


def _copy(
    contraction: Contraction,
    batch: Sequence[Axis],
    columns_per_tile: int,
    source: BufferParameter,
    held: BufferParameter,
) -> Kernel:
    """The kernel that writes the columns' terms in the order of tiles; the places behind the last column hold what the
    terms are where loads give zero."""
    _, _, count, _ = contraction.extents
    terms, columns = contraction.reduce.axes, contraction.columns
    outer = [ix.axis(number, axis.extent) for number, axis in enumerate(batch)]
    tile = ix.axis(len(outer), -(-count // columns_per_tile))
    inner = [ix.axis(len(outer) + 1 + number, axis.extent) for number, axis in enumerate(terms)]
    beside = ix.axis(len(outer) + 1 + len(inner), columns_per_tile)
    axes = (*outer, tile, *inner, beside)
    column = ix.add(ix.scale(tile, columns_per_tile), beside)
    known: dict[Expr, Expr] = dict(zip((*batch, *terms), (*outer, *inner), strict=True))
    known |= dict(zip(columns, ix.delinear(column, [axis.extent for axis in columns]), strict=True))
    present = ix.compare("lt", column, count)
    for expr in topological([contraction.terms[1]]):
        if isinstance(expr, Load):
            offset, *when = rewritten(expr.children, known)
            both = ix.both(present, *when)
            known[expr] = load(expr.dtype, 0, offset, None if both is TRUE else both)
    (value,) = rewritten([contraction.terms[1]], known)
    store = Store(1, ix.linear(axes, [axis.extent for axis in axes]), value)
    return Kernel((replace(source, writable=False), held), (), axes, 0, (store,))
