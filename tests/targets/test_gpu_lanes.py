"""What is seldom in one of a thread's lanes is computed for that lane alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.expressions import Expr, apply, const, load, rarely
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32, Array
from repro.machines import SM_80
from repro.numerics.elementary import FUNCTIONS
from repro.targets.gpu import emit
from tests.targets.on_gpu import check_gpu
from tests.targets.test_gpu_roads import elementwise

SIZE = 512


def negative(x: Expr) -> Expr:
    return apply("lt", x, const(F32, 0))


def nested(x: Expr, _y: Expr) -> Expr:
    """Of what is seldom a part is so once more; both sides need the square."""
    square = apply("mul", x, x)
    inner = rarely(apply("lt", x, const(F32, 0xBF800000)), apply("sqrt", square), apply("div", square, x))
    return rarely(negative(x), apply("add", inner, square), square)


CASES: dict[str, Callable[[Expr, Expr], Expr]] = {
    "a division": lambda x, y: rarely(negative(x), apply("div", y, x), y),
    "a load": lambda x, y: rarely(negative(x), apply("sub", x, y), x),
    "nested": nested,
    "the same for all lanes": lambda x, y: rarely(negative(x), const(F32, 0x40000000), y),
    "two of them": lambda x, y: apply("add", rarely(negative(x), apply("sqrt", y), x), rarely(negative(y), x, y)),
}
GIVEN = {
    "none": lambda drawn: np.abs(drawn),
    "one": lambda drawn: np.where(np.arange(SIZE) == 333, -np.abs(drawn), np.abs(drawn)),
    "some": lambda drawn: drawn,
    "all": lambda drawn: -np.abs(drawn),
}  # fmt: skip


def kernel_of(value: Callable[[Expr, Expr], Expr], size: int = SIZE) -> Kernel:
    i = ix.axis(0, size)
    buffers = tuple(BufferParameter(F32, size, number == 2) for number in range(3))
    return Kernel(buffers, (), (i,), 0, (Store(2, i, value(load(F32, 0, i), load(F32, 1, i))),))


def drawn(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)


@pytest.mark.parametrize("given", list(GIVEN))
@pytest.mark.parametrize("name", list(CASES))
def test_lanes_that_need_it(name: str, given: str) -> None:
    code = check_gpu(kernel_of(CASES[name]), [GIVEN[given](drawn(1)), drawn(2), np.zeros(SIZE, np.float32)])
    assert "width=4" in code.schedule


def test_each_lane_has_a_branch_behind_that_of_all() -> None:
    """erf's first road, in f64, on the seldom side of the one that it takes: a thread runs it for no lane that does
    without."""
    code = emit(elementwise(FUNCTIONS["erf"], SIZE), SM_80)
    parts = re.split(r"@%p\d+ bra", code.ptx)
    counts = [part.count("fma.rn.f64") for part in parts]
    first = next(number for number, count in enumerate(counts) if count)
    assert first >= 2, "one branch for all lanes, another for the first of them"
    assert sum(count > 0 for count in counts) == 4 and len({count for count in counts if count}) == 1
