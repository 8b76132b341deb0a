"""The torch peer: right values from every kernel of its table, and what it says of the nodes that it has none for."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from repro.audit.peers.peer import PeerError
from repro.audit.peers.pytorch import TorchPeer, executor
from repro.audit.records import Outcome
from repro.frontend import import_model, load_model
from repro.ir.types import Array, TensorType, to_storage
from repro.ops.record import evaluate

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
PLAIN = executor(threads="1")
FEW = 12
"""Cases of one operator that are tried until a kernel runs it."""

# ── without PyTorch ─────────────────────────────────────────────────────────────────────────────────


def test_executors_are_few_and_differ() -> None:
    """Naming them does not import PyTorch: the process that starts the others must stay small."""
    peer = TorchPeer()
    names = [each.name for each in (*peer.variants(), *peer.named())]
    assert names[:2] == ["torch[threads=1]", "torch[threads=2]"]
    assert len(peer.variants()) <= 5
    assert len(set(names)) == len(names)
    assert "torch[threads=1,compile=inductor]" in names


def test_an_instruction_set_is_said_to_every_library() -> None:
    said = dict(executor(threads="1", isa="avx2").environment)
    assert said == {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    assert dict(executor(isa="avx2", onednn="SSE41").environment)["ONEDNN_MAX_CPU_ISA"] == "SSE41"
    assert dict(executor(aten="default").environment) == {"ATEN_CPU_CAPABILITY": "default"}


def test_without_pytorch_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for ask in (TorchPeer().versions, lambda: TorchPeer().run(_model([]), {}, PLAIN)):
        with pytest.raises(PeerError) as error:
            ask()
        assert error.value.outcome is Outcome.MISSING


# ── with it ─────────────────────────────────────────────────────────────────────────────────────────


def _model(nodes: list[Any], opset: int = 22, weights: Mapping[str, Any] | None = None, **inputs: Any) -> ModelProto:
    """A model of these nodes; its outputs are the last one's."""
    ports = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in (nodes[-1].output if nodes else ())]
    initial = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", ports, outputs, initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def test_one_case_of_each_operator_has_the_expected_values() -> None:
    pytest.importorskip("torch")
    from tests.audit import torch_cases as cases

    tried: set[str] = set()
    asked: Counter[str] = Counter()
    failures: dict[str, str] = {}
    for name in cases.chosen():
        operators = cases.runner.operators(cases.runner.cases()[name])
        if name in cases.DIFFERENT or all(each in tried or asked[each] >= FEW for each in operators):
            continue
        ran = cases.run_case(name)
        asked.update(operators)
        tried |= ran.by_kernel
        if ran.failure:
            failures[name] = ran.failure
    assert not failures
    assert cases.TABLE.keys() - tried == {"GRU"}


@pytest.mark.full
def test_every_case_has_the_expected_values() -> None:
    pytest.importorskip("torch")
    from tests.audit import torch_cases as cases

    ran = {name: cases.run_case(name).failure for name in cases.chosen()}
    assert len(ran) > 1600
    assert {name for name, failure in ran.items() if failure} == cases.DIFFERENT.keys()


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_a_gru_is_the_reference_evaluators(before: int, direction: str) -> None:
    """The conformance cases have none with the reset behind the product, the only form that PyTorch's kernel has."""
    pytest.importorskip("torch")
    from onnx.reference import ReferenceEvaluator

    ways = 2 if direction == "bidirectional" else 1
    weights = {"w": _floats(ways, 12, 3, seed=1), "r": _floats(ways, 12, 4, seed=2), "b": _floats(ways, 24, seed=3)}
    names = ["x", "w", "r", "b"]
    node = helper.make_node(
        "GRU", names, ["y", "last"], "gru", hidden_size=4, direction=direction, linear_before_reset=before
    )
    model = _model([node], 14, weights, x=(TensorProto.FLOAT, [5, 2, 3]))
    inputs, peer = {"x": _floats(5, 2, 3)}, TorchPeer()
    found = peer.run(model, inputs, PLAIN)
    wanted: Any = ReferenceEvaluator(model).run(None, inputs)
    for name, expected in zip(("y", "last"), wanted, strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)
    assert list(peer.implementations(model)) == ([] if before else ["gru"])


def _drawn(draw: np.random.Generator, kind: TensorType) -> Array:
    values: Any = draw.random(kind.shape) if kind.dtype.is_float else draw.integers(0, 9, kind.shape)
    return values.astype(kind.dtype.face)


@pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn", "nano_gpt", "nano_gpt_dynamo"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_golden_models_are_close_to_repro(name: str, threads: str) -> None:
    pytest.importorskip("torch")
    path = GOLDEN / name / "forward.onnx"
    imported = import_model(load_model(str(path)), {"N": 4} if "digits" in name else {})
    draw = np.random.default_rng(3)
    inputs = {port.name: _drawn(draw, port.type) for port in imported.inputs}
    stored = [to_storage(inputs[port.name], port.type.dtype) for port in imported.inputs]
    expected = evaluate(imported.graph, stored, [slot.initial for slot in imported.parameters])
    peer, model = TorchPeer(), onnx.load(str(path))
    found = peer.run(model, inputs, executor(threads=threads))
    assert len(found) == len(expected) == 1
    for mine, theirs in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert not peer.implementations(model)


def test_a_node_without_a_kernel_is_run_by_the_reference_evaluator_and_named() -> None:
    pytest.importorskip("torch")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
        helper.make_node("Cast", ["q"], ["y"], to=1),
    ]
    weights = {"s": np.float32(0.5), "z": np.uint8(3)}
    peer, model = TorchPeer(), _model(nodes, 22, weights, x=(TensorProto.FLOAT, [3]))
    found = peer.run(model, {"x": np.array([1.0, -0.5, 9.0], np.float32)}, PLAIN)
    assert found["y"].tolist() == [5.0, 2.0, 21.0]
    assert list(peer.implementations(model)) == ["quantize"]
    assert "onnx reference evaluator" in peer.implementations(model)["quantize"]


def test_an_attribute_that_a_kernel_does_not_know_goes_to_the_reference() -> None:
    """A later opset may give an operator an attribute: a kernel that never looks at it does not run the node."""
    torch = pytest.importorskip("torch")
    from repro.audit.peers.torch_ops.interpreter import Interpreter

    node = helper.make_node("Relu", ["x"], ["y"], "relu", to_come=1)
    model = _model([node], 22, {}, x=(TensorProto.FLOAT, [1]))
    interpreter = Interpreter(model)
    interpreter.run({"x": torch.ones(1)})
    assert interpreter.fallbacks == {"relu": "onnx reference evaluator: attributes to_come"}


def test_an_operator_that_nobody_knows_is_refused() -> None:
    pytest.importorskip("torch")
    model = _model(
        [helper.make_node("Unheard", ["x"], ["y"], "n", domain="com.example")], 22, x=(TensorProto.FLOAT, [1])
    )
    with pytest.raises(PeerError, match="Unheard") as error:
        TorchPeer().run(model, {"x": np.ones(1, np.float32)}, PLAIN)
    assert error.value.outcome is Outcome.REFUSED


def test_narrow_types_and_strings_keep_their_bits() -> None:
    pytest.importorskip("torch")
    import ml_dtypes

    for face in (np.float16, ml_dtypes.bfloat16, np.uint16, np.bool_, ml_dtypes.float8_e4m3fn):
        array = np.array([1, 0, 1]).astype(face)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        model = _model([helper.make_node("Identity", ["x"], ["y"])], 22, x=(kind, [3]))
        found = TorchPeer().run(model, {"x": array}, PLAIN)["y"]
        assert found.dtype == array.dtype and found.tobytes() == array.tobytes()


@pytest.mark.full
def test_the_fused_model_is_close_to_the_eager_one() -> None:
    """digits_cnn: its convolutions' epilogues are fused, so bits differ. A minute, most of it Inductor's start."""
    pytest.importorskip("torch")
    if shutil.which("g++") is None:
        pytest.skip("no g++ on PATH (Debian: apt-get install g++)")
    peer, model = TorchPeer(), onnx.load(str(GOLDEN / "digits_cnn" / "forward.onnx"))
    inputs = {"input": _floats(4, 1, 8, 8)}
    eager, fused = (peer.run(model, inputs, executor(threads="1", **more)) for more in ({}, {"compile": "inductor"}))
    np.testing.assert_allclose(fused["logits"], eager["logits"], rtol=1e-5, atol=1e-6)


def test_its_adders_add() -> None:
    pytest.importorskip("torch")
    a, b = np.arange(100, dtype=np.float32), np.full(100, 2, np.float32)
    found = {name: adder(a, b) for name, adder in TorchPeer().adders(PLAIN).items()}
    assert found.pop("sum") == 4950
    assert {"dot", "dot (torch.dot)"} <= found.keys()
    assert set(found.values()) == {9900}
