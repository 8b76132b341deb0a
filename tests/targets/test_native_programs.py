"""Programs on threads: control flow, state, serial kernels, the host's floating point mode, interruption."""

from __future__ import annotations

import ctypes
import platform
import signal
import threading
import time
from threading import Timer

import numpy as np
import pytest

from passes import streams
from passes.schedule import schedule
from repro.ir import index as ix
from repro.ir.dependence import independent_axes
from repro.ir.expressions import Expr, Lanes, Scalar, apply, const, convert, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import (
    INPUT,
    OUTPUT,
    PARAMETER,
    TEMPORARY,
    Branch,
    Buffer,
    Call,
    Commit,
    CountedLoop,
    Program,
    While,
)
from repro.ir.schedule import Schedule
from repro.ir.types import BOOL, F32, I32, I64, Array
from repro.machines import CPUS
from repro.machines.machine import LINE_BYTES
from repro.runtime.buffers import ALIGNMENT, LARGE_BYTES, PAGE_BYTES, aligned
from repro.runtime.session import CpuExecutable
from repro.targets import cpu, interpreter
from repro.targets.cpu.code import Code
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import program as programs
from repro.targets.llvm import toolchain
from repro.targets.llvm.kernel import work_items
from tests.reference import reference
from tests.targets.native import HERE, executable, run_kernel, single
from tests.targets.test_contraction_tiles import matmul

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
THREADS = pytest.mark.parametrize("threads", [1, 2, 5])


def f32(value: float) -> Expr:
    return const(F32, int(np.float32(value).view(np.uint32)))


def elementwise(size: int, inputs: int, value) -> Kernel:
    """b_last[i] <- value(loads)."""
    i = ix.axis(0, size)
    buffers = [BufferParameter(F32, size, False)] * inputs
    store = Store(inputs, i, value(*(load(F32, n, i) for n in range(inputs))))
    return Kernel((*buffers, BufferParameter(F32, size, True)), (), (i,), 0, (store,))


def run(program: Program, inputs: list[Array], machine, threads: int, parameters: list[Array] | None = None):
    """Schedules with small items, so that all threads have some."""
    schedules = []
    for kernel in program.kernels:
        chosen = schedule(kernel, machine)
        block = max(1, min(chosen.block, 24)) if chosen.tile is None else chosen.block
        schedules.append(Schedule(chosen.vector_axis, chosen.vector_width, block, chosen.tile, chosen.inner))
    runner = executable(program, machine, schedules, threads)
    for position, value in enumerate(parameters or []):
        runner.set_parameter(position, value)
    return runner, runner.run(inputs)


def rotation(size: int) -> Program:
    """200 times: y = (x shifted by one) * 0.5 + x; x = y. Every thread needs what others wrote."""
    i, s = ix.axis(0, size), Scalar(I64, (0, 200), ())
    neighbour = load(F32, 0, ix.mod(ix.add(i, ix.number(1)), size))
    turn = convert(convert(s, I32), F32)
    value = apply("add", apply("fma", neighbour, f32(0.5), load(F32, 0, i)), turn)
    buffers = (BufferParameter(F32, size, False), BufferParameter(F32, size, True))
    mix = Kernel(buffers, (200,), (i,), 0, (Store(1, i, value),))
    scale = elementwise(size, 1, lambda x: apply("mul", x, f32(0.625)))
    steps = (
        Call(1, (0, 1)),
        CountedLoop(200, (Call(0, (1, 2), (0,)), Call(1, (2, 1)))),
        Call(1, (1, 3)),
    )
    places = (
        Buffer(F32, size, INPUT, 0),
        Buffer(F32, size, TEMPORARY, 0),
        Buffer(F32, size, TEMPORARY, -(-size * 4 // 64) * 64),
        Buffer(F32, size, OUTPUT, 0),
    )
    return Program((mix, scale), places, (), steps, 2 * (-(-size * 4 // 64) * 64))


@MACHINES
@THREADS
def test_a_loop_meets_at_barriers(machine, threads: int) -> None:
    program = rotation(333)
    given = [np.random.default_rng(0).standard_normal(333).astype(np.float32)]
    wanted = interpreter.run(program, given)
    runner, found = run(program, given, machine, threads)
    for _ in range(10):
        assert found[0].tobytes() == wanted[0].tobytes()
        found = runner.run(given)
    runner.close()


def countdown(limit: int) -> Program:
    """while (x[0] > 0) { x -= 1; y += x }, then one of two branches by the last x."""
    size = 50
    lower = elementwise(size, 1, lambda x: apply("sub", x, f32(1)))
    copy = elementwise(size, 1, lambda x: x)
    add = elementwise(size, 2, lambda x, y: apply("add", x, y))
    flag = Kernel(
        (BufferParameter(F32, size, False), BufferParameter(BOOL, 1, True)),
        (),
        (),
        0,
        (Store(1, ix.number(0), apply("gt", load(F32, 0, ix.number(0)), f32(0))),),
    )
    x, t, y, u, c, given, out = 0, 1, 2, 3, 4, 5, 6
    body = (Call(0, (x, t)), Call(3, (t, c)), Call(1, (t, x)), Call(2, (x, y, u)), Call(1, (u, y)))
    steps = (
        Call(1, (given, x)),
        Call(1, (given, y)),
        Call(3, (x, c)),
        While(c, limit, body),
        Branch(c, (Call(1, (y, out)),), (Call(2, (y, y, out)),)),
    )
    temporaries = [Buffer(F32, size, TEMPORARY, 256 * n) for n in range(4)]
    buffers = (
        *temporaries,
        Buffer(BOOL, 1, TEMPORARY, 1024),
        Buffer(F32, size, INPUT, 0),
        Buffer(F32, size, OUTPUT, 0),
    )
    return Program((lower, copy, add, flag), buffers, (), steps, 1088)


@MACHINES
@THREADS
@pytest.mark.parametrize(("start", "limit"), [(7, 100), (0, 100), (100, 5)])
def test_while_and_branch(machine, threads: int, start: int, limit: int) -> None:
    program = countdown(limit)
    given = [np.full(50, start, np.float32) + np.arange(50, dtype=np.float32)]
    given[0][0] = start
    wanted = interpreter.run(program, given)
    runner, found = run(program, given, machine, threads)
    assert found[0].tobytes() == wanted[0].tobytes()
    runner.close()


@MACHINES
@THREADS
@pytest.mark.parametrize("start", [0.0, 2.0])
def test_a_branch_may_have_an_empty_side(machine, threads: int, start: float) -> None:
    size = 40
    copy = elementwise(size, 1, lambda x: x)
    double = elementwise(size, 1, lambda x: apply("add", x, x))
    flag = Kernel(
        (BufferParameter(F32, size, False), BufferParameter(BOOL, 1, True)),
        (),
        (),
        0,
        (Store(1, ix.number(0), apply("gt", load(F32, 0, ix.number(0)), f32(0))),),
    )
    buffers = (Buffer(F32, size, INPUT, 0), Buffer(BOOL, 1, TEMPORARY, 0), Buffer(F32, size, OUTPUT, 0))
    steps = (Call(2, (0, 1)), Call(0, (0, 2)), Branch(1, (Call(1, (0, 2)),), ()))
    program = Program((copy, double, flag), buffers, (), steps, 64)
    given = [np.full(size, start, np.float32)]
    runner, found = run(program, given, machine, threads)
    assert found[0].tobytes() == interpreter.run(program, given)[0].tobytes()
    runner.close()


@MACHINES
def test_a_program_without_steps_ends(machine) -> None:
    runner, found = run(Program((), (Buffer(F32, 0, OUTPUT, 0),), (), (), 0), [], machine, 2)
    assert found[0].size == 0
    runner.close()


@MACHINES
@THREADS
def test_state_takes_its_new_value(machine, threads: int) -> None:
    size = 100
    step = elementwise(size, 2, lambda w, g: apply("fma", g, f32(-0.1), w))
    copy = elementwise(size, 1, lambda w: w)
    roles = ((PARAMETER, 0), (INPUT, 0), (TEMPORARY, 0))
    buffers = tuple(Buffer(F32, size, role, position) for role, position in roles)
    steps = (Call(0, (0, 1, 2)), Commit(None, (Call(1, (2, 0)),)))
    program = Program((step, copy), buffers, (), steps, 4 * size)
    weight, gradient = np.ones(size, np.float32), np.arange(size, dtype=np.float32)
    runner, _ = run(program, [gradient], machine, threads, [weight.copy()])
    for _ in range(3):
        interpreter.run(program, [gradient], [weight])
        held = runner.parameter(0)
        assert held is not None and held.tobytes() == weight.tobytes()
        runner.run([gradient])
    runner.close()


@MACHINES
def test_outputs_are_the_callers_as_long_as_anyone_holds_a_view_of_them(machine) -> None:
    kernel = elementwise(40, 1, lambda x: apply("add", x, f32(1.0)))
    buffers = (Buffer(F32, 40, INPUT, 0), Buffer(F32, 40, OUTPUT, 0))
    program = Program((kernel,), buffers, (), (Call(0, (0, 1), ()),), 0)
    runner = executable(program, machine, [schedule(kernel, machine)])
    first = runner.run([np.zeros(40, np.float32)])[0].reshape(5, 8)[1:]
    second = runner.run([np.ones(40, np.float32)])[0]
    assert (first == 1).all() and (second == 2).all()
    place = second.ctypes.data
    del second
    third = runner.run([np.full(40, 2, np.float32)])[0]
    assert third.ctypes.data == place, "memory that nobody holds is used again"
    assert (first == 1).all() and (third == 3).all()
    del third
    held, places = None, list[int]()
    for number in range(6):
        held = runner.run([np.full(40, number, np.float32)])[0]
        places.append(held.ctypes.data)
        assert (held == number + 1).all()
    assert places[2:] == places[:2] * 2 and places[0] != places[1], "a loop that holds one output goes between two"
    every = [runner.run([np.full(40, number, np.float32)])[0] for number in range(5)]
    assert [set(each.tolist()) for each in every] == [{number + 1.0} for number in range(5)]
    assert (first == 1).all() and (held == 6).all()
    runner.close()


@MACHINES
@pytest.mark.parametrize("nbytes", [PAGE_BYTES, LARGE_BYTES])
def test_memory_of_a_page_begins_with_one(machine, nbytes: int) -> None:
    """A load of an input waits for no store to an output, at the same place of another page, that was before it."""
    count = nbytes // F32.bytes
    kernel = elementwise(count, 1, lambda x: apply("add", x, f32(1.0)))
    buffers = (Buffer(F32, count, INPUT, 0), Buffer(F32, count, OUTPUT, 0))
    program = Program((kernel,), buffers, (), (Call(0, (0, 1), ()),), 0)
    runner = executable(program, machine, [schedule(kernel, machine)])
    [found] = runner.run([np.zeros(count, np.float32)])
    assert found.ctypes.data % PAGE_BYTES == 0 and (found == 1).all()
    assert aligned(nbytes).ctypes.data % PAGE_BYTES == 0 and aligned(nbytes).size == nbytes
    runner.close()


@MACHINES
@pytest.mark.parametrize("count", [4, PAGE_BYTES // F32.bytes, LARGE_BYTES // F32.bytes])
def test_small_parameters_are_read_from_copies(machine, count: int) -> None:
    """Which begin with a page where they have one; large ones are read where they lie."""
    kernel = elementwise(count, 2, lambda x, w: apply("add", x, w))
    buffers = (Buffer(F32, count, INPUT, 0), Buffer(F32, count, PARAMETER, 0), Buffer(F32, count, OUTPUT, 0))
    program = Program((kernel,), buffers, (), (Call(0, (0, 1, 2), ()),), 1)
    given = aligned(count * F32.bytes + ALIGNMENT)[ALIGNMENT:].view(np.float32)
    given[:] = 2
    runner = executable(program, machine, [schedule(kernel, machine)])
    runner.bind_parameter(0, given)
    held = runner.buffers.parameter(0)
    assert held is not None and np.shares_memory(held, given) == (given.nbytes >= LARGE_BYTES)
    assert np.shares_memory(held, given) or held.ctypes.data % (PAGE_BYTES if count > 4 else ALIGNMENT) == 0
    [found] = runner.run([np.ones(count, np.float32)])
    assert (found == 3).all()
    runner.close()


@MACHINES
@pytest.mark.parametrize("threads", [1, 2])
def test_stores_past_the_caches(machine, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where lines are written from end to end, and with the same bits."""
    monkeypatch.setattr(streams, "STREAMED_BYTES", 4096)
    for size, streamed in ((4096, True), (4100, False), (64, False)):
        kernel = elementwise(size, 2, lambda x, y: apply("mul", x, y))
        text = kernels.emit(kernel, schedule(kernel, machine), machine)
        assert ("!nontemporal" in text) == (streamed and machine.fence != ""), size
        assert (machine.fence in text) == ("!nontemporal" in text) or not machine.fence
        given = [np.arange(size, dtype=np.float32), np.full(size, 0.3, np.float32), np.zeros(size, np.float32)]
        found = run_kernel(kernel, given, machine, threads=threads)[-1]
        assert found.tobytes() == (given[0] * given[1]).tobytes()


@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
def test_far_results_are_written_in_whole_lines(machine) -> None:
    """Of a kernel larger than the second-level cache; several in one go where they go past the caches, as many as a
    quarter of the registers holds."""
    near, far, huge = 1 << 12, 1 << 19, 1 << 23
    widths = [
        schedule(elementwise(size, 2, lambda x, y: apply("mul", x, y)), machine).vector_width
        for size in (near, far, far + 8, huge)
    ]
    register = machine.lanes(32)
    quarter = machine.registers // 4 * machine.vector_bits // 8
    past = min(streams.BURST_BYTES, quarter) if machine.fence else LINE_BYTES
    assert widths == [register, max(register, LINE_BYTES // 4), register, past // 4]


@MACHINES
def test_a_condition_of_all_lanes_is_a_branch(machine) -> None:
    """Rows that are added where an index says, or not at all: no lane has a mask of its own."""
    rows, columns = 6, 32
    r, c = ix.axis(0, rows), ix.axis(1, columns)
    place = ix.add(ix.scale(r, columns), c)
    wanted = apply("gt", load(F32, 0, r), f32(0))
    value = apply("add", load(F32, 1, place, wanted), f32(1))
    buffers = (*(BufferParameter(F32, size, False) for size in (rows, rows * columns)),)
    kernel = Kernel(
        (*buffers, BufferParameter(F32, rows * columns, True)), (), (r, c), 0, (Store(2, place, value, wanted),)
    )
    chosen = Schedule(1, 8, columns)
    assert "masked" not in kernels.emit(kernel, chosen, machine)
    flags, x = np.array([1, 0, -1, 2, 0, 3], np.float32), np.arange(rows * columns, dtype=np.float32)
    found = run_kernel(kernel, [flags, x, np.full(rows * columns, 7, np.float32)], machine, chosen)[2]
    expected = np.where(flags[:, None] > 0, x.reshape(rows, columns) + 1, np.float32(7))
    assert found.tobytes() == expected.astype(np.float32).tobytes()


def scan(rows: int, columns: int, tied: bool) -> Kernel:
    """x[t, j] = x[t-1, j'] * 0.5 + u[t, j], j' a neighbour where the columns are tied together."""
    t, j = ix.axis(0, rows), ix.axis(1, columns)
    before = ix.mod(ix.add(j, ix.number(1)), columns) if tied else j
    held = load(F32, 1, ix.linear((ix.add(t, ix.number(-1)), before), (rows, columns)), ix.compare("ge", t, 1))
    place = ix.linear((t, j), (rows, columns))
    value = apply("fma", held, f32(0.5), load(F32, 0, place))
    buffers = (BufferParameter(F32, rows * columns, False), BufferParameter(F32, rows * columns, True))
    return Kernel(buffers, (), (t, j), 1, (Store(1, place, value),))


@MACHINES
@THREADS
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("width", [1, 8])
def test_serial_kernels(machine, threads: int, tied: bool, width: int) -> None:
    kernel = scan(20, 45, tied)
    assert bool(independent_axes(kernel)) is not tied
    chosen = Schedule(1, width, 7)
    assert work_items(kernel, chosen) == (1 if tied else 7)
    given = np.random.default_rng(1).standard_normal(900).astype(np.float32)
    arrays = [given, np.zeros(900, np.float32)]
    wanted = reference(kernel, arrays)
    found = run_kernel(kernel, arrays, machine, chosen, threads)
    assert found[1].tobytes() == wanted[1].tobytes()


@MACHINES
@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (5, 0), (0, 0)])
def test_kernels_without_iterations_do_nothing(machine, rows: int, columns: int) -> None:
    arrays = [np.zeros(rows * columns, np.float32)] * 2
    assert run_kernel(scan(rows, columns, False), arrays, machine)[1].size == 0


@MACHINES
def test_long_expressions_do_not_recurse(machine) -> None:
    def chain(x: Expr) -> Expr:
        for _ in range(1500):
            x = apply("fma", x, f32(0.5), f32(1))
        return x

    kernel = elementwise(33, 1, chain)
    found = run_kernel(kernel, [np.zeros(33, np.float32)] * 2, machine)
    assert (found[1] == 2).all()


@MACHINES
@THREADS
def test_scatter_adds_in_source_order(machine, threads: int) -> None:
    """out[index[t], j] += update[t, j], duplicate indices one by one; an index outside is dropped."""
    sources, rows, columns = 40, 6, 30
    t, j = ix.axis(0, sources), ix.axis(1, columns)
    index = load(I64, 0, t)
    inside = ix.inside(index, rows)
    place = ix.add(ix.scale(index, columns), j)
    value = apply("add", load(F32, 2, place, inside), load(F32, 1, ix.linear((t, j), (sources, columns))))
    buffers = (
        BufferParameter(I64, sources, False),
        BufferParameter(F32, sources * columns, False),
        BufferParameter(F32, rows * columns, True),
    )
    kernel = Kernel(buffers, (), (t, j), 1, (Store(2, place, value, inside),))
    assert independent_axes(kernel) == frozenset((j,))
    rng = np.random.default_rng(2)
    updates = (rng.standard_normal(sources * columns) * 1000).astype(np.float32)
    arrays = [rng.integers(-1, rows + 1, sources), updates, rng.standard_normal(rows * columns).astype(np.float32)]
    wanted = reference(kernel, arrays)
    found = run_kernel(kernel, arrays, machine, Schedule(1, 8, 12), threads)
    assert found[2].tobytes() == wanted[2].tobytes()


@MACHINES
def test_the_hosts_floating_point_mode_changes_nothing(machine) -> None:
    """Flushing and rounding upwards in the calling thread: the same bits, and the mode is as it was."""
    size = 64
    kernel = elementwise(size, 2, lambda x, y: apply("mul", x, y))
    tiny = np.full(size, 2.0**-100, np.float32)
    small = np.linspace(2.0**-40, 2.0**-30, size).astype(np.float32)
    buffers = tuple(Buffer(F32, size, role, n) for role, n in ((INPUT, 0), (INPUT, 1), (OUTPUT, 0)))
    program = Program((kernel,), buffers, (), (Call(0, (0, 1, 2)),), 0)
    runner, wanted = run(program, [tiny, small], machine, 1)
    assert np.all(wanted[0] != 0), "the products are subnormal"
    libm = ctypes.CDLL("libm.so.6")
    upward = 0x800 if platform.machine() == "x86_64" else 0x400000
    for position, value in enumerate((tiny, small)):
        runner.buffers.bind_input(position, value)
    outputs = runner.buffers.fresh_outputs()
    runner._context[:192] = 0
    libm.fesetround(upward)
    try:
        runner.code.enter(ctypes.c_void_p(runner._context.ctypes.data), 0, 1)
        mode = libm.fegetround()
    finally:
        libm.fesetround(0)
    assert mode == upward
    assert outputs[0].tobytes() == wanted[0].tobytes()
    runner.close()


@MACHINES
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the MXCSR bits of x86-64")
def test_flushing_in_the_host_process_changes_nothing(machine) -> None:
    """Threads inherit the mode of the one that makes them: flush-to-zero and denormals-are-zero."""
    size = 64
    kernel = elementwise(size, 2, lambda x, y: apply("mul", x, y))
    operands = [np.full(size, 2.0**-100, np.float32), np.linspace(2.0**-40, 2.0**-30, size).astype(np.float32)]
    buffers = tuple(Buffer(F32, size, role, n) for role, n in ((INPUT, 0), (INPUT, 1), (OUTPUT, 0)))
    program = Program((kernel,), buffers, (), (Call(0, (0, 1, 2)),), 0)
    runner, wanted = run(program, operands, machine, 2)
    runner.close()
    libm = ctypes.CDLL("libm.so.6")
    saved = ctypes.create_string_buffer(64)
    libm.fegetenv(saved)
    flushing = ctypes.create_string_buffer(saved.raw)
    mxcsr = int.from_bytes(saved.raw[28:32], "little") | 0x8040
    flushing[28:32] = mxcsr.to_bytes(4, "little")
    libm.fesetenv(flushing)
    try:
        assert np.float32(2.0**-100) * np.float32(2.0**-40) == 0, "flushing is not on: the test would prove nothing"
        runner, found = run(program, operands, machine, 2)
        runner.close()
    finally:
        libm.fesetenv(saved)
    assert found[0].tobytes() == wanted[0].tobytes()


def interrupt_soon() -> None:
    """Ctrl-C in 0.3 seconds: a real signal, as a terminal sends it."""
    main = threading.main_thread().ident
    assert main is not None
    Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()


@MACHINES
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_stops_a_long_loop_within_a_second(machine, threads: int) -> None:
    size = 4096
    step = elementwise(size, 1, lambda x: apply("add", x, f32(1)))
    buffers = (Buffer(F32, size, INPUT, 0), Buffer(F32, size, TEMPORARY, 0), Buffer(F32, size, OUTPUT, 0))
    steps = (Call(0, (0, 1)), CountedLoop(1 << 40, (Call(0, (1, 2)), Call(0, (2, 1)))))
    runner = executable(Program((step,), buffers, (), steps, 16384), machine, [Schedule(0, 8, 512)], threads)
    interrupt_soon()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        runner.run([np.zeros(size, np.float32)])
    assert time.monotonic() - begin < 1.3
    runner.close()


@MACHINES
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_stops_inside_one_long_call(machine, threads: int) -> None:
    """A call of many seconds meets no barrier: threads look at the flag between its items."""
    rows, count = 1 << 18, 1 << 16
    r, i = ix.axis(0, rows), ix.axis(1, count)
    term = apply("sqrt", apply("add", load(F32, 0, i), convert(convert(r, I32), F32)))
    value = reduce("add", Lanes(32, 4096), [i], [term])
    sizes = (BufferParameter(F32, count, False), BufferParameter(F32, rows, True))
    kernel = Kernel(sizes, (), (r,), 0, (Store(1, r, value),))
    buffers = (Buffer(F32, count, INPUT, 0), Buffer(F32, rows, OUTPUT, 0))
    runner = executable(Program((kernel,), buffers, (), (Call(0, (0, 1)),), 0), machine, [Schedule(0, 1, 1)], threads)
    interrupt_soon()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        runner.run([np.ones(count, np.float32)])
    assert time.monotonic() - begin < 1.3
    runner.close()


@MACHINES
def test_code_says_how_much_private_memory_it_needs(machine) -> None:
    """And a session gives it that, whatever the version that loads it would have needed itself."""
    kernel = matmul(40, 70, 600)
    program, chosen = single(kernel), [schedule(kernel, machine)]
    objects = [cpu.compile_kernel(kernel, chosen[0], machine)]
    needed = programs.scratch_bytes(program, chosen)
    text = programs.emit(program, chosen, machine)
    assert text.count(f"i64 {needed}\n") == 1
    for size in (needed, needed + 4096):
        code = Code([*objects, toolchain.object_code(text.replace(f"i64 {needed}\n", f"i64 {size}\n"), machine)])
        assert code.scratch == size
        executable = CpuExecutable(program, code, 2)
        assert executable._scratch.nbytes >= 2 * size
        executable.close()
