"""ONNX Runtime's gradients of moves, its joins and splits, accumulators and optimizers, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import Array
from tests.ops.numpy_differences import MICROSOFT, close, differences, drawn, model_of
from tests.ops.one_node import run_model


def run(
    op: str,
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array],
    order: Sequence[str],
    outputs: Sequence[str],
    **rest: Any,
) -> list[Array]:
    """One node, some inputs of which are known at build."""
    one = helper.make_node(op, list(order), list(outputs), domain=MICROSOFT, **rest)
    return run_model(model_of([one], inputs, constants, outputs), inputs)


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


# ── gathers and slices ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis: int) -> None:
    """Indices come twice, and from the end."""
    x, indices = drawn(4, 3, 4), np.asarray([[0, 2, -1], [2, 1, 2]], np.int64)
    dy = drawn(*np.take(x, indices, axis).shape, seed=1)
    given = {"indices": indices, "dy": dy}
    found = run("GatherGrad", given, {"shape": ints(*x.shape)}, ["shape", "indices", "dy"], ["dx"], axis=axis)
    close(found, differences(lambda x: np.take(x, indices, axis), [x], dy))


def test_gather_elements() -> None:
    x, indices = drawn(4, 3), np.asarray([[0, 2, -1], [0, 1, 2]], np.int32)
    dy = drawn(2, 3, seed=1)
    given = {"indices": indices, "dy": dy}
    found = run("GatherElementsGrad", given, {"shape": ints(4, 3)}, ["dy", "shape", "indices"], ["dx"], axis=0)
    close(found, differences(lambda x: np.take_along_axis(x, indices % 4, 0), [x], dy))


@pytest.mark.parametrize("batch", [0, 1])
def test_gather_nd(batch: int) -> None:
    x = drawn(3, 4, 2)
    indices = (
        np.asarray([[[0, 1], [2, 1]], [[0, 1], [-1, -2]]], np.int64) if not batch else ints(1, 1, -1).reshape(3, 1, 1)
    )

    def forward(x: Array) -> Array:
        if batch:
            return np.stack([x[row][indices[row, :, 0]] for row in range(3)])
        return x[indices[..., 0], indices[..., 1]]

    dy = drawn(*forward(x).shape, seed=1)
    given = {"indices": indices, "dy": dy}
    found = run("GatherNDGrad", given, {"shape": ints(3, 4, 2)}, ["shape", "indices", "dy"], ["dx"], batch_dims=batch)
    close(found, differences(forward, [x], dy))


def test_slice() -> None:
    x = drawn(5, 6)
    dy = drawn(2, 2, seed=1)
    constants = {
        "shape": ints(5, 6),
        "starts": ints(-1, 1),
        "ends": ints(-99, 5),
        "axes": ints(0, 1),
        "steps": ints(-3, 2),
    }
    found = run("SliceGrad", {"dy": dy}, constants, ["dy", *constants], ["dx"])
    close(found, differences(lambda x: x[-1::-3, 1:5:2], [x], dy))


def test_a_shape_that_is_not_known_at_build_is_refused() -> None:
    inputs = {"shape": ints(3, 2), "indices": ints(0), "dy": drawn(1, 2)}
    one = helper.make_node("GatherGrad", list(inputs), ["dx"], domain=MICROSOFT)
    with pytest.raises(ReproError, match="known at build"):
        import_model(load_model(model_of([one], inputs, {}, ["dx"])))


def test_axes_that_a_broadcast_stretched() -> None:
    shapes = {"a": ints(4, 1, 3), "b": ints(5, 1)}
    one = helper.make_node("BroadcastGradientArgs", ["a", "b"], ["p", "q"], domain=MICROSOFT)
    x = drawn(4, 5, 3)
    sums = [
        helper.make_node("ReduceSumTraining", ["x", name], [made], domain=MICROSOFT, keepdims=kept)
        for name, made, kept in (("p", "to_a", 1), ("q", "to_b", 0))
    ]
    found = run_model(model_of([one, *sums], {"x": x}, shapes, ["p", "q", "to_a", "to_b"]), {"x": x})
    assert found[0].tolist() == [1] and found[1].tolist() == [2, 0]
    close(found[2:], [x.sum(1, keepdims=True), x.sum((0, 2))])


def test_joins_and_splits() -> None:
    a, b = drawn(2, 3), drawn(2, 2)
    whole, lengths = run("ConcatTraining", {"a": a, "b": b}, {}, ["a", "b"], ["y", "lengths"], axis=1)
    assert np.array_equal(whole, np.concatenate([a, b], 1)) and lengths.tolist() == [3, 2]
    parts = run("SplitTraining", {"x": whole}, {"split": ints(1, 4)}, ["x", "split"], ["p", "q"], axis=1)
    assert [part.tolist() for part in parts] == [whole[:, :1].tolist(), whole[:, 1:].tolist()]


# ── arithmetic ──────────────────────────────────────────────────────────────────────────────────────


def test_quotients_that_were_stretched() -> None:
    a, b, dy = drawn(4, 1, 3), drawn(2, 1), drawn(4, 2, 3, seed=1)
    found = run("DivGrad", {"dy": dy, "a": a, "b": b}, {}, ["dy", "a", "b"], ["da", "db"])
    close(found, differences(lambda a, b: a / b, [a, b], dy), 2e-4)


@pytest.mark.parametrize("down", [0, 1])
def test_scale(down: int) -> None:
    x, scale = drawn(3, 2), np.asarray(5, np.int64)
    (found,) = run("Scale", {"x": x, "scale": scale}, {}, ["x", "scale"], ["y"], scale_down=down)
    assert np.array_equal(found, x / np.float32(5) if down else x * np.float32(5))


@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("batch", [0, 1])
def test_matrix_products(trans: tuple[int, int], batch: int) -> None:
    a, b = drawn(2, 3, 4, 5), drawn(2, 3, 5, 6)
    given = [np.swapaxes(x, -1, -2) if swap else x for x, swap in zip((a, b), trans, strict=True)]
    if batch:
        given = [np.moveaxis(x, -2, 0) for x in given]
    attributes = dict(zip(("transA", "transB"), trans, strict=True)) | {"transBatchA": batch, "transBatchB": batch}
    inputs = {"a": np.ascontiguousarray(given[0]), "b": np.ascontiguousarray(given[1])}
    close(
        run("FusedMatMul", inputs, {}, ["a", "b"], ["y"], alpha=0.5, **attributes), [0.5 * (a.astype(np.float64) @ b)]
    )


# ── accumulation and optimizers ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("overwrite", [None, True, False])
def test_accumulation(overwrite: bool | None) -> None:
    inputs = {"buffer": drawn(3), "value": drawn(3, seed=1)}
    if overwrite is not None:
        inputs["flag"] = np.asarray([overwrite])
    done, total = run("InPlaceAccumulatorV2", inputs, {}, list(inputs), ["done", "total"])
    expected = inputs["value"] + (0 if overwrite else inputs["buffer"])
    assert done.tolist() == [True] and np.array_equal(total, expected)


SHAPES = ((3, 4), (5,))


def over_sequences(
    op: str, singles: Mapping[str, Array], sequences: Mapping[str, list[Array]], **rest: Any
) -> list[Array]:
    """The tensors of an optimizer's output sequences, one after another, its flag left out."""
    inputs = {
        **singles,
        **{f"{name}{at}": array for name, arrays in sequences.items() for at, array in enumerate(arrays)},
    }
    nodes = [
        helper.make_node("SequenceConstruct", [f"{name}{at}" for at in range(len(arrays))], [name])
        for name, arrays in sequences.items()
    ]
    clips = op == "InplaceClipGradNorm"
    changed = [name for name in sequences if clips or name != "g"]
    outputs = [f"new_{name}" for name in changed]
    order = [name for name in (*singles, *sequences) if name != "signal"] + ["signal"] * ("signal" in singles)
    nodes.append(helper.make_node(op, order, outputs if clips else ["done", *outputs], domain=MICROSOFT, **rest))
    return run_model(model_of(nodes, inputs, {}, outputs), inputs)


def adamw(mode: int, decay: float, rate: float, step: int, rows: list[list[Array]], correct: bool) -> list[Array]:
    """ONNX Runtime's two forms of AdamW, in float64."""
    alpha, beta, epsilon = 0.8, 0.95, 1e-3
    first, second = (1 - alpha**step, 1 - beta**step) if correct else (1.0, 1.0)
    made: list[list[Array]] = []
    for row in rows:
        w, g, m, v = (array.astype(np.float64) for array in row)
        if mode == 0:
            w = w - rate * decay * w
        m, v = alpha * m + (1 - alpha) * g, beta * v + (1 - beta) * g * g
        if mode == 0:
            w = w - rate * m / (first * (np.sqrt(v / second) + epsilon))
        else:
            w = w - rate * np.sqrt(second) / first * m / (np.sqrt(v) + epsilon)
            w = w - rate * decay * w
        made.append([w, m, v])
    return [row[part] for part in range(3) for row in made]


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("correct", [True, False])
def test_adamw(mode: int, decay: float, correct: bool) -> None:
    columns = {name: [drawn(*shape, seed=seed) for shape in SHAPES] for seed, name in enumerate("wgmv")}
    columns["v"] = [np.abs(array) for array in columns["v"]]
    singles = {"rate": np.asarray([0.01], np.float32), "step": ints(3)}
    attributes = {"alpha": 0.8, "beta": 0.95, "epsilon": 1e-3, "weight_decay": decay, "adam_mode": mode}
    found = over_sequences("AdamWOptimizer", singles, columns, correct_bias=int(correct), **attributes)
    rows = [[columns[name][at] for name in "wgmv"] for at in range(len(SHAPES))]
    close(found, adamw(mode, decay, 0.01, 3, rows, correct), 1e-6)


@pytest.mark.parametrize("signal", [None, True, False])
def test_sgd(signal: bool | None) -> None:
    columns = {name: [drawn(*shape, seed=seed) for shape in SHAPES] for seed, name in enumerate("wg")}
    singles = {"rate": np.asarray([0.125], np.float32)} | ({} if signal is None else {"signal": np.asarray([signal])})
    found = over_sequences("SGDOptimizerV2", singles, columns)
    factor = 0.0 if signal is False else 0.125
    close(found, [w - factor * g.astype(np.float64) for w, g in zip(columns["w"], columns["g"], strict=True)], 1e-6)


@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_clipping(limit: float) -> None:
    gradients = [drawn(*shape, seed=1) for shape in SHAPES]
    norm = np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients))
    found = over_sequences("InplaceClipGradNorm", {}, {"g": gradients}, max_norm=limit)
    close(found, [g * min(limit / (norm + 1e-6), 1.0) for g in gradients], 1e-6)


def test_sequences_that_do_not_fit_are_refused() -> None:
    columns = {"w": [drawn(3)], "g": [drawn(3), drawn(2)]}
    with pytest.raises(ReproError, match="lengths 1, 2"):
        over_sequences("SGDOptimizerV2", {"rate": np.asarray([0.1], np.float32)}, columns)
    with pytest.raises(ReproError, match="do not fit"):
        over_sequences("SGDOptimizerV2", {"rate": np.asarray([0.1], np.float32)}, {"w": [drawn(3)], "g": [drawn(2)]})
