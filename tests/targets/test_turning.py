"""Kernels that read across the run they write: squares in registers move every element to its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from passes import streams
from passes.lower import lower
from passes.schedule import schedule
from passes.squares import crossed
from repro.ir.graph import Graph, Value, argument
from repro.ir.schedule import Schedule
from repro.ir.types import BOOL, CANONICAL_NAN, F16, F32, F64, I8, I32, U8, TensorType
from repro.machines import CPUS, X86_64_V4, Machine
from repro.machines.machine import LINE_BYTES
from repro.ops import add, canonical_nan, convert_to, slice_, transpose
from repro.ops.record import evaluate
from repro.runtime.buffers import PROMISED, aligned
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm.meetings import rows_of
from tests.targets.native import HERE, executable

Build = Callable[[Value], Value]


def _sum_of_both(x: Value) -> Value:
    return add(transpose(x, (1, 0)), slice_(x, (0, 0), (x.shape[1], x.shape[0])))


CASES: dict[str, tuple[TensorType, Build]] = {
    "whole squares": (TensorType(F32, (64, 128)), lambda x: transpose(x, (1, 0))),
    "long lines": (TensorType(F32, (32, 600)), lambda x: transpose(x, (1, 0))),
    "ends reach back": (TensorType(F32, (83, 139)), lambda x: transpose(x, (1, 0))),
    "one square": (TensorType(F32, (16, 8)), lambda x: transpose(x, (1, 0))),
    "integers in batches": (TensorType(I32, (3, 70, 21)), lambda x: transpose(x, (0, 2, 1))),
    "less than a line": (TensorType(F32, (11, 40)), lambda x: transpose(x, (1, 0))),
    "bytes of less than a line": (TensorType(U8, (49, 32)), lambda x: transpose(x, (1, 0))),
    "of 64 bits": (TensorType(F64, (19, 70)), lambda x: transpose(x, (1, 0))),
    "of 16 bits": (TensorType(F16, (83, 139)), lambda x: transpose(x, (1, 0))),
    "bytes": (TensorType(I8, (2, 70, 83)), lambda x: transpose(x, (0, 2, 1))),
    "bytes that become floats": (TensorType(U8, (100, 70)), lambda x: convert_to(transpose(x, (1, 0)), F32)),
    "channels last": (TensorType(F32, (2, 20, 9, 11)), lambda x: transpose(x, (0, 2, 3, 1))),
    "an axis between": (TensorType(F32, (18, 5, 33)), lambda x: transpose(x, (2, 1, 0))),
    "one of two loads": (TensorType(F32, (40, 40)), _sum_of_both),
}


def _kernel(name: str):
    kind, build = CASES[name]
    graph = Graph((kind,), (build(argument(0, kind)),))
    program = lower(graph)
    assert len(program.kernels) == 1
    return graph, program


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_squares_give_the_references_bits(name: str, machine: Machine, threads: int) -> None:
    graph, program = _kernel(name)
    chosen = schedule(program.kernels[0], machine)
    assert crossed(program.kernels[0], chosen) is not None
    kind = graph.arguments[0]
    given = np.arange(kind.elements, dtype=kind.dtype.storage).reshape(kind.shape)
    runner = executable(program, machine, [chosen], threads)
    [found] = runner.run([given])
    runner.close()
    assert found.tobytes() == evaluate(graph, [given])[0].tobytes()


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", ["whole squares", "long lines", "ends reach back"])
def test_squares_are_written_past_the_caches(name: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMED_BYTES", 1)
    graph, program = _kernel(name)
    chosen = schedule(program.kernels[0], machine)
    assert ("llvm.prefetch" in kernels.emit(program.kernels[0], chosen, machine)) == (machine.fence != "")
    kind = graph.arguments[0]
    given = np.arange(kind.elements, dtype=np.float32).reshape(kind.shape)
    runner = executable(program, machine, [chosen])
    [found] = runner.run([given])
    runner.close()
    assert found.tobytes() == evaluate(graph, [given])[0].tobytes()


def test_what_is_no_square_is_left_alone() -> None:
    _, program = _kernel("whole squares")
    kernel, along = program.kernels[0], Schedule(1, 8, 64)
    found = crossed(kernel, along)
    assert found is not None and found.axis is kernel.axes[0]
    assert crossed(kernel, replace(along, vector_width=1)) is None
    assert crossed(kernel, replace(along, vector_axis=None)) is None
    assert crossed(kernel, Schedule(0, 8, 64)) is None, "that axis is read side by side, and written apart"
    for kind in (
        TensorType(BOOL, (64, 64)),
        TensorType(F32, (64, 7)),
        TensorType(F32, (7, 64)),
        TensorType(U8, (15, 64)),
    ):
        graph = Graph((kind,), (transpose(argument(0, kind), (1, 0)),))
        assert crossed(lower(graph).kernels[0], along) is None


@pytest.mark.parametrize("name", CASES)
def test_squares_are_no_rows_of_their_vector_axis(name: str) -> None:
    """Threads that share squares out have rows alone of an axis outside them."""
    outside = {"integers in batches": 3, "bytes": 2, "channels last": 2, "an axis between": 5}
    _, program = _kernel(name)
    (kernel,) = program.kernels
    found = rows_of(kernel, schedule(kernel, HERE[0]))
    assert (None if found is None else found.count) == outside.get(name)


LONG = {
    "whole rows of lines": (TensorType(F32, (80, 512)), (1, 0)),
    "a last square that reaches back": (TensorType(F64, (24, 328)), (1, 0)),
    "batches": (TensorType(I32, (3, 33, 272)), (0, 2, 1)),
    "an axis between": (TensorType(F32, (40, 3, 336)), (2, 1, 0)),
    "rows that begin anywhere in lines": (TensorType(F32, (40, 301)), (1, 0)),
    "vectors as buffers are aligned": (TensorType(U8, (64, 512)), (1, 0)),
}


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", LONG)
def test_lines_may_begin_anywhere_in_a_row(name: str, threads: int, machine: Machine) -> None:
    """Wherever the caller's array lies, vectors are read from a line's begin on, and no element is left out."""
    kind, permutation = LONG[name]
    program = lower(Graph((kind,), (transpose(argument(0, kind), permutation),)))
    chosen = schedule(program.kernels[0], machine)
    assert crossed(program.kernels[0], chosen) is not None
    text = kernels.emit(program.kernels[0], chosen, machine)
    assert ("ptrtoint" in text) == (name not in ("rows that begin anywhere in lines", "vectors as buffers are aligned"))
    given = np.random.default_rng(5).integers(1, 256, kind.shape).astype(kind.dtype.storage)
    runner = executable(program, machine, [chosen], threads)
    for behind in range(0, LINE_BYTES, PROMISED):
        memory = aligned(given.nbytes + LINE_BYTES)[behind : behind + given.nbytes]
        memory[:] = given.reshape(-1).view(np.uint8)
        [found] = runner.run([memory.view(kind.dtype.storage)])
        assert found.tobytes() == given.transpose(permutation).tobytes(), behind
    runner.close()


@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda machine: machine.name)
@pytest.mark.parametrize(("rows", "past"), [(1024, True), (1040, False), (512, False)])
def test_lines_of_one_set_are_written_past_the_caches(machine: Machine, rows: int, past: bool) -> None:
    """Rows of 4 KiB apart, where a square has more of them than a set of the nearest cache has room for."""
    kind = TensorType(F32, (rows, 256))
    program = lower(Graph((kind,), (transpose(argument(0, kind), (1, 0)),)))
    chosen = schedule(program.kernels[0], machine)
    found = crossed(program.kernels[0], chosen)
    assert found is not None
    many = found.side_on(machine) > machine.l1_ways
    text = kernels.emit(program.kernels[0], chosen, machine)
    assert ("!nontemporal" in text) == (past and many and machine.fence != "")
    assert many == (machine.vector_bits == 512)
    if machine in HERE:
        given = np.arange(kind.elements, dtype=np.float32).reshape(kind.shape)
        runner = executable(program, machine, [chosen])
        [written] = runner.run([given])
        runner.close()
        assert written.tobytes() == given.T.tobytes()


def test_what_the_caches_hold_stays_in_them() -> None:
    kind = TensorType(F32, (1024, 64))
    program = lower(Graph((kind,), (transpose(argument(0, kind), (1, 0)),)))
    assert "!nontemporal" not in kernels.emit(program.kernels[0], schedule(program.kernels[0], X86_64_V4), X86_64_V4)


@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda machine: machine.name)
@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (TensorType(F32, (4, 64, 1568)), "always"),
        (TensorType(F32, (2, 64, 4096)), "of whole lines"),
        (TensorType(F64, (64, 2048)), "always"),
        (TensorType(F32, (1, 64, 800)), "never"),
    ],
    ids=["rows in many sets", "rows that share a set", "lines that are read at once", "in the second-level cache"],
)
def test_lines_of_many_pages_are_asked_for(kind: TensorType, asked: str, machine: Machine) -> None:
    """What comes from beyond the second-level cache, where it stays near until all of it was taken."""
    last = kind.rank - 1
    program = lower(Graph((kind,), (transpose(argument(0, kind), (*range(last - 1), last, last - 1)),)))
    chosen = schedule(program.kernels[0], machine)
    found = crossed(program.kernels[0], chosen)
    assert found is not None
    whole = found.side_on(machine) * kind.dtype.bytes >= LINE_BYTES
    beyond = 2 * kind.elements * kind.dtype.bytes >= machine.l2_bytes
    expected = beyond and (asked == "always" or (asked == "of whole lines" and whole))
    assert ("llvm.prefetch" in kernels.emit(program.kernels[0], chosen, machine)) == expected


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
def test_every_nan_of_a_square_becomes_the_canonical_one(machine: Machine) -> None:
    """Wherever it stands: registers of a square are asked together."""
    kind = TensorType(F32, (32, 48))
    program = lower(Graph((kind,), (canonical_nan(transpose(argument(0, kind), (1, 0))),)))
    assert len(program.kernels) == 1 and crossed(program.kernels[0], schedule(program.kernels[0], machine)) is not None
    runner = executable(program, machine, [schedule(program.kernels[0], machine)])
    for place in range(0, kind.elements, 5):
        bits = np.arange(kind.elements, dtype=np.uint32)
        bits[place] = 0xFF800123
        [found] = runner.run([bits.view(np.float32)])
        bits[place] = CANONICAL_NAN[F32]
        assert found.tobytes() == bits.reshape(kind.shape).T.tobytes(), place
    runner.close()
