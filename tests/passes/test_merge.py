"""Calls merged by the groups that touch the same buffers: the same as by a look at every group."""

from __future__ import annotations

import numpy as np
import pytest

from passes import merge
from passes.merge import Elementwise, elementwise
from repro.ir import index as ix
from repro.ir.expressions import apply, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32


def added(size: int) -> Kernel:
    """c[i] = a[i] + b[i]."""
    i = ix.axis(0, size)
    buffers = (*(BufferParameter(F32, size, False),) * 2, BufferParameter(F32, size, True))
    return Kernel(buffers, (), (i,), 0, (Store(2, i, apply("add", load(F32, 0, i), load(F32, 1, i))),))


def by_all_groups(calls: list[Elementwise]) -> list[Elementwise]:
    groups: list[Elementwise] = []
    for call in calls:
        place, body = merge._place(groups, range(len(groups) - 1, -1, -1), call)
        groups[place : place + 1] = [body]
    return groups


@pytest.mark.parametrize("buffers", [4, 9, 40])
def test_only_groups_near_a_call_matter(buffers: int) -> None:
    draw, joined, alone = np.random.default_rng(buffers), 0, 0
    for _ in range(20):
        sizes = draw.integers(10, 12, buffers)
        calls: list[Elementwise] = []
        for _ in range(30):
            size = draw.integers(10, 12)
            chosen = draw.choice(np.flatnonzero(sizes == size), 3).tolist() if (sizes == size).any() else []
            body = elementwise(added(int(size)), chosen) if len(set(chosen)) == 3 else None
            calls += [] if body is None else [body]
        found, wanted = merge.merge(calls), by_all_groups(calls)
        assert [(each.axes, each.stores) for each in found] == [(each.axes, each.stores) for each in wanted]
        joined, alone = joined + len(calls) - len(found), alone + len(found)
    assert joined > 20
    assert alone > 20
