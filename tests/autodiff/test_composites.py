"""Gradients of the composites that ONNX operators become: by central differences, at the edges, and as native code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from passes.prepare import expand
from repro.frontend import import_model, load_model
from repro.ir.graph import Graph, Node, Value
from repro.ir.types import Array
from repro.ops import canonical_nan, neg
from repro.ops.composite_gradients import STEPS, steps_of
from repro.ops.record import Step, evaluate
from repro.targets import cpu
from tests.autodiff.differences import disagreement, float_leaves, gradient_graph, widened
from tests.ops.against_runtime import model_with
from tests.ops.one_node import FLOAT, graph_of_node
from tests.running import run_on_cpu

TOLERANCE = 1e-6
RANDOM = np.random.default_rng(12)


def drawn(*shape: int) -> Array:
    """Of either sign, 0.1 to 2 in size: off the kinks at 0."""
    return (RANDOM.uniform(0.1, 2.0, shape) * RANDOM.choice([-1.0, 1.0], shape)).astype(np.float32)


def scalar(value: float) -> Array:
    return np.array(value, np.float32)


@dataclass(frozen=True)
class Case:
    """One node, and what it is called in the test's name."""

    op: str
    inputs: Mapping[str, Array | None]
    note: str = ""
    outputs: tuple[str, ...] = ("y",)
    opset: int = 24
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fixed: Mapping[str, Array] = field(default_factory=dict[str, Array])
    """Inputs behind the others that are known at build."""
    constant: tuple[int, ...] = ()
    """Float inputs that are taken as constants."""

    def __str__(self) -> str:
        return f"{self.op}-{self.note}" if self.note else self.op

    @cached_property
    def graph(self) -> Graph:
        types = [FLOAT] * len([name for name in self.outputs if name])
        if not self.fixed:
            return graph_of_node(self.op, self.inputs, self.outputs, self.opset, types=types, **self.attributes)
        given = {name: array for name, array in self.inputs.items() if array is not None}
        model = model_with(self.op, given, self.fixed, self.opset, self.outputs, types=types, **self.attributes)
        return import_model(load_model(model)).graph

    def wrt(self) -> list[int]:
        return [index for index in float_leaves(self.graph) if index not in self.constant]

    def operands(self) -> list[Array]:
        return [array for array in self.inputs.values() if array is not None]


def recurrent(gates: int, directions: int, **rest: Array | None) -> dict[str, Array | None]:
    """x of 5 steps and 3 rows, W and R for 4 hidden values, and whatever follows."""
    weights = {"w": drawn(directions, gates * 4, 6), "r": drawn(directions, gates * 4, 4)}
    return {"x": drawn(5, 3, 6), **weights, **rest}


X = drawn(3, 4, 5)
IMAGE = drawn(2, 6, 3, 4)
LABELS = RANDOM.integers(0, 6, (2, 3, 4))
CLASS_WEIGHTS = RANDOM.uniform(0.5, 2, 6).astype(np.float32)
PER_CHANNEL = {name: drawn(6) for name in ("scale", "bias", "mean")} | {"var": drawn(6) ** 2}
HEADS = {"q": drawn(2, 4, 3, 8), "k": drawn(2, 2, 5, 8), "v": drawn(2, 2, 5, 6)}
NOTHING = np.zeros(0, np.float32)
ROW_WITHOUT_KEYS = np.array([[True] * 5, [False] * 5, [True, False, True, True, False]])

CASES: tuple[Case, ...] = (
    *(Case(op, {"x": X}) for op in ("Elu", "Selu", "Celu", "LeakyRelu", "ThresholdedRelu", "Sigmoid", "HardSigmoid")),
    *(Case(op, {"x": X}) for op in ("HardSwish", "Softplus", "Mish", "Softsign", "Shrink", "Swish")),
    Case("Elu", {"x": X}, "alpha", attributes={"alpha": 0.7}),
    Case("Celu", {"x": X}, "alpha", attributes={"alpha": 0.7}),
    Case("Swish", {"x": X}, "alpha", attributes={"alpha": 1.7}),
    Case("PRelu", {"x": X, "slope": drawn(4, 5)}),
    Case("Gelu", {"x": X}),
    Case("Gelu", {"x": X}, "tanh", attributes={"approximate": "tanh"}),
    Case("Clip", {"x": X, "low": scalar(-1), "high": scalar(0.8)}),
    Case("Sign", {"x": X}),
    Case("Softmax", {"x": X}),
    Case("Softmax", {"x": X}, "rows", opset=11, attributes={"axis": 1}),
    Case("LogSoftmax", {"x": X}, attributes={"axis": 1}),
    Case("Hardmax", {"x": X}),
    *(Case(op, {"x": X}, "all", opset=13) for op in ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare")),
    *(Case(op, {"x": X}, "axis", opset=13, attributes={"axes": [1]}) for op in ("ReduceMean", "ReduceL1", "ReduceL2")),
    Case("ReduceLogSumExp", {"x": X}, opset=13, attributes={"axes": [0, 2]}),
    Case("ReduceLogSum", {"x": abs(X)}, opset=13, attributes={"axes": [0, 2], "keepdims": 0}),
    *(
        Case(loss, {"x": IMAGE, "labels": LABELS, **weights}, f"{reduction}{'-weights' * bool(weights)}-{ignored}",
             outputs=("loss", "y")[: 1 + (loss[0] == "S")],
             attributes={"reduction": reduction, **({} if ignored is None else {"ignore_index": ignored})})
        for loss in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
        for reduction in ("none", "sum", "mean")
        for weights in ({}, {"w": CLASS_WEIGHTS})
        for ignored in (None, 2)
    ),
    Case("SoftmaxCrossEntropyLoss", {"x": IMAGE, "labels": LABELS}, "loss only", outputs=("loss",)),
    Case("BatchNormalization", {"x": IMAGE, **PER_CHANNEL}),
    Case("BatchNormalization", {"x": IMAGE, **PER_CHANNEL}, "training", attributes={"training_mode": 1}),
    Case("BatchNormalization", {"x": IMAGE, **PER_CHANNEL}, "all", outputs=("y", "m", "v"),
         attributes={"training_mode": 1, "momentum": 0.7}),
    Case("InstanceNormalization", {"x": IMAGE, "scale": drawn(6), "bias": drawn(6)}),
    Case("GroupNormalization", {"x": IMAGE, "scale": drawn(6), "bias": drawn(6)}, attributes={"num_groups": 3}),
    Case("LayerNormalization", {"x": X, "scale": drawn(5)}),
    Case("LayerNormalization", {"x": X, "scale": drawn(4, 5), "bias": drawn(4, 5)}, "all", outputs=("y", "m", "s"),
         attributes={"axis": 1}),
    Case("LayerNormalization", {"x": drawn(1, 7), "scale": drawn(7), "bias": drawn(7)}, "one row"),
    Case("RMSNormalization", {"x": X, "scale": drawn(5)}),
    Case("SimplifiedLayerNormalization", {"x": X, "scale": drawn(5)}, "inverse", outputs=("y", "s"),
         attributes={"domain": "com.microsoft"}),
    Case("MeanVarianceNormalization", {"x": IMAGE}),
    *(Case("LpNormalization", {"x": X}, str(p), attributes={"p": p, "axis": 1}) for p in (1, 2)),
    *(Case("LpPool", {"x": IMAGE}, str(p), attributes={"p": p, "kernel_shape": [2, 2]}) for p in (1, 2, 3)),
    Case("LRN", {"x": IMAGE}, attributes={"size": 3}),
    Case("Dropout", {"x": X, "ratio": scalar(0.4), "training": np.array(True)}, constant=(1,)),
    Case("Attention", HEADS),
    Case("Attention", HEADS, "causal-softcap", attributes={"is_causal": 1, "softcap": 1.5}),
    Case("Attention", {**HEADS, "mask": ROW_WITHOUT_KEYS}, "rows without keys"),
    Case("Attention", {**HEADS, "mask": drawn(3, 5)}, "float mask"),
    *(Case("Attention", {**HEADS, "mask": None}, f"shows {mode}", outputs=("y", "", "", "s"),
           attributes={"qk_matmul_output_mode": mode}) for mode in range(4)),
    Case("RotaryEmbedding", {"x": drawn(2, 3, 4, 8), "cos": drawn(2, 4, 4), "sin": drawn(2, 4, 4)}),
    Case("LSTM", recurrent(4, 2, b=drawn(2, 32), lengths=None, h=drawn(2, 3, 4), c=drawn(2, 3, 4), p=drawn(2, 12)),
         "both directions", outputs=("y", "hn", "cn"), attributes={"hidden_size": 4, "direction": "bidirectional"}),
    Case("LSTM", recurrent(4, 1), "elu", outputs=("", "h"),
         attributes={"hidden_size": 4, "activations": ["Sigmoid", "Elu", "Softsign"]}),
    Case("GRU", recurrent(3, 1, b=drawn(1, 24)), attributes={"hidden_size": 4, "linear_before_reset": 1}),
    Case("RNN", recurrent(1, 1), outputs=("", "h"), attributes={"hidden_size": 4, "activations": ["Softplus"]}),
    Case("Mod", {"a": X, "b": drawn(3, 4, 5)}, attributes={"fmod": 1}),
    Case("Pow", {"a": abs(X), "b": drawn(3, 4, 5)}),
    Case("DequantizeLinear", {"x": RANDOM.integers(-9, 9, (3, 4)).astype(np.int8), "scale": scalar(0.3)}),
    Case("Resize", {"x": IMAGE}, "cubic", attributes={"mode": "cubic"},
         fixed={"roi": NOTHING, "scales": NOTHING, "sizes": np.array([2, 6, 5, 7])}),
    *(Case("GridSample", {"x": IMAGE, "grid": RANDOM.uniform(-1.4, 1.4, (2, 3, 3, 2)).astype(np.float32)}, mode,
           attributes={"mode": mode, "padding_mode": padding})
      for mode, padding in (("linear", "zeros"), ("cubic", "reflection"))),
    Case("DeformConv", {"x": IMAGE, "w": drawn(4, 3, 2, 2), "offset": drawn(2, 16, 2, 3), "b": drawn(4),
                        "mask": drawn(2, 8, 2, 3)}, attributes={"group": 2, "offset_group": 2}),
    Case("DFT", {"x": drawn(2, 6, 2)}, fixed={"n": np.array(5)}),
)  # fmt: skip


def composites(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "composite"]


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def prepared(case: Case) -> tuple[Graph, list[Array]]:
    graph = case.graph
    return graph, case.operands()


def error_of(case: Case) -> float:
    graph, operands = prepared(case)
    wide = [array.astype(np.float64) if array.dtype == np.float32 else array for array in operands]
    return disagreement(widened(graph), wide, np.random.default_rng(5), case.wrt())


def test_the_gradient_is_the_slope(case: Case) -> None:
    assert error_of(case) < TOLERANCE


def test_every_formula_has_a_case() -> None:
    found = {node["name"] for case in CASES for node in composites(case.graph) if steps_of(node)}
    assert found == set(STEPS)


@pytest.mark.parametrize("name", sorted(set(STEPS) - {"Sign"}))
def test_a_wrong_formula_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(each for each in CASES if any(n["name"] == name and steps_of(n) for n in composites(each.graph)))
    right = STEPS[name]

    def wrong(node: Node) -> Sequence[Step]:
        def negated(step: Step) -> Step:
            def rule(g: Value) -> tuple[Value | None, ...]:
                return tuple(None if made is None else neg(made) for made in step.rule(g))

            return Step(step.result, step.sources, rule)

        return [negated(step) for step in right(node)]

    monkeypatch.setitem(STEPS, name, wrong)
    assert error_of(case) > 1e-3


def test_native_code_gives_the_gradient_of_the_reference(case: Case) -> None:
    graph, operands = prepared(case)
    made, reached = gradient_graph(graph, case.wrt())
    if case.op in ("Sign", "Hardmax"):
        assert reached == []
        return
    assert reached
    made = Graph(made.arguments, tuple(canonical_nan(value) for value in made.results))
    generator = np.random.default_rng(8)
    seeds = [generator.standard_normal(kind.shape).astype(np.float32) for kind in made.arguments[len(operands) :]]
    machine = cpu.best_machine()
    assert machine is not None
    expected = evaluate(made, [*operands, *seeds])
    found = run_on_cpu(made, [*operands, *seeds], (), machine)
    for mine, wanted in zip(found, expected, strict=True):
        assert mine.tobytes() == wanted.tobytes()
        assert np.isfinite(wanted).all()


# ── the edges ───────────────────────────────────────────────────────────────────────────────────────

FAR = np.array([-1e4, -200, -100, -88, -30, -9, -1e-3, 1e-3, 9, 30, 88, 100, 200, 1e4], np.float32)
OVER_AXES = ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "Sign")
CURVES = [
    case
    for case in CASES
    if list(case.inputs) == ["x"] and case.inputs["x"] is X and not case.op.startswith("Reduce")
    if case.op not in OVER_AXES
]


@pytest.mark.parametrize("case", CURVES, ids=str)
def test_activations_are_accurate_where_they_saturate(case: Case) -> None:
    """In f32 against the same formula in f64, relative to the greater of the slope and 1e-6; no NaN, no infinity."""
    graph = Case(case.op, {"x": FAR}, opset=case.opset, attributes=case.attributes).graph
    (narrow,) = evaluate(gradient_graph(graph, [0])[0], [FAR, np.ones_like(FAR)])
    wide_graph = gradient_graph(widened(graph), [0])[0]
    (wide,) = evaluate(wide_graph, [FAR.astype(np.float64), np.ones(FAR.shape)])
    assert np.isfinite(narrow).all()
    np.testing.assert_array_less(abs(narrow - wide), 2e-6 * np.maximum(abs(wide), 1e-6) + 2e-7)


def slope_at(case: Case, x: Array, seed: Array | None = None) -> Array:
    graph = Case(case.op, {**case.inputs, "x": x}, opset=case.opset, attributes=case.attributes).graph
    made, _ = gradient_graph(graph, [0])
    ones = np.ones(graph.results[0].shape, np.float32) if seed is None else seed
    rest = [array for name, array in case.inputs.items() if name != "x" and array is not None]
    return evaluate(made, [x, *rest, ones])[0]


@pytest.mark.parametrize(
    ("op", "expected"),
    [("Softplus", 0.5), ("Mish", 0.6), ("Sigmoid", 0.25), ("Elu", 1.0), ("LeakyRelu", 1.0), ("ReduceL2", 0.0),
     ("LpNormalization", 0.0), ("Gelu", 0.5), ("Softsign", 1.0), ("MeanVarianceNormalization", 0.0)],
)  # fmt: skip
def test_the_slope_at_zero(op: str, expected: float) -> None:
    case = Case(op, {"x": X}, opset=13 if op == "ReduceL2" else 24)
    np.testing.assert_allclose(slope_at(case, np.zeros((2, 3, 4, 4), np.float32)), expected, rtol=1e-6)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_window_of_zeros_has_no_slope(p: int) -> None:
    case = Case("LpPool", {"x": IMAGE}, attributes={"p": p, "kernel_shape": [2, 2]})
    assert not slope_at(case, np.zeros((1, 1, 3, 3), np.float32)).any()


@pytest.mark.parametrize("activation", ["Sigmoid", "Elu", "Softplus"])
def test_saturated_gates_have_finite_gradients(activation: str) -> None:
    """At -300, where exp(-x) is infinite in f32, and at 300, where exp(x) is."""
    for size in (-300, 300):
        given = recurrent(1, 1, b=np.full((1, 8), size / 2, np.float32))
        graph = Case("RNN", given, attributes={"hidden_size": 4, "activations": [activation]}).graph
        made, reached = gradient_graph(graph, float_leaves(graph))
        assert reached == [0, 1, 2, 3]
        arrays = [array for array in given.values() if array is not None]
        seed = np.ones(graph.results[0].shape, np.float32)
        clipped = [array * np.float32(1e-3) if slot == 2 else array for slot, array in enumerate(arrays)]
        assert all(np.isfinite(slope).all() for slope in evaluate(made, [*clipped, seed]))


def test_a_dropout_of_everything_has_no_slope() -> None:
    case = Case("Dropout", {"x": X, "ratio": scalar(1), "training": np.array(True)})
    graph, operands = prepared(case)
    made, _ = gradient_graph(graph, [0])
    assert not evaluate(made, [*operands, np.ones(X.shape, np.float32)])[0].any()


def test_a_row_that_attends_nothing_has_no_gradient() -> None:
    case = next(each for each in CASES if each.note == "rows without keys")
    graph, operands = prepared(case)
    made, reached = gradient_graph(graph, [0])
    assert reached == [0]
    (slope,) = evaluate(made, [*operands, np.ones(graph.results[0].shape, np.float32)])
    assert np.isfinite(slope).all()
    assert not slope[:, :, 1].any()
    assert slope[:, :, 0].any()


def test_an_ignored_label_has_no_gradient() -> None:
    case = next(each for each in CASES if str(each) == "SoftmaxCrossEntropyLoss-mean-2")
    graph, operands = prepared(case)
    made, _ = gradient_graph(graph, [0])
    slope = evaluate(made, [*operands, np.ones((), np.float32), np.zeros(IMAGE.shape, np.float32)])[0]
    ignored = np.broadcast_to((LABELS == 2)[:, None], IMAGE.shape)
    assert ignored.any()
    assert not slope[ignored].any()
    assert slope[~ignored].all()


# ── cost ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "op", "count"),
    [("Softmax", "exp", 1), ("LogSoftmax", "exp", 2), ("LayerNormalization", "sqrt", 1), ("Attention", "exp", 1),
     ("Attention", "dot", 6), ("SoftmaxCrossEntropyLoss-loss only", "scatter", 0)],
)  # fmt: skip
def test_forward_values_are_computed_once(name: str, op: str, count: int) -> None:
    case = next(case for case in CASES if str(case) == name)
    graph = case.graph
    made, _ = gradient_graph(graph, case.wrt())
    both = expand(Graph(made.arguments, (*graph.results, *made.results)))
    assert len([node for node in both.nodes if node.op == op]) == count
