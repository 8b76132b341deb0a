"""Bits of NaNs that are settled as nests write: one kernel less, and the reference's bytes."""

from __future__ import annotations

import numpy as np
import pytest

from passes import lower, pipeline
from repro.ir.graph import Graph, Value, argument
from repro.ir.types import F16, F32, I64, Array, DType, TensorType
from repro.ops import add, canonical_nan, cumulative, gather, scatter
from repro.ops.record import OPS, evaluate
from repro.targets import interpreter
from tests.running import assert_same_everywhere

ROWS, WIDTH, POINTS = 7, 40, 30


def graph(combiner: str, dtype: DType, width: int) -> Graph:
    shape = (ROWS, width)[: 2 if width else 1]
    kinds = TensorType(dtype, shape), TensorType(I64, (POINTS, 1)), TensorType(dtype, (POINTS, *shape[1:]))
    operand, indices, updates = (argument(number, kind) for number, kind in enumerate(kinds))
    made = scatter(combiner, operand, indices, updates, (0,))
    return Graph(kinds, (canonical_nan(made),))


def given(dtype: DType, width: int) -> list[Array]:
    """NaNs of many payloads, infinities, zeros of both signs; points out of range; a row without one."""
    random = np.random.default_rng(2)
    shape = (width,) if width else ()
    kind = np.float16 if dtype is F16 else np.float32
    values = [random.standard_normal((count, *shape)).astype(kind) for count in (ROWS, POINTS)]
    for each in values:
        flat = each.reshape(-1)
        flat[::7], flat[1::9], flat[2::11] = np.inf, -np.inf, -0.0
        bits = flat.view(f"u{dtype.bytes}")
        bits[3::8] |= 0xFE05 if dtype is F16 else 0xFFA00005
    values = [each.view(dtype.storage) for each in values]
    return [values[0], random.integers(-2, ROWS - 1, (POINTS, 1)), values[1]]


def kernels(made: Graph, settle: bool = True) -> int:
    """Of its program; with `settle` false, of what it would be if bits were settled by a kernel of their own."""
    with pytest.MonkeyPatch.context() as patch:
        if not settle:
            patch.setattr(lower._Region, "settled", lambda *_: None)
        return len(pipeline.run(made).program.kernels)


@pytest.mark.parametrize(
    ("combiner", "dtype", "width"),
    [("add", F32, WIDTH), ("set", F32, WIDTH), ("set", F16, WIDTH), ("min", F32, 33)],
)
def test_settled_as_they_are_written(combiner: str, dtype: DType, width: int) -> None:
    made, inputs = graph(combiner, dtype, width), given(dtype, width)
    assert kernels(made) == kernels(made, settle=False) - 1
    assert_same_everywhere(pipeline.run(made).program, inputs, evaluate(made, tuple(inputs)))


def test_what_others_read_too_and_running_sums_are_settled_behind() -> None:
    kind = TensorType(F32, (300,))
    sums: Value = cumulative("add", argument(0, kind), 0)
    running = Graph((kind,), (canonical_nan(sums),))
    assert kernels(running) == kernels(running, settle=False)
    both = graph("add", F32, WIDTH)
    scattered = both.results[0].node.operands[0]
    again = Graph(both.arguments, (*both.results, canonical_nan(add(scattered, scattered))))
    assert kernels(again) == kernels(again, settle=False)
    inputs = given(F32, WIDTH)
    settled = interpreter.run(pipeline.run(again).program, [array.reshape(-1) for array in inputs])[0]
    assert settled.tobytes() == evaluate(again, tuple(inputs))[0].tobytes()


def test_the_gradient_of_a_gather_begins_from_its_first_contribution() -> None:
    """-0.0 where all that is added is that, +0.0 where nothing is, the first contribution's payload settled."""
    kind, points = TensorType(F32, (4, 3)), TensorType(I64, (3, 1))
    table, index, g = argument(0, kind), argument(1, points), argument(2, TensorType(F32, (3, 3)))
    rule = OPS["gather"].gradient
    assert callable(rule)
    gradient = rule(gather(table, index, (0,)).node, (g,))[0]
    assert gradient is not None
    made = Graph((kind, points, g.type), (canonical_nan(gradient),))
    ends = np.array([[-0.0, 1, 2], [-0.0, 1e-45, np.nan], [5, 5, 5]], np.float32)
    inputs = [np.ones(12, np.float32), np.array([2, 2, 9]), ends.reshape(-1)]
    wanted = np.zeros((4, 3), np.float32)
    wanted[2] = -0.0, 1, np.nan
    assert_same_everywhere(pipeline.run(made).program, inputs, [wanted])
