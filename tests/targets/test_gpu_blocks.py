"""Blocks of rows as one launch of PTX, interpreted: the reference's bytes, nothing local stored, no barrier too few."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from passes import pipeline
from passes.row_blocks import Limits
from repro.artifact.compiling import compile_programs
from repro.autodiff import cotangents
from repro.errors import InternalError
from repro.ir.graph import Graph, argument
from repro.ir.program import LOCAL, TEMPORARY, Program
from repro.ir.types import F32, F64, TensorType
from repro.machines import GRAPHICS, SM_80, GpuMachine
from repro.ops import add, matmul, mul, reduce_axes, transpose
from repro.ops.record import evaluate
from repro.targets.gpu import GpuKernel, codes
from repro.targets.gpu.driver import Driver, opened
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from repro.targets.gpu.ptxas import assemble, installed
from repro.targets.gpu.runtime import DeviceExecutable
from repro.targets.gpu.sass import hottest_loop
from repro.targets.gpu.shape import possible, shaped
from repro.targets.gpu.steps import alone
from repro.targets.gpu.target import CODE, INTERPRETER
from repro.targets.protocol import INSIDE
from tests.passes import test_row_blocks as cases
from tests.passes.random_programs import Maker
from tests.targets.fake_cuda import FakeCuda

EAGER = Limits(1 << 20, worth_bytes=1, fewest_blocks=2, even_blocks=2, fewest_rows=1)


def eager(program: Program, machine: GpuMachine = SM_80, fewest: int = 2) -> Program:
    """Blocks wherever a block of threads can run them, whatever is gained."""
    limits = replace(EAGER, fewest_blocks=fewest, even_blocks=fewest)
    return shaped(program, machine, limits, functools.partial(possible, machine=machine))


def masked(heads: int, tokens: int, width: int, queries: int | None = None) -> Graph:
    """Attention of heads with a mask and a scale."""
    rows = tokens if queries is None else queries
    asked, kind = TensorType(F32, (heads, rows, width)), TensorType(F32, (heads, tokens, width))
    mask, scale = TensorType(F32, (rows, tokens)), TensorType(F32, (1, 1, 1))
    kinds, shape = (asked, kind, kind, mask, scale), (heads, rows, tokens)
    q, k, v, hidden, factor = (argument(n, each) for n, each in enumerate(kinds))
    scores = mul(matmul(q, transpose(k, (0, 2, 1))), cases.broadcast(factor, shape, (0, 1, 2)))
    weights = cases.softmax(add(scores, cases.broadcast(hidden, shape, (1, 2))))
    return Graph(kinds, (matmul(weights, v),))


def with_gradient(heads: int, tokens: int, width: int) -> Graph:
    """Attention, and the gradients of its operands."""
    kind = TensorType(F32, (heads, tokens, width))
    q, k, v, given = (argument(n, kind) for n in range(4))
    result = matmul(cases.softmax(matmul(q, transpose(k, (0, 2, 1)))), v)
    found = cotangents([(result, given)], (q, k, v))
    assert None not in found
    return Graph((kind,) * 4, (result, *(each for each in found if each is not None)))


def norm() -> Graph:
    kind = TensorType(F32, (36, 100))
    x = argument(0, kind)
    centred = cases.centred(x)
    squares = reduce_axes("add", mul(centred, centred), (1,))
    return Graph((kind,), (mul(centred, cases.wide(squares, kind.shape)),))


def tabled() -> Graph:
    """A function by tables in two kernels of a block: before a softmax and behind it."""
    kind = TensorType(F32, (24, 64))
    x = argument(0, kind)
    return Graph((kind,), (cases.elementwise("erf", cases.softmax(cases.elementwise("erf", x))),))


GRAPHS: dict[str, Callable[[], Graph]] = {
    **cases.GRAPHS,
    "masked": lambda: masked(3, 40, 16),
    "odd": lambda: masked(4, 50, 20),
    "panels": lambda: masked(2, 1024, 16, 64),
    "flat": lambda: masked(2, 1024, 16, 16),
    "ragged panels": lambda: masked(2, 600, 8, 40),
    "trained": lambda: with_gradient(4, 64, 16),
    "norm": norm,
    "tabled": tabled,
}


def masks(graph: Graph) -> list[np.ndarray]:
    """Inputs; a square one is a causal mask."""
    found = cases.inputs_of(graph)
    for number, kind in enumerate(graph.arguments):
        if len(kind.shape) == 2 and kind.shape[0] == kind.shape[1]:
            found[number] = np.triu(np.full(kind.shape, -np.inf, np.float32), 1)
    return found


@pytest.mark.parametrize("machine", [SM_80, GRAPHICS], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", GRAPHS)
def test_blocks_give_the_references_bytes(name: str, machine: GpuMachine) -> None:
    graph = GRAPHS[name]()
    inputs = masks(graph)
    wanted = [result.tobytes() for result in evaluate(graph, inputs, ())]
    program = eager(pipeline.run(graph).program, machine)
    assert cases.blocks_of(program)
    made = InterpretedExecutable(program, codes(program, machine), ())
    assert [array.tobytes() for array in made.run(inputs)[: len(wanted)]] == wanted


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_in_blocks_compute_the_same(seed: int) -> None:
    program = Maker(seed).program()
    shape = eager(program)
    generator = np.random.default_rng(seed)
    inputs = [
        generator.integers(0, 2, b.elements).astype(bool)
        if b.dtype is not F32
        else generator.standard_normal(b.elements).astype(np.float32)
        for b in program.buffers
        if b.role == "input"
    ]
    made = InterpretedExecutable(shape, codes(shape, SM_80), ())
    assert [each.tobytes() for each in made.run(inputs)] == cases.interpreted(program, inputs)


def test_random_programs_do_have_blocks() -> None:
    assert sum(bool(cases.blocks_of(eager(Maker(seed).program()))) for seed in range(40)) >= 10


# ── what is formed ──────────────────────────────────────────────────────────────────────────────────


@functools.cache
def large() -> Program:
    """Attention of a GPT, 8 x 12 heads of 1024 tokens, by the estimate for a chip on which blocks never wait."""
    return shaped(pipeline.run(cases.attention(8, 12, 1024, 64)).program, replace(SM_80, blocks_pace=100))


def test_attention_is_apart_where_that_is_faster() -> None:
    """Measured on an H200: 1305 us as one step, 830 as a launch for the scores, one for the softmax, and one for the
    weighted sums."""
    program = shaped(pipeline.run(cases.attention(8, 12, 1024, 64)).program, SM_80)
    (softmax,) = cases.blocks_of(program)
    assert len(program.steps) == 3 and program.steps[1] == softmax


def test_attention_is_one_launch_that_stores_no_scores() -> None:
    (blocks,) = cases.blocks_of(large())
    assert large().steps == (blocks,)
    (code,) = (each for each in codes(large(), SM_80) if each.launches)
    (launch,) = code.launches
    assert launch.shared_bytes <= SM_80.shared_bytes
    assert large().arena_bytes == 0
    assert not [b for b in large().buffers if b.role == TEMPORARY]


def test_exponentials_and_weights_take_the_place_of_scores() -> None:
    rows = [b for b in large().buffers if b.role == LOCAL]
    assert len(rows) == 3
    assert large().local_bytes == rows[0].nbytes


def test_little_is_left_apart() -> None:
    program = pipeline.run(cases.attention()).program
    assert shaped(program, SM_80) is program


@pytest.mark.parametrize("chip", ["sm_80", "sm_90"])
def test_attention_does_not_spill_and_scores_are_nearly_all_fma(chip: str) -> None:
    """The mixing's loop is the smaller one: its tiles have 16 outputs a thread."""
    ptxas = installed()
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    (code,) = (each for each in codes(large(), SM_80) if each.launches)
    symbol = code.launches[0].symbol
    made = assemble(code.ptx, ptxas, chip)
    used, scores = made.entries[symbol], hottest_loop(made.cubin, symbol)
    assert used.spill_stores == used.spill_loads == 0
    assert scores is not None and scores.fma == 1024 and scores.share >= 0.88


def test_two_blocks_share_a_multiprocessor() -> None:
    """Steps of the scores lie where the scores will, and totals of the mixing where its steps did: apart, either would
    take more than half of the shared memory."""
    (code,) = (each for each in codes(large(), SM_80) if each.launches)
    launch, local, half = code.launches[0], large().local_bytes, SM_80.resident_bytes // 2 - 1024
    steps, mixing, totals = 2 * 4 * (1024 * 12 + 8 * 20), 2 * 2 * 4 * (32 * 64 + 32 * 20), 2 * 4 * 16 * 64
    assert "tile=8x16 block=16x1024x8 splits=1 groups=1" in code.schedule
    assert "tile=4x4 block=16x64x32 splits=2 groups=2" in code.schedule
    assert launch.shared_bytes == local + mixing <= half
    assert local < steps <= half < local + steps and half < local + mixing + totals


def f64() -> Graph:
    kind = TensorType(F64, (4, 32, 16))
    q, k = argument(0, kind), argument(1, kind)
    return Graph((kind, kind), (cases.softmax(matmul(q, transpose(k, (0, 2, 1)))),))


def test_what_no_block_can_run_stays_apart() -> None:
    """A contraction in f64: a kernel of its own, no error."""
    graph = f64()
    program = eager(pipeline.run(graph).program)
    assert alone(program)
    made = InterpretedExecutable(program, codes(program, SM_80), ())
    generator = np.random.default_rng(1)
    inputs = [generator.standard_normal(kind.shape) for kind in graph.arguments]
    wanted = [result.tobytes() for result in evaluate(graph, inputs, ())]
    assert [array.tobytes() for array in made.run(inputs)[: len(wanted)]] == wanted


# ── planted faults ──────────────────────────────────────────────────────────────────────────────────

BARRIER = re.compile(r"^\s*bar\.sync\s+0;$", re.MULTILINE)


def without_a_barrier(ptx: str) -> Iterator[str]:
    for place in BARRIER.finditer(ptx):
        yield ptx[: place.start()] + ptx[place.end() :]


def mixed(tokens: int, queries: int) -> Graph:
    """Tiles, rows, tiles. (Between two kernels of rows a barrier may be one too many: a row stays with its warp.)"""
    asked, kind = TensorType(F32, (2, queries, 8)), TensorType(F32, (2, tokens, 8))
    q, k, v = (argument(n, each) for n, each in enumerate((asked, kind, kind)))
    return Graph((asked, kind, kind), (matmul(cases.centred(matmul(q, transpose(k, (0, 2, 1)))), v),))


def scored(tokens: int, queries: int) -> Graph:
    """Tiles, rows."""
    asked, kind = TensorType(F32, (2, queries, 16)), TensorType(F32, (2, tokens, 16))
    q, k = argument(0, asked), argument(1, kind)
    return Graph((asked, kind), (cases.centred(matmul(q, transpose(k, (0, 2, 1)))),))


@pytest.mark.parametrize(
    ("graph", "least"),
    [(mixed(64, 32), 4), (mixed(1024, 16), 6), (scored(1024, 16), 3)],
    ids=["one panel", "two panels", "over its steps"],
)
def test_no_barrier_may_go(graph: Graph, least: int) -> None:
    """Within a step of terms, between tiles that use the same memory, between kernels, before panels are added, before
    results are stored where steps lay."""
    program, inputs = eager(pipeline.run(graph).program), cases.inputs_of(graph)
    made = list(codes(program, SM_80))
    (at,) = (number for number, each in enumerate(made) if each.launches)
    count = 0
    for ptx in without_a_barrier(made[at].ptx):
        count += 1
        broken = [*made[:at], replace(made[at], ptx=ptx), *made[at + 1 :]]
        with pytest.raises(InternalError):
            InterpretedExecutable(program, broken, ()).run(inputs)
    assert count >= least


def test_local_memory_too_small_is_found() -> None:
    program = eager(pipeline.run(cases.attention(2, 1, 64, 16)).program)
    made = [
        replace(each, launches=tuple(replace(launch, shared_bytes=256) for launch in each.launches))
        for each in codes(program, SM_80)
    ]
    with pytest.raises(InternalError, match="shared"):
        InterpretedExecutable(program, made, ()).run(cases.inputs_of(cases.attention(2, 1, 64, 16)))


# ── artifacts and devices ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["attention", "loop"])
def test_a_device_launches_a_step_as_a_kernel(name: str) -> None:
    graph = GRAPHS[name]()
    inputs = cases.inputs_of(graph)
    wanted = [result.tobytes() for result in evaluate(graph, inputs, ())]
    program = eager(pipeline.run(graph).program)
    driver = opened(FakeCuda())
    assert isinstance(driver, Driver), driver
    device = DeviceExecutable(program, codes(program, SM_80), (), driver)
    for _ in range(2):
        assert [array.tobytes() for array in device.run(inputs)[: len(wanted)]] == wanted
    (shape,) = set(cases.blocks_of(program))
    assert math.prod(shape.extents) > 1
    times = device.kernel_seconds(inputs)
    assert times and all(re.fullmatch("[0-9a-f]{64}", digest) for digest in times)
    device.close()


def test_compiled_programs_carry_the_code_of_their_steps() -> None:
    graph = cases.attention()
    inputs = cases.inputs_of(graph)
    wanted = [result.tobytes() for result in evaluate(graph, inputs, ())]
    target = replace(CODE, shape=eager)
    (compiled,) = compile_programs([(target, pipeline.run(graph).program)], None, lambda *_: None)
    assert cases.blocks_of(compiled.program)
    assert set(compiled.schedules) == {INSIDE}
    assert not any(GpuKernel.parse(code).launches for code in compiled.kernel_objects)
    made = INTERPRETER.open(compiled, (), 1)
    assert [array.tobytes() for array in made.run(inputs)[: len(wanted)]] == wanted
