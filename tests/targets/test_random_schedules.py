"""No schedule changes a bit: random legal schedules of every kernel of the golden models."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import bless
from passes import pipeline
from passes.fused_updates import fused_updates
from passes.legality import refusal
from passes.schedule import schedule
from passes.windows import window
from repro.ir.contraction import find
from repro.ir.loops import Kernel
from repro.ir.parse_program import parse_schedule
from repro.ir.schedule import COLUMNS, LANES, ContractionTile, Schedule
from repro.ir.types import Array
from repro.machines import AARCH64
from tests.targets.native import HERE, differences, run_kernel, same

CASES = bless.cases()
BATCH = 3
"""Of models whose golden inputs fix it otherwise: kernels stay small."""


@cache
def kernels() -> list[Kernel]:
    """Every distinct kernel of every golden model, in a fixed order."""
    found: dict[str, Kernel] = {}
    for name, case in CASES.items():
        bind = case.get("bind", {"N": BATCH} if "inputs" in case else {})
        for entry in bless.entries(case, bind):
            lowered = pipeline.run(entry.graph, entry.locations, entry.updates)
            assert lowered.program.kernels, name
            both = lowered.program, fused_updates(lowered.program)
            found.update((kernel.digest, kernel) for program in both for kernel in program.kernels)
    return list(found.values())


def arrays(kernel: Kernel) -> list[Array]:
    """Any bits for floats would do; small integers are likely indices."""
    rng = np.random.default_rng(0)
    made: list[Array] = []
    for buffer in kernel.buffers:
        if buffer.dtype.is_float and buffer.dtype.computes:
            made.append(rng.standard_normal(buffer.elements).astype(buffer.dtype.storage))
        else:
            made.append(rng.integers(0, 2, buffer.elements).astype(buffer.dtype.storage))
    return made


@lru_cache(maxsize=4)
def default_results(kernel: Kernel) -> list[Array]:
    """By the cost model's schedule for the first machine."""
    return run_kernel(kernel, arrays(kernel), HERE[0])


@st.composite
def schedules(draw: st.DrawFn, kernel: Kernel) -> Schedule:
    """Any legal schedule: every vector axis, width, block, set of inner axes; tiles where there can be some."""
    parallel = range(kernel.serial, len(kernel.axes))
    if find(kernel) is not None and draw(st.booleans()):
        sizes = st.integers(1, 70)
        rows, vectors, unroll = draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
        block_m, block_n = draw(sizes), draw(sizes)
        windowed = window(kernel, block_m) is not None and draw(st.booleans())
        lanes = draw(st.sampled_from(LANES))
        other = ContractionTile(rows, vectors, block_m, block_n, window=True, lanes=lanes)
        along = Schedule(None, draw(st.sampled_from([2, 4, 8, 16])), 1, other)
        if lanes != COLUMNS and refusal(kernel, along) is None:
            return along
        packs, in_place, row_items, makes, before = (draw(st.booleans()) for _ in range(5))
        flags = (windowed, packs, in_place, row_items, makes and not windowed, before and not windowed)
        tile = ContractionTile(rows, vectors, block_m, block_n, unroll, *flags)
        return Schedule(None, draw(st.sampled_from([2, 4, 8, 16])), 1, tile)
    vector = draw(st.sampled_from([None, *parallel]))
    width = 1 if vector is None else draw(st.sampled_from([1, 2, 4, 8, 16]))
    block = 1 if vector is None else draw(st.integers(1, max(1, kernel.axes[vector].extent)))
    inner = (
        draw(st.sets(st.sampled_from([axis for axis in parallel if axis != vector]))) if len(parallel) > 1 else set()
    )
    order = draw(st.permutations([axis for axis in parallel if axis != vector]))
    made = Schedule(vector, width, block, None, tuple(sorted(inner)), order=tuple(order))
    swept = replace(made, sweep=draw(st.sampled_from([1, 2, 8])))
    return swept if refusal(kernel, swept) is None else made


def test_there_are_kernels_of_every_kind() -> None:
    assert len(kernels()) > 20
    assert any(find(kernel) is not None for kernel in kernels())
    assert any(kernel.serial == 0 and find(kernel) is None for kernel in kernels())


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.digest[:12])
@given(data=st.data())
@settings(max_examples=1, deadline=None)
def test_random_schedules_give_equal_bits(kernel: Kernel, data: st.DataObject) -> None:
    chosen, machine = data.draw(schedules(kernel)), data.draw(st.sampled_from(HERE))
    assert parse_schedule(chosen.text) == chosen
    found = run_kernel(kernel, arrays(kernel), machine, chosen, data.draw(st.sampled_from([1, 3])))
    for buffer, left, right in zip(kernel.buffers, found, default_results(kernel), strict=True):
        assert same(buffer.dtype, left, right), differences(buffer.dtype, left, right)


@pytest.mark.parametrize("machine", [*HERE, AARCH64], ids=lambda m: m.name)
def test_the_cost_model_is_a_function(machine) -> None:
    """And what it says is legal: it reads back, and is the same again."""
    for kernel in kernels():
        first = schedule(kernel, machine)
        assert schedule(kernel, machine) == first == parse_schedule(first.text)
