"""What a training step is made of: state, microbatches, random numbers, running statistics, the gradients entry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from passes import pipeline
from repro.errors import ReproError
from repro.frontend import Imported, import_model, load_model
from repro.ir.types import Array, to_face, to_storage
from repro.ops.record import evaluate
from repro.train_step.assemble import TrainStep, gradients, train_step
from repro.train_step.losses import BinaryCrossEntropyWithLogits, MeanSquaredError, SoftmaxCrossEntropy
from repro.train_step.optimizers import Adam, Momentum, Sgd
from repro.train_step.problem import TrainOptions
from tests.train_step.running import model

RNG = np.random.default_rng(3)
W, B = RNG.standard_normal((4, 3)).astype(np.float32), RNG.standard_normal(3).astype(np.float32)


def imported(proto: ModelProto, **options: Any) -> Imported:
    return import_model(load_model(proto), **options)


def linear(rows: int, **more: Any) -> ModelProto:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    return model(nodes, {"x": (rows, 4)}, ["y"], {"w": W, "b": B, **more})


def run(step: TrainStep, *inputs: Any, state: dict[str, Any] | None = None) -> tuple[Any, dict[str, Array]]:
    """The loss, and the state afterwards by name."""
    known = {tensor.name: tensor.initial for tensor in step.state} | (state or {})
    given = [to_storage(np.asarray(value), port.type.dtype) for value, port in zip(inputs, step.inputs, strict=True)]
    results = evaluate(step.graph, given, list(known.values()))
    names = list(known)
    known.update({names[slot]: results[result] for slot, result in step.updates})
    return results[0], known


def data(rows: int) -> tuple[Array, Array]:
    return RNG.standard_normal((rows, 4)).astype(np.float32), RNG.standard_normal((rows, 3)).astype(np.float32)


def test_a_step_of_gradient_descent() -> None:
    x, labels = data(6)
    step = train_step(imported(linear(6)), TrainOptions(MeanSquaredError(), Sgd(), learning_rate=0.5))
    assert [port.name for port in step.inputs] == ["x", "labels"]
    assert [tensor.name for tensor in step.state] == ["w", "b", "learning_rate", "step"]
    loss, state = run(step, x, labels)
    error = x.astype(np.float64) @ W + B - labels
    np.testing.assert_allclose(loss, (error**2).mean(), rtol=1e-6)
    np.testing.assert_allclose(state["w"], W - 0.5 * 2 * x.T @ error / error.size, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state["b"], B - 0.5 * 2 * error.sum(0) / error.size, rtol=1e-5, atol=1e-6)
    assert int(state["step"]) == 1


def test_the_learning_rate_is_state() -> None:
    x, labels = data(6)
    step = train_step(imported(linear(6)), TrainOptions(MeanSquaredError()))
    _, still = run(step, x, labels, state={"learning_rate": np.float64(0)})
    _, moved = run(step, x, labels)
    assert still["w"].tobytes() == W.tobytes() != moved["w"].tobytes()


@pytest.mark.parametrize("weighted", [False, True])
def test_microbatches_make_the_gradient_of_the_whole_batch(weighted: bool) -> None:
    x, labels = data(6)
    inputs = (x, labels, RNG.random((6, 3)).astype(np.float32)) if weighted else (x, labels)
    whole, split = (
        gradients(imported(linear(6 // k)), TrainOptions(MeanSquaredError(), weighted=weighted, accumulation=k))
        for k in (1, 3)
    )
    assert whole.inputs == split.inputs
    expected, found = (evaluate(entry.graph, inputs, [W, B]) for entry in (whole, split))
    assert len(found) == 3
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-6, atol=1e-7)


def test_microbatches_are_added_in_ascending_order() -> None:
    """Bit for bit, where every other order gives other bits."""
    proto = model([helper.make_node("Add", ["x", "b"], ["y"])], {"x": (1, 3)}, ["y"], {"b": np.zeros(3, np.float32)})
    entry = gradients(imported(proto), TrainOptions(MeanSquaredError(), accumulation=3))
    x = np.array([[1e8, -0.0, 3], [1.5, -0.0, 0.1], [-1e8, -0.0, 7]], np.float32)
    found = evaluate(entry.graph, (x, np.zeros_like(x)), [np.full(3, -0.0, np.float32)])[1]
    seed = np.float32(1) / np.float32(9)
    terms = [seed * row + seed * row for row in x]
    assert found.tobytes() == ((terms[0] + terms[1]) + terms[2]).tobytes()
    assert found.tobytes() != (terms[0] + (terms[1] + terms[2])).tobytes()
    assert found.tobytes() != ((terms[0] + terms[2]) + terms[1]).tobytes()


def test_class_weights_are_shared_by_microbatches() -> None:
    x, _ = data(6)
    labels = np.array([0, 2, -100, 1, 1, 0])
    weight = np.array([0.2, 1.5, 0.7], np.float32)
    entries = [
        gradients(imported(linear(6 // k)), TrainOptions(SoftmaxCrossEntropy(), weighted=True, accumulation=k))
        for k in (1, 2)
    ]
    whole, split = (evaluate(entry.graph, (x, labels, weight), [W, B]) for entry in entries)
    assert entries[1].inputs[2].type.shape == (3,)
    for mine, other in zip(split, whole, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-6, atol=1e-7)


def test_a_label_out_of_range_is_reported_at_the_loss() -> None:
    step = train_step(imported(linear(6)), TrainOptions(SoftmaxCrossEntropy()))
    assert pipeline.run(step.graph, dict(step.locations), step.updates).checked == ("loss",)


# ── parameters ──────────────────────────────────────────────────────────────────────────────────────


def gated(rows: int) -> ModelProto:
    """y = s * (x w + b) with a scalar s, and a second output that reads a parameter of its own."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Mul", ["h", "s"], ["y"]),
        helper.make_node("Mul", ["h", "other"], ["z"]),
    ]
    return model(nodes, {"x": (rows, 4)}, ["y", "z"], {"w": W, "b": B, "s": np.float32(2), "other": B})


def trained(options: TrainOptions) -> set[str]:
    step = train_step(imported(gated(2)), options)
    changed = {step.state[slot].name for slot, _ in step.updates}
    assert {tensor.name for tensor in step.state if tensor.trainable} == changed - {"step"}
    return changed - {"step"}


def test_which_parameters_are_trained() -> None:
    loss = MeanSquaredError()
    assert trained(TrainOptions(loss)) == {"w", "b"}
    assert trained(TrainOptions(loss, trainable=("s",))) == {"w", "b", "s"}
    assert trained(TrainOptions(loss, frozen=("[bw]",), trainable=("s",))) == {"s"}
    assert trained(TrainOptions(loss, loss_output="z")) == {"w", "b", "other"}


def test_the_gradients_entry_has_zeros_where_no_path_leads() -> None:
    entry = gradients(imported(gated(2)), TrainOptions(MeanSquaredError()))
    assert [port.name for port in entry.outputs] == ["loss", "w.grad", "b.grad", "other.grad"]
    x, labels = data(2)
    found = evaluate(entry.graph, (x, labels), [slot.initial for slot in entry.parameters])
    assert not found[3].any()
    assert found[1].any()
    assert found[2].any()


def test_state_never_takes_a_name_of_the_model() -> None:
    nodes = [helper.make_node("Gemm", ["x", "step", "step.exp_avg"], ["y"])]
    proto = model(nodes, {"x": (2, 4)}, ["y"], {"step": W, "step.exp_avg": B})
    step = train_step(imported(proto), TrainOptions(MeanSquaredError(), Adam()))
    names = [tensor.name for tensor in step.state]
    assert names[:5] == ["step", "step.exp_avg", "learning_rate", "step#2", "step.exp_avg#2"]
    assert len(set(names)) == len(names)


def test_f16_parameters_are_updated_in_f32() -> None:
    cast = [helper.make_node("Cast", ["x"], ["x16"], to=10), helper.make_node("Gemm", ["x16", "w", "b"], ["y16"])]
    nodes = [*cast, helper.make_node("Cast", ["y16"], ["y"], to=1)]
    proto = model(nodes, {"x": (6, 4)}, ["y"], {"w": W.astype(np.float16), "b": B.astype(np.float16)})
    step = train_step(imported(proto), TrainOptions(MeanSquaredError(), Momentum(), learning_rate=0.1, clip_norm=1.0))
    kinds = {tensor.name: tensor.type.dtype.name for tensor in step.state}
    assert kinds["w"] == "f16"
    assert kinds["w.momentum_buffer"] == "f32"
    x, labels = data(6)
    _, state = run(step, x, labels)
    after = to_face(state["w"], step.state[0].type.dtype).astype(np.float64)
    moved = W.astype(np.float16) - np.float32(0.1) * state["w.momentum_buffer"].astype(np.float64)
    assert state["w.momentum_buffer"].any()
    np.testing.assert_allclose(after, moved, rtol=2**-10)


def test_f64_models_train_in_f64() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["x64"], to=11), helper.make_node("Gemm", ["x64", "w", "b"], ["y"])]
    proto = model(nodes, {"x": (6, 4)}, ["y"], {"w": W.astype(float), "b": B.astype(float)})
    proto.graph.output[0].type.tensor_type.elem_type = 11
    options = TrainOptions(MeanSquaredError(), Adam(), learning_rate=0.1, clip_norm=1.0, accumulation=3)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    step = train_step(imported(proto), options)
    assert {tensor.type.dtype.name for tensor in step.state} == {"f64", "i64"}
    x, labels = data(6)
    loss, state = run(step, x, labels.astype(float))
    error = x.astype(float) @ W + B - labels
    np.testing.assert_allclose(loss, (error**2).mean(), rtol=1e-14)
    slopes = [2 * x.T.astype(float) @ error / error.size, 2 * error.sum(0) / error.size]
    norm = np.sqrt(sum((slope**2).sum() for slope in slopes))
    assert norm > 1
    np.testing.assert_allclose(state["w.exp_avg"], slopes[0] / (norm + 1e-6) * 0.1, rtol=1e-12)


# ── running statistics ──────────────────────────────────────────────────────────────────────────────


def normalized(rows: int, outputs: int = 3) -> ModelProto:
    names = ["n", "mean_out", "var_out"][:outputs]
    nodes = [
        helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], names, training_mode=1, momentum=0.75),
        helper.make_node("Mul", ["n", "gain"], ["y"]),
    ]
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    return model(nodes, {"x": (rows, 4)}, ["y"], {"s": ones, "b": zeros, "m": zeros, "v": ones, "gain": ones})


@pytest.mark.parametrize("k", [1, 2])
def test_running_statistics_move_though_their_outputs_lead_nowhere(k: int) -> None:
    x = RNG.standard_normal((8, 4)).astype(np.float32) + 3
    step = train_step(imported(normalized(8 // k)), TrainOptions(MeanSquaredError(), accumulation=k))
    assert {tensor.name for tensor in step.state if tensor.trainable} == {"s", "b", "gain"}
    _, state = run(step, x, np.zeros_like(x))
    mean, variance = np.zeros(4), np.ones(4)
    for part in np.split(x.astype(np.float64), k):
        mean, variance = mean * 0.75 + part.mean(0) * 0.25, variance * 0.75 + part.var(0) * 0.25
    np.testing.assert_allclose(state["m"], mean, rtol=1e-6)
    np.testing.assert_allclose(state["v"], variance, rtol=1e-6)


def test_two_nodes_may_not_update_one_statistic() -> None:
    proto = normalized(8)
    node = helper.make_node("BatchNormalization", ["y", "s", "b", "m", "v"], ["y2", "m2", "v2"], training_mode=1)
    proto.graph.node.append(node)
    proto.graph.output[0].name = "y2"
    with pytest.raises(ReproError, match="two nodes update one running statistic") as caught:
        train_step(imported(proto), TrainOptions(MeanSquaredError()))
    assert caught.value.found == "m"


# ── random numbers ──────────────────────────────────────────────────────────────────────────────────


def dropping(rows: int) -> ModelProto:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["h"]),
        helper.make_node("Dropout", ["h", "ratio", "training"], ["y"]),
    ]
    values = {"w": np.ones(4, np.float32), "ratio": np.float32(0.5), "training": np.bool_(True)}
    return model(nodes, {"x": (rows, 4)}, ["y"], values)


def dropped(step: TrainStep, rows: int, number: int) -> Array:
    """Which elements of a step are dropped: one-hot rows of the loss's gradient would be too narrow, so by losses."""
    masks = np.zeros((rows, 4), bool)
    for place in np.ndindex(rows, 4):
        x = np.zeros((rows, 4), np.float32)
        x[place] = 1
        loss, _ = run(step, x, np.zeros_like(x), state={"step": np.int64(number)})
        masks[place] = loss == 0
    return masks


def test_masks_change_with_the_step_and_the_microbatch_and_only_with_them() -> None:
    whole = train_step(imported(dropping(8)), TrainOptions(MeanSquaredError()))
    split = train_step(imported(dropping(4)), TrainOptions(MeanSquaredError(), accumulation=2))
    first, again, second = dropped(whole, 8, 0), dropped(whole, 8, 0), dropped(whole, 8, 1)
    assert 4 < first.sum() < 28
    assert (first == again).all()
    assert (first != second).any()
    assert (first[:4] != first[4:]).any()
    # The microbatch is a leading axis of the number of an element: microbatches draw as the whole batch does.
    assert (dropped(split, 8, 1) == second).all()


def test_the_backward_pass_drops_what_the_forward_pass_does() -> None:
    step = train_step(imported(dropping(8)), TrainOptions(MeanSquaredError(), learning_rate=1.0))
    x = np.ones((8, 4), np.float32)
    kept = ~dropped(step, 8, 5)
    _, state = run(step, x, np.zeros_like(x), state={"step": np.int64(5)})
    np.testing.assert_allclose(state["w"], 1 - 2 * 4 * kept.sum(0) / 32, rtol=1e-6)


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss_output": "q"}, "no such output"),
        ({"frozen": ("fc*",)}, "fits no parameter"),
        ({"frozen": ("*",)}, "nothing is left to train"),
        ({"accumulation": 0}, "accumulation is out of range"),
        ({"accumulation": 10**11}, "a tensor is over the size limit"),
        ({"shards": 1 << 40}, "a tensor is over the size limit"),
        ({"clip_norm": float("nan")}, "clip_norm is out of range"),
        ({"learning_rate": -1.0}, "learning_rate is out of range"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ReproError, match=said):
        train_step(imported(linear(2)), TrainOptions(BinaryCrossEntropyWithLogits(), **options))


def test_an_input_called_labels_is_refused() -> None:
    proto = model([helper.make_node("Mul", ["labels", "b"], ["y"])], {"labels": (2, 3)}, ["y"], {"b": B})
    with pytest.raises(ReproError, match="an input of the name that the loss needs"):
        train_step(imported(proto), TrainOptions(MeanSquaredError()))


def test_a_loss_of_integers_is_refused() -> None:
    proto = model([helper.make_node("ArgMax", ["x"], ["y"])], {"x": (2, 3)}, ["y"], {})
    proto.graph.output[0].type.tensor_type.elem_type = 7
    with pytest.raises(ReproError, match="needs a float output"):
        train_step(imported(proto), TrainOptions(MeanSquaredError()))
