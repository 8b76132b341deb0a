"""Warnings: each finding is met, and a model as a trainer means it gives none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from repro.frontend import import_model, load_model
from repro.train_step.assemble import train_step
from repro.train_step.losses import MeanSquaredError, SoftmaxCrossEntropy
from repro.train_step.problem import TrainOptions
from tests.train_step.running import model

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
ONES = np.ones(4, np.float32)


def warnings(proto: ModelProto) -> tuple[str, ...]:
    return train_step(import_model(load_model(proto)), TrainOptions(MeanSquaredError())).warnings


def scaled(*nodes: Any, opset: int = 17, **initializers: Any) -> ModelProto:
    """y = gain * (what the nodes make of x as h)."""
    last = helper.make_node("Mul", ["h", "gain"], ["y"])
    return model([*nodes, last], {"x": (8, 4)}, ["y"], {"gain": ONES, **initializers}, opset)


@pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn"])
def test_models_exported_for_training_give_no_warning(name: str) -> None:
    imported = import_model(load_model(GOLDEN / name / "forward.onnx"), {"N": 4})
    assert train_step(imported, TrainOptions(SoftmaxCrossEntropy())).warnings == ()


def test_normalization_by_running_statistics() -> None:
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["h"], "norm")
    (said,) = warnings(scaled(node, s=ONES, b=ONES, m=ONES, v=ONES))
    assert said.startswith("BatchNormalization norm normalizes by its running statistics")


def test_running_statistics_that_are_no_outputs() -> None:
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["h"], "norm", training_mode=1)
    (said, *rest) = warnings(scaled(node, s=ONES, b=ONES, m=ONES, v=ONES))
    assert said.startswith("BatchNormalization norm does not name its running statistics")
    assert rest == []


@pytest.mark.parametrize(("opset", "operands"), [(10, ["x"]), (17, ["x", "ratio"]), (17, ["x", "ratio", "off"])])
def test_dropout_in_inference_mode(opset: int, operands: list[str]) -> None:
    proto = scaled(
        helper.make_node("Dropout", operands, ["h"], "drop"), opset=opset, ratio=np.float32(0.5), off=np.bool_(False)
    )
    (said,) = warnings(proto)
    assert said.startswith("Dropout drop is in inference mode")


def test_random_nodes_without_a_seed() -> None:
    nodes = [helper.make_node("Dropout", ["x", "ratio", "on"], ["h"], "drop") for _ in range(2)]
    nodes[1].attribute.append(helper.make_attribute("seed", 3))
    found = [warnings(scaled(node, ratio=np.float32(0.5), on=np.bool_(True))) for node in nodes]
    assert [len(each) for each in found] == [1, 0]
    assert found[0][0].startswith("drop draws random numbers without a seed")


def test_parameters_without_a_gradient() -> None:
    nodes = [helper.make_node("Add", ["x", "shift"], ["s"]), helper.make_node("Floor", ["s"], ["h"], "down")]
    proto = scaled(*nodes, shift=ONES, side=ONES)
    proto.graph.node.append(helper.make_node("Mul", ["h", "side"], ["z"]))
    proto.graph.output.append(helper.make_value_info("z", helper.make_tensor_type_proto(1, None)))
    found = warnings(proto)
    assert len(found) == 2
    assert "no gradient reaches the parameter shift: Floor down: piecewise constant" in found[0]
    assert found[1] == "no gradient reaches the parameter side: the loss does not depend on it"


def test_integer_tensors() -> None:
    nodes = [helper.make_node("Cast", ["table"], ["t"], to=1), helper.make_node("Add", ["x", "t"], ["h"])]
    (said,) = warnings(scaled(*nodes, table=np.ones((8, 4), np.int8)))
    assert said == "the integer tensor table i8[8,4] is a constant: it is not trained"
