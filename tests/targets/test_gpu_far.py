"""Places beyond 2^31 elements: what a thread adds in 32 bits must not wrap."""

from __future__ import annotations

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.expressions import Load, apply, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32, I8
from repro.machines import SM_80
from repro.targets.gpu import emit
from repro.targets.gpu.interpreter.grid import launch
from repro.targets.gpu.interpreter.memory import Window
from repro.targets.gpu.separation import separate

ROWS, APART = 5, 1 << 29


@pytest.mark.parametrize("size", [8, 7])
def test_rows_far_apart(size: int) -> None:
    """Rows of 2^29 bytes, the last of which begins at 2^31; of the buffer what is touched takes memory."""
    i, j = ix.axis(0, ROWS), ix.axis(1, size)
    place = ix.add(ix.scale(i, APART), j)
    elements = (ROWS - 1) * APART + size
    value = apply("add", load(I8, 0, place), load(I8, 0, place))
    buffers = (BufferParameter(I8, elements, False), BufferParameter(I8, ROWS * size, True))
    kernel = Kernel(buffers, (), (i, j), 0, (Store(1, ix.linear((i, j), (ROWS, size)), value),))
    x = np.zeros(elements, np.int8)
    for row in range(ROWS):
        x[row * APART : row * APART + size] = np.arange(size) + 10 * row
    wanted = (2 * (np.arange(size) + 10 * np.arange(ROWS)[:, None])).astype(np.int8)
    code, found = emit(kernel, SM_80), np.zeros(ROWS * size, np.int8)
    for each in code.launches:
        launch(code.ptx, each, [Window("x", x.view(np.uint8), writable=False), Window("y", found.view(np.uint8))])
    assert found.reshape(ROWS, size).tolist() == wanted.tolist()


@pytest.mark.parametrize(("rows", "narrow"), [(1 << 30, True), ((1 << 30) + 1, False)])
def test_lines_beyond_32_bits_are_no_part_of_their_own(rows: int, narrow: bool) -> None:
    """A copy adds a line's part in 32 bits, signed; where the last line's has more, the operand is evaluated."""
    line, term = ix.axis(0, rows), ix.axis(1, 2)
    term_load = load(F32, 0, ix.add(ix.scale(line, 2), term))
    assert isinstance(term_load, Load)
    assert (separate(term_load, None, (line,), (term,)) is not None) is narrow
