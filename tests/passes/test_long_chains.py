"""Many operators one behind the other, or side by side: builds take time in proportion, not to all paths among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import repro
from passes import pipeline
from repro.ir.graph import Graph, Value, argument
from repro.ir.types import F32, I64, TensorType
from repro.ops import add, canonical_nan, concatenate, elementwise, gather, mul, neg, reshape, slice_
from repro.ops.record import evaluate
from tests.running import assert_same_everywhere
from tests.targets.native import HERE


def chain(count: int) -> ModelProto:
    """x * (count + 1), by additions."""
    nodes = [helper.make_node("Add", [f"x{n}", "x0"], [f"x{n + 1}"]) for n in range(count)]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in ("x0", f"x{count}"))
    graph = helper.make_graph(nodes, "chain", [given], [made])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("count", [200, 590, 3500])
def test_a_long_chain_is_built_and_run(count: int, tmp_path: Path) -> None:
    artifact = repro.build(chain(count), tmp_path / "a", targets=[HERE[-1].name, "gpu"])
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    with artifact.session(target=HERE[-1].name) as session:
        (found,) = session.run({"x0": x}).values()
    np.testing.assert_array_equal(found, x * (count + 1))


X, INDICES = TensorType(F32, (40, 3)), TensorType(I64, (40, 1))


def neighbours(x: Value, indices: Value) -> Value:
    """Sums over the neighbours of neighbours of ..., each of which is a load at a loaded index."""
    value = x
    for _ in range(24):
        value = add(gather(value, indices, (0,)), x)
    return value


def diamonds(x: Value, indices: Value) -> Value:
    """2^24 paths from x to what a gather picks a few rows of."""
    value = x
    for _ in range(24):
        value = add(mul(value, x), elementwise("abs", value))
    return gather(value, slice_(indices, (0, 0), (5, 1)), (0,))


def stacked(x: Value, indices: Value) -> Value:
    """Steps of a recurrence, all of which are kept: each is written where it belongs."""
    rows = [mul(x, x)]
    for _ in range(99):
        rows.append(mul(elementwise("exp", neg(elementwise("abs", rows[-1]))), x))
    return concatenate([reshape(row, (1, *row.shape)) for row in rows], 0)


def joined(x: Value, indices: Value) -> Value:
    """Parts of what is given, which nobody writes."""
    return concatenate([slice_(x, (n % 40, 0), (n % 40 + 1, 3)) for n in range(300)], 0)


@pytest.mark.parametrize("made", [neighbours, diamonds, stacked, joined])
def test_many_paths_are_lowered_and_run(made: Callable[[Value, Value], Value]) -> None:
    random = np.random.default_rng(5)
    inputs = [random.standard_normal((40, 3)).astype(np.float32), random.integers(0, 40, (40, 1))]
    graph = Graph((X, INDICES), (canonical_nan(made(argument(0, X), argument(1, INDICES))),))
    assert_same_everywhere(pipeline.run(graph).program, inputs, evaluate(graph, inputs))
