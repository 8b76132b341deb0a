"""On CPUs with permutes functions take their roads by tables, and give the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from passes.schedule import schedule
from proofs import records
from proofs import roads as proven
from proofs.native import elementwise_kernel
from repro.ir import index as ix
from repro.ir.expressions import Exact, Expr, Lanes, Rarely, apply, const, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import Schedule
from repro.ir.types import F32, Array
from repro.machines import AARCH64, CPUS, X86_64_V3, X86_64_V4, Machine
from repro.numerics import interpret
from repro.numerics.elementary import FUNCTIONS, evaluate, quotients, tabled
from repro.numerics.elementary.value import Value
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm.roads import entries, roads
from tests.goldens.qemu import missing_tools
from tests.reference import reference
from tests.targets.native import HERE, run_kernel

MACHINES = [
    pytest.param(machine, id=machine.name, marks=pytest.mark.skipif(
        machine not in HERE and (machine is not AARCH64 or bool(missing_tools())), reason="this host does not run it",
    ))
    for machine in CPUS.values()
]  # fmt: skip
ON_EVERY = pytest.mark.parametrize("machine", MACHINES)
OF = {name: FUNCTIONS[name] for name in sorted({name for known in tabled.ROADS.values() for name in known})} | {
    f"{name}.quotient": lambda x, name=name: FUNCTIONS[name](quotients.quotient(x)) for name in quotients.LEAVING
}
"""Functions that have roads by tables."""
EXTENT = 1024


def hard(name: str) -> Array:
    """The arguments of the proof's record."""
    name, _, quotient = name.partition(".")
    bits = np.array([int(word, 16) for word, _ in records.read(name, "every_input")["hard"]], np.uint32)
    return (bits.view(np.float32) * np.float32(quotients.ROOT_OF_TWO)).view(np.uint32) if quotient else bits


def arguments(name: str, count: int = EXTENT) -> Array:
    """Special values, both ends of each decision with their neighbours, hard cases, common magnitudes, any bits."""
    ends = np.array([0, 88.75, 88.72284, 75, 62.38866, 26.328762, 103.97208, 104, 87.33655, 3.93, 3.9193, 9.03, 9.0109,
                     2.0**-90, 1.1424233e-27, 2.0**-149, 2.0**-126, 3.4028235e38, np.inf],
                    np.float32).view(np.uint32)  # fmt: skip
    near = np.concatenate([ends[1:] - 1, ends, ends[:-1] + 1, [0x7FC00000, 0x7FA00000]]).astype(np.uint32)
    fixed = np.concatenate([near, near | np.uint32(1 << 31), hard(name)])[: count // 2]
    generator = np.random.default_rng(7)
    bits = generator.integers(0, 1 << 32, count // 4, dtype=np.uint32)
    common = generator.standard_normal(count - fixed.size - bits.size).astype(np.float32) * np.float32(3)
    return np.concatenate([fixed, bits, common.view(np.uint32)]).view(np.float32)


def undecided(name: str, table: int, x: Array) -> Array:
    """Which arguments a road leaves to the first one, by the NumPy interpreter."""
    name, dot, quotient = name.partition(".")
    road = proven.ROADS[f"{name}.tabled{table}{dot}{quotient}"]
    return interpret.evaluate(lambda operand: proven.undecided(road, operand), [x], [F32]).astype(np.bool_)


def check(kernel: Kernel, given: list[Array], machine: Machine, schedule: Schedule | None = None) -> None:
    """The machine's code against the kernel's text, which knows the first road alone."""
    wanted = reference(kernel, given)
    for found, expected in zip(run_kernel(kernel, given, machine, schedule), wanted, strict=True):
        same = (found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))
        assert same.all(), np.flatnonzero(~same)[:5]


@ON_EVERY
@pytest.mark.parametrize("name", OF)
def test_the_bits_are_those_of_the_first_road(name: str, machine: Machine) -> None:
    kernel = elementwise_kernel(lambda x: [OF[name](x)], [F32], EXTENT)
    check(kernel, [arguments(name), np.zeros(EXTENT, np.float32)], machine)


@ON_EVERY
@pytest.mark.parametrize("name", OF)
def test_one_undecided_lane_among_decided_ones(name: str, machine: Machine) -> None:
    """Wherever it stands in a vector; both kinds are found first, so that neither is missing."""
    pool = np.random.default_rng(3).standard_normal(1 << 14).astype(np.float32)
    for table in (16, 32):
        if name.partition(".")[0] not in tabled.ROADS[table]:
            continue
        open_ = undecided(name, table, pool)
        assert 0 < open_.sum() < pool.size // 100, "seldom, but there are some"
        x = np.tile(pool[~open_][:64], EXTENT // 64)
        x[np.arange(EXTENT // 64) * 65 % EXTENT] = pool[open_][0]
        kernel = elementwise_kernel(lambda x: [OF[name](x)], [F32], EXTENT)
        check(kernel, [x, np.zeros(EXTENT, np.float32)], machine)


@ON_EVERY
@pytest.mark.parametrize("name", OF)
def test_undecided_lanes_in_any_registers_of_those_tested_together(name: str, machine: Machine) -> None:
    """In none, one, several or all of them; arguments whose result the seldom side gives by itself among the others."""
    pool = np.random.default_rng(5).standard_normal(1 << 14).astype(np.float32)
    open_ = undecided(name, min(table for table in tabled.ROADS if name.partition(".")[0] in tabled.ROADS[table]), pool)
    group, chosen = tabled.TOGETHER * 8, np.random.default_rng(6).random(EXTENT)
    often = np.repeat(np.linspace(0, 1, EXTENT // group), group)
    x = np.where(chosen < often**2, np.resize(pool[open_], EXTENT), np.resize(pool[~open_], EXTENT))
    x[chosen > 0.99] = -200.0
    x[chosen > 0.995] = np.nan
    kernel = elementwise_kernel(lambda x: [OF[name](x)], [F32], EXTENT)
    check(kernel, [x, np.zeros(EXTENT, np.float32)], machine)


@pytest.mark.parametrize(("name", "machine", "together"), [
    ("exp", X86_64_V3, 4), ("exp", X86_64_V4, 4), ("erf", X86_64_V3, 4), ("erf", X86_64_V4, 4), ("tanh", X86_64_V3, 4),
    ("tanh", X86_64_V4, 4), ("erf.quotient", X86_64_V3, 4), ("erf.quotient", X86_64_V4, 4),
])  # fmt: skip
def test_one_branch_serves_as_many_registers_as_go_together(name: str, machine: Machine, together: int) -> None:
    """Behind it stands a test for each register, and behind those another where some of it is simply a zero."""
    kernel = elementwise_kernel(lambda x: [OF[name](x)], [F32], EXTENT)
    code = kernels.emit(kernel, Schedule(0, 4 * machine.lanes(32), EXTENT), machine)
    (road,) = roads(kernel, machine).values()
    tests = 2 if isinstance(road.value.seldom, Rarely) else 1
    assert code.count("!prof") == 4 // together + tests * 4


@pytest.mark.parametrize(
    ("names", "lanes"), [(["exp"], 32), (["erf"], 32), (["tanh"], 32), (["log"], 16), (["exp", "log"], 16)]
)
def test_lanes_of_functions_by_tables_alone_are_as_many_as_are_tested_together(names: list[str], lanes: int) -> None:
    kernel = elementwise_kernel(lambda x: [FUNCTIONS[name](x) for name in names], [F32], EXTENT)
    assert schedule(kernel, X86_64_V3).vector_width == lanes


@pytest.mark.parametrize("table", tabled.ROADS)
def test_each_road_decides_nearly_everything(table: int) -> None:
    """Of everyday arguments at most one in 300 is left to the first road, and none gets another value."""
    x = np.random.default_rng(4).standard_normal(1 << 16).astype(np.float32)
    for name, road in tabled.ROADS[table].items():
        assert undecided(name, table, x).mean() < 1 / 300
        found = interpret.evaluate(lambda operand, road=road: road(Value(operand)).expr, [x], [F32])
        np.testing.assert_array_equal(found.view(np.uint32), evaluate(name, [x], F32).view(np.uint32))


def softmax(rows: int, size: int) -> Kernel:
    """e^(x - max) over its sum, by rows."""
    i, j, q, p = ix.axis(0, rows), ix.axis(1, size), ix.axis(2, size), ix.axis(3, size)
    highest = reduce("max", Exact(), [p], [load(F32, 0, ix.linear((i, p), (rows, size)))])

    def term(at: Expr) -> Expr:
        return FUNCTIONS["exp"](apply("sub", load(F32, 0, ix.linear((i, at), (rows, size))), highest))

    total = reduce("add", Lanes(32, 4096), [q], [term(q)])
    store = Store(1, ix.linear((i, j), (rows, size)), apply("div", term(j), total))
    buffers = (BufferParameter(F32, rows * size, False), BufferParameter(F32, rows * size, True))
    return Kernel(buffers, (), (i, j), 0, (store,))


def gelu(x: Expr) -> Expr:
    """x / 2 (1 + erf(x / 2)): a function inside of an expression."""
    half = const(F32, 0x3F000000)
    scaled = apply("mul", x, half)
    return apply("mul", scaled, apply("add", const(F32, 0x3F800000), FUNCTIONS["erf"](scaled)))


def nested(x: Expr) -> Expr:
    """Two functions of one value, one of them of another function."""
    return apply("add", FUNCTIONS["erf"](FUNCTIONS["exp"](x)), FUNCTIONS["tanh"](x))


@ON_EVERY
@pytest.mark.parametrize("size", [96, 100])
def test_in_the_rows_of_a_softmax(machine: Machine, size: int) -> None:
    """Masked and very negative scores among the others."""
    rows = 8
    given = np.random.default_rng(2).standard_normal(rows * size).astype(np.float32) * np.float32(9)
    given[::7], given[3::11], given[5::13] = -np.inf, -90.0, -1e4
    check(softmax(rows, size), [given, np.zeros(rows * size, np.float32)], machine)


@ON_EVERY
@pytest.mark.parametrize("size", [32, 63, 64, 65, 127, 160, 4096 + 96, 8192 + 1])
def test_in_the_terms_of_sums(machine: Machine, size: int) -> None:
    """Vectors of terms go together, and each lane still adds its terms one after another; leaves end anywhere."""
    rows = 3
    i, j = ix.axis(0, rows), ix.axis(1, size)
    total = reduce("add", Lanes(32, 4096), [j], [FUNCTIONS["exp"](load(F32, 0, ix.linear([i, j], [rows, size])))])
    buffers = (BufferParameter(F32, rows * size, False), BufferParameter(F32, rows, True))
    given = np.random.default_rng(size).standard_normal(rows * size).astype(np.float32) * np.float32(9)
    given[::7], given[3::61] = -200.0, -90.0
    check(Kernel(buffers, (), (i,), 0, (Store(1, i, total),)), [given, np.zeros(rows, np.float32)], machine)


@ON_EVERY
@pytest.mark.parametrize("function", [gelu, nested])
def test_inside_of_expressions(machine: Machine, function: Callable[[Expr], Expr]) -> None:
    for size in (EXTENT, 75, 5):
        kernel = elementwise_kernel(lambda x: [function(x)], [F32], size)
        check(kernel, [arguments("exp")[-size:].copy(), np.zeros(size, np.float32)], machine)


@pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4], ids=lambda machine: machine.name)
def test_lanes_take_the_road_and_scalars_do_not(machine: Machine) -> None:
    for name in tabled.ROADS[entries(machine)]:
        kernel = elementwise_kernel(lambda x, name=name: [FUNCTIONS[name](x)], [F32], EXTENT)
        assert len(roads(kernel, machine)) == 1
        wide = kernels.emit(kernel, Schedule(0, 2 * machine.lanes(32), EXTENT), machine)
        assert any(way in wide for way in ("vpermi2var.ps.512", "avx2.permps", "@constant0"))
        assert wide.count("!prof") >= 1 + 2, "each register has a seldom side"
        narrow = kernels.emit(kernel, Schedule(0, 1, EXTENT), machine)
        assert "perm" not in narrow and "@constant" not in narrow


@pytest.mark.parametrize(("name", "words"), [("tanh", 2), ("erf", 4)])
def test_a_row_in_memory_is_one_load_of_each_lane(name: str, words: int) -> None:
    kernel = elementwise_kernel(lambda x: [OF[name](x)], [F32], EXTENT)
    code = kernels.emit(kernel, Schedule(0, 16, EXTENT), X86_64_V3)
    assert code.count(f"load <{words} x float>") == 16
    assert code.count("private unnamed_addr constant") == 1


def test_a_machine_without_permutes_keeps_the_first_road() -> None:
    kernel = elementwise_kernel(lambda x: [FUNCTIONS["exp"](x)], [F32], EXTENT)
    assert not roads(kernel, AARCH64)
    assert roads(kernel, X86_64_V4)
    plain = elementwise_kernel(lambda x: [apply("add", x, x)], [F32], EXTENT)
    assert not roads(plain, X86_64_V4)
