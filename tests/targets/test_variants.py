"""No schedule that tuning can try changes a bit: every kernel of the golden models, along every dimension, and random
walks through all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.legality import refusal
from passes.schedule import schedule
from passes.variants import DIMENSIONS, variants
from repro.ir.contraction import find
from repro.ir.loops import Kernel
from repro.ir.parse_program import parse_schedule
from repro.ir.schedule import ContractionTile, Schedule
from repro.machines import AARCH64, Machine
from tests.targets.native import HERE, differences, run_kernel, same
from tests.targets.test_grouped_convolutions import Case, forward
from tests.targets.test_random_schedules import arrays, default_results, kernels

MACHINES = [*HERE, AARCH64]


def check(kernel: Kernel, machine: Machine, chosen: Schedule, threads: int) -> None:
    found = run_kernel(kernel, arrays(kernel), machine, chosen, threads)
    for buffer, left, right in zip(kernel.buffers, found, default_results(kernel), strict=True):
        assert same(buffer.dtype, left, right), (chosen.text, differences(buffer.dtype, left, right))


def single_steps(kernel: Kernel, machine: Machine) -> list[Schedule]:
    default = schedule(kernel, machine)
    return [each for dimension in DIMENSIONS for each in variants(dimension, kernel, machine, default)]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_every_dimension_has_something_to_try_and_all_of_it_is_legal(machine: Machine) -> None:
    tried = dict.fromkeys(DIMENSIONS, 0)
    for kernel in kernels():
        default = schedule(kernel, machine)
        assert refusal(kernel, default) is None
        for dimension in DIMENSIONS:
            found = variants(dimension, kernel, machine, default)
            tried[dimension] += len(found)
            assert default not in found
            assert len(set(found)) == len(found)
            for each in found:
                assert refusal(kernel, each) is None
                assert parse_schedule(each.text) == each
    assert all(tried.values()), tried


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_random_walks_give_equal_bits(data: st.DataObject) -> None:
    """A step along each dimension in turn, as tuning may take them."""
    kernel, machine = data.draw(st.sampled_from(kernels())), data.draw(st.sampled_from(HERE))
    chosen = schedule(kernel, machine)
    for dimension in DIMENSIONS:
        chosen = data.draw(st.sampled_from([chosen, *variants(dimension, kernel, machine, chosen)]))
    check(kernel, machine, chosen, data.draw(st.sampled_from([1, 3])))


@pytest.mark.full
@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.digest[:12])
def test_every_single_step_gives_equal_bits(kernel: Kernel, machine: Machine) -> None:
    for number, chosen in enumerate(single_steps(kernel, machine)):
        check(kernel, machine, chosen, (1, 3)[number % 2])


@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
def test_every_single_step_of_some_kernels_gives_equal_bits(machine: Machine) -> None:
    """The kernels with the most to try of each kind."""
    tiled = [kernel for kernel in kernels() if schedule(kernel, machine).tile is not None]
    plain = [kernel for kernel in kernels() if schedule(kernel, machine).tile is None]
    chosen = [max(kind, key=lambda kernel: len(single_steps(kernel, machine))) for kind in (tiled, plain)]
    counts = [len(single_steps(kernel, machine)) for kernel in chosen]
    assert min(counts) >= 8
    for kernel in chosen:
        for each in single_steps(kernel, machine):
            check(kernel, machine, each, 2)


@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
def test_a_window_without_blanks_is_tried_in_place(machine: Machine) -> None:
    kernel = forward(Case(groups=1, size=9, pad=0, channels=8, filters=48))
    default, blank = schedule(kernel, machine), forward(Case(groups=1, size=9, channels=8, filters=48))

    def in_place(each: Schedule) -> bool:
        return each.tile is not None and each.tile.window and each.tile.rows_in_place

    found = [each for each in variants("packing", kernel, machine, default) if in_place(each)]
    assert found and not in_place(default)
    for each in found:
        check(kernel, machine, each, 2)
    assert not any(map(in_place, variants("packing", blank, machine, schedule(blank, machine))))


def test_what_a_kernel_cannot_have_is_refused() -> None:
    kernel = next(kernel for kernel in kernels() if find(kernel) is not None and len(kernel.axes) == 2)
    plain = next(kernel for kernel in kernels() if find(kernel) is None and kernel.axes)
    tile = ContractionTile(4, 2, 8, 64)
    assert refusal(kernel, Schedule(None, 8, 1, tile)) is None
    for wrong in (
        Schedule(7, 8, 16), Schedule(-1, 8, 16), Schedule(1, 12, 16), Schedule(1, 0, 16), Schedule(1, 4096, 16),
        Schedule(None, 8, 16), Schedule(1, 8, 0), Schedule(1, 8, 16, None, (1,)), Schedule(1, 8, 16, None, (9,)),
        Schedule(None, 8, 1, None, (1, 0)), Schedule(1, 8, 1, tile), Schedule(None, 8, 2, tile),
        Schedule(None, 8, 1, tile, (0,)), Schedule(None, 1, 1, tile), Schedule(None, 24, 1, tile),
        Schedule(None, 8, 1, ContractionTile(0, 2, 8, 64)), Schedule(None, 8, 1, ContractionTile(100, 2, 8, 64)),
        Schedule(None, 8, 1, ContractionTile(4, 2, 0, 64)), Schedule(None, 8, 1, ContractionTile(4, 2, 8, 1 << 40)),
        Schedule(None, 8, 1, ContractionTile(4, 2, 8, 64, 99)),
    ):  # fmt: skip
        assert refusal(kernel, wrong) is not None, wrong.text
    assert refusal(plain, Schedule(None, 8, 1, tile)) is not None
