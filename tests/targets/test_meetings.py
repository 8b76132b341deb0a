"""Where threads do not meet, none touches what another one writes: every address of every item, counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from golden import bless
from passes import pipeline
from passes.schedule import schedule
from repro.ir import index as ix
from repro.ir.expressions import Affine, Axis, Const, Expr, IndexOp, Load, Reduce, Scalar, apply, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, OUTPUT, TEMPORARY, Buffer, Call, CountedLoop, Program, Step, walk
from repro.ir.schedule import Schedule
from repro.ir.types import F32, I64, Array
from repro.machines import X86_64_V3, Machine
from repro.targets import interpreter
from repro.targets.cpu import target as cpu_target
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm.meetings import Meetings, Place
from repro.targets.llvm.tiling import shape_of
from tests.targets.native import HERE, executable
from tests.targets.test_native_programs import elementwise, f32, rotation

THREADS = (2, 3, 5)
MOST = 1 << 16
"""Iterations of a call whose addresses are counted."""
MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)


# ── a count of addresses, which knows nothing of how the answer is found ────────────────────────────


class Points:
    """All iterations of a kernel, and of its reductions, as a grid."""

    def __init__(self, kernel: Kernel, scalars: Sequence[int]) -> None:
        self.kernel, self.scalars = kernel, scalars
        bound = [axis for e in kernel.expressions if isinstance(e, Reduce) for axis in e.axes]
        self.axes = list(dict.fromkeys([*kernel.axes, *bound]))
        self.shape = [axis.extent for axis in self.axes]

    def value(self, expr: Expr) -> Array | None:
        """An index at every point; None where it is read from memory."""
        match expr:
            case Const():
                return np.asarray(ix.bounds(expr)[0])
            case Axis():
                position = self.axes.index(expr)
                sizes = [1] * position + [-1] + [1] * (len(self.axes) - position - 1)
                return np.arange(expr.extent).reshape(sizes)
            case Scalar():
                return np.asarray(self.scalars[expr.position])
            case Affine():
                parts = [part for child in expr.children if (part := self.value(child)) is not None]
                if len(parts) < len(expr.children):
                    return None
                products = (part * k for part, k in zip(parts, expr.coefficients, strict=True))
                return sum(products, np.asarray(expr.constant))
            case IndexOp():
                operand = self.value(expr.children[0])
                if operand is None:
                    return None
                return operand // expr.divisor if expr.op == "floordiv" else operand % expr.divisor
            case _:
                return None

    def items(self, chosen: Schedule) -> Array:
        """The number of the item of each point."""
        if chosen.tile is not None:
            shape = shape_of(self.kernel, chosen)
            of = shape.contraction
            batch, row, column = (self._linear(axes) for axes in (of.batch, of.rows, of.columns))
            if shape.row_items:
                return row
            _, row_blocks, column_blocks = shape.blocks
            return (batch * row_blocks + row // shape.tile.block_m) * column_blocks + column // shape.tile.block_n
        grid = kernels.Grid(self.kernel, chosen)
        along = [] if grid.vector is None else [grid.vector]
        return self._linear(grid.outer) * grid.blocks + self._linear(along) // grid.block

    def _linear(self, axes: Sequence[Axis]) -> Array:
        found = self.value(ix.linear(axes, [axis.extent for axis in axes]))
        assert found is not None
        return found


def races(
    program: Program, schedules: Sequence[Schedule], calls: Sequence[tuple[Call, Place, int]], threads: int
) -> int:
    """Addresses that one thread writes and another one touches; calls with the counter that each sees."""
    touched, written = ({} for _ in range(2))
    for call, place, counter in calls:
        kernel, chosen = program.kernels[call.kernel], schedules[call.kernel]
        points = Points(kernel, [counter] * len(kernel.scalars))
        items = kernels.work_items(kernel, chosen)
        shared = items if place.rows is None else place.rows
        ends = np.array([shared * (thread + 1) // threads * (items // shared) for thread in range(threads)])
        of_thread = np.searchsorted(ends, points.items(chosen), side="right")
        loads = [(e.buffer, e.offset, False) for e in kernel.expressions if isinstance(e, Load)]
        for buffer, offset, writes in [*loads, *((s.buffer, s.offset, True) for s in kernel.stores)]:
            _mark(program, call.buffers[buffer], points.value(offset), of_thread, touched)
            if writes:
                _mark(program, call.buffers[buffer], points.value(offset), of_thread, written)
    several = {place: (mask & (mask - 1)) != 0 for place, mask in touched.items()}
    return sum(int((several[place] & (mask != 0)).sum()) for place, mask in written.items())


def _mark(program: Program, number: int, offset: Array | None, of_thread: Array, masks: dict[int, Array]) -> None:
    """Note the threads at the bytes of a buffer; temporaries lie in one arena, as number -1."""
    held = program.buffers[number]
    arena = held.role == TEMPORARY
    place, start = (-1, held.position) if arena else (number, 0)
    mask = masks.setdefault(place, np.zeros(program.arena_bytes if arena else held.nbytes, np.uint8))
    if offset is None:
        for thread in np.unique(of_thread):
            mask[start : start + held.nbytes] |= np.uint8(1 << int(thread))
        return
    at, thread = (each.reshape(-1) for each in np.broadcast_arrays(offset, of_thread))
    inside = (at >= 0) & (at < held.elements)  # what a condition guards may lie elsewhere
    for each in np.unique(thread):
        first = start + at[inside & (thread == each)] * held.dtype.bytes
        for byte in range(held.dtype.bytes):
            mask[first + byte] |= np.uint8(1 << int(each))


def stretches(program: Program, schedules: Sequence[Schedule]) -> Iterator[list[tuple[Call, Place, int]]]:
    """The calls between two meetings, several iterations of a loop that has none."""
    meetings = Meetings(program, schedules)

    def sequence(steps: Sequence[Step]) -> Iterator[list[tuple[Call, Place, int]]]:
        found: list[tuple[Call, Place, int]] = []
        for step, place in zip(steps, meetings.places(steps), strict=True):
            if isinstance(step, Call):
                found.append((step, place, 0))
                if place.meets:
                    yield found
                    found = []
        assert not found, "a sequence ends with a meeting"

    yield from sequence(program.steps)
    for step in walk(program.steps):
        if isinstance(step, CountedLoop):
            places = meetings.alone(step)
            if places:
                body = [call for call in step.body if isinstance(call, Call)]
                counters = sorted({0, min(1, step.count - 1), step.count - 1})
                yield [(call, place, n) for n in counters for call, place in zip(body, places, strict=True)]
            else:
                yield from sequence(step.body)


@cache
def programs() -> dict[str, Program]:
    """Of every golden model, as it is before a machine shapes it."""
    found = dict[str, Program]()
    for name, case in bless.cases().items():
        bind = case.get("bind", {"N": 3} if "inputs" in case else {})
        for entry in bless.entries(case, bind):
            found[f"{name}/{entry.name}"] = pipeline.run(entry.graph, entry.locations, entry.updates).program
    return found


def test_no_golden_program_has_a_race() -> None:
    machine, together, tied = X86_64_V3, 0, 0
    for name, plain in programs().items():
        program = cpu_target._code_target(machine).shape(plain)
        schedules = [schedule(kernel, machine) for kernel in program.kernels]
        for calls in stretches(program, schedules):
            sizes = [np.prod(Points(program.kernels[c.kernel], []).shape, dtype=np.int64) for c, _, _ in calls]
            if len(calls) > 1 and max(sizes) <= MOST:
                together += 1
                tied += any(place.rows is not None for _, place, _ in calls)
                assert not races(program, schedules, calls, 3), f"{name}: {calls}"
    assert together > 40
    assert tied, "rows that run through several calls"


# ── where threads have to meet ──────────────────────────────────────────────────────────────────────

ROWS, COLUMNS = 40, 64
SIZE = ROWS * COLUMNS
BYTES = 4 * SIZE


def two(first: Kernel, second: Kernel, places: Sequence[tuple[str, int]], buffers: tuple[int, int, int]) -> Program:
    """y = first(x); z = second(y), y and z at these places."""
    held = (Buffer(F32, SIZE, INPUT, 0), *(Buffer(F32, SIZE, *place) for place in places))
    x, y, z = buffers
    return Program((first, second), held, (), (Call(0, (x, y)), Call(1, (y, z))), 4 * BYTES)


def rows(turned: bool = False, shift: int = 0, columns: int = COLUMNS) -> Kernel:
    """y[i, j] <- x[i, j] + 1; or x[j, i], or x[i, j + shift]; rows as items."""
    i, j = ix.axis(0, SIZE // columns), ix.axis(1, columns)
    there = ix.linear((i, j), (SIZE // columns, columns))
    read = ix.linear((j, i), (columns, SIZE // columns)) if turned else ix.mod(ix.add(there, ix.number(shift)), SIZE)
    sizes = (BufferParameter(F32, SIZE, False), BufferParameter(F32, SIZE, True))
    return Kernel(sizes, (), (i, j), 0, (Store(1, there, apply("add", load(F32, 0, read), f32(1))),))


FLAT = elementwise(SIZE, 1, lambda x: apply("add", x, x))
BY_ROWS = Schedule(1, 8, COLUMNS)
APART = ((TEMPORARY, 0), (TEMPORARY, BYTES))


@pytest.mark.parametrize(
    ("program", "schedules", "rows_shared"),
    [
        pytest.param(two(rows(), rows(), APART, (0, 1, 2)), (BY_ROWS, BY_ROWS), ROWS, id="rows"),
        pytest.param(two(rows(), FLAT, APART, (0, 1, 2)), (BY_ROWS, Schedule(0, 8, 64)), ROWS, id="flat"),
        pytest.param(two(rows(), FLAT, APART, (0, 1, 2)), (BY_ROWS, Schedule(0, 8, 32)), ROWS, id="half a row"),
        pytest.param(two(rows(), FLAT, APART, (0, 1, 2)), (BY_ROWS, Schedule(0, 8, 96)), None, id="cut elsewhere"),
        pytest.param(two(rows(), FLAT, APART, (0, 1, 2)), (BY_ROWS, Schedule(0, 8, 640)), 4, id="several rows"),
        pytest.param(two(rows(), FLAT, APART, (0, 1, 2)), (BY_ROWS, Schedule(0, 8, 20)), None, id="reaches on"),
        pytest.param(two(rows(), rows(turned=True), APART, (0, 1, 2)), (BY_ROWS, BY_ROWS), None, id="turned"),
        pytest.param(two(rows(), rows(shift=1), APART, (0, 1, 2)), (BY_ROWS, BY_ROWS), None, id="shifted"),
        pytest.param(
            two(rows(), rows(columns=80), APART, (0, 1, 2)), (BY_ROWS, Schedule(1, 8, 80)), None, id="other rows"
        ),
        pytest.param(
            two(rows(), rows(), ((TEMPORARY, 0), (TEMPORARY, BYTES // 2)), (0, 1, 2)), (BY_ROWS, BY_ROWS), None,
            id="memory in common",
        ),
    ],
)  # fmt: skip
def test_threads_meet_unless_rows_are_their_own(
    program: Program, schedules: tuple[Schedule, ...], rows_shared: int | None
) -> None:
    first, second = Meetings(program, schedules).places(program.steps)
    assert (first.meets, second.meets) == (rows_shared is None, True)
    assert (first.rows, second.goes_on) == (rows_shared, rows_shared is not None)
    calls = [(step, place, 0) for step, place in zip(program.steps, (first, second), strict=True)]
    unmet = [(call, Place(rows=rows_shared), 0) for call, _, _ in calls if isinstance(call, Call)]
    raced = any(races(program, schedules, unmet, threads) for threads in THREADS)
    assert not raced if rows_shared is not None else True


def test_the_count_finds_races() -> None:
    """Of calls that meet: without the meeting, each of these would be one."""
    for second, chosen in ((rows(turned=True), BY_ROWS), (rows(shift=1), BY_ROWS), (FLAT, Schedule(0, 8, 96))):
        program = two(rows(), second, APART, (0, 1, 2))
        calls = [(step, Place(), 0) for step in program.steps if isinstance(step, Call)]
        assert all(races(program, (BY_ROWS, chosen), calls, threads) for threads in THREADS)


def test_calls_that_leave_each_other_alone_do_not_meet() -> None:
    program = two(rows(), rows(turned=True), APART, (0, 1, 2))
    apart = Program(program.kernels, program.buffers, (), (Call(0, (0, 1)), Call(1, (0, 2))), 4 * BYTES)
    assert [place.meets for place in Meetings(apart, (BY_ROWS, BY_ROWS)).places(apart.steps)] == [False, True]


def recurrence(shift: int) -> Program:
    """128 times: y = x + 1 (shifted), kept in a row of all; x = y."""
    s = Scalar(I64, (0, 128), ())
    i, j = ix.axis(0, ROWS), ix.axis(1, COLUMNS)
    there = ix.linear((i, j), (ROWS, COLUMNS))
    kept = ix.add(there, ix.scale(s, SIZE))
    sizes = (BufferParameter(F32, SIZE, False), BufferParameter(F32, 128 * SIZE, True))
    keep = Kernel(sizes, (128,), (i, j), 0, (Store(1, kept, load(F32, 0, there)),))
    body = (Call(0, (1, 2)), Call(1, (2, 3), (0,)), Call(2, (2, 1)))
    steps = (Call(2, (0, 1)), CountedLoop(128, body), Call(2, (1, 4)))
    held = (
        Buffer(F32, SIZE, INPUT, 0), Buffer(F32, SIZE, TEMPORARY, 0), Buffer(F32, SIZE, TEMPORARY, BYTES),
        Buffer(F32, 128 * SIZE, OUTPUT, 1), Buffer(F32, SIZE, OUTPUT, 0),
    )  # fmt: skip
    scaled = elementwise(SIZE, 1, lambda x: apply("mul", x, f32(0.75)))
    return Program((rows(shift=shift), keep, scaled), held, (), steps, 2 * BYTES)


@MACHINES
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("shift", [0, 1])
def test_rows_run_through_a_loop_alone(machine: Machine, threads: int, shift: int) -> None:
    program = recurrence(shift)
    schedules = [BY_ROWS, BY_ROWS, Schedule(0, 8, COLUMNS)]
    places = Meetings(program, schedules).alone(next(s for s in program.steps if isinstance(s, CountedLoop)))
    assert [place.rows for place in places] == ([] if shift else [ROWS] * 3)
    given = [np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)]
    runner = executable(program, machine, schedules, threads)
    for _ in range(3):
        found = runner.run(given)
        wanted = interpreter.run(program, given)
        assert [each.tobytes() for each in found] == [each.tobytes() for each in wanted]
    runner.close()


def test_a_shifted_loop_meets() -> None:
    program = rotation(320)
    schedules = [Schedule(0, 8, 32)] * 2
    assert not Meetings(program, schedules).alone(next(s for s in program.steps if isinstance(s, CountedLoop)))
