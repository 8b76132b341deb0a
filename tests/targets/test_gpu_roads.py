"""Functions take the road that is counted to be the shortest on the chip, and give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import proofs.roads
from repro.ir import index as ix
from repro.ir.expressions import Apply, Exact, Expr, Lanes, Rarely, apply, const, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32, F64, Array
from repro.machines import GRAPHICS, SM_80
from repro.numerics.elementary import FUNCTIONS, rows, single, tabled
from repro.numerics.elementary.value import Value
from repro.targets.gpu import emit
from repro.targets.gpu.floor import commonly
from repro.targets.gpu.roads import OTHERS, cycles, suited
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


FEW_ROWS = replace(GRAPHICS, near_bytes=1)
"""A chip whose cache gives a warp a row in thousands of cycles."""
MACHINES = {"SM_80": SM_80, "GRAPHICS": GRAPHICS, "FEW_ROWS": FEW_ROWS}


@pytest.mark.parametrize("machine", list(MACHINES))
@pytest.mark.parametrize("name", list(CASES))
def test_another_road_gives_the_same_bits(name: str, machine: str) -> None:
    kernel, chip = elementwise(CASES[name]), MACHINES[machine]
    changed = suited(kernel, chip)
    double = any(isinstance(e, Apply) and e.dtype is F64 for e in commonly(changed))
    assert double == (chip is SM_80 and name in ("exp", "nested")), "f64 only where it is seldom, or as short"
    check_gpu(kernel, [arguments(), np.zeros(SIZE, np.float32)], emit(kernel, chip))


def test_a_row_kernel_takes_it_too() -> None:
    """The sum of e^(x - max) over rows, and each term over the sum."""
    lines, size = 8, 96
    i, j, q, p = ix.axis(0, lines), ix.axis(1, size), ix.axis(2, size), ix.axis(3, size)
    highest = reduce("max", Exact(), [p], [load(F32, 0, ix.linear((i, p), (lines, size)))])

    def term(at) -> Expr:
        return FUNCTIONS["exp"](apply("sub", load(F32, 0, ix.linear((i, at), (lines, size))), highest))

    total = reduce("add", Lanes(32, 4096), [q], [term(q)])
    store = Store(1, ix.linear((i, j), (lines, size)), apply("div", term(j), total))
    buffers = (BufferParameter(F32, lines * size, False), BufferParameter(F32, lines * size, True))
    kernel = Kernel(buffers, (), (i, j), 0, (store,))
    assert any(isinstance(e, Rarely) for e in suited(kernel, GRAPHICS).expressions)
    given = np.random.default_rng(2).standard_normal(lines * size).astype(np.float32) * np.float32(9)
    check_gpu(kernel, [given, np.zeros(lines * size, np.float32)], emit(kernel, GRAPHICS))


ROADS = {
    "SM_80": (SM_80, {"tanh": rows.tanh, "erf": rows.erf}),
    "GRAPHICS": (GRAPHICS, {"exp": tabled.ROADS[32]["exp"], "tanh": rows.tanh, "erf": rows.erf}),
    "FEW_ROWS": (FEW_ROWS, {"exp": single.exp, "tanh": single.tanh, "erf": rows.erf}),
    "few rows, fast f64": (replace(SM_80, near_bytes=1, f64_cost=1), {"erf": rows.erf}),
}
"""By machine the road of each function, but where no other takes two thirds of the first at most."""


@pytest.mark.parametrize("name", list(OTHERS))
@pytest.mark.parametrize("machine", list(ROADS))
def test_the_shortest_road_is_taken(machine: str, name: str) -> None:
    kernel = elementwise(FUNCTIONS[name])
    chip, roads = ROADS[machine]
    found = suited(kernel, chip)
    if name not in roads:
        assert found is kernel
        return
    (store,), operand = found.stores, load(F32, 0, kernel.axes[0])
    assert store.value is roads[name](Value(operand)).expr
    every = [FUNCTIONS[name](operand), *(other(Value(operand)).expr for other in OTHERS[name].values())]
    assert cycles(store.value, chip) == min(cycles(each, chip) for each in every)


def test_every_road_is_proven() -> None:
    """For all inputs: it is one of those that `proofs.roads` tries."""
    operand = load(F32, 0, ix.axis(0, 1))
    proven = {road.of(operand) for road in proofs.roads.ROADS.values()}
    assert {other(Value(operand)).expr for others in OTHERS.values() for other in others.values()} <= proven


def test_nothing_in_f64_is_left_as_it_is() -> None:
    plain = elementwise(lambda x: apply("add", x, x))
    assert suited(plain, GRAPHICS) is plain
