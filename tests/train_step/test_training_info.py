"""Models that bring their training step: its state and updates, several algorithms, initialization, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import repro
from repro.errors import ReproError
from repro.frontend import load_model
from repro.frontend.training_info import training_step
from repro.ir.types import Array
from repro.ops.record import evaluate
from repro.train_step import TrainStep
from tests.frontend.models import node, value
from tests.train_step.digits import STEPS, batches
from tests.train_step.test_digits import Compiled, by_position, by_reference
from tests.train_step.training_info import Info, graph, scaled, with_training

DIGITS = Path(__file__).resolve().parents[2] / "golden" / "digits_mlp_training_info" / "model.onnx"


def states(step: TrainStep, data: Sequence[list[Array]]) -> list[dict[str, Array]]:
    """The state after each step, by the reference."""
    now = {slot.name: slot.initial for slot in step.state}
    found: list[dict[str, Array]] = []
    for results in by_reference(step, data):
        now = now | {step.state[slot].name: results[result] for slot, result in step.updates}
        found.append(now)
    return found


# ── the digits model ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def digits() -> TrainStep:
    return training_step(load_model(DIGITS), {"N": 8})


def test_its_signature(digits: TrainStep) -> None:
    assert [(port.name, str(port.type)) for port in digits.inputs] == [("input", "f32[8,64]"), ("labels", "i64[8]")]
    assert [(port.name, str(port.type)) for port in digits.outputs] == [("loss", "f32[]")]
    weights = {f"fc{layer}.{kind}" for layer in (1, 2, 3) for kind in ("weight", "bias")}
    changed = {digits.state[slot].name for slot, _ in digits.updates}
    assert changed == {"step", *weights, *(f"{name}.adam_{part}" for name in weights for part in "vh")}
    assert {slot.name for slot in digits.state} == changed | {"lr"}
    assert {slot.name for slot in digits.state if slot.trainable} == weights
    assert digits.entry.name == "train_step"


def test_forward_is_computed_once(digits: TrainStep) -> None:
    """Three layers forward; back, three gradients of weights and two of activations."""
    assert sum(each.op == "dot" for each in digits.graph.nodes) == 3 + 3 + 2


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_steps_have_the_bits_of_the_reference(digits: TrainStep, threads: int) -> None:
    data = batches(digits.inputs[0].type.shape)
    expected = by_reference(digits, data)
    assert len(expected) == STEPS
    for mine, reference in zip(Compiled.of(digits).run(data, threads), expected, strict=True):
        assert mine == by_position(digits, reference)


def test_the_loss_falls(digits: TrainStep) -> None:
    losses = [float(results[0]) for results in by_reference(digits, batches(digits.inputs[0].type.shape))]
    assert np.mean(losses[-4:]) < 0.6 * np.mean(losses[:4])


def _adam_in_float64(start: dict[str, Array], images: Any, labels: Any, t: int) -> tuple[float, dict[str, Any]]:
    """One step of the digits model by hand: forward, backward, the update of the operator's text."""
    w, b = ([start[f"fc{layer}.{kind}"] for layer in (1, 2, 3)] for kind in ("weight", "bias"))
    activations = [images.astype(float)]
    for layer in range(3):
        z = activations[-1] @ w[layer].T + b[layer]
        activations.append(np.maximum(z, 0) if layer < 2 else z)
    shifted = activations[-1] - activations[-1].max(1, keepdims=True)
    logarithms = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    back = (np.exp(logarithms) - np.eye(10)[labels]) / len(labels)
    slopes: dict[str, Any] = {}
    for layer in (2, 1, 0):
        slopes[f"fc{layer + 1}.weight"], slopes[f"fc{layer + 1}.bias"] = back.T @ activations[layer], back.sum(0)
        back = (back @ w[layer]) * (activations[layer] > 0)
    alpha, beta, epsilon, rate = (float(np.float32(number)) for number in (0.9, 0.999, 1e-8, 1e-3))
    rate *= np.sqrt(1 - beta**t) / (1 - alpha**t) if t > 0 else 1
    made: dict[str, Any] = {}
    for name, slope in slopes.items():
        v = made[f"{name}.adam_v"] = alpha * start[f"{name}.adam_v"] + (1 - alpha) * slope
        h = made[f"{name}.adam_h"] = beta * start[f"{name}.adam_h"] + (1 - beta) * slope**2
        made[name] = start[name] - rate * v / (np.sqrt(h) + epsilon)
    return -float(logarithms[rows, labels].mean()), made


def test_each_step_is_that_of_numpy_in_float64(digits: TrainStep) -> None:
    data = batches(digits.inputs[0].type.shape)
    found, losses = states(digits, data), [float(results[0]) for results in by_reference(digits, data)]
    before = {slot.name: slot.initial for slot in digits.state}
    for t, (after, (images, labels)) in enumerate(zip(found, data, strict=True)):
        wide = {name: array.astype(float) for name, array in before.items()}
        loss, expected = _adam_in_float64(wide, images, labels, t)
        assert losses[t] == pytest.approx(loss, rel=1e-5)
        assert int(after["step"]) == t + 1
        assert len(expected) == 18
        for name, array in expected.items():
            np.testing.assert_allclose(after[name], array, rtol=0, atol=1e-5 * np.abs(array).max(), err_msg=name)
        before = after


def test_twenty_steps_in_a_row_stay_near_numpy_in_float64(digits: TrainStep) -> None:
    data = batches(digits.inputs[0].type.shape)
    now = {slot.name: slot.initial.astype(float) for slot in digits.state}
    for t, (images, labels) in enumerate(data):
        now |= _adam_in_float64(now, images, labels, t)[1]
    last = states(digits, data)[-1]
    worst = {name: np.abs(last[name] - now[name]).max() / np.abs(now[name]).max() for name in now if "step" not in name}
    assert max(worst.values()) < 1e-6, worst


def test_names_of_nodes_and_values_do_not_matter(digits: TrainStep) -> None:
    proto = onnx.load(DIGITS)
    algorithm = proto.training_info[0].algorithm
    nodes = list(reversed([*proto.graph.node]))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    for each in (*proto.graph.node, *algorithm.node):
        each.name = f"other_{each.name}"
        for names in (each.input, each.output):
            names[:] = ["hidden" if name == "fc1.act" else name for name in names]
    assert training_step(load_model(proto), {"N": 8}).graph.digest == digits.graph.digest


# ── small models ────────────────────────────────────────────────────────────────────────────────────

X = np.array([1.0, 2.0, 3.0], np.float32)
COUNT = {"one": np.int64(1), "n": np.int64(0)}


def one_step(step: TrainStep, *inputs: Array) -> tuple[dict[str, Any], dict[str, Any]]:
    """Outputs and state after one step, by name."""
    results = evaluate(step.graph, inputs, [slot.initial for slot in step.state])
    outputs = {port.name: array.tolist() for port, array in zip(step.outputs, results, strict=False)}
    return outputs, {name: array.tolist() for name, array in states(step, [list(inputs)])[0].items()}


def test_algorithms_run_one_after_another() -> None:
    """The second sees what the first made of the model's tensors; a name of each alone is its own."""
    first = Info(graph([node("Add", "y bias", "w1")], outputs="w1", initializers={"bias": X}), "w=w1")
    more = [node("Add", "y bias", "w2"), node("Mul", "w bias", "seen"), node("Add", "n one", "n1")]
    start = {"bias": 2 * X, **COUNT}
    second = Info(graph(more, outputs="w2 seen n1", initializers=start), "n=n1")
    step = training_step(with_training(scaled(), first, second))
    outputs, state = one_step(step, X)
    after = X * 1 + X
    assert state == {"w": after.tolist(), "bias": X.tolist(), "bias#2": (2 * X).tolist(), "n": 1}
    assert outputs == {"w2": (X * after + 2 * X).tolist(), "seen": (after * 2 * X).tolist()}


def test_an_output_of_the_model_may_be_bound() -> None:
    step = training_step(with_training(scaled("y"), Info(graph([]), "w=y")))
    assert one_step(step, 2 * X) == ({"y": (2 * X).tolist()}, {"w": (2 * X).tolist()})


@pytest.mark.parametrize("unread", [False, True])
def test_one_value_for_two_tensors_and_state_that_nothing_reads(unread: bool) -> None:
    keys = {"a": X, "b": X} if unread else {"a": X}
    update = "w=w1 a=w1 b=w1" if unread else "w=w1 a=w1"
    algorithm = graph([node("Neg", "y", "w1")], outputs="w1", initializers=keys)
    step = training_step(with_training(scaled(), Info(algorithm, update)))
    expected = by_reference(step, [[X], [X]])
    assert [slot.name for slot in step.state] == ["w", *keys]
    for mine, reference in zip(Compiled.of(step).run([[X], [X]], 1), expected, strict=True):
        assert mine == by_position(step, reference)
    last = states(step, [[X], [X]])[1]
    assert all(np.array_equal(last[name], X * X) for name in ("w", *keys))


def test_an_artifact_keeps_state_that_nothing_reads(tmp_path: Path) -> None:
    algorithm = graph([node("Neg", "y", "w1")], outputs="w1", initializers={"last": X})
    loaded = with_training(scaled(), Info(algorithm, "w=w1 last=w1"))
    artifact = repro.build(loaded.proto, tmp_path / "out")
    assert list(artifact.entries) == ["infer", "train_step"]
    for target in ("reference", "cpu"):
        with artifact.session("train_step", target) as session:
            assert session.state["last"].tolist() == X.tolist()
            for expected in (X, -X * X):
                assert session.run({"x": X})["y"].tolist() == expected.tolist()
            assert session.state["last"].tolist() == session.state["w"].tolist() == (X * X).tolist()


def test_a_tensor_that_changes_is_not_known_at_build() -> None:
    """A count of repetitions that runs change cannot give a shape."""
    nodes = [node("Tile", "x n", "tiled"), node("Add", "n one", "n1")]
    start = {"one": np.ones(1, np.int64), "n": np.ones(1, np.int64)}
    loaded = with_training(scaled(), Info(graph(nodes, outputs="tiled n1", initializers=start), "n=n1"))
    with pytest.raises(ReproError, match="must be known at build"):
        training_step(loaded)


def test_random_numbers_change_with_the_step() -> None:
    """A step that draws counts itself; forward and gradient share the mask of each step."""
    ratio, training = (numpy_helper.from_array(np.asarray(c)) for c in (np.float32(0.5), np.bool_(True)))
    nodes = [
        node("Constant", "", "ratio", value=ratio),
        node("Constant", "", "training", value=training),
        node("Dropout", "w ratio training", "dropped"),
        node("Gradient", "w", "dw", domain="ai.onnx.preview.training", xs=["w"], y="dropped"),
        node("Identity", "w", "w1"),
    ]
    inference = graph([node("Identity", "w", "y")], outputs="y", initializers={"w": np.ones(64, np.float32)})
    start = {"step": np.float32(0)}
    algorithm = graph([*nodes, node("Identity", "step", "s1")], outputs="dropped dw w1 s1", initializers=start)
    step = training_step(with_training(inference, Info(algorithm, "w=w1 step=s1")))
    assert [slot.name for slot in step.state] == ["w", "step", "step#2"]
    masks = by_reference(step, [[], [], []])
    assert all(np.array_equal(results[0], results[1]) for results in masks)
    assert len({results[0].tobytes() for results in masks}) == 3
    assert states(step, [[], [], []])[-1]["step#2"].tolist() == 3
    for mine, reference in zip(Compiled.of(step).run([[], [], []], 1), masks, strict=True):
        assert mine == by_position(step, reference)


def test_an_input_with_an_initializer_is_none() -> None:
    """As in the model's graph: the initializer is its value."""
    algorithm = graph([node("Add", "y bias", "w1")], [value("bias", (3,))], "w1", {"bias": X})
    step = training_step(with_training(scaled(), Info(algorithm, "w=w1")))
    assert [port.name for port in step.inputs] == ["x"]
    assert one_step(step, X)[1]["w"] == (X + X).tolist()


def test_a_constant_of_infer_that_training_changes_is_warned_of() -> None:
    inference = graph([node("Add", "x n", "y")], [value("x", (), TensorProto.INT64)], "y", COUNT)
    step = training_step(with_training(inference, Info(graph([node("Add", "n one", "n1")], outputs="n1"), "n=n1")))
    assert step.warnings == ("training changes 'n', which is a constant of infer",)
    assert one_step(step, np.array(5))[1]["n"] == 1


def test_dimensions_of_the_algorithm_alone_can_be_bound(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", "z", "s", keepdims=0), node("Mul", "w s", "w1")]
    algorithm = graph(nodes, [value("z", ("M", None))], "w1")
    loaded = with_training(scaled(), Info(algorithm, "w=w1"))
    artifact = repro.build(loaded.proto, tmp_path / "out", bind={"M": 2, "z[-1]": 4}, targets=["reference"])
    assert [port.type for port in artifact.entries["train_step"].inputs] == ["f32[3]", "f32[2,4]"]
    with pytest.raises(ReproError, match="names no dimension"):
        repro.build(loaded.proto, tmp_path / "other", bind={"M": 2, "z[1]": 4, "K": 1})


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────

SEVEN = graph([node("Constant", "", "n0", value_int=7)], outputs="n0")
HALF = [node("Mul", "w w", "w1")]
LABELS = value("labels", (3,), TensorProto.INT64)
BROKEN: dict[str, tuple[tuple[Info, ...], str, str]] = {
    "an unknown key": ((Info(graph(HALF, outputs="w1"), "u=w1"),), "names no initializer", "'u'"),
    "an unknown value": ((Info(graph(HALF, outputs="w1"), "w=w2"),), "a value that is no output", "'w2'"),
    "a value that is no output": ((Info(graph(HALF), "w=w1"),), "a value that is no output", "'w1'"),
    "a key twice": ((Info(graph(HALF, outputs="w1"), "w=w1 w=w1"),), "names a tensor twice", "'w'"),
    "a key in two algorithms": ((Info(graph(HALF, outputs="w1"), "w=w1"),) * 2, "is updated twice", "'w'"),
    "a key of another algorithm": (
        (Info(graph(HALF, outputs="w1", initializers=COUNT)), Info(graph(HALF, outputs="w1"), "n=w1")),
        "names no initializer",
        "'n'",
    ),
    "two tensors of one name": (
        (
            Info(graph([node("Add", "n one", "m")], outputs="m", initializers=COUNT), "n=m"),
            Info(graph([], initializers=COUNT), "", SEVEN, "n=n0"),
        ),
        "two state tensors have one name",
        "'n'",
    ),
    "another element type": (
        (Info(graph([node("Cast", "w", "w1", to=TensorProto.DOUBLE)], outputs="w1"), "w=w1"),),
        "another type than its tensor",
        "f64[3]",
    ),
    "another shape": (
        (Info(graph([node("Concat", "w w", "w1", axis=0)], outputs="w1"), "w=w1"),),
        "another type than its tensor",
        "f32[6]",
    ),
    "a name in use": ((Info(graph([node("Neg", "x", "w")], outputs="w")),), "takes a name that is in use", "'w'"),
    "an input's name": ((Info(graph([], [value("x")])),), "takes a name that is in use", "'x'"),
    "an initializer's name": ((Info(graph([], initializers={"y": X})),), "takes a name that is in use", "'y'"),
    "two writers": ((Info(graph([node("Neg", "x", "y")])),), "two results have one name", "'y'"),
    "an unknown name": (
        (Info(graph([node("Neg", "absent", "w1")], outputs="w1")),),
        "stands for nothing",
        "'absent'",
    ),
    "a cycle": ((Info(graph([node("Neg", "b", "a"), node("Neg", "a", "b")], outputs="a")),), "a cycle", "own result"),
    "inputs that differ": (
        (Info(graph([], [LABELS])), Info(graph([], [value("labels", (3,))]))),
        "one input with different types",
        "'labels'",
    ),
    "an unknown operator": ((Info(graph([node("Nothing", "w", "w1")], outputs="w1")),), "not supported", "Nothing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_said(case: str) -> None:
    infos, what, found = BROKEN[case]
    with pytest.raises(ReproError) as caught:
        training_step(with_training(scaled(), *infos))
    assert what in caught.value.what
    assert found in (caught.value.found or "")


def test_too_many_algorithms_end_early() -> None:
    """Each brings the model's graph once more."""
    many = graph([node("Neg", "w", f"v{number}") for number in range(400)], outputs="v0", initializers={"w": X})
    with pytest.raises(ReproError, match="too large for its number of algorithms"):
        training_step(with_training(many, *[Info(graph([]))] * 300))


def test_a_model_without_training_has_no_step() -> None:
    with pytest.raises(ReproError, match="no training_info"):
        training_step(with_training(scaled()))
