"""Which launches wait for which: all that must, nobody else, and the bits of a step in any order that this leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from passes import pipeline
from repro.ir import index as ix
from repro.ir.expressions import Lanes, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import (
    INPUT,
    OUTPUT,
    PARAMETER,
    PREPARED,
    Branch,
    Buffer,
    Call,
    CountedLoop,
    Program,
)
from repro.ir.types import BOOL, F32, Array
from repro.machines import SM_80
from repro.targets.gpu import codes, runtime
from repro.targets.gpu.driver import Driver, opened
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from repro.targets.gpu.interpreter.memory import GlobalMemory, Threads, Window
from repro.targets.gpu.order import Span, Touched, waits
from repro.targets.gpu.plan import Bound, launches
from repro.targets.gpu.runtime import DeviceExecutable
from tests.passes.test_row_blocks import inputs_of
from tests.targets.fake_cuda import FakeCuda, Work
from tests.targets.test_gpu_blocks import GRAPHS, eager
from tests.targets.test_gpu_runtime import entry, opened_fake

SPANS = st.tuples(st.integers(0, 12), st.integers(1, 6)).map(lambda each: (each[0], each[0] + each[1]))
LAUNCHES = st.lists(st.builds(Touched, st.frozensets(SPANS, max_size=3), st.frozensets(SPANS, max_size=2)), max_size=12)


def bytes_of(spans: frozenset[Span]) -> set[int]:
    return {address for start, end in spans for address in range(start, end)}


def conflict(one: Touched, other: Touched) -> bool:
    return bool(
        bytes_of(one.writes) & bytes_of(other.reads | other.writes) or bytes_of(one.reads) & bytes_of(other.writes)
    )


def behind(edges: Sequence[Sequence[int]]) -> list[set[int]]:
    """Of each all that have ended when it begins."""
    found: list[set[int]] = []
    for direct in edges:
        found.append({*direct, *(far for near in direct for far in found[near])})
    return found


@given(LAUNCHES)
def test_they_wait_for_those_that_touch_what_they_touch(launches: list[Touched]) -> None:
    """Byte by byte, two at a time: as simple as it can be said."""
    must = [[a for a in range(b) if conflict(launches[a], launches[b])] for b in range(len(launches))]
    found = waits(launches)
    assert behind(found) == behind(must)
    for number, direct in enumerate(found):
        for one in direct:
            rest = [each for each in direct if each != one]
            without = [*found[:number], rest, *found[number + 1 :]]
            assert one not in behind(without)[number], "it waits for one that another waits for"


def test_many_launches_on_the_same_memory_are_one_after_another() -> None:
    same = Touched(frozenset({(0, 8)}), frozenset({(8, 16)}))
    assert waits([same] * 4000) == [[], *([number] for number in range(3999))]
    readers = [Touched(frozenset({(0, 8)}), frozenset({(n, n + 1)})) for n in range(100, 4100)]
    (*_, last) = waits([*readers, Touched(frozenset(), frozenset({(0, 8)}))])
    assert last == list(range(4000))


class Watched(FakeCuda):
    """Notes the bytes that each launch really touches, which the interpreter sees, whatever is said of it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Array, Array]] = []
        """Of each launch that was run what it read and what it wrote: bits of the bytes of all allocations."""
        self.now: tuple[Array, Array] | None = None

    def _execute(self, work: Work) -> int:
        size = sum(array.size for array in self.allocations.values())
        self.now = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        found = super()._execute(work)
        self.seen.append((np.packbits(self.now[0]), np.packbits(self.now[1])))
        return found

    def note(self, window: Window, offsets: Array, nbytes: int, loads: bool) -> None:
        address, before = window.data.ctypes.data, 0
        for array in self.allocations.values():
            first = address - array.ctypes.data
            if 0 <= first < array.size and self.now is not None:
                places = before + first + np.unique(offsets).astype(np.int64)[:, None] + np.arange(nbytes)
                self.now[0 if loads else 1][places[places < before + array.size]] = True
            before += array.size


def sum_of(count: int) -> Kernel:
    """More than 4,096 numbers are summed by two launches with a workspace between them."""
    inner = ix.axis(0, count)
    total = reduce("add", Lanes(32, 4096), [inner], [load(F32, 0, inner)])
    held = BufferParameter(F32, count, False), BufferParameter(F32, 1, True)
    return Kernel(held, (), (), 0, (Store(1, ix.number(0), total),))


def drawn(count: int) -> Array:
    return np.random.default_rng(count).standard_normal(count).astype(np.float32)


def three_sums() -> tuple[Program, list[Array]]:
    buffers = [Buffer(F32, 9000, INPUT, n) for n in range(3)] + [Buffer(F32, 1, OUTPUT, n) for n in range(3)]
    steps = tuple(Call(0, (n, n + 3)) for n in range(3))
    return Program((sum_of(9000),), tuple(buffers), (), steps, 0), [drawn(9000 + n)[:9000] for n in range(3)]


@pytest.mark.parametrize("chosen", [False, True])
def test_each_call_has_a_workspace_of_its_size(chosen: bool) -> None:
    """The largest made once, another on one side of a choice, one in a loop of the host."""
    counts = 70_000, 30_000, 9_000, 1
    kernels = tuple(map(sum_of, counts))
    buffers = (
        *(Buffer(F32, count, INPUT, n) for n, count in enumerate(counts[1:3])), Buffer(BOOL, 1, INPUT, 2),
        Buffer(F32, counts[0], PARAMETER, 0), Buffer(F32, 1, PREPARED, 0),
        *(Buffer(F32, 1, OUTPUT, n) for n in range(3)),
    )  # fmt: skip
    steps = (
        Branch(2, (Call(1, (0, 5)),), (Call(2, (1, 5)),)), CountedLoop(3, (Call(2, (1, 6)),)), Call(3, (4, 7)),
    )  # fmt: skip
    program = Program(kernels, buffers, (), steps, 0, once=(Call(0, (3, 4)),))
    made = codes(program, SM_80)
    sizes = [code.workspace_bytes for code in made]
    assert sorted(sizes, reverse=True) == sizes and sizes[2] > 0 == sizes[3]
    _, driver = opened_fake()
    given, weights = [drawn(counts[1]), drawn(counts[2]), np.array([chosen])], drawn(counts[0])
    device = DeviceExecutable(program, made, [weights], driver, most_in_graph=1)
    bounds = [*launches(device._plan), *launches(device._once)]
    assert len({bound.kernel for bound in bounds}) == len(kernels)
    for bound in bounds:
        if bound.workspace is not None:
            start, end = device._workspace(bound.workspace)
            assert end - start >= made[bound.kernel].workspace_bytes > 0
    model = InterpretedExecutable(program, made, [weights])
    for _ in range(2):
        assert [array.tobytes() for array in device.run(given)] == [array.tobytes() for array in model.run(given)]


def watched(case: str, patch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Pairs of launches, by number, that touch what the other writes though neither waits for the other."""
    parameters: Sequence[Array] = ()
    if case == "sums":
        program, inputs = three_sums()
        kernels = codes(program, SM_80)
    elif case in GRAPHS:
        graph = GRAPHS[case]()
        program, inputs = eager(pipeline.run(graph).program), inputs_of(graph)
        kernels = codes(program, SM_80)
    else:
        program, kernels, inputs, parameters = entry(case, "train_step")
    library, places = Watched(), GlobalMemory._places

    def noted(
        memory: GlobalMemory, addresses: Array, nbytes: int, threads: Threads, loads: bool = False
    ) -> Iterator[Any]:
        for window, offsets, chosen in places(memory, addresses, nbytes, threads, loads):
            library.note(window, offsets, nbytes, loads)
            yield window, offsets, chosen

    patch.setattr(GlobalMemory, "_places", noted)
    library.order = min  # in the program's order
    driver = opened(library)
    assert isinstance(driver, Driver)
    device = DeviceExecutable(program, kernels, parameters, driver)
    device.run(inputs)
    library.seen.clear()
    device.run(inputs)
    assert library.count("cuGraphLaunch") == 1
    (nodes,) = library.ready.values()
    assert len(nodes) == len(library.seen) > 2
    assert all(written.any() for _, written in library.seen), "a launch that writes nothing was not seen"
    ended = behind([sorted(earlier) for _, earlier in nodes])
    return [
        (a, b)
        for b, (reads, writes) in enumerate(library.seen)
        for a, (read, written) in enumerate(library.seen[:b])
        if a not in ended[b] and ((written & (reads | writes)).any() or (read & writes).any())
    ]


WATCHED = ("sums", "trained", "loop", "digits_mlp_trained", "digits_cnn_trained")


@pytest.mark.parametrize("case", WATCHED)
def test_launches_that_touch_what_another_writes_wait_for_it(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not watched(case, monkeypatch)


@pytest.mark.parametrize(
    ("case", "left_out"), [("sums", "workspace"), ("trained", "blocks"), ("digits_mlp_trained", "reads")]
)
def test_what_is_left_out_is_found(case: str, left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launch touches without saying so: its workspace, what a step over blocks of rows writes, what is read."""
    touched = DeviceExecutable._touched

    def less(self: DeviceExecutable, bound: Bound) -> Touched:
        if left_out == "workspace":
            return touched(self, replace(bound, workspace=None))
        if left_out == "blocks":
            inside = bound.kernel >= len(self.program.kernels)
            return touched(self, replace(bound, written=()) if inside else bound)
        return replace(touched(self, bound), reads=frozenset())

    monkeypatch.setattr(DeviceExecutable, "_touched", less)
    assert watched(case, monkeypatch)


Order = Callable[[Sequence[int]], int]


def breadth_first() -> Order:
    """Of what waits for nothing any more, what has waited the longest: launches of calls side by side take turns."""
    known: dict[int, int] = {}

    def chosen(ready: Sequence[int]) -> int:
        for number in ready:
            known.setdefault(number, len(known))
        return min(ready, key=lambda number: known[number])

    return chosen


@pytest.mark.parametrize("order", [breadth_first, lambda: max], ids=["breadth first", "last first"])
@pytest.mark.parametrize("case", ["digits_cnn_trained", "digits_mlp_trained"])
def test_any_order_that_is_left_has_the_same_bits(case: str, order: Callable[[], Order]) -> None:
    """Random ones are taken by every other test of the runtime. Without edges the last first is another result."""
    program, kernels, inputs, parameters = entry(case, "train_step")
    library, driver = opened_fake()
    library.order = order()
    device = DeviceExecutable(program, kernels, parameters, driver)
    model = InterpretedExecutable(program, kernels, parameters)
    for _ in range(2):
        wanted = [array.tobytes() for array in model.run(inputs)]
        assert [array.tobytes() for array in device.run(inputs)] == wanted
    for position in range(len(parameters)):
        left, right = device.parameter(position), model.parameter(position)
        assert left is not None and right is not None and left.tobytes() == right.tobytes()


def test_a_graph_without_edges_has_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "waits", lambda launches: [[] for _ in launches])
    program, kernels, inputs, parameters = entry("digits_mlp", "infer")
    library, driver = opened_fake()
    library.order = max
    device = DeviceExecutable(program, kernels, parameters, driver)
    device.run(inputs)
    others = [np.flip(each).copy() for each in inputs]
    (wanted,) = InterpretedExecutable(program, kernels, parameters).run(others)
    assert device.run(others)[0].tobytes() != wanted.tobytes()
    assert library.count("cuGraphLaunch") == 1


def test_a_steps_gradients_of_weights_run_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[list[list[int]]] = []

    def kept(launches: Sequence[Touched]) -> list[list[int]]:
        orders.append(waits(launches))
        return orders[-1]

    monkeypatch.setattr(runtime, "waits", kept)
    program, kernels, inputs, parameters = entry("nano_gpt_trained", "train_step")
    _, driver = opened_fake(executes=False)
    device = DeviceExecutable(program, kernels, parameters, driver)
    for _ in range(2):
        device.run(inputs)
    (order,) = orders
    beside = sum(number - 1 not in direct for number, direct in enumerate(order) if number)
    assert beside > len(order) // 4, f"{beside} of {len(order)}"
