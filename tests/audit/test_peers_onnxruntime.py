"""ONNX Runtime as a peer: what it lowers a model to has its bits, what is fused is named, what fails has a reason."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from repro.audit.model import fed_inputs, opened, prepare, severed
from repro.audit.peers import onnxruntime as module
from repro.audit.peers.onnxruntime import OnnxRuntime, fused_nodes
from repro.audit.peers.peer import PeerError
from repro.audit.records import Outcome
from repro.ir.types import Array
from tests.audit.models import CHAIN, golden_models, model

PEER = OnnxRuntime()
EXECUTORS = {executor.name: executor for executor in PEER.variants()}
PLAIN = EXECUTORS["onnxruntime[level=disable,threads=1]"]
OPTIMIZED = EXECUTORS["onnxruntime[level=all,threads=1]"]
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

CONVOLUTION = """g (float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y)
{
  c = Conv <pads = [1, 1, 1, 1]> (x, w)
  r = Relu(c)
  y = Softmax(r)
}"""


def convolution() -> ModelProto:
    made = model(CONVOLUTION)
    weight = np.random.default_rng(0).standard_normal((16, 16, 3, 3), np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    for node in made.graph.node:
        node.name = f"the {node.op_type}"
    return made


def one_node(operator: str, source: int, target: int | None, **attributes: Any) -> ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], name="it", **attributes)
    y = onnx.ValueInfoProto(name="y") if target is None else helper.make_tensor_value_info("y", target, [2, 3])
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", source, [2, 3])], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def same(left: dict[str, Array], right: dict[str, Array]) -> bool:
    return left.keys() == right.keys() and all(left[name].tobytes() == right[name].tobytes() for name in left)


def test_every_level_with_one_and_two_threads() -> None:
    assert len(EXECUTORS) >= 8
    assert next(iter(EXECUTORS)) == PLAIN.name
    assert {each.option("level") for each in EXECUTORS.values()} == {"disable", "basic", "extended", "all"}
    assert not EXECUTORS.keys() & {each.name for each in PEER.named()}


@pytest.mark.parametrize("name", golden_models())
def test_the_saved_model_has_the_served_bits_with_all_values_shown(name: str) -> None:
    case = golden_models()[name]
    audited = prepare(case["model"], bind=case["bind"])
    for executor in (executor for executor in EXECUTORS.values() if executor.option("threads") == "1"):
        served = PEER.run(audited.proto, audited.inputs, executor)
        lowered = PEER.lowered(audited.proto, executor)
        values = [each for node in lowered.graph.node for each in node.output if each in audited.types]
        shown = PEER.run(opened(lowered, values), audited.inputs, executor, lowered=True)
        assert len(shown) > len(served), "no value was shown"
        assert same(served, {output: shown[output] for output in served}), executor.name


def test_convolutions_in_blocks_are_lowered_and_named() -> None:
    peer = OnnxRuntime()
    lowered = peer.lowered(convolution(), OPTIMIZED)
    assert "com.microsoft.nchwc" in {node.domain for node in lowered.graph.node}
    assert peer.implementations(convolution()) == dict.fromkeys(("the Conv", "the Relu"), "com.microsoft.nchwc.Conv")


def test_fused_nodes_are_named_by_what_runs_them() -> None:
    lowered = PEER.lowered(convolution(), EXECUTORS["onnxruntime[level=extended,threads=1]"])
    assert fused_nodes(convolution(), lowered) == dict.fromkeys(("the Conv", "the Relu"), "com.microsoft.FusedConv")
    assert fused_nodes(convolution(), PEER.lowered(convolution(), PLAIN)) == {}


BLOCKS = """g (float[1, 16, 8, 8] x) => (float[1, 16, 6, 6] y)
{
  a = Conv <pads = [1, 1, 1, 1]> (x, w)
  b = Conv <pads = [1, 1, 1, 1]> (a, w)
  s = Add(b, a)
  r = Relu(s)
  p = MaxPool <kernel_shape = [3, 3]> (r)
  few = Conv(p, narrow)
  again = Conv(few, wide)
  g = Sigmoid(again)
  m = Mul(g, p)
  y = Conv <pads = [1, 1, 1, 1]> (m, w)
}"""


def test_values_in_blocks_of_channels_are_shown_and_fed() -> None:
    """Each node reads its own operands alone: with zeros fed for one, only its readers change."""
    made, draw = model(BLOCKS), np.random.default_rng(0)
    for name, shape in (("w", (16, 16, 3, 3)), ("narrow", (6, 16, 1, 1)), ("wide", (16, 6, 1, 1))):
        made.graph.initializer.append(onnx.numpy_helper.from_array(draw.standard_normal(shape, np.float32) / 9, name))
    audited = prepare(made, inputs={"x": draw.standard_normal((1, 16, 8, 8), np.float32)})
    plain = PEER.run(opened(audited.proto, list(audited.types)), audited.inputs, PLAIN)
    lowered = PEER.lowered(audited.proto, OPTIMIZED)
    values = {name for node in lowered.graph.node for name in node.output if name in audited.types}
    assert values == plain.keys() - {"b", "s", "again"}, "these are fused with what is behind them"
    shown = PEER.run(opened(lowered, sorted(values)), audited.inputs, OPTIMIZED, lowered=True)
    assert same(PEER.run(audited.proto, audited.inputs, OPTIMIZED), {"y": shown["y"]})
    assert all(np.allclose(shown[name], plain[name], rtol=0, atol=1e-4) for name in values)

    apart = severed(lowered, {name: audited.types[name] for name in values})
    own = PEER.run(apart, fed_inputs(apart, shown, audited.inputs), OPTIMIZED, lowered=True)
    assert same(own, shown)
    readers = {"a": {"r"}, "r": {"p"}, "p": {"few", "m"}, "few": {"g"}, "g": {"m"}, "m": {"y"}}
    for value, changed in readers.items():
        zeroed = fed_inputs(apart, {**shown, value: np.zeros_like(shown[value])}, audited.inputs)
        found = PEER.run(apart, zeroed, OPTIMIZED, lowered=True)
        assert {name for name in values if found[name].tobytes() != shown[name].tobytes()} == changed, value


@pytest.mark.parametrize(
    ("element", "face"),
    [
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
        (TensorProto.INT64, np.int64),
        (TensorProto.BOOL, np.bool_),
    ],
)
def test_every_element_type_goes_in_and_comes_out(element: int, face: Any) -> None:
    there = PEER.run(one_node("Cast", TensorProto.FLOAT, element, to=element), {"x": X}, PLAIN)["y"]
    assert there.dtype == np.dtype(face)
    assert there.tobytes() == X.astype(face).tobytes()
    back = PEER.run(one_node("Cast", element, TensorProto.FLOAT, to=1), {"x": there}, PLAIN)["y"]
    assert back.tobytes() == there.astype(np.float32).tobytes()


def test_what_has_no_numpy_type_is_left_out() -> None:
    assert PEER.run(one_node("Cast", TensorProto.FLOAT, TensorProto.INT4, to=22), {"x": X}, PLAIN) == {}


@pytest.mark.parametrize(
    ("made", "outcome", "words"),
    [
        (one_node("NoSuchOperator", TensorProto.FLOAT, TensorProto.FLOAT), Outcome.REFUSED, "No Op registered"),
        (one_node("BitwiseNot", TensorProto.FLOAT, TensorProto.FLOAT), Outcome.REFUSED, "is invalid"),
        (one_node("NoSuch", TensorProto.FLOAT, None, domain="nowhere"), Outcome.REFUSED, "nowhere"),
        (one_node("Erf", TensorProto.DOUBLE, None), Outcome.REFUSED, "NOT_IMPLEMENTED"),
        (one_node("Relu", TensorProto.DOUBLE, TensorProto.DOUBLE), Outcome.FAILED, "double"),
    ],
)
def test_a_model_that_it_does_not_run_has_its_words(made: ModelProto, outcome: Outcome, words: str) -> None:
    if any(node.domain for node in made.graph.node):
        made.opset_import.append(helper.make_opsetid("nowhere", 1))
    with pytest.raises(PeerError) as caught:
        PEER.run(made, {"x": X}, PLAIN)
    assert caught.value.outcome is outcome
    assert words in caught.value.reason
    assert "\n" not in caught.value.reason


def test_memory_that_it_cannot_have() -> None:
    made = model("g (int64[1] n) => (float[N] y) { y = ConstantOfShape(n) }")
    with pytest.raises(PeerError) as caught:
        PEER.run(made, {"n": np.array([1 << 44])}, PLAIN)
    assert caught.value.outcome is Outcome.MEMORY


def test_a_missing_runtime_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for asked in (PEER.versions, lambda: PEER.run(model(CHAIN), {}, PLAIN)):
        with pytest.raises(PeerError) as caught:
            asked()
        assert caught.value.outcome is Outcome.MISSING
        assert "onnxruntime" in caught.value.reason


def test_a_model_too_large_for_a_message_goes_through_files(monkeypatch: pytest.MonkeyPatch) -> None:
    x = {"x": np.random.default_rng(1).standard_normal((1, 16, 8, 8), np.float32)}
    expected = PEER.run(convolution(), x, OPTIMIZED)
    monkeypatch.setattr(module, "PROTOBUF_BYTES", 1000)
    assert same(PEER.run(convolution(), x, OPTIMIZED), expected)
    assert same(PEER.run(PEER.lowered(convolution(), OPTIMIZED), x, OPTIMIZED, lowered=True), expected)


def test_external_data_lies_in_the_process_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = {"x": np.random.default_rng(1).standard_normal((1, 16, 8, 8), np.float32)}
    onnx.save(convolution(), tmp_path / "model.onnx", save_as_external_data=True, location="weights")
    apart = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    monkeypatch.chdir(tmp_path)
    expected = PEER.run(convolution(), x, OPTIMIZED)
    assert same(PEER.run(apart, x, OPTIMIZED), expected)
    assert same(PEER.run(PEER.lowered(apart, OPTIMIZED), x, OPTIMIZED, lowered=True), expected)


def test_every_adder_adds_all_terms() -> None:
    terms, factors = np.arange(1, 65, dtype=np.float32), np.full(64, 2, np.float32)
    for name, adder in PEER.adders(OPTIMIZED).items():
        total = 64 * 65 / 2
        assert adder(terms, factors) == (total if name.startswith("sum") else 2 * total), name
        assert adder(terms[::-1], factors) == adder(terms, factors), name
    with pytest.raises(PeerError, match="no 63 terms"):
        PEER.adders(OPTIMIZED)["conv 2x2"](terms[1:], factors[1:])


def test_providers_beside_the_cpu_are_asked_for() -> None:
    known = {each.option("provider") for each in EXECUTORS.values()}
    assert "" in known and not known & {"CPU", "Azure"}
