"""Instructions that keep threads apart, deleted one at a time from the emitter's own code: each loss is noticed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Lanes, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32
from repro.machines import SM_80
from repro.targets.gpu import emit
from tests.targets.native import same
from tests.targets.on_gpu import run_gpu
from tests.targets.test_contraction_tiles import convolution, filled, matmul

ORDERING = re.compile(r"^\s*(?:@!?%p\d+ )?(?:bar\.|cp\.async\.(?:commit|wait)_|shfl\.sync)[^;]*;$", re.MULTILINE)
SHUFFLE = re.compile(r"(shfl\.sync\.bfly\.b32[^,]*, %r\d+, )(\d+)")


def row_sums(rows: int, columns: int) -> Kernel:
    r, k = ix.axis(0, rows), ix.axis(1, columns)
    value = reduce("add", Lanes(32, 4096), [k], [load(F32, 0, ix.add(ix.scale(r, columns), k))])
    buffers = (BufferParameter(F32, rows * columns, False), BufferParameter(F32, rows, True))
    return Kernel(buffers, (), (r,), 0, (Store(1, r, value),))


KERNELS: dict[str, Kernel] = {
    "matmul": matmul(70, 68, 1100, bias=True),
    "convolution": convolution(
        images=4, channels=8, size=14, filters=20, taps=3, stride=1, pad=1, pixels_are_rows=True
    ),
    "rows": row_sums(5, 9000),
    "short rows": row_sums(300, 200),
}


def missed(name: str, mutants: Iterator[str]) -> tuple[int, list[str]]:
    """(mutants, those whose run is neither refused nor of other bits)."""
    kernel = KERNELS[name]
    code, arrays = emit(kernel, SM_80), filled(kernel)
    wanted = run_gpu(kernel, code, arrays)
    kept: list[str] = []
    count = 0
    for count, ptx in enumerate(mutants, 1):  # noqa: B007
        try:
            found = run_gpu(kernel, replace(code, ptx=ptx), arrays)
        except InternalError:
            continue
        if all(same(b.dtype, x, y) for b, x, y in zip(kernel.buffers, found, wanted, strict=True)):
            kept.append(ptx)
    return count, kept


def without_ordering(ptx: str) -> Iterator[str]:
    for place in ORDERING.finditer(ptx):
        yield ptx[: place.start()] + ptx[place.end() :]


def with_other_lanes(ptx: str) -> Iterator[str]:
    """A shuffle takes the value of a lane that is twice, or half, as far away."""
    for place in SHUFFLE.finditer(ptx):
        distance = int(place[2])
        yield ptx[: place.start(2)] + str(distance * 2 if distance < 16 else 8) + ptx[place.end(2) :]


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_that_orders_threads_may_go(name: str) -> None:
    count, kept = missed(name, without_ordering(emit(KERNELS[name], SM_80).ptx))
    assert count >= 4
    assert not kept


@pytest.mark.parametrize("name", ["rows", "short rows"])
def test_lanes_fold_in_the_contracts_order(name: str) -> None:
    count, kept = missed(name, with_other_lanes(emit(KERNELS[name], SM_80).ptx))
    assert count == 5
    assert not kept
