"""Kernels whose iterations come one after another, with columns that do not depend on each other: a thread's blocks of
columns go through the iterations once."""

from __future__ import annotations

import numpy as np
import pytest

from passes.lower import lower
from passes.schedule import schedule
from repro.ir.graph import Graph, argument
from repro.ir.types import F32, I64, TensorType
from repro.machines import Machine
from repro.ops import scatter
from repro.ops.record import evaluate
from repro.targets.llvm import items
from repro.targets.llvm import kernel as kernels
from tests.targets.native import HERE, executable


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("together", [64, 128, 4096])
@pytest.mark.parametrize("width", [64, 130, 384])
def test_columns_have_the_references_bits(
    width: int, together: int, threads: int, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Duplicate indices, added in ascending order, and some out of range."""
    monkeypatch.setattr(items, "TOGETHER", together)
    kinds = TensorType(F32, (7, width)), TensorType(I64, (90, 1)), TensorType(F32, (90, width))
    operand, indices, updates = (argument(n, kind) for n, kind in enumerate(kinds))
    graph = Graph(kinds, (scatter("add", operand, indices, updates, (0,)),))
    program, random = lower(graph), np.random.default_rng(width)
    chosen = [schedule(kernel, machine) for kernel in program.kernels]
    cut = [kernels.run_together(*each) for each in zip(program.kernels, chosen, strict=True)]
    assert any(cut) == (width > 64)
    given = [
        random.standard_normal(kinds[0].shape).astype(np.float32),
        random.integers(-2, 9, kinds[1].shape),
        random.standard_normal(kinds[2].shape).astype(np.float32),
    ]
    runner = executable(program, machine, chosen, threads)
    found = runner.run(given)[0]
    runner.close()
    assert found.tobytes() == evaluate(graph, given)[0].tobytes()
