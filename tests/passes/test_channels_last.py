"""Pictures that are read at computed places, from copies with channels last: when, and the reference's bytes."""

# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import passes.channels_last as pass_under_test
from passes import pipeline
from passes.channels_last import channels_last
from passes.plan import plan
from repro.frontend.families.grid import Sampling, sampled_at
from repro.ir import index as ix
from repro.ir.expressions import Expr, Load, apply, load, topological
from repro.ir.graph import Graph, Value, argument
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, OUTPUT, Buffer, Call, CountedLoop, Program, RowBlocks, walk
from repro.ir.types import F16, F32, F64, I64, Array, DType, TensorType, to_storage
from repro.ops import add, broadcast, convert_to, elementwise, loop, scatter, transpose
from repro.ops.record import evaluate
from repro.targets.cpu.target import FAMILY
from tests.running import assert_same_everywhere

LANES = 16
ZEROS, CUBIC = Sampling("linear", "zeros", corners=True), Sampling("cubic", "border", corners=False)
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 1.0])
FAR = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, -0.0, -1.0, 1e6])


@dataclass(frozen=True)
class Case:
    """A picture, [images, channels, places...], and as many places as it is read at in each image."""

    calls: int
    """Behind the pass, more than before."""
    picture: tuple[int, ...]
    places: tuple[int, ...]
    sampling: Sampling = ZEROS
    dtype: DType = F32
    last: bool = False
    """Whether outputs have their channels last."""


CASES = {
    "linear": Case(2, (2, 16, 9, 7), (8, 9)),
    "cubic": Case(2, (2, 32, 9, 7), (8, 9), CUBIC),
    "channels last": Case(1, (2, 16, 9, 7), (8, 9), last=True),
    "part of a vector": Case(2, (2, 21, 9, 7), (8, 9)),
    "one image": Case(2, (1, 64, 6, 5), (31,)),
    "a volume": Case(2, (2, 16, 4, 5, 3), (7, 9)),
    "a line": Case(1, (2, 16, 40), (150,), CUBIC, last=True),
    "doubles": Case(2, (2, 16, 9, 7), (8, 9), dtype=F64),
    "halves": Case(2, (2, 16, 9, 7), (8, 9), dtype=F16),
    "few channels": Case(0, (2, 15, 9, 7), (8, 9)),
    "few places": Case(0, (2, 16, 19, 17), (3, 4)),
    "one element each": Case(0, (2, 16, 9, 7), (8, 9), Sampling("nearest", "zeros", corners=True)),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_under_test, "WORTH", 1)


def types(case: Case) -> tuple[TensorType, ...]:
    """Of the picture, and of the places along each of its axes."""
    along = TensorType(F32, (case.picture[0], *case.places))
    return TensorType(case.dtype, case.picture), *[along] * (len(case.picture) - 2)


def sampled(case: Case, x: Value, places: list[Value]) -> Value:
    found = sampled_at(convert_to(x, F32) if case.dtype is F16 else x, places, case.sampling)
    return found if case.last else transpose(found, (0, found.rank - 1, *range(1, found.rank - 1)))


def graph_of(case: Case) -> Graph:
    x, *places = (argument(number, kind) for number, kind in enumerate(types(case)))
    return Graph(types(case), (sampled(case, x, places),))


def inputs(case: Case, edges: bool = False) -> list[Array]:
    random = np.random.default_rng(0)
    x = random.standard_normal(case.picture)
    places = [random.uniform(-2, extent + 1, (case.picture[0], *case.places)) for extent in case.picture[2:]]
    if edges:
        x.reshape(-1)[::5] = EDGES[random.integers(0, EDGES.size, x.reshape(-1)[::5].size)]
        for each in places:
            each.reshape(-1)[::7] = FAR[random.integers(0, FAR.size, each.reshape(-1)[::7].size)]
    return [to_storage(x.astype(case.dtype.face), case.dtype), *(each.astype(np.float32) for each in places)]


@cache
def lowered(name: str) -> pipeline.Lowered:
    return pipeline.run(graph_of(CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_channels_come_last_where_they_fill_vectors_and_the_bits_are_the_references(name: str) -> None:
    case, before = CASES[name], lowered(name)
    cut = channels_last(before.program, LANES)
    assert len(cut.steps) == len(before.program.steps) + case.calls
    assert (cut is before.program) == (case.calls == 0)
    given = inputs(case, edges=True)
    assert_same_everywhere(cut, given, evaluate(before.graph, given)[:1])


def test_channels_lie_beside_each_other_where_places_are_computed() -> None:
    cut = channels_last(lowered("linear").program, LANES)
    computed = [
        (kernel, expr)
        for kernel in cut.kernels
        for expr in kernel.expressions
        if isinstance(expr, Load) and any(isinstance(each, Load) for each in topological([expr.offset]))
    ]
    assert computed
    for kernel, expr in computed:
        assert ix.coefficient(expr.offset, kernel.axes[-1]) == 1
        assert all(ix.coefficient(store.offset, kernel.axes[-1]) == 1 for store in kernel.stores)


@pytest.mark.parametrize("name", ["linear", "part of a vector"])
def test_against_pytorch_in_float64(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    case = CASES[name]
    x, *places = given = inputs(case)
    extents = case.picture[2:]
    grid = [2 * at.astype(np.float64) / (n - 1) - 1 for at, n in zip(places, extents, strict=True)]
    wanted = torch.nn.functional.grid_sample(
        torch.from_numpy(x.astype(np.float64)), torch.from_numpy(np.stack(grid[::-1], -1)), align_corners=True
    ).numpy()
    cut = channels_last(lowered(name).program, LANES)
    (found,) = evaluate(lowered(name).graph, given)[:1]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert_same_everywhere(cut, given, [found])


def test_what_else_is_computed_of_an_output_stays_with_it() -> None:
    """Before and behind: elements of the picture are negated as they are read, and a number is added to each place."""
    case = CASES["linear"]
    kinds = (*types(case), TensorType(F32, (2, 8, 9, 1)))
    x, *places, more = (argument(number, kind) for number, kind in enumerate(kinds))
    found = sampled_at(elementwise("neg", x), places, ZEROS)
    wide = elementwise("abs", add(found, broadcast(more, found.shape, range(4))))
    made = pipeline.run(Graph(kinds, (transpose(wide, (0, 3, 1, 2)),)))
    cut = channels_last(made.program, LANES)
    assert len(cut.steps) == len(made.program.steps) + 2
    given = [*inputs(case), np.random.default_rng(1).standard_normal(kinds[-1].shape).astype(np.float32)]
    assert_same_everywhere(cut, given, evaluate(made.graph, given)[:1])


def test_in_a_loop_pictures_are_read_by_its_counter() -> None:
    """Each iteration copies those of all: this pays where it reads many places."""
    case = Case(2, (2, 16, 9, 7), (16, 18))
    kinds = tuple(TensorType(kind.dtype, (3, *kind.shape)) for kind in types(case))
    rows = tuple(argument(number, kind) for number, kind in enumerate(kinds))
    graph = Graph(kinds, loop(3, (), rows, (), lambda _, x, *places: [sampled(case, x, list(places))]))
    made = pipeline.run(graph)
    cut = channels_last(made.program, LANES)
    before, after = ([s for s in walk(p.steps) if isinstance(s, CountedLoop)] for p in (made.program, cut))
    assert len(after[0].body) == len(before[0].body) + 2
    given = [np.stack([array, -array, array / 2]) for array in inputs(case)]
    assert_same_everywhere(cut, given, evaluate(made.graph, given)[:1])


@pytest.mark.parametrize("name", ["linear", "cubic", "channels last"])
def test_the_targets_take_it_and_memory_is_planned(name: str) -> None:
    before, given = lowered(name), inputs(CASES[name])
    for runner in FAMILY.runners:
        shaped = runner.code.shape(before.program)
        assert len([step for step in walk(shaped.steps) if isinstance(step, Call)]) > len(before.program.steps)
        assert plan(shaped.buffers, shaped.steps) == (shaped.buffers, shaped.arena_bytes)
        assert_same_everywhere(shaped, given, evaluate(before.graph, given)[:1])


def test_outputs_with_channels_last_stay_near() -> None:
    """Of a picture that is large enough for blocks, the copy alone takes memory beside what was taken before."""
    case = Case(2, (2, 64, 40, 40), (40, 40))
    made = pipeline.run(graph_of(case))
    for runner in FAMILY.runners:
        shaped = runner.code.shape(made.program)
        assert any(isinstance(step, RowBlocks) for step in shaped.steps)
        assert shaped.arena_bytes <= made.program.arena_bytes + 4 * int(np.prod(case.picture))


def test_a_memory_budget_holds() -> None:
    graph, needed = graph_of(CASES["linear"]), lowered("linear").program.arena_bytes
    roomy, tight = (pipeline.run(graph, memory_budget=most).program for most in (8 * needed, needed))
    assert channels_last(roomy, LANES) is not roomy
    assert channels_last(tight, LANES) is tight
    assert "most=" in tight.text and replace(tight, most_bytes=None).digest == lowered("linear").program.digest


# ── loads that may leave their channel ──────────────────────────────────────────────────────────────


def clamped(low: int, high: int) -> Program:
    """Four elements of each of 16 channels of 20 places, at places between two numbers."""
    channel, place, tap = ix.axis(0, 16), ix.axis(1, 20), ix.axis(2, 4)
    read: Expr = load(I64, 0, ix.linear((place, tap), (20, 4)))
    at = apply("min", apply("max", read, ix.number(low)), ix.number(high))
    value = load(F32, 1, ix.add(ix.scale(channel, 20), at))
    store = Store(2, ix.linear((channel, place, tap), (16, 20, 4)), apply("neg", value))
    sizes = ((I64, 80, False), (F32, 320, False), (F32, 1280, True))
    kernel = Kernel(tuple(BufferParameter(*size) for size in sizes), (), (channel, place, tap), 0, (store,))
    roles = ((INPUT, 0), (INPUT, 1), (OUTPUT, 0))
    buffers = tuple(Buffer(*size[:2], *role) for size, role in zip(sizes, roles, strict=True))
    return Program((kernel,), buffers, (), (Call(0, (0, 1, 2)),), 0)


@pytest.mark.parametrize(("low", "high", "calls"), [(0, 19, 3), (3, 7, 3), (0, 20, 1), (-1, 19, 1)])
def test_places_are_known_to_lie_in_their_channel(
    monkeypatch: pytest.MonkeyPatch, low: int, high: int, calls: int
) -> None:
    """Behind the last place of a channel lies the first of the next one, which a copy has elsewhere."""
    monkeypatch.setattr(pass_under_test, "READS", 0)
    program = clamped(low, high)
    assert len(channels_last(program, LANES).steps) == calls


def test_no_channels() -> None:
    """What is written into a turned picture without elements."""
    kinds = TensorType(F32, (0, 3)), TensorType(I64, (1, 1)), TensorType(F32, (1, 0))
    picture, points, updates = (argument(number, kind) for number, kind in enumerate(kinds))
    graph = Graph(kinds, (scatter("set", transpose(picture, (1, 0)), points, updates, (0,)),))
    inputs = [np.zeros(each.shape, np.int64 if each.dtype is I64 else np.float32) for each in kinds]
    program = channels_last(pipeline.run(graph).program, LANES)
    assert_same_everywhere(program, inputs, evaluate(graph, inputs, ()))
