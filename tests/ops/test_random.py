"""Random operators: the numbers of rule 16, scaled as ONNX says; Dropout of every opset."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import Array
from repro.numerics.random_bits import normals, philox_words, uniforms
from tests.ops.one_node import run_model, run_node

FLOAT, DOUBLE, FLOAT16, BOOL = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL
SEED = int(np.float32(7.5).view(np.uint32))
"""The key of a node whose attribute `seed` is 7.5."""


def drawn(*nodes: onnx.NodeProto, kind: int = FLOAT) -> list[Array]:
    """The outputs of nodes without inputs; each node has one output."""
    wanted = [helper.make_tensor_value_info(node.output[0], kind, None) for node in nodes]
    graph = helper.make_graph(list(nodes), "draws", [], wanted)
    return run_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), {})


def draw(op: str, shape: list[int], kind: int = FLOAT, **attributes: Any) -> Array:
    return drawn(helper.make_node(op, [], ["y"], shape=shape, dtype=kind, **attributes), kind=kind)[0]


def test_uniform_numbers_are_those_of_the_contract() -> None:
    found = draw("RandomUniform", [3, 5], seed=7.5)
    assert found.tobytes() == uniforms(SEED, 0, 0, 15).reshape(3, 5).tobytes()
    low, high = np.float32(-1.5), np.float32(0.3)
    assert (
        draw("RandomUniform", [15], seed=7.5, low=-1.5, high=0.3).tobytes()
        == (uniforms(SEED, 0, 0, 15) * (high - low) + low).tobytes()
    )


@pytest.mark.parametrize("count", [0, 1, 7, 16])
def test_normal_numbers_are_those_of_the_contract(count: int) -> None:
    expected = normals(SEED, 0, 0, count)
    assert draw("RandomNormal", [count], seed=7.5).tobytes() == expected.tobytes()
    found = draw("RandomNormal", [count], seed=7.5, mean=0.25, scale=3.0)
    assert found.tobytes() == (expected * np.float32(3) + np.float32(0.25)).tobytes()


def test_other_types_draw_in_single_and_round_once() -> None:
    expected = normals(SEED, 0, 0, 8)
    scale, mean = np.float32(0.7), np.float32(0.1)
    wide = draw("RandomNormal", [8], DOUBLE, seed=7.5, scale=0.7, mean=0.1)
    assert wide.tobytes() == (expected.astype(np.float64) * np.float64(scale) + np.float64(mean)).tobytes()
    half = draw("RandomNormal", [8], FLOAT16, seed=7.5, scale=0.7, mean=0.1)
    assert half.tobytes() == (expected * scale + mean).astype(np.float16).tobytes()


def test_no_two_nodes_draw_the_same() -> None:
    first, second = drawn(*(helper.make_node("RandomUniform", [], [name], shape=[64]) for name in "ab"))
    assert not np.isin(first, second).any()


def test_moments_of_normal_numbers() -> None:
    found = draw("RandomNormal", [200, 100], seed=1.0, mean=2.0, scale=0.5)
    assert abs(found.mean() - 2) < 0.02 and abs(found.std() - 0.5) < 0.01


@pytest.mark.parametrize("op", ["RandomUniformLike", "RandomNormalLike"])
def test_like_another_tensor(op: str) -> None:
    x = np.zeros((2, 3), np.float16)
    [found] = run_node(op, {"x": x}, ["y"], 22, seed=7.5)
    assert found.dtype == np.float16
    assert found.tobytes() == draw(op.removesuffix("Like"), [2, 3], FLOAT16, seed=7.5).tobytes()
    with pytest.raises(ReproError, match="gives floats"):
        run_node(op, {"x": x.astype(np.int32)}, ["y"], 22)


def test_bernoulli() -> None:
    p = np.linspace(0, 1, 41, dtype=np.float32)
    [found] = run_node("Bernoulli", {"p": p}, ["y"], 15, types=[BOOL], dtype=BOOL, seed=7.5)
    assert found.tolist() == (uniforms(SEED, 0, 0, 41) < p).tolist()
    assert not found[0] and found[-1]


def test_multinomial_draws_classes_by_their_weight() -> None:
    weights = np.array([0.5, 0.0, 0.25, 0.25])
    with np.errstate(divide="ignore"):
        x = np.log(np.stack([weights, weights[::-1]])).astype(np.float32) + np.float32(3)
    [found] = run_node("Multinomial", {"x": x}, ["y"], 7, types=[TensorProto.INT32], sample_size=4000, seed=7.5)
    assert found.shape == (2, 4000) and found.dtype == np.int32
    shares = np.stack([np.bincount(row, minlength=4) / 4000 for row in found])
    np.testing.assert_allclose(shares, [weights, weights[::-1]], atol=0.03)
    assert shares[0, 1] == shares[1, 2] == 0


# ── Dropout ─────────────────────────────────────────────────────────────────────────────────────────

X = np.random.default_rng(3).standard_normal((4, 25)).astype(np.float32)


@pytest.mark.parametrize(("opset", "kind"), [(7, FLOAT), (10, BOOL), (11, BOOL), (12, BOOL), (22, BOOL)])
def test_inference_is_the_identity(opset: int, kind: int) -> None:
    y, mask = run_node("Dropout", {"x": X}, ["y", "mask"], opset, types=[FLOAT, kind])
    assert y.tobytes() == X.tobytes()
    assert mask.dtype == helper.tensor_dtype_to_np_dtype(kind) and (mask == 1).all()


def test_training_keeps_and_scales() -> None:
    inputs = {"x": X, "ratio": np.array(0.3, np.float32), "training": np.array(True)}
    y, mask = run_node("Dropout", inputs, ["y", "mask"], 13, types=[FLOAT, BOOL], seed=11)
    kept = uniforms(11, 0, 0, X.size).reshape(X.shape) >= np.float32(0.3)
    factor = np.float32(1) / (np.float32(1) - np.float32(0.3))
    assert mask.tobytes() == kept.tobytes() and kept.any() and not kept.all()
    assert y.tobytes() == np.where(kept, X * factor, np.float32(0)).tobytes()
    inputs["training"] = np.array(False)
    y, mask = run_node("Dropout", inputs, ["y", "mask"], 13, types=[FLOAT, BOOL], seed=11)
    assert y.tobytes() == X.tobytes() and mask.all()


def test_random_nodes_are_listed_by_name() -> None:
    node = helper.make_node("RandomNormal", [], ["y"], name="noise", shape=[3])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", FLOAT, [3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    imported = import_model(load_model(model), seed=5)
    assert imported.random_nodes == ("noise",)
    assert philox_words(5, 0, 0, 4).dtype == np.uint32
