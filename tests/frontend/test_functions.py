"""Local functions: their own opsets, left-out inputs, calls of calls, inside loops and branches; narrow floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import F16
from tests.frontend.models import function, model, node, value
from tests.frontend.running import assert_agrees, by_reference
from tests.frontend.test_control import check, closed, graph

X = np.array([[1.5, -2, 0.25], [0, 3, -1]], np.float32)


def imports(opset: int) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]


def test_a_function_means_its_own_opset() -> None:
    """Softmax of opset 12 flattens to two axes; that of the model's opset 21 works along one."""
    old = helper.make_function("local", "old", ["a"], ["b"], [node("Softmax", "a", "b", axis=1)], imports(12))
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    proto = model([node("old", "x", "y", domain="local")], [value("x", (2, 3, 2))], functions=[old], domains=["local"])
    flat = x.reshape(2, 6).astype(np.float64)
    wanted = np.exp(flat) / np.exp(flat).sum(1, keepdims=True)
    assert_agrees(proto, {"x": x}, expected=[wanted.reshape(x.shape).astype(np.float32)])


def test_an_input_left_out_stays_left_out_inside() -> None:
    clip = function("clip", "a low high", "b", [node("Clip", "a low high", "b")])
    body = [node("clip", "x _ top", "y", domain="local")]
    proto = model(
        body, [value("x", (2, 3))], initializers={"top": np.array(1, np.float32)}, functions=[clip], domains=["local"]
    )
    assert_agrees(proto, {"x": X}, expected=[np.minimum(X, 1)])


def test_too_many_inputs_for_a_function() -> None:
    relu = function("f", "a", "b", [node("Relu", "a", "b")])
    proto = model([node("f", "x x", "y", "call", "local")], [value("x")], functions=[relu], domains=["local"])
    with pytest.raises(ReproError) as caught:
        import_model(load_model(proto))
    assert (caught.value.op, caught.value.node, caught.value.found) == ("f", "call", "2 inputs, 1 outputs")


def test_an_output_nobody_asks_for_costs_nothing() -> None:
    two = function("two", "a", "b c", [node("Relu", "a", "b"), node("Unheard", "a", "c")])
    proto = model([node("two", "x", "y", domain="local")], [value("x", (2, 3))], functions=[two], domains=["local"])
    assert_agrees(proto, {"x": X}, expected=[np.maximum(X, 0)])


def test_a_call_in_a_loop_reads_what_the_loop_reads() -> None:
    """An operand that has to be known at build reaches a function inside a region."""
    turn = function("turn", "a s", "b", [node("Reshape", "a s", "b")])
    body = graph(
        [
            node("Identity", "go", "again"),
            node("turn", "h shape", "t", domain="local"),
            node("Transpose", "t", "u"),
            node("Reshape", "u back", "next"),
        ],
        [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("h", None)],
        ["again", "next"],
    )
    fixed = {"three": np.array(3), "shape": np.array([3, 2]), "back": np.array([2, 3])}
    proto = model(
        [node("Loop", "three _ x", "y", name="loop", body=body)],
        [value("x", (2, 3))],
        initializers=fixed,
        opset=17,
        functions=[helper.make_function("local", "turn", ["a", "s"], ["b"], turn.node, imports(17))],
        domains=["local"],
    )
    imported = check(proto, x=X)
    assert closed(imported.graph)
    assert any("turn_t/" in source for source in imported.locations.values())


def test_an_overload_is_a_function_of_its_own() -> None:
    made = [function("f", "a", "b", [node("Relu", "a", "b")]), function("f", "a", "b", [node("Neg", "a", "b")])]
    made[1].overload = "negative"
    call = node("f", "x", "y", domain="local")
    call.overload = "negative"
    proto = model([call], [value("x", (2, 3))], functions=made, domains=["local"])
    assert_agrees(proto, {"x": X}, expected=[-X])


# ── narrow floats (rule 3) ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "face"), [(TensorProto.FLOAT16, np.float16), (TensorProto.BFLOAT16, ml_dtypes.bfloat16)]
)
def test_a_narrow_operator_computes_in_f32_and_rounds_once(kind: int, face: type) -> None:
    proto = model([node("Gemm", "x w b", "y")], [value(name, (2, 2), kind) for name in "xwb"])
    rng = np.random.default_rng(3)
    feeds = {name: rng.normal(size=(2, 2)).astype(face) for name in "xwb"}
    x, w, b = (feeds[name].astype(np.float32) for name in "xwb")
    first, second = x[:, :1] * w[:1], x[:, 1:].astype(np.float64) * w[1:]
    wide = (first + second).astype(np.float32) + b  # products of narrow floats are exact in f32
    imported = import_model(load_model(proto))
    assert by_reference(imported, feeds)[0].tobytes() == wide.astype(face).tobytes()


def test_an_output_of_another_type_is_left_as_the_schema_says() -> None:
    """LayerNormalization's mean and deviation are f32 whatever its input is (stash_type)."""
    layer = node("LayerNormalization", "x s", "y mean inverse")
    proto = model(
        [layer], [value("x", (2, 3), TensorProto.FLOAT16), value("s", (3,), TensorProto.FLOAT16)], ["y", "mean"]
    )
    assert [port.type.dtype.name for port in import_model(load_model(proto)).outputs] == ["f16", "f32"]


def test_moving_a_narrow_float_keeps_its_bits() -> None:
    proto = model([node("Transpose", "x", "y")], [value("x", (2, 3), TensorProto.FLOAT16)])
    imported = import_model(load_model(proto))
    assert [each.op for each in imported.graph.nodes] == ["argument", "transpose"]
    assert imported.outputs[0].type.dtype is F16


def test_f8_is_only_stored_and_converted() -> None:
    proto = model([node("Relu", "x", "y", "act")], [value("x", (3,), TensorProto.FLOAT8E4M3FN)])
    with pytest.raises(ReproError) as caught:
        import_model(load_model(proto))
    assert (caught.value.op, caught.value.node) == ("Relu", "act")
    assert "f8" in caught.value.what
