"""The prepared model: flat, named, ordered, static, and the same model to every runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

import repro
from repro.audit import model as auditing
from repro.audit.golden import execute, own_executors
from repro.audit.model import Audited, fed_inputs, fed_name, opened, prepare, severed, summarize
from repro.errors import InternalError, ReproError
from repro.ir.types import Array
from tests.audit.models import CHAIN, DECIDED, FUNCTION, TWICE, UNDECIDED, golden_models, model

BEST = own_executors()[-2]


def on_onnxruntime(proto: ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    known = {item.name for item in session.get_inputs()}
    names = [item.name for item in session.get_outputs()]
    found: Any = session.run(names, {name: array for name, array in inputs.items() if name in known})
    return dict(zip(names, found, strict=True))


def on_reference(proto: ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    found: Any = ReferenceEvaluator(proto).run(None, inputs)
    return dict(zip([item.name for item in proto.graph.output], found, strict=True))


def same(left: dict[str, Array], right: dict[str, Array]) -> bool:
    assert left
    return left.keys() == right.keys() and all(left[n].tobytes() == right[n].tobytes() for n in left)


# ── every runtime takes it, and to each it is the model that it was ─────────────────────────────────


@pytest.mark.parametrize("name", golden_models())
def test_a_golden_model_is_the_same_to_every_runtime(name: str) -> None:
    case = golden_models()[name]
    audited = prepare(**case)
    source = onnx.load(case["model"])
    assert same(on_onnxruntime(audited.proto, audited.inputs), on_onnxruntime(source, audited.inputs))
    if not source.training_info:
        assert same(on_reference(audited.proto, audited.inputs), on_reference(source, audited.inputs))
    onnx.checker.check_model(audited.proto, full_check=True)
    assert len(audited.types) >= len(audited.summary.nodes) - len(audited.hidden) > 0


@pytest.mark.parametrize(
    ("text", "options", "inputs"),
    [
        (CHAIN, {"bind": {"N": 5}}, {}),
        (DECIDED, {"set": {"rate": 16000}}, {"rate": np.array(16000)}),
        (DECIDED, {"set": {"rate": 8000}}, {"rate": np.array(8000)}),
        (UNDECIDED, {}, {}),
    ],
    ids=["chain", "wide", "narrow", "undecided"],
)
def test_a_small_model_is_the_same_to_every_runtime(text: str, options: Any, inputs: dict[str, Array]) -> None:
    source = model(text)
    audited = prepare(source, **options)
    whole = {**audited.inputs, **inputs}
    assert same(on_onnxruntime(audited.proto, audited.inputs), on_onnxruntime(source, whole))
    assert same(on_reference(audited.proto, audited.inputs), on_reference(source, whole))
    ours = execute(audited.proto, None, audited.inputs, BEST, None)
    for name, array in on_onnxruntime(audited.proto, audited.inputs).items():
        np.testing.assert_allclose(ours[name], array, rtol=1e-5)


def test_dimensions_are_static_everywhere() -> None:
    audited = prepare(model(CHAIN), bind={"N": 5})
    graph = audited.proto.graph
    declared = {item.name: item for item in (*graph.input, *graph.value_info, *graph.output)}
    assert declared.keys() == {"x", "w", "h", "biased", "e", "y"}
    shapes = {name: tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim) for name, item in declared.items()}
    assert shapes == {"x": (5, 4), "w": (4, 3), **dict.fromkeys(("h", "biased", "e", "y"), (5, 3))}
    types = {name: str(kind) for name, kind in audited.types.items()}
    assert types == dict.fromkeys(("h", "biased", "e", "y"), "f32[5,3]")


def test_an_old_model_with_initializers_among_its_inputs() -> None:
    """IR version 3 has every initializer as an input too; they are weights, not inputs of the audit."""
    source = model(CHAIN)
    source.ir_version = 3
    source.graph.input.append(onnx.helper.make_tensor_value_info("b", TensorProto.FLOAT, [3]))
    audited = prepare(source, bind={"N": 2})
    assert audited.summary.inputs == ("x", "w")
    assert list(audited.inputs) == ["x", "w"]
    assert same(on_onnxruntime(audited.proto, audited.inputs), on_onnxruntime(source, audited.inputs))


# ── Ifs, functions, what is not there ───────────────────────────────────────────────────────────────


def test_decided_ifs_are_spliced_however_deep() -> None:
    audited = prepare(model(DECIDED), set={"rate": 16000})
    operators = [node.op_type for node in audited.summary.nodes]
    assert "If" not in operators
    assert operators.count("Exp") == 1
    assert "Neg" not in operators
    assert list(audited.inputs) == ["x"]
    exponential = next(node for node in audited.summary.nodes if node.op_type == "Exp")
    assert exponential.inputs != ("h",), "the h of the branch is not the h outside"
    assert "kept" in {name for node in audited.summary.nodes for name in node.outputs}
    assert [node.op_type for node in prepare(model(DECIDED), set={"rate": 1}).summary.nodes].count("Neg") == 1


def test_a_branch_may_return_a_value_from_outside() -> None:
    text = DECIDED.replace("float[2, 3] b) <float", "float[2, 3] x) <float").replace("      b = Identity(x)\n", "")
    audited = prepare(model(text), set={"rate": 16000})
    whole = {**audited.inputs, "rate": np.array(16000)}
    assert same(on_reference(audited.proto, audited.inputs), on_reference(model(text), whole))
    copied = prepare(model(DECIDED), set={"rate": 16000}).proto
    assert same(on_onnxruntime(audited.proto, audited.inputs), on_onnxruntime(copied, audited.inputs))


def test_an_if_and_a_loop_that_a_run_decides_are_one_node_each() -> None:
    audited = prepare(model(UNDECIDED))
    nodes = {node.op_type: node for node in audited.summary.nodes}
    assert nodes["If"].inputs == ("flag", "seen")
    assert set(nodes["Loop"].inputs) == {"times", "go", "chosen", "seen"}
    assert set(audited.types) == {"seen", "chosen", "go", "times", "y"}


def test_local_functions_are_inlined() -> None:
    audited = prepare(model(FUNCTION, TWICE, imports=', "local" : 1'))
    assert [node.op_type for node in audited.summary.nodes] == ["Add", "Add"]
    assert not audited.proto.functions
    assert same(on_reference(audited.proto, audited.inputs), {"y": audited.inputs["x"] * np.float32(4)})


def test_what_no_output_needs_is_left_out() -> None:
    source = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { dead = Mul(x, w) y = Exp(x) }")
    audited = prepare(source)
    assert [node.op_type for node in audited.summary.nodes] == ["Exp"]
    assert not audited.summary.initializers


def test_values_that_are_no_tensors_are_hidden() -> None:
    source = model(
        "g (float[4] x) => (float[2] y) { parts = SplitToSequence<axis = 0>(x, two) y = SequenceAt(parts, one) }"
    )
    for name, number in (("two", 2), ("one", 1)):
        source.graph.initializer.append(numpy_helper.from_array(np.array(number, np.int64), name))
    audited = prepare(source)
    assert audited.hidden == ("parts",)
    assert set(audited.types) == {"y"}


# ── names, order, digests ───────────────────────────────────────────────────────────────────────────


def test_every_node_has_a_name_of_its_own() -> None:
    source = model("g (float[2] x) => (float[2] y) { a = Exp(x) b = Exp(a) c = Exp(b) y = Exp(c) }")
    for node, name in zip(source.graph.node, ("", "twin", "twin", "Exp_a"), strict=True):
        node.name = name
    assert [node.name for node in prepare(source).summary.nodes] == ["Exp_a", "twin", "twin#2", "Exp_a#2"]


def test_the_order_is_canonical_whatever_the_file_has() -> None:
    source = model("g (float[2] x) => (float[2] y) { a = Exp(x) b = Neg(x) c = Abs(b) y = Add(c, a) }")
    summary = prepare(source).summary
    assert [node.op_type for node in summary.nodes] == ["Neg", "Abs", "Exp", "Add"]
    shuffled = [source.graph.node[i] for i in (1, 2, 0, 3)]
    del source.graph.node[:]
    source.graph.node.extend(shuffled)
    assert prepare(source).summary.digest == summary.digest


def test_digests_of_nodes_know_no_names() -> None:
    left = prepare(model(UNDECIDED)).summary
    renamed = UNDECIDED.replace("seen", "squares").replace("v2", "sum").replace("chosen", "picked").replace("c2", "on")
    right = prepare(model(renamed)).summary
    assert [node.digest for node in left.nodes] == [node.digest for node in right.nodes]
    assert left.digest != right.digest


@pytest.mark.parametrize(
    ("old", "new", "operator"),
    [("value_int = 3", "value_int = 4", "Constant"), ("r = Neg(x) }\n", "r = Abs(x) }\n", "If")],
)
def test_another_attribute_or_subgraph_is_another_digest(old: str, new: str, operator: str) -> None:
    text = DECIDED.replace("Equal(rate, wide)", "Equal(first, wide)").replace("int64 rate)", "int64 first)")
    summaries = [prepare(model(each)).summary for each in (text, text.replace(old, new))]
    pairs = zip(summaries[0].nodes, summaries[1].nodes, strict=True)
    different = [left for left, right in pairs if left.digest != right.digest]
    assert [node.op_type for node in different] == ["If"], operator


def test_one_bit_of_a_weight_or_of_a_float_attribute_shows() -> None:
    source = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Elu<alpha = 0.5>(x) y = Mul(a, w) }")
    before = prepare(source).summary
    source.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.array([1, np.nextafter(np.float32(2), 3)], "f4"), "w")
    )
    weight = prepare(source).summary
    assert [node.digest for node in weight.nodes] == [node.digest for node in before.nodes]
    assert weight.initializers != before.initializers
    source.graph.node[0].attribute[0].f = float(np.nextafter(np.float32(0.5), 1))
    attribute = prepare(source).summary
    assert [a.digest == b.digest for a, b in zip(attribute.nodes, weight.nodes, strict=True)] == [False, True]


# ── opened, severed ─────────────────────────────────────────────────────────────────────────────────


def test_opened_shows_values_after_the_models_own() -> None:
    audited = prepare(model(CHAIN), bind={"N": 2})
    shown = opened(audited.proto, ["y", "h", "e"])
    assert [item.name for item in shown.graph.output] == ["y", "h", "e"]
    found = on_onnxruntime(shown, audited.inputs)
    np.testing.assert_array_equal(found["y"], np.asarray(on_onnxruntime(audited.proto, audited.inputs)["y"]))
    assert len(audited.proto.graph.output) == 1, "the model itself is as it was"
    with pytest.raises(InternalError, match="nowhere"):
        opened(audited.proto, ["nowhere"])


def values_of(audited: Audited) -> dict[str, Array]:
    return execute(opened(audited.proto, list(audited.types)), None, audited.inputs, BEST, None)


@pytest.mark.parametrize(("text", "options"), [(CHAIN, {"bind": {"N": 5}}), (UNDECIDED, {})], ids=["chain", "bodies"])
def test_severed_nodes_read_what_they_are_fed(text: str, options: Any) -> None:
    """One value changed: the nodes that read it give other results, all others golden's."""
    audited = prepare(model(text), **options)
    golden = values_of(audited)
    proto = severed(audited.proto, audited.types)
    runs = (on_reference, lambda *given: execute(given[0], None, given[1], BEST, None))
    plain = [run(proto, fed_inputs(proto, golden, audited.inputs)) for run in runs]
    assert same({name: plain[1][name] for name in golden}, golden)
    floats = [name for name in golden if golden[name].dtype.kind == "f"]
    nodes = audited.summary.nodes
    readers = {name: {each for node in nodes if name in node.inputs for each in node.outputs} for name in floats}
    assert any(readers.values())
    for name in floats:
        changed = {**golden, name: golden[name] + np.float32(1)}
        for run, before in zip(runs, plain, strict=True):
            after = run(proto, fed_inputs(proto, changed, audited.inputs))
            assert {each for each in after if after[each].tobytes() != before[each].tobytes()} == readers[name]


def test_severed_constants_stay_constants() -> None:
    source = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { c = Exp(w) y = Mul(x, c) }")
    audited = prepare(source)
    given = np.array([3, 4], np.float32)
    proto = severed(audited.proto, {}, {"c": given})
    assert fed_name("c") in {item.name for item in proto.graph.initializer}
    assert [item.name for item in proto.graph.input] == ["x"]
    found = on_onnxruntime(proto, audited.inputs)
    np.testing.assert_array_equal(found["y"], audited.inputs["x"] * given)
    assert "c" in found


def test_a_value_that_nothing_reads_has_no_fed_input() -> None:
    audited = prepare(model(CHAIN), bind={"N": 2})
    names = {item.name for item in severed(audited.proto, audited.types).graph.input}
    assert names == {"x", "w", fed_name("h"), fed_name("biased"), fed_name("e")}


# ── inputs ──────────────────────────────────────────────────────────────────────────────────────────


def test_inputs_are_those_of_a_build(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(CHAIN), path)
    built = repro.build(path, bind={"N": 3}, golden_seed=7)
    drawn = prepare(path, bind={"N": 3}, golden_seed=7)
    of_artifact = prepare(built.folder / "artifact.json")
    assert same(drawn.inputs, of_artifact.inputs)
    assert drawn.summary.nodes == of_artifact.summary.nodes
    assert drawn.summary.initializers == of_artifact.summary.initializers
    assert not same(drawn.inputs, prepare(path, bind={"N": 3}, golden_seed=8).inputs)
    with pytest.raises(ReproError, match="bindings"):
        prepare(built.folder, bind={"N": 3})


def test_given_inputs_fix_the_dimensions() -> None:
    given = {"x": np.ones((2, 4), np.float32), "w": np.ones((4, 3), np.float32)}
    assert str(prepare(model(CHAIN), inputs=given).types["y"]) == "f32[2,3]"
    for wrong in ({"x": given["x"]}, {**given, "w": np.ones((4, 3))}, {**given, "more": given["x"]}):
        with pytest.raises(ReproError):
            prepare(model(CHAIN), inputs=wrong, bind={"N": 2})


def test_dimensions_left_open_are_refused() -> None:
    with pytest.raises(ReproError, match="not bound"):
        prepare(model(CHAIN))


def test_external_data_is_read_or_left_in_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    source = model(CHAIN)
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([0.1, 0.2, 0.3], np.float32), "b"))
    expected = summarize(source, "m").initializers
    onnx.save(source, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    read = prepare(path, bind={"N": 2})
    assert read.folder is None
    assert read.summary.initializers == expected
    monkeypatch.setattr(auditing, "INLINE_BYTES", 0)
    left = prepare(path, bind={"N": 2})
    assert left.folder == tmp_path
    assert left.summary == read.summary
    assert left.proto.graph.initializer[0].data_location == TensorProto.EXTERNAL
