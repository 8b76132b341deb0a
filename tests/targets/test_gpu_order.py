"""Which launches wait for which: all that must, nobody else, and the bits of a step in any order that this leaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.targets.gpu import runtime
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from repro.targets.gpu.order import Span, Touched, waits
from repro.targets.gpu.runtime import DeviceExecutable
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


@pytest.mark.parametrize("order", [min, max], ids=["first first", "last first"])
@pytest.mark.parametrize("case", ["digits_cnn_trained", "digits_mlp_trained"])
def test_any_order_that_is_left_has_the_same_bits(case: str, order: object) -> None:
    """Random ones are taken by every other test of the runtime. Without edges the last first is another result."""
    program, kernels, inputs, parameters = entry(case, "train_step")
    library, driver = opened_fake()
    library.order = order  # pyright: ignore[reportAttributeAccessIssue]
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
