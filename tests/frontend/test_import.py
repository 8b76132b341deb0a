"""What an import gives: values, parameters, constants, names, locations."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import TensorType
from tests.frontend.models import GOLDEN, function, model, node, relu_model, value
from tests.frontend.running import assert_agrees, by_reference, operations

ROOT = Path(__file__).resolve().parents[2]
ONES = np.ones((3, 3), np.float32)


@cache
def _feeds(name: str) -> dict[str, np.ndarray]:
    path, bind = GOLDEN[name]
    random = np.random.default_rng(7)
    feeds: dict[str, np.ndarray] = {}
    for port in import_model(load_model(ROOT / path), bind=bind).inputs:
        ids = random.integers(0, 16, port.type.shape)
        floats = random.standard_normal(port.type.shape).astype(np.float32)
        feeds[port.name] = floats if port.type.dtype.is_float else ids
    return feeds


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_models_agree_with_onnxruntime(name: str) -> None:
    path, bind = GOLDEN[name]
    assert_agrees(onnx.load(ROOT / path), _feeds(name), tolerance=1e-4, bind=bind)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_node_of_a_golden_model_has_a_source(name: str) -> None:
    path, bind = GOLDEN[name]
    imported = import_model(load_model(ROOT / path), bind=bind)
    leaves = ("argument", "parameter", "constant")
    inner = [each for each in imported.graph.nodes if each.op not in leaves]
    assert inner
    assert [each for each in inner if each not in imported.locations] == []


def test_shape_arithmetic_folds_away() -> None:
    path, bind = GOLDEN["nano_gpt"]
    imported = import_model(load_model(ROOT / path), bind=bind)
    integers = [each for each in imported.graph.nodes if not each.types[0].dtype.is_float and each.op != "constant"]
    assert len(integers) < 20


# ── parameters and constants ────────────────────────────────────────────────────────────────────────


def test_float_initializers_are_parameters_with_identity() -> None:
    proto = model(
        [node("MatMul", "x a", "h"), node("MatMul", "h b", "y")],
        [value("x", (3, 3))],
        initializers={"b": ONES, "a": ONES},
    )
    imported = import_model(load_model(proto))
    assert [slot.name for slot in imported.parameters] == ["a", "b"]
    assert all(slot.trainable and slot.type == TensorType(slot.type.dtype, (3, 3)) for slot in imported.parameters)


def test_only_floats_of_rank_one_and_up_are_trainable() -> None:
    proto = model(
        [node("MatMul", "x w", "h"), node("Mul", "h s", "y")],
        [value("x", (3, 3))],
        initializers={"w": ONES, "s": np.array(2, np.float32)},
    )
    imported = import_model(load_model(proto))
    assert {slot.name: slot.trainable for slot in imported.parameters} == {"w": True, "s": False}


def test_parameters_are_never_folded() -> None:
    proto = model([node("Add", "a b", "c"), node("Relu", "c", "y")], initializers={"a": ONES, "b": ONES})
    imported = import_model(load_model(proto))
    assert len(imported.parameters) == 2
    assert operations(imported)["add"] == 1


def test_integer_initializers_are_constants() -> None:
    table = {"w": np.arange(6, dtype=np.int64), "two": np.array(2, np.int64)}
    imported = import_model(load_model(model([node("Mul", "w two", "y")], initializers=table)))
    assert operations(imported) == {"constant": 1}
    assert by_reference(imported, {})[0].tolist() == [0, 2, 4, 6, 8, 10]


def test_initializers_that_are_inputs_too() -> None:
    """Before IR version 4 every initializer is listed as an input; it is none."""
    proto = model([node("MatMul", "x w", "y")], [value("x", (3, 3)), value("w", (3, 3))], initializers={"w": ONES})
    imported = import_model(load_model(proto))
    assert [port.name for port in imported.inputs] == ["x"]
    assert [slot.name for slot in imported.parameters] == ["w"]


def test_a_float_initializer_may_serve_as_a_static_value() -> None:
    """A shape computed from a float initializer is known at build, and the initializer is no parameter then."""
    proto = model(
        [node("Cast", "s", "i", to=TensorProto.INT64), node("Reshape", "x i", "y")],
        [value("x", (6,))],
        initializers={"s": np.array([2, 3], np.float32)},
    )
    imported = assert_agrees(proto, {"x": np.arange(6, dtype=np.float32)})
    assert imported.parameters == ()


def test_negative_zero_is_a_constant_of_its_own() -> None:
    def digest(number: float) -> bytes:
        constant = helper.make_tensor("c", TensorProto.FLOAT, (), [number])
        proto = model([node("Constant", "", "c", value=constant), node("Add", "x c", "y")], [value("x")])
        return import_model(load_model(proto)).graph.digest

    assert digest(0.0) != digest(-0.0)


# ── inputs, values fixed at build, what is reached ──────────────────────────────────────────────────


def test_inputs_and_outputs_are_positional() -> None:
    proto = model(
        [node("Relu", "b", "u"), node("Relu", "a", "v")], [value("a", (2,)), value("unused"), value("b")], ["v", "u"]
    )
    imported = import_model(load_model(proto))
    assert [port.name for port in imported.inputs] == ["a", "unused", "b"]
    assert [(port.name, port.type.shape) for port in imported.outputs] == [("v", (2,)), ("u", (3,))]


def test_dimensions_by_name_by_place_and_by_given_shapes() -> None:
    proto = model([node("MatMul", "x w", "y")], [value("x", ("N", 4)), value("w", (4, None))])
    imported = import_model(load_model(proto), bind={"N": 5, "w[1]": 2})
    assert imported.outputs[0].type.shape == (5, 2)
    assert imported.bound == {"N": 5, "w[1]": 2}
    shapes = {"x": (5, 4), "w": (4, 2)}
    assert import_model(load_model(proto), input_shapes=shapes).graph.digest == imported.graph.digest


def test_a_fixed_input_is_a_constant() -> None:
    proto = model([node("Reshape", "x shape", "y")], [value("x", (6,)), value("shape", (2,), TensorProto.INT64)])
    imported = import_model(load_model(proto), set_values={"shape": [3, -1]})
    assert [port.name for port in imported.inputs] == ["x"]
    assert imported.outputs[0].type.shape == (3, 2)


def test_a_value_needed_at_build_asks_for_set() -> None:
    proto = model(
        [node("Add", "n n", "shape"), node("Reshape", "x shape", "y", name="re")],
        [value("x", (6,)), value("n", (1,), TensorProto.INT64)],
    )
    with pytest.raises(ReproError) as caught:
        import_model(load_model(proto))
    error = caught.value
    assert (error.op, error.node) == ("Reshape", "re")
    assert "--set n=VALUE" in str(error.next)


def test_what_no_output_needs_is_not_imported() -> None:
    proto = relu_model()
    proto.graph.node.append(node("NoSuchOp", "x", "unused", domain="acme"))
    assert operations(import_model(load_model(proto))).get("max", 0) <= 1


def test_locations_name_the_onnx_node() -> None:
    imported = import_model(load_model(model([node("Relu", "x", "y", name="act")], [value("x")])))
    assert set(imported.locations.values()) == {"Relu act"}


# ── local functions ─────────────────────────────────────────────────────────────────────────────────


def test_a_local_function_is_its_nodes() -> None:
    double = function("double", "a b", "c", [node("MatMul", "a b", "t"), node("Relu", "t", "c")])
    called = model(
        [node("double", "x w", "t", domain="local"), node("double", "t w", "y", domain="local")],
        [value("x", (3, 3))],
        initializers={"w": ONES},
        functions=[double],
        domains=["local"],
    )
    written = model(
        [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b w", "c"), node("Relu", "c", "y")],
        [value("x", (3, 3))],
        initializers={"w": ONES},
    )
    imported = assert_agrees(called, {"x": ONES})
    assert imported.graph.digest == import_model(load_model(written)).graph.digest
    assert any("double_t/" in source for source in imported.locations.values())


def test_attributes_of_a_function_reach_its_nodes() -> None:
    inner = node("Gemm", "a b", "c")
    inner.attribute.add(name="alpha", ref_attr_name="scale", type=onnx.AttributeProto.FLOAT)
    inner.attribute.add(name="transA", ref_attr_name="turn", type=onnx.AttributeProto.INT)
    scaled = function("scaled", "a b", "c", [inner], attributes=["turn"])
    scaled.attribute_proto.append(helper.make_attribute("scale", 0.5))
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    calls: list[tuple[dict[str, Any], np.ndarray]] = [
        ({}, 0.5 * x @ x),
        ({"scale": 2.0}, 2 * x @ x),
        ({"turn": 1}, 0.5 * x.T @ x),
    ]
    for given, expected in calls:
        proto = model(
            [node("scaled", "x x", "y", domain="local", **given)],
            [value("x", (3, 3))],
            functions=[scaled],
            domains=["local"],
        )
        assert_agrees(proto, {"x": x}, expected=[expected.astype(np.float32)])


def test_a_function_shadows_no_outer_name() -> None:
    """A function sees its own inputs only, whatever names its caller uses."""
    inner = function("f", "a", "b", [node("Relu", "a", "x"), node("Relu", "x", "b")])
    proto = model([node("f", "x", "y", domain="local")], [value("x")], functions=[inner], domains=["local"])
    assert_agrees(proto, {"x": np.array([-1, 0, 2], np.float32)})
