"""If, Loop and Scan: decided at build, or as branches, loops and whiles; compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from repro.errors import ReproError
from repro.frontend import Imported, import_model, load_model
from repro.ir.graph import Graph
from repro.ir.types import to_face, to_storage
from repro.ops.record import evaluate
from tests.frontend.models import model, node, value

BOOL, I64, F32 = TensorProto.BOOL, TensorProto.INT64, TensorProto.FLOAT
X = np.array([0.5, -1.25, 3.0], np.float32)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    initializers: Mapping[str, Any] | None = None,
) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (initializers or {}).items()]
    return helper.make_graph(nodes, "body", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], tensors)


def run(imported: Imported, **inputs: Any) -> list[np.ndarray]:
    arrays = [to_storage(np.asarray(inputs[port.name]), port.type.dtype) for port in imported.inputs]
    found = evaluate(imported.graph, arrays, [slot.initial for slot in imported.parameters])
    return [to_face(array, port.type.dtype) for array, port in zip(found, imported.outputs, strict=True)]


def check(proto: onnx.ModelProto, settings: Sequence[str] = (), **inputs: Any) -> Imported:
    """Imports and evaluates; the outputs equal ONNX Runtime's. Returns the import."""
    fixed = {name: inputs[name] for name in settings}
    imported = import_model(load_model(proto), set_values=fixed)
    found = run(imported, **inputs)
    peer = onnx.ModelProto()
    peer.CopyFrom(proto)
    peer.ir_version = 8
    for output, array in zip(peer.graph.output, found, strict=True):
        output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    session = onnxruntime.InferenceSession(peer.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {item.name: np.asarray(inputs[item.name]) for item in session.get_inputs()}
    for ours, theirs in zip(found, session.run(None, feeds), strict=True):
        assert isinstance(theirs, np.ndarray)
        if ours.size:  # without one iteration ONNX Runtime does not know a scan output's rank
            assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs)
    return imported


def ops(imported: Imported) -> list[str]:
    return [each.op for each in imported.graph.nodes]


def closed(graph: Graph) -> bool:
    """Whether every region inside has leaves of its own only: arguments within its list, no parameters."""
    for each in graph.nodes:
        for region in each.regions:
            for inner in region.nodes:
                if inner.op == "parameter" or (inner.op == "argument" and inner["index"] >= len(region.arguments)):
                    return False
            if not closed(region):
                return False
    return True


# ── If ──────────────────────────────────────────────────────────────────────────────────────────────


def if_model(condition: onnx.ValueInfoProto | None, **initializers: np.ndarray) -> onnx.ModelProto:
    then = graph([node("Add", "x w", "a"), node("Mul", "a a", "r")], [], ["r"])
    other = graph([node("Sub", "w k", "a"), node("Relu", "a", "b"), node("Add", "b x", "r")], [], ["r"], {"k": X})
    inputs = [value("x"), *([condition] if condition else [])]
    body = [node("If", "c", "y", name="choose", then_branch=then, else_branch=other)]
    weights: dict[str, Any] = {"w": np.array([1, 2, 4], np.float32), **initializers}
    return model(body, inputs, initializers=weights, opset=17)


@pytest.mark.parametrize("flag", [True, False])
def test_if_known_at_build_leaves_one_side(flag: bool) -> None:
    imported = check(if_model(None, c=np.array(flag)), x=X)
    assert "branch" not in ops(imported)
    assert [slot.name for slot in imported.parameters] == (["w"] if flag else ["w", "k"])


@pytest.mark.parametrize("flag", [True, False])
def test_if_decided_at_run_time_is_a_closed_branch(flag: bool) -> None:
    imported = check(if_model(value("c", (), BOOL)), x=X, c=np.array(flag))
    assert ops(imported).count("branch") == 1
    assert closed(imported.graph)
    fixed = check(if_model(value("c", (), BOOL)), ["c"], x=X, c=np.array(flag))
    assert "branch" not in ops(fixed)


def test_if_with_different_results_says_what_to_set() -> None:
    then, other = graph([node("Relu", "x", "r")], [], ["r"]), graph([node("Relu", "w", "r")], [], ["r"])
    body = [node("If", "c", "y", name="choose", then_branch=then, else_branch=other)]
    proto = model(body, [value("x"), value("c", (), BOOL)], initializers={"w": np.ones(5, np.float32)})
    with pytest.raises(ReproError) as caught:
        import_model(load_model(proto))
    assert (caught.value.op, caught.value.node) == ("If", "choose")
    assert caught.value.found == "f32[3] and f32[5]"
    assert "--set c=VALUE" in str(caught.value.next)


# ── Loop ────────────────────────────────────────────────────────────────────────────────────────────

STEP = graph(
    [
        node("Identity", "go", "again"),
        node("Cast", "i", "fi", to=F32),
        node("Add", "h fi", "t"),
        node("Mul", "t w", "next"),
        node("Add", "next b", "row"),
    ],
    [value("i", (), I64), value("go", (), BOOL), value("h", None)],
    ["again", "next", "row"],
    {"b": np.array([1, 0, 1], np.float32)},
)
W: dict[str, Any] = {"w": np.array([0.5, 2, 1], np.float32)}


def loop_model(
    body: onnx.GraphProto, outputs: str, inputs: Sequence[onnx.ValueInfoProto], **fixed: Any
) -> onnx.ModelProto:
    words = ["trips" if any(i.name == "trips" for i in inputs) or "trips" in fixed else "_"]
    words.append("start" if any(i.name == "start" for i in inputs) or "start" in fixed else "_")
    nodes = [node("Loop", " ".join([*words, "x"]), outputs, name="loop", body=body)]
    initializers = {**W, **{name: np.asarray(array) for name, array in fixed.items()}}
    return model(nodes, [value("x"), *inputs], outputs.split(), initializers, opset=17)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_counted_loop_stays_a_loop(trips: int) -> None:
    imported = check(loop_model(STEP, "y rows", [], trips=np.int64(trips)), x=X)
    assert ops(imported).count("loop") == 1
    assert closed(imported.graph)
    assert [slot.name for slot in imported.parameters] == ["w", "b"]


def test_a_start_that_is_false_runs_nothing() -> None:
    imported = check(loop_model(STEP, "y rows", [], trips=np.int64(4), start=np.bool_(False)), x=X)
    assert imported.outputs[1].type.shape == (0, 3)


WHILE = graph(
    [
        node("Add", "h w", "next"),
        node("ReduceSum", "next", "s", keepdims=0),
        node("Less", "s limit", "again"),
    ],
    [value("i", (), I64), value("go", (), BOOL), value("h", None)],
    ["again", "next"],
    {"limit": np.array(20, np.float32)},
)


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("trips", [None, 0, 3, 1 << 62])
def test_a_condition_decided_at_run_time_is_a_while(trips: int | None, start: bool) -> None:
    fixed = {} if trips is None else {"trips": np.int64(trips)}
    imported = check(loop_model(WHILE, "y", [value("start", (), BOOL)], **fixed), x=X, start=np.array(start))
    assert "while" in ops(imported) or trips == 0
    assert closed(imported.graph)


@pytest.mark.parametrize("trips", [-2, 0, 2, 50])
def test_a_trip_count_decided_at_run_time_is_a_while(trips: int) -> None:
    body = graph(
        [node("Identity", "go", "again"), node("Add", "h w", "next")],
        [value("i", (), I64), value("go", (), BOOL), value("h", None)],
        ["again", "next"],
    )
    imported = check(loop_model(body, "y", [value("trips", (), I64)]), x=X, trips=np.int64(trips))
    assert "while" in ops(imported)


def test_scan_outputs_of_a_count_at_run_time_are_refused() -> None:
    with pytest.raises(ReproError) as caught:
        import_model(load_model(loop_model(STEP, "y rows", [value("trips", (), I64)])))
    assert caught.value.op == "Loop"
    assert "scan outputs" in caught.value.what
    assert "--set trips=VALUE" in str(caught.value.next)


GROW = graph(
    [node("Identity", "go", "again"), node("Concat", "h x", "next", axis=0)],
    [value("i", (), I64), value("go", (), BOOL), value("h", None)],
    ["again", "next"],
)


def test_a_loop_whose_shapes_change_is_unrolled() -> None:
    imported = check(loop_model(GROW, "y", [], trips=np.int64(4)), x=X)
    assert "loop" not in ops(imported)
    assert imported.outputs[0].type.shape == (15,)


def test_a_loop_that_has_to_be_unrolled_too_often_is_refused() -> None:
    with pytest.raises(ReproError) as caught:
        import_model(load_model(loop_model(GROW, "y", [], trips=np.int64(1 << 40))))
    assert caught.value.what


def test_a_condition_on_the_counter_ends_an_unrolled_loop() -> None:
    body = graph(
        [node("Less", "i three", "again"), node("Concat", "h x", "next", axis=0)],
        [value("i", (), I64), value("go", (), BOOL), value("h", None)],
        ["again", "next"],
        {"three": np.int64(3)},
    )
    imported = check(loop_model(body, "y", [], trips=np.int64(1 << 40)), x=X)
    assert imported.outputs[0].type.shape == (15,)


def test_loops_in_loops_and_branches_in_loops() -> None:
    inner = graph(
        [node("Identity", "go2", "again2"), node("Mul", "g w", "g1"), node("Add", "g1 x", "g2")],
        [value("j", (), I64), value("go2", (), BOOL), value("g", None)],
        ["again2", "g2"],
    )
    then, other = graph([node("Add", "m w", "r")], [], ["r"]), graph([node("Sub", "m h", "r")], [], ["r"])
    body = graph(
        [
            node("Identity", "go", "again"),
            node("Loop", "two _ h", "m", name="inner", body=inner),
            node("ReduceSum", "m", "s", keepdims=0),
            node("Less", "s limit", "small"),
            node("If", "small", "next", name="choose", then_branch=then, else_branch=other),
        ],
        [value("i", (), I64), value("go", (), BOOL), value("h", None)],
        ["again", "next", "m"],
        {"two": np.int64(2), "limit": np.array(4, np.float32)},
    )
    imported = check(loop_model(body, "y rows", [], trips=np.int64(3)), x=X)
    assert closed(imported.graph)


# ── Scan ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("axis", "backwards", "out_axis", "out_backwards"), [(0, 0, 0, 0), (1, 1, 1, 1), (-1, 0, -1, 1)]
)
def test_scan_over_axes_and_directions(axis: int, backwards: int, out_axis: int, out_backwards: int) -> None:
    body = graph(
        [node("Add", "h r", "next"), node("Mul", "next w", "row")],
        [value("h", None), value("r", None)],
        ["next", "row"],
    )
    scan = node(
        "Scan", "x s", "y rows", body=body, num_scan_inputs=1, scan_input_axes=[axis],
        scan_input_directions=[backwards], scan_output_axes=[out_axis], scan_output_directions=[out_backwards],
    )  # fmt: skip
    shape = [3, 3]
    shape[axis] = 5
    proto = model([scan], [value("x"), value("s", shape)], ["y", "rows"], W, opset=17)
    rows = np.arange(15, dtype=np.float32).reshape(shape)
    imported = check(proto, x=X, s=rows)
    assert ops(imported).count("loop") == 1
    assert closed(imported.graph)


# ── random numbers ──────────────────────────────────────────────────────────────────────────────────


def test_an_unrolled_loop_draws_what_the_loop_draws() -> None:
    """Rule 16: the iteration is a leading axis of the element's number, however the loop is built."""
    draw = node("RandomUniform", "", "u", dtype=F32, shape=[2])
    counter = [value("i", (), I64), value("go", (), BOOL), value("h", None)]
    looped = graph(
        [node("Identity", "go", "again"), draw, node("Identity", "h", "next")], counter, ["again", "next", "u"]
    )
    grown = graph(
        [node("Identity", "go", "again"), draw, node("Concat", "h u", "next", axis=0)], counter, ["again", "next"]
    )
    as_loop = import_model(load_model(loop_model(looped, "y rows", [], trips=np.int64(3))))
    unrolled = import_model(load_model(loop_model(grown, "y", [], trips=np.int64(3))))
    assert as_loop.random_nodes == unrolled.random_nodes
    assert len(as_loop.random_nodes) == 1
    rows = run(as_loop, x=X)[1]
    assert len(np.unique(rows)) == 6
    np.testing.assert_array_equal(rows.reshape(-1), run(unrolled, x=X)[0][3:])
