"""Values put together from parts: the copy is gone, and the bytes are the reference's, those of zeros among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import passes.parts as pass_under_test
from passes import pipeline
from passes.earlier import earlier
from passes.parts import parts
from passes.row_blocks import Limits, row_blocks
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, load
from repro.ir.graph import Graph, Value, argument
from repro.ir.program import Branch, Call, Program, RowBlocks, touched, walk
from repro.ir.types import F32, TensorType
from repro.machines import Machine
from repro.ops import (
    add,
    branch,
    broadcast,
    compare,
    concatenate,
    dot,
    elementwise,
    pad,
    reduce_axes,
    reshape,
    scalar,
    slice_,
    transpose,
)
from repro.ops.record import evaluate
from tests.running import assert_same_everywhere, interpreted
from tests.targets.native import HERE

BATCH, ROWS, HEADS, WIDTH = 2, 8, 3, 16
KIND = TensorType(F32, (BATCH, HEADS, ROWS, WIDTH))
SQUARE = TensorType(F32, (BATCH, HEADS, ROWS, ROWS))


def product(number: int, turned: bool = False) -> Value:
    """Of each head a square with a matrix: (batch, head, row, column)."""
    square, x = argument(2 * number, SQUARE), argument(2 * number + 1, KIND)
    return dot(square, x, ((2 if turned else 3,), (2,)), ((0, 1), (0, 1)))


def heads_last(value: Value) -> Value:
    return reshape(transpose(value, (0, 2, 1, 3)), (BATCH, ROWS, HEADS * WIDTH))


def kinds(count: int) -> tuple[TensorType, ...]:
    return (SQUARE, KIND) * count


def spread(values: list[Value], axis: int) -> Value:
    """The sum of all, each between zeros where the others are: the gradient of a split."""
    zero, total, at = scalar(0.0, F32), None, 0
    whole = sum(value.shape[axis] for value in values)
    for value in values:
        low = [0] * value.rank
        high = list(low)
        low[axis], high[axis] = at, whole - at - value.shape[axis]
        padded = pad(value, low, high, zero)
        total = padded if total is None else add(total, padded)
        at += value.shape[axis]
    assert total is not None
    return total


def split_gradient() -> Graph:
    return Graph(kinds(3), (spread([heads_last(product(0)), heads_last(product(1, True)), heads_last(product(2))], 2),))


def split_gradient_of_negative_zeros() -> Graph:
    return Graph(kinds(2), (spread([heads_last(elementwise("neg", product(n))) for n in range(2)], 2),))


def split_gradient_along_rows() -> Graph:
    return Graph(kinds(2), (spread([product(0), elementwise("exp", product(1))], 2),))


def unequal() -> Graph:
    """Three heads and two."""
    extents = ((SQUARE, 2), (KIND, 3))
    a, b = (slice_(argument(n, kind), (0,) * 4, (BATCH, 2, *kind.shape[2:])) for kind, n in extents)
    return Graph(kinds(2), (spread([product(0), dot(a, b, ((3,), (2,)), ((0, 1), (0, 1)))], 1),))


def joined() -> Graph:
    return Graph(kinds(2), (concatenate([heads_last(product(0)), heads_last(product(1))], 2),))


MADE = (split_gradient, split_gradient_of_negative_zeros, split_gradient_along_rows, unequal, joined)


def calls(program: Program) -> list[Call]:
    return [step for step in walk(program.steps) if isinstance(step, Call)]


def random_inputs(graph: Graph) -> list[np.ndarray]:
    """With rows of zeros, whose products are zero."""
    generator = np.random.default_rng(4)
    found = [generator.standard_normal(kind.shape).astype(np.float32) for kind in graph.arguments]
    for array in found:
        array[:, :, 1:4] = 0
    return found


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("blocks", [False, True])
def test_a_copy_is_gone_and_the_bytes_are_the_references(make: Callable[[], Graph], blocks: bool) -> None:
    graph = make()
    inputs = random_inputs(graph)
    before = pipeline.run(graph).program
    if blocks:
        before = row_blocks(before, Limits(1 << 20, 1, fewest_blocks=2, even_blocks=2, fewest_rows=1))
    after = earlier(parts(before))
    assert len(calls(after)) == len(calls(before)) - 1
    assert after.arena_bytes < before.arena_bytes
    assert_same_everywhere(after, inputs, evaluate(graph, inputs, ()))


def wanted_elsewhere() -> Graph:
    """An operand is a result too."""
    value = heads_last(product(0))
    return Graph(kinds(2), (spread([value, heads_last(product(1))], 2), value))


def overlapping() -> Graph:
    """Rows that both have."""
    zero = scalar(0.0, F32)
    first, second = pad(product(0), (0, 0, 0, 0), (0, 0, 4, 0), zero), pad(product(1), (0, 0, 4, 0), (0, 0, 0, 0), zero)
    return Graph(kinds(2), (add(first, second),))


def repeated(values: Callable[[list[Value], int], Value], axis: int) -> Callable[[], Graph]:
    """A sum for each head, batch or row of one operand, repeated along another axis, beside a product."""

    def made() -> Graph:
        sums = reduce_axes("add", slice_(argument(0, SQUARE), (0,) * 4, (1, 1, ROWS, ROWS)), (0, 1, 3))
        left = reshape(slice_(product(1), (0,) * 4, (1, 1, ROWS, WIDTH)), (ROWS, WIDTH))
        square = dot(left, left, ((1,), (1,)), ((), ()))
        return Graph(kinds(2), (values([broadcast(sums, (ROWS, ROWS), (1 - axis,)), square], 1),))

    return made


REPEATED = [repeated(values, axis) for values in (concatenate, spread) for axis in (0, 1)]


@pytest.mark.parametrize("make", [wanted_elsewhere, overlapping, *REPEATED])
def test_what_is_read_elsewhere_or_overlaps_or_is_repeated_stays(make: Callable[[], Graph]) -> None:
    graph = make()
    program, inputs = pipeline.run(graph).program, random_inputs(graph)
    assert parts(program) is program
    assert_same_everywhere(parts(program), inputs, evaluate(graph, inputs, ()))


def test_what_decides_a_branch_is_read_elsewhere() -> None:
    """Of two conditions that lie side by side, one says which way is taken."""
    kind = TensorType(F32, (8,))
    x, z = argument(0, kind), argument(1, kind)
    found = [compare("lt", scalar(0.0, F32), reduce_axes("add", each, (0,))) for each in (x, z)]
    way = branch(found[0], (x,), lambda a: [add(a, a)], lambda a: [elementwise("neg", a)])
    graph = Graph((kind, kind), (concatenate([reshape(each, (1,)) for each in found], 0), *way))
    for sign in (1, -1):
        inputs = [np.full(8, sign, np.float32), np.ones(8, np.float32)]
        program = parts(pipeline.run(graph).program)
        written = [buffer for call in calls(program) for buffer, writes in touched(program, call) if writes]
        (taken,) = (step.condition for step in walk(program.steps) if isinstance(step, Branch))
        assert taken in written
        assert_same_everywhere(program, inputs, evaluate(graph, inputs, ()))


def test_an_operand_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass without its look at who else reads an operand."""

    def any_filler(self: pass_under_test._Parts, buffer: int, at: int) -> tuple[int, int] | None:
        return self.writers[buffer][0]

    graph = wanted_elsewhere()
    inputs, before = random_inputs(graph), pipeline.run(graph).program
    wanted = interpreted(before, inputs)
    monkeypatch.setattr(pass_under_test._Parts, "_filler", any_filler)
    after = parts(before)
    assert after is not before
    assert interpreted(after, inputs) != wanted


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
def test_the_cpu_targets_run_it(machine: Machine) -> None:
    from repro.targets import registry

    program = pipeline.run(split_gradient()).program
    shaped = registry.runner(machine.name).code.shape(program)
    assert len(calls(shaped)) == len(calls(program)) - 1
    assert all(isinstance(step, Call | RowBlocks) for step in shaped.steps)


@pytest.mark.parametrize("extent", [1, 7, 96, 1152])
def test_runs_of_indices_are_found_without_asking_for_each(extent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where conditions are of ranges; where they are not, single indices are runs."""
    i = ix.axis(0, extent)
    first, second = extent // 3, extent // 2
    ranges = [ix.compare("lt", i, first), ix.both(ix.compare("ge", i, first), ix.compare("lt", i, second))]
    loads = [load(F32, n, i, each) for n, each in enumerate([*ranges, ix.compare("ge", i, second)])]
    odd = load(F32, 3, i, ix.compare("eq", ix.mod(i, 2), 1))
    wanted = [frozenset({0 if at < first else 1 if at < second else 2}) for at in range(extent)]
    asked = list[Expr]()
    at = pass_under_test._at

    def counted(roots: Sequence[Expr], axis: Axis, index: Expr) -> list[Expr]:
        asked.append(index)
        return at(roots, axis, index)

    monkeypatch.setattr(pass_under_test, "_at", counted)

    def found(roots: Sequence[Expr]) -> list[frozenset[int]]:
        """The buffers of each index, from runs that follow each other."""
        runs = [*pass_under_test._runs(at(roots, i, ix.axis(1, extent)), ix.axis(1, extent), 0)]
        assert [run.first for run in runs] == [sum(run.count for run in runs[:n]) for n in range(len(runs))]
        return [run.buffers for run in runs for _ in range(run.count)]

    assert found(loads) == wanted
    assert len(asked) <= 8 * extent.bit_length()
    assert found([*loads, odd]) == [wanted[at] | ({3} if at % 2 else set()) for at in range(extent)]
