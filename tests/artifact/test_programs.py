from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from repro.ir import index as ix
from repro.ir.expressions import load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.parse_program import parse_program, parse_schedule
from repro.ir.program import (
    INPUT,
    LOCAL,
    OUTPUT,
    PARAMETER,
    TEMPORARY,
    Branch,
    Buffer,
    Call,
    Commit,
    CountedLoop,
    Program,
    RowBlocks,
    While,
)
from repro.ir.schedule import ContractionTile, Schedule
from repro.ir.types import BOOL, F32

AXIS = ix.axis(0, 8)
COPY = Kernel(
    (BufferParameter(F32, 8, False), BufferParameter(F32, 8, True)),
    (),
    (AXIS,),
    0,
    (Store(1, AXIS, load(F32, 0, AXIS)),),
)
CALL = Call(0, (0, 1))
BUFFERS = (
    Buffer(F32, 8, INPUT, 0),
    Buffer(F32, 8, OUTPUT, 0),
    Buffer(F32, 8, PARAMETER, 0),
    Buffer(BOOL, 1, TEMPORARY, 64),
    Buffer(F32, 8, LOCAL, 0),
)
TREE = (
    CALL,
    CountedLoop(5, (CountedLoop(2, (Call(0, (1, 0), (1, 0)),)), CALL)),
    Branch(3, (CALL, Branch(3, (), (CALL,))), (While(3, 7, (CALL,)),)),
    RowBlocks((3, 4), (CALL, Call(0, (1, 4), (0, 1)))),
    Commit(3, (CALL, Commit(None, (CALL,)))),
)
PROGRAM = Program((COPY,), BUFFERS, (b"constant",), TREE, 128, 64)


def kernel(digest: str) -> Kernel:
    return {f"sha256:{COPY.digest}": COPY}[digest]


def constant(digest: str) -> bytes:
    return {"sha256:" + hashlib.sha256(b"constant").hexdigest(): b"constant"}[digest]


def test_text_reads_back() -> None:
    again = parse_program(PROGRAM.text, kernel, constant)
    assert again.text == PROGRAM.text
    assert (again.steps, again.buffers, again.kernels) == (PROGRAM.steps, PROGRAM.buffers, PROGRAM.kernels)
    assert (again.constants, again.arena_bytes, again.local_bytes, again.most_bytes) == ((b"constant",), 128, 64, None)


def test_the_memory_that_was_asked_for_reads_back() -> None:
    asked = replace(PROGRAM, most_bytes=0)
    again = parse_program(asked.text, kernel, constant)
    assert (again.most_bytes, again.digest) == (0, asked.digest)
    assert asked.digest != PROGRAM.digest


@pytest.mark.parametrize("line", range(len(PROGRAM.text.splitlines())))
def test_a_missing_line_is_noticed(line: int) -> None:
    lines = PROGRAM.text.splitlines()
    damaged = "\n".join(lines[:line] + lines[line + 1 :])
    try:
        again = parse_program(damaged, kernel, constant)
    except ValueError:
        return
    assert again.text != PROGRAM.text


@pytest.mark.parametrize(
    "text", ["", "program", "program arena=x {\n}", "program arena=0 {", "program arena=0 {\n  what\n}"]
)
def test_what_is_no_program(text: str) -> None:
    with pytest.raises(ValueError, match="parse"):
        parse_program(text, kernel, constant)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(None, 1, 1),
        Schedule(2, 16, 8192),
        Schedule(2, 16, 128, None, (), 8),
        Schedule(2, 16, 128, None, (0, 1), 4),
        Schedule(None, 16, 1, ContractionTile(14, 2, 448, 256)),
        Schedule(None, 4, 1, ContractionTile(8, 3, 32, 12, 2)),
    ],
    ids=lambda schedule: schedule.text,
)
def test_a_schedule_reads_back(schedule: Schedule) -> None:
    assert parse_schedule(schedule.text) == schedule


@pytest.mark.parametrize("text", ["", "axis=1", "axis=1 width=2 block=x", "axis=1 width=2 block=3 tile=1x2"])
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ValueError, match=r"schedule|invalid"):
        parse_schedule(text)
