"""On a chip with few f64 units functions take their f32 roads, and give the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.expressions import Apply, Exact, Expr, Lanes, Rarely, apply, const, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32, F64, Array
from repro.machines import GRAPHICS, SM_80
from repro.numerics.elementary import FUNCTIONS, single
from repro.targets.gpu import emit
from repro.targets.gpu.floor import commonly
from repro.targets.gpu.roads import suited
from tests.targets.on_gpu import check_gpu

SIZE = 4096


def elementwise(function: Callable[[Expr], Expr], size: int = SIZE) -> Kernel:
    i = ix.axis(0, size)
    buffers = (BufferParameter(F32, size, False), BufferParameter(F32, size, True))
    return Kernel(buffers, (), (i,), 0, (Store(1, i, function(load(F32, 0, i))),))


def arguments(size: int = SIZE) -> Array:
    """Common magnitudes, and bit patterns over all exponents: subnormal, infinite, not a number."""
    generator = np.random.default_rng(5)
    common = generator.standard_normal(size // 2).astype(np.float32) * np.float32(4)
    patterns = generator.integers(0, 1 << 32, size - common.size, dtype=np.uint32).view(np.float32)
    return np.concatenate([common, patterns])


def gelu(x: Expr) -> Expr:
    """x / 2 (1 + erf(x / 2)): a function inside of an expression."""
    half = const(F32, 0x3F000000)
    return apply(
        "mul", apply("mul", x, half), apply("add", const(F32, 0x3F800000), FUNCTIONS["erf"](apply("mul", x, half)))
    )


CASES = {**{name: FUNCTIONS[name] for name in single.SEQUENCES}, "gelu": gelu,
         "nested": lambda x: FUNCTIONS["tanh"](FUNCTIONS["exp"](x))}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_the_second_road_gives_the_same_bits(name: str) -> None:
    kernel = elementwise(CASES[name])
    changed = suited(kernel, GRAPHICS)
    assert not any(isinstance(e, Apply) and e.dtype is F64 for e in commonly(changed)), "f64 only where it is seldom"
    check_gpu(kernel, [arguments(), np.zeros(SIZE, np.float32)], emit(kernel, GRAPHICS))


def test_a_row_kernel_takes_it_too() -> None:
    """The sum of e^(x - max) over rows, and each term over the sum."""
    rows, size = 8, 96
    i, j, q, p = ix.axis(0, rows), ix.axis(1, size), ix.axis(2, size), ix.axis(3, size)
    highest = reduce("max", Exact(), [p], [load(F32, 0, ix.linear((i, p), (rows, size)))])

    def term(at) -> Expr:
        return FUNCTIONS["exp"](apply("sub", load(F32, 0, ix.linear((i, at), (rows, size))), highest))

    total = reduce("add", Lanes(32, 4096), [q], [term(q)])
    store = Store(1, ix.linear((i, j), (rows, size)), apply("div", term(j), total))
    buffers = (BufferParameter(F32, rows * size, False), BufferParameter(F32, rows * size, True))
    kernel = Kernel(buffers, (), (i, j), 0, (store,))
    assert any(isinstance(e, Rarely) for e in suited(kernel, GRAPHICS).expressions)
    given = np.random.default_rng(2).standard_normal(rows * size).astype(np.float32) * np.float32(9)
    check_gpu(kernel, [given, np.zeros(rows * size, np.float32)], emit(kernel, GRAPHICS))


def test_a_chip_with_many_f64_units_keeps_the_first_road() -> None:
    kernel = elementwise(FUNCTIONS["exp"])
    assert suited(kernel, SM_80) is kernel
    plain = elementwise(lambda x: apply("add", x, x))
    assert suited(plain, GRAPHICS) is plain, "nothing in f64, nothing to do"
