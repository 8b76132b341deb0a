"""What this machine can do at most, as measured: loops in registers of fmas and of products of bytes, and memory read,
copied and updated."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.ir.byte_dot import BYTES as BYTES_OF_QUAD
from repro.ir.types import I32
from repro.machines import Machine
from repro.runtime.buffers import aligned
from repro.targets import cpu
from repro.targets.cpu.code import Code
from repro.targets.llvm import quads, toolchain
from repro.targets.llvm.context import SCRATCH_SYMBOL, SYMBOL
from repro.targets.llvm.text import Function, Val

SPARE_REGISTERS = 4
"""Beside the chains: one for the factor. More chains than registers would measure how fast they are spilled; those that
are left (12, 28) are more than an fma's latency times the units of any CPU known (5 x 2)."""
TURNS = 1 << 22
BYTES = 256 << 20
"""Of each array, beyond any cache."""
VECTORS = 8
"""Of a turn of the loops over memory."""
REPEATS = 5

STREAMS = 4
"""Places in which an array is read in turn: some hardware fetches ahead in several faster than in one (Zen 3)."""

FMA, INT8, MEMORY = "fma", "int8", "memory"
"""What bounds a run."""
FEW_OPERATIONS = 2
"""For each byte: no CPU known computes so few in the time that its memory takes for one."""

READ, READ_APART, COPY = "read", "read in several places", "copy"
PAST_CACHES, UPDATE = "copy past the caches", "update in place"
READING = (READ, READ_APART)
"""Loops that write nothing."""


@dataclass(frozen=True)
class Peaks:
    """Of `threads` threads together: f32 operations a second (an fma is two); bytes a second that are read where
    nothing is written, from one end to the other or in several places; and bytes a second read and written by the
    fastest of a copy, one past the caches and an update in place."""

    threads: int
    flops: float
    read: float
    bytes: float

    def floor(self, read: int, moved: int) -> float:
        """Seconds that so many bytes take at least, of which some are read."""
        return max(read / self.read, moved / self.bytes)


@dataclass(frozen=True)
class Work:
    """What a run does at least: f32 operations in contractions (an fma is two), products of bytes added up in them, and
    bytes read, and read and written."""

    flops: int
    products: int
    read: int
    moved: int

    @property
    def bound(self) -> str:
        """What it waits for."""
        if self.flops + self.products <= FEW_OPERATIONS * self.moved:
            return MEMORY
        return FMA if self.flops >= self.products else INT8


def this_machine() -> Machine:
    """The widest machine that this host runs. Raises ReproError where it runs none."""
    found = cpu.best_machine()
    if found is None:
        raise ReproError("no cpu target runs on this host", exit_code=EXIT_INCOMPLETE)
    return found


def measure(machine: Machine, threads: int) -> Peaks:
    """The best of some repeats."""
    fma, loops = _fma_loop(machine, threads), _memory_loops(machine, threads)
    return Peaks(threads, fma.best(), *(max(loop.best() for loop in each) for each in loops))


def floor(machine: Machine, threads: int, work: Work) -> Callable[[], float]:
    """What measures, each time it is called, how many seconds the machine's own loops take now for the operations of a
    run; where memory bounds them, for its bytes."""
    if work.bound == MEMORY:
        loops = _memory_loops(machine, threads)

        def memory() -> float:
            rates = (max(loop.rate() for loop in each) for each in loops)
            return Peaks(threads, 0.0, *rates).floor(work.read, work.moved)

        return memory
    wanted = ((work.flops, _fma_loop), (work.products, _dot_loop))
    counts = [(count, loop(machine, threads)) for count, loop in wanted if count]
    return lambda: sum(count / loop.rate() for count, loop in counts)


class _Loop:
    """A loop that each of some threads runs over arrays of its own, and the `work` of one run of all of them."""

    def __init__(self, machine: Machine, text: str, turns: int, arrays: Sequence[Sequence[np.ndarray]], work: int):
        self.code = Code([toolchain.object_code(text, machine)])
        self.turns, self.arrays, self.work = turns, arrays, work
        self.tables = [np.array([array.ctypes.data for array in own], np.uint64) for own in arrays]
        self.pool = ThreadPoolExecutor(len(arrays))
        self._run(0)

    def _run(self, thread: int) -> None:
        self.code.enter(ctypes.c_void_p(self.tables[thread].ctypes.data), self.turns, 0)

    def rate(self) -> float:
        """Work a second, of one run."""
        start = time.perf_counter()
        list(self.pool.map(self._run, range(len(self.arrays))))
        return self.work / (time.perf_counter() - start)

    def best(self) -> float:
        return max(self.rate() for _ in range(REPEATS))


def _fma_loop(machine: Machine, threads: int) -> _Loop:
    chains, lanes = machine.registers - SPARE_REGISTERS, machine.vector_bits // 32
    results = [[np.zeros(lanes, np.float32)] for _ in range(threads)]
    return _Loop(machine, fma_loop(machine, chains), TURNS, results, 2 * chains * lanes * TURNS * threads)


def _dot_loop(machine: Machine, threads: int) -> _Loop:
    """With the instruction that the host has beyond its machine, if it has it."""
    of = machine.with_beyond if cpu.features(machine) else machine
    chains, lanes = machine.registers - SPARE_REGISTERS, machine.vector_bits // 32
    results = [[np.zeros(lanes, np.int32)] for _ in range(threads)]
    return _Loop(of, dot_loop(of, chains), TURNS, results, BYTES_OF_QUAD * chains * lanes * TURNS * threads)


def _memory_loops(machine: Machine, threads: int) -> tuple[list[_Loop], list[_Loop]]:
    """Those that write nothing, and the others."""
    arrays = [[_ones(BYTES // threads) for _ in range(2)] for _ in range(threads)]
    turns = BYTES // threads // (VECTORS * machine.vector_bits // 8)

    def loops(kinds: Sequence[str], work: int) -> list[_Loop]:
        return [_Loop(machine, memory_loop(machine, kind), turns, arrays, work) for kind in kinds]

    return loops(READING, BYTES), loops(moving(machine), 2 * BYTES)


def _ones(size: int) -> np.ndarray:
    made = aligned(size).view(np.float32)
    made[:] = 1
    return made


def moving(machine: Machine) -> tuple[str, ...]:
    """Loops that write as much as they read."""
    return (COPY, UPDATE, *([PAST_CACHES] if machine.fence else []))


def _loop(
    machine: Machine, before: Sequence[str], turn: Sequence[str], after: Sequence[str], declared: Sequence[str] = ()
) -> str:
    """A function with a program's signature: `thread` is the number of turns; %first and %second are what the context's
    addresses are."""
    return "\n".join(
        [
            f'target triple = "{machine.triple}"',
            f"declare {_vector(machine)} {_fma(machine)}({', '.join([_vector(machine)] * 3)})",
            *([f"declare void @{machine.fence}()"] if machine.fence else []),
            *declared,
            f"@{SCRATCH_SYMBOL} = constant i64 0",
            f"define i32 @{SYMBOL}(ptr %context, i64 %turns, i64 %unused) {machine.attributes} {{",
            "entry:",
            "  %first = load ptr, ptr %context",
            *before,
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *turn,
            "  %next = add i64 %i, 1",
            "  %more = icmp ult i64 %next, %turns",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *after,
            "  ret i32 0",
            "}",
            "!0 = !{i32 1}",
        ]
    )


def _vector(machine: Machine) -> str:
    return f"<{machine.vector_bits // 32} x float>"


def _fma(machine: Machine) -> str:
    return f"@llvm.fma.v{machine.vector_bits // 32}f32"


def _chains(machine: Machine, count: int) -> tuple[list[str], list[str]]:
    """The values that a loop carries from different starts, so that none is another's; and their sum, stored."""
    vector = _vector(machine)
    phis = [f"  %a{n} = phi {vector} [ splat (float {n}.0), %entry ], [ %b{n}, %loop ]" for n in range(count)]
    sums = [f"  %s{n + 1} = fadd {vector} %s{n}, %b{n}" for n in range(count)]
    return phis, [f"  %s0 = fadd {vector} %b0, %b0", *sums, f"  store {vector} %s{count}, ptr %first, align 4"]


def fma_loop(machine: Machine, chains: int) -> str:
    phis, stored = _chains(machine, chains)
    vector, call = _vector(machine), f"call {_vector(machine)} {_fma(machine)}"
    fmas = [f"  %b{n} = {call}({vector} %x, {vector} %x, {vector} %a{n})" for n in range(chains)]
    return _loop(machine, [f"  %x = load {vector}, ptr %first, align 4"], [*phis, *fmas], stored)


def dot_loop(machine: Machine, chains: int) -> str:
    """Byte dots of a vector that is loaded before, added to each chain."""
    f, lanes = Function(), machine.vector_bits // 32
    vector, x = f"<{lanes} x i32>", Val("%x", I32, lanes)
    totals = [quads.add_dot(f, machine, x, x, Val(f"%a{n}", I32, lanes)) for n in range(chains)]
    phis = [
        f"  %a{n} = phi {vector} [ splat (i32 {n}), %entry ], [ {total.text}, %loop ]" for n, total in enumerate(totals)
    ]
    whole = Function()
    total = totals[0]
    for number, each in enumerate(totals[1:]):
        whole.line(f"%t{number} = add {total.typed}, {each.text}")
        total = Val(f"%t{number}", I32, lanes)
    stored = [*whole.lines, f"  store {total.typed}, ptr %first, align 4"]
    return _loop(machine, [f"  %x = load {vector}, ptr %first, align 4"], [*phis, *f.lines], stored, tuple(f.declared))


def memory_loop(machine: Machine, kind: str) -> str:
    """What is read is added up where nothing else is done with it; an update adds one. Several places are parts of the
    array, one behind the other."""
    vector, size = _vector(machine), machine.vector_bits // 8
    phis, stored = _chains(machine, VECTORS) if kind in READING else ([], [])
    if kind == PAST_CACHES:
        stored = [f"  call void @{machine.fence}()"]
    tail = ", !nontemporal !0" if kind == PAST_CACHES else ""
    places = STREAMS if kind == READ_APART else 1
    beside = VECTORS // places
    turn = [*phis, f"  %at = mul i64 %i, {beside * size}", f"  %apart = mul i64 %turns, {beside * size}"]
    for n in range(VECTORS):
        place, vector_of = divmod(n, beside)
        turn += [
            f"  %s{n}.place = mul i64 %apart, {place}",
            f"  %s{n}.at = add i64 %at, %s{n}.place",
            f"  %o{n} = add i64 %s{n}.at, {vector_of * size}",
            f"  %p{n} = getelementptr i8, ptr %first, i64 %o{n}",
            f"  %v{n} = load {vector}, ptr %p{n}, align {size}",
        ]
    for n in range(VECTORS):
        if kind in READING:
            turn.append(f"  %b{n} = fadd {vector} %a{n}, %v{n}")
            continue
        if kind == UPDATE:
            turn.append(f"  %u{n} = fadd {vector} %v{n}, splat (float 1.0)")
        value, target = (f"%u{n}", "%first") if kind == UPDATE else (f"%v{n}", "%second")
        turn += [
            f"  %q{n} = getelementptr i8, ptr {target}, i64 %o{n}",
            f"  store {vector} {value}, ptr %q{n}, align {size}{tail}",
        ]
    before = ["  %slot = getelementptr i8, ptr %context, i64 8", "  %second = load ptr, ptr %slot"]
    return _loop(machine, [] if kind in (*READING, UPDATE) else before, turn, stored)
