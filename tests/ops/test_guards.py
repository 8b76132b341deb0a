"""A condition on a value holds for whatever is read to decide on it: no access outside of a buffer."""

from __future__ import annotations

import numpy as np

from passes.lower import lower
from passes.prepare import expand
from repro.ir import index as ix
from repro.ir.expressions import Load, apply, const, load
from repro.ir.graph import Graph, argument
from repro.ir.types import F32, I64, TensorType
from repro.ops import gather, pad, scalar
from repro.ops.guards import guard
from repro.ops.record import evaluate
from repro.targets import interpreter


def test_a_pad_around_looked_up_rows_reads_no_index_outside() -> None:
    table, indices = TensorType(F32, (7, 5)), TensorType(I64, (4, 1))
    rows = gather(argument(0, table), argument(1, indices), (0,))
    graph = Graph((table, indices), (pad(rows, (2, 0), (3, 1), scalar(1.5, F32)),))
    operands = [np.arange(35, dtype=np.float32).reshape(7, 5), np.array([[0], [6], [-1], [3]])]
    program = lower(expand(graph))
    assert len(program.kernels) == 1, "the gather is not fused into the pad: the test would prove nothing"
    found = interpreter.run(program, operands)[0]
    assert found.tobytes() == evaluate(graph, operands)[0].tobytes()


def test_the_condition_of_a_load_is_guarded_too() -> None:
    at = ix.axis(0, 9)
    index = load(I64, 0, ix.add(at, ix.number(-2)))
    value = load(F32, 1, index, apply("ge", index, ix.number(0)))
    inside = ix.compare("ge", ix.add(at, ix.number(-2)), 0)
    guarded = guard(apply("add", value, const(F32, 0)), inside)
    stack, loads = [guarded], list[Load]()
    while stack:
        expr = stack.pop()
        stack += expr.children
        loads += [expr] if isinstance(expr, Load) else []
    assert loads and all(each.when is not None for each in loads)
