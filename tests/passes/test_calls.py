"""Kernels that passes make: what would store outside of its buffers is refused before it is code."""

from __future__ import annotations

import pytest

from passes.calls import Called, call_of, checked
from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Expr, Scalar, const, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import OUTPUT, Buffer
from repro.ir.types import F32, I64

ROW, COLUMN = ix.axis(0, 5), ix.axis(1, 4)
BUFFERS = (Buffer(F32, 20, OUTPUT, 0),)
PLACE = ix.linear((ROW, COLUMN), (5, 4))


@pytest.mark.parametrize("offset", [PLACE, ix.floordiv(ix.add(PLACE, ix.number(2)), 2)])
def test_a_store_inside_its_buffer(offset: Expr) -> None:
    kernels = list[Kernel]()
    call_of(Called((ROW, COLUMN), (Store(0, offset, const(F32, 0)),)), kernels, BUFFERS)
    assert len(kernels) == 1


def test_a_store_of_a_loop_without_iterations() -> None:
    """Backwards from the last row, of which there is none."""
    row = ix.scale(ix.add(ix.number(-1), ix.scale(Scalar(I64, (0, 0), ()), -1)), 4)
    kernel = Kernel(
        (BufferParameter(F32, 0, True),), (0,), (COLUMN,), 0, (Store(0, ix.add(row, COLUMN), const(F32, 0)),)
    )
    assert checked(kernel) is kernel


@pytest.mark.parametrize(("by", "ends"), [(1, "1 to 20"), (-3, "-3 to 16")])
def test_a_store_outside_of_its_buffer(by: int, ends: str) -> None:
    store = Store(0, ix.add(PLACE, ix.number(by)), const(F32, 0))
    with pytest.raises(InternalError, match=f"elements {ends} of 20"):
        call_of(Called((ROW, COLUMN), (store,)), [], BUFFERS)


def test_an_axis_that_the_kernel_has_not() -> None:
    with pytest.raises(InternalError, match="has not"):
        call_of(Called((ROW,), (Store(0, ROW, load(F32, 0, COLUMN)),)), [], BUFFERS)
