"""Lifetimes in the arena: what a loop fills row by row shares bytes with nothing of the loop."""

from __future__ import annotations

from passes.plan import plan
from repro.ir.program import TEMPORARY, Buffer, Call, CountedLoop
from repro.ir.types import F32

SCRATCH, ROWS, RESULT = 0, 1, 2


def test_rows_written_late_in_a_loop_are_kept_from_its_start() -> None:
    buffers = tuple(Buffer(F32, elements, TEMPORARY, 0) for elements in (64, 32, 32))
    body = (Call(0, (SCRATCH,)), Call(1, (SCRATCH, RESULT)), Call(2, (RESULT, ROWS)))
    planned, arena = plan(buffers, (CountedLoop(8, body), Call(3, (ROWS,))))
    spans = [range(b.position, b.position + b.nbytes) for b in planned]
    rows = spans[ROWS]
    for other in (spans[SCRATCH], spans[RESULT]):
        assert rows.start >= other.stop or other.start >= rows.stop
    assert arena == sum(b.nbytes for b in buffers)


def test_scratch_of_an_iteration_is_shared_within_it() -> None:
    buffers = tuple(Buffer(F32, 32, TEMPORARY, 0) for _ in range(2))
    planned, arena = plan(buffers, (CountedLoop(8, (Call(0, (0,)), Call(1, (0,)), Call(2, (1,)))),))
    assert planned[0].position == planned[1].position == 0
    assert arena == buffers[0].nbytes
