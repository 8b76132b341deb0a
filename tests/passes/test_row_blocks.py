"""Calls run in blocks of rows: the same bytes, nothing local seen from outside, blocks where there should be some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

import passes.row_blocks as pass_under_test
from passes import pipeline
from passes.plan import plan
from passes.row_blocks import Limits, counts, row_blocks
from passes.row_cuts import extents_of, sliced
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, apply, load
from repro.ir.graph import Graph, Value, argument
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, LOCAL, OUTPUT, TEMPORARY, Buffer, Call, CountedLoop, Program, RowBlocks, walk
from repro.ir.types import F32, I64, Array, TensorType
from repro.machines import Machine
from repro.ops import broadcast, div, elementwise, gather, loop, matmul, mul, reduce_axes, reshape, sub, transpose
from repro.ops.record import evaluate
from repro.targets import cpu, interpreter
from tests.passes.random_programs import Maker
from tests.running import executable, interpreted
from tests.targets.native import HERE

EAGER = Limits(near_bytes=1 << 12, worth_bytes=1, fewest_blocks=2, even_blocks=2, fewest_rows=1)
"""Blocks wherever there may be some, as small as tests are."""


def wide(value: Value, shape: tuple[int, ...]) -> Value:
    return broadcast(value, shape, tuple(range(len(shape) - 1)))


def softmax(x: Value) -> Value:
    last = (len(x.shape) - 1,)
    e = elementwise("exp", sub(x, wide(reduce_axes("max", x, last), x.shape)))
    return div(e, wide(reduce_axes("add", e, last), x.shape))


def centred(x: Value) -> Value:
    return sub(x, wide(reduce_axes("add", x, (len(x.shape) - 1,)), x.shape))


def rows() -> Graph:
    kind = TensorType(F32, (24, 64))
    x = argument(0, kind)
    return Graph((kind,), (softmax(x),))


def attention(batch: int = 4, heads: int = 2, tokens: int = 64, width: int = 16) -> Graph:
    """Heads apart in the batch, merged again behind: as a model's exporter writes it."""
    kind = TensorType(F32, (batch, tokens, heads, width))
    q, k, v = (transpose(argument(n, kind), (0, 2, 1, 3)) for n in range(3))
    weights = softmax(matmul(q, transpose(k, (0, 1, 3, 2))))
    mixed = transpose(matmul(weights, v), (0, 2, 1, 3))
    return Graph((kind,) * 3, (reshape(mixed, (batch * tokens, heads * width)),))


def gradient_of_scores() -> Graph:
    """Scores read by rows and by columns: blocks end with whole heads."""
    kind = TensorType(F32, (8, 64, 16))
    q, k = argument(0, kind), argument(1, kind)
    scores = centred(matmul(q, transpose(k, (0, 2, 1))))
    return Graph((kind, kind), (matmul(scores, k), matmul(transpose(scores, (0, 2, 1)), q)))


def kept() -> Graph:
    """What a block leaves the next call is a result too."""
    kind = TensorType(F32, (32, 64))
    first = centred(argument(0, kind))
    return Graph((kind,), (first, softmax(first)))


def picked() -> Graph:
    """A reader that may look anywhere: the value is whole."""
    kind = TensorType(F32, (32, 64))
    first = softmax(argument(0, kind))
    index = TensorType(I64, (8, 1))
    return Graph((kind, index), (gather(first, argument(1, index), (0,)), mul(first, first)))


def inside_a_loop() -> Graph:
    kind = TensorType(F32, (16, 64))

    def body(_: Value, state: Value) -> list[Value]:
        return [softmax(centred(mul(state, state)))]

    return Graph((kind,), tuple(loop(3, (argument(0, kind),), (), (), body)))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "rows": rows, "attention": attention, "gradient": gradient_of_scores, "kept": kept, "picked": picked,
    "loop": inside_a_loop,
}  # fmt: skip


def inputs_of(graph: Graph) -> list[Array]:
    generator = np.random.default_rng(3)
    return [
        generator.standard_normal(kind.shape).astype(np.float32)
        if kind.dtype is F32
        else generator.integers(0, 8, kind.shape)
        for kind in graph.arguments
    ]


def blocks_of(program: Program) -> list[RowBlocks]:
    return [step for step in walk(program.steps) if isinstance(step, RowBlocks)]


@pytest.mark.parametrize("name", GRAPHS)
def test_blocks_are_formed_and_give_the_references_bytes(name: str) -> None:
    graph = GRAPHS[name]()
    inputs = inputs_of(graph)
    wanted = [result.tobytes() for result in evaluate(graph, inputs, ())]
    program = row_blocks(pipeline.run(graph).program, EAGER)
    assert blocks_of(program)
    assert interpreted(program, inputs)[: len(wanted)] == wanted


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", GRAPHS)
def test_compiled_blocks_give_the_references_bytes(name: str, machine: Machine) -> None:
    graph = GRAPHS[name]()
    inputs = inputs_of(graph)
    wanted = [result.tobytes() for result in evaluate(graph, inputs, ())]
    program = row_blocks(pipeline.run(graph).program, EAGER)
    for threads in (1, 2, 5):
        made = executable(program, machine, threads)
        assert [array.tobytes() for array in made.run(inputs)[: len(wanted)]] == wanted, threads
        made.close()


def test_attention_is_one_step_that_stores_no_scores() -> None:
    """Of 16 million scores no more than a few blocks are anywhere at one time."""
    program = row_blocks(pipeline.run(attention(2, 8, 1024, 64)).program, Limits(1 << 19, 1 << 19))
    (blocks,) = blocks_of(program)
    assert len(blocks.body) >= 4
    largest = max(b.elements for b in program.buffers if b.role in (TEMPORARY, LOCAL))
    assert largest <= 2 * 8 * 1024 * 64, "the operands' size, far from that of all scores"
    assert program.local_bytes <= 1 << 20


def test_rows_without_a_contraction_go_in_as_many_blocks_as_leave_enough() -> None:
    """Two rows of a kibibyte; those around a contraction stay as few as fit."""
    kind = TensorType(F32, (64, 256))
    few, many = Limits(1 << 14, 1), Limits(1 << 14, 1, least_bytes=2 << 10)
    alone = pipeline.run(Graph((kind,), (softmax(argument(0, kind)),))).program
    counts = [[each.count for each in blocks_of(row_blocks(alone, limits))] for limits in (few, many)]
    assert counts == [[8], [32]]
    mixed = pipeline.run(attention(2, 8, 1024, 64)).program
    few, many = (row_blocks(mixed, Limits(1 << 19, 1 << 19, least_bytes=least)) for least in (None, 1))
    assert few.text == many.text


def test_a_block_sees_nothing_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block first: each has local memory that holds junk at first, as the interpreter runs them."""
    graph = attention()
    program = row_blocks(pipeline.run(graph).program, EAGER)
    inputs = inputs_of(graph)
    wanted = interpreted(program, inputs)
    (step,) = blocks_of(program)
    assert step.count > 1
    assert not any(kernel.serial for kernel in program.kernels), "whose iterations have an order"
    monkeypatch.setattr(interpreter, "product", lambda *ranges: reversed(list(product(*ranges))))
    assert interpreted(program, inputs) == wanted


# ── cutting ─────────────────────────────────────────────────────────────────────────────────────────


def test_axes_nest_in_digits() -> None:
    assert extents_of((48, 96)) == (48, 2)
    assert extents_of((8, 48, 96, 96)) == (8, 6, 2)
    assert extents_of((6, 48, 8)) is None
    assert extents_of((1, 4)) == (4,)


def kernel_of(offset: Callable[[tuple[Axis, ...]], Expr], extents: tuple[int, ...], elements: int) -> Kernel:
    axes = tuple(ix.axis(number, extent) for number, extent in enumerate(extents))
    place = ix.linear(axes, extents)
    value = load(F32, 0, offset(axes))
    buffers = (BufferParameter(F32, elements, False), BufferParameter(F32, elements, True))
    return Kernel(buffers, (), axes, 0, (Store(1, place, apply("neg", value)),))


def test_slices_are_those_that_no_other_block_touches() -> None:
    straight = kernel_of(lambda a: ix.linear(a, (8, 6, 4)), (8, 6, 4), 192)
    assert counts(straight, EAGER)[-1] == 192
    assert sliced(straight, 48) == {0, 1}
    swapped = kernel_of(lambda a: ix.linear((a[1], a[0], a[2]), (6, 8, 4)), (8, 6, 4), 192)
    assert sliced(swapped, 8) == {1}
    inner = kernel_of(lambda a: ix.linear((a[0], a[2], a[1]), (8, 4, 6)), (8, 6, 4), 192)
    assert sliced(inner, 8) == {0, 1}
    assert sliced(inner, 16) == {1}
    overlapping = kernel_of(lambda a: ix.linear((a[0], a[1]), (8, 20)), (8, 24), 192)
    assert sliced(overlapping, 8) == {1}


def test_a_reduction_is_never_computed_for_each_part_of_its_row() -> None:
    program = pipeline.run(rows()).program
    for kernel in program.kernels:
        assert all(24 % count == 0 for count in counts(kernel, EAGER)), "whole rows"


# ── order ───────────────────────────────────────────────────────────────────────────────────────────


def chain_kernel(reads: int, elements: int) -> Kernel:
    axis = ix.axis(0, elements)
    value = load(F32, 0, axis)
    for number in range(1, reads):
        value = apply("add", value, load(F32, number, axis))
    buffers = tuple(BufferParameter(F32, elements, number == reads) for number in range(reads + 1))
    return Kernel(buffers, (), (axis,), 0, (Store(reads, axis, value),))


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_what_stands_between_is_neither_overtaken_nor_lost(order: tuple[int, ...]) -> None:
    """Four sums in a row of a loop over carried buffers, in every order: some cannot wait for others."""
    size = 64
    temporaries = (Buffer(F32, size, TEMPORARY, 0) for _ in range(4))
    buffers = [Buffer(F32, size, INPUT, 0), *temporaries, Buffer(F32, size, OUTPUT, 0)]
    kernels = (chain_kernel(1, size), chain_kernel(2, size))
    sums = [Call(1, (0, 1, 2)), Call(1, (2, 3, 4)), Call(1, (4, 0, 3)), Call(1, (3, 2, 1))]
    start = tuple(Call(0, (0, place)) for place in range(1, 5))
    steps = (*start, CountedLoop(2, tuple(sums[place] for place in order)), Call(1, (1, 4, 5)))
    planned, arena = plan(tuple(buffers), steps)
    program = Program(kernels, planned, (), steps, arena)
    inputs = [np.linspace(-1, 1, size, dtype=np.float32)]
    assert interpreted(row_blocks(program, EAGER), inputs) == interpreted(program, inputs)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_in_blocks_compute_the_same(seed: int) -> None:
    program = Maker(seed).program()
    generator = np.random.default_rng(seed)
    kinds = [buffer for buffer in program.buffers if buffer.role == INPUT]
    inputs = [
        generator.integers(0, 2, b.elements).astype(bool)
        if b.dtype is not F32
        else generator.standard_normal(b.elements).astype(np.float32)
        for b in kinds
    ]
    assert interpreted(row_blocks(program, EAGER), inputs) == interpreted(program, inputs)


def test_random_programs_do_have_blocks() -> None:
    assert sum(bool(blocks_of(row_blocks(Maker(seed).program(), EAGER))) for seed in range(40)) >= 10


def test_a_slice_that_is_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: were every buffer taken for sliced, blocks would read what is not theirs."""
    graph = gradient_of_scores()
    inputs = inputs_of(graph)
    wanted = [result.tobytes() for result in evaluate(graph, inputs, ())]
    limits = replace(EAGER, near_bytes=1 << 16)
    assert interpreted(row_blocks(pipeline.run(graph).program, limits), inputs)[:2] == wanted
    monkeypatch.setattr(pass_under_test, "sliced", lambda kernel, count: frozenset(range(len(kernel.buffers))))
    monkeypatch.setattr(pass_under_test, "counts", lambda kernel, limits: (32,))
    try:
        found = interpreted(row_blocks(pipeline.run(graph).program, limits), inputs)[:2]
    except Exception as error:
        assert "outside" in str(error)
    else:
        assert found != wanted


def test_the_host_runs_a_machine() -> None:
    assert any(cpu.runs_here(machine) is None for machine in HERE)
