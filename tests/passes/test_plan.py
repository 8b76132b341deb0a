"""Lifetimes in the arena: what a loop fills row by row shares bytes with nothing of the loop."""

from __future__ import annotations

import numpy as np
import pytest

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


def lowest(size: int, first: int, last: int, placed: list[tuple[int, int, int, int]]) -> int:
    """The lowest offset, by trying 0 and the end of everything that lives at the time."""
    alive = [(start, end) for start, end, begins, ends in placed if begins <= last and ends >= first]
    tried = sorted({0, *(end for _, end in alive)})
    return next(at for at in tried if all(end <= at or at + size <= start for start, end in alive))


@pytest.mark.parametrize("longest", [3, 40, 200])
def test_each_takes_the_lowest_offset_that_is_free_while_it_lives(longest: int) -> None:
    """Calls of two buffers each, whose lives follow from them, of few sizes and of many."""
    draw = np.random.default_rng(longest)
    for sizes in (3, 400):
        count, placed = 120, list[tuple[int, int, int, int]]()
        buffers = tuple(Buffer(F32, int(size), TEMPORARY, 0) for size in 16 * draw.integers(1, sizes, count))
        first = draw.integers(1, 200, count)
        last = first + draw.integers(0, longest, count)
        touched = [tuple(np.flatnonzero((first == at) | (last == at)).tolist()) for at in range(1, int(last.max()) + 1)]
        planned, arena = plan(buffers, tuple(Call(0, numbers) for numbers in touched))
        for number in sorted(range(count), key=lambda n: (-buffers[n].nbytes, n)):
            size, lives = buffers[number].nbytes, (int(first[number]), int(last[number]))
            at = lowest(size, *lives, placed)
            assert planned[number].position == at
            placed.append((at, at + size, *lives))
        assert arena == max(end for _, end, _, _ in placed)
