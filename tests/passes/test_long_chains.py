"""Hundreds of operators one behind the other, which are one expression, or several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import repro
from tests.targets.native import HERE


def chain(count: int) -> ModelProto:
    """x * (count + 1), by additions."""
    nodes = [helper.make_node("Add", [f"x{n}", "x0"], [f"x{n + 1}"]) for n in range(count)]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in ("x0", f"x{count}"))
    graph = helper.make_graph(nodes, "chain", [given], [made])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("count", [200, 590, 1500])
def test_a_long_chain_is_built_and_run(count: int, tmp_path: Path) -> None:
    artifact = repro.build(chain(count), tmp_path / "a", targets=[HERE[-1].name, "gpu"])
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    with artifact.session(target=HERE[-1].name) as session:
        (found,) = session.run({"x0": x}).values()
    np.testing.assert_array_equal(found, x * (count + 1))
