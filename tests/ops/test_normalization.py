"""Normalizations against their formulas in float64, for every opset's own meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from repro.errors import ReproError
from repro.ir.types import Array
from tests.ops.one_node import FLOAT, FLOAT16, by_onnxruntime, graph_of_node, model_of, run_model, run_node


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 3) -> Array:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(dtype)


def batch_operands(shape: tuple[int, ...], features: tuple[int, ...], dtype: Any = np.float32) -> dict[str, Any]:
    rest = {name: drawn(*features, dtype=dtype, seed=seed) for seed, name in enumerate(("scale", "b", "mean"))}
    return {"x": drawn(*shape, dtype=dtype) * 3 + 1, **rest, "var": drawn(*features, dtype=dtype, seed=9) ** 2}


def batch_formula(given: dict[str, Array], axes: tuple[int, ...], training: bool, momentum: float) -> list[Array]:
    """y, running mean and variance, the batch's mean and variance; statistics of the population."""
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    x = wide["x"]
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    scale, b, mean, var = (wide[name].reshape(shape) for name in ("scale", "b", "mean", "var"))
    if not training:
        return [(x - mean) / np.sqrt(var + 1e-5) * scale + b]
    m, v = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    running = [a * momentum + c * (1 - momentum) for a, c in ((mean, m), (var, v))]
    features = wide["scale"].shape
    return [(x - m) / np.sqrt(v + 1e-5) * scale + b, *(item.reshape(features) for item in (*running, m, v))]


def close(found: list[Array], expected: list[Array], tolerance: float = 1e-5) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


# ── BatchNormalization ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [(6,), (4, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)])
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization_by_given_statistics(opset: int, shape: tuple[int, ...]) -> None:
    given = batch_operands(shape, shape[1:2] or (1,))
    found = run_node("BatchNormalization", given, ["y"], opset)
    close(found, batch_formula(given, (0, *range(2, len(shape))), False, 0.9))


@pytest.mark.parametrize("opset", [14, 15])
def test_batch_normalization_in_training(opset: int) -> None:
    given = batch_operands((4, 3, 5, 2), (3,))
    found = run_node("BatchNormalization", given, ["y", "m", "v"], opset, training_mode=1, momentum=0.7)
    close(found, batch_formula(given, (0, 2, 3), True, 0.7)[:3])


@pytest.mark.parametrize("opset", [7, 8, 9, 13])
def test_old_opsets_train_where_they_are_asked_for_statistics(opset: int) -> None:
    given = batch_operands((4, 3, 5), (3,))
    found = run_node("BatchNormalization", given, ["y", "m", "v", "sm", "sv"], opset, types=[FLOAT] * 5, momentum=0.7)
    close(found, batch_formula(given, (0, 2), True, 0.7))


@pytest.mark.parametrize("training", [False, True])
def test_before_opset_9_statistics_may_be_of_each_feature(training: bool) -> None:
    given = batch_operands((6, 3, 2, 2), (3, 2, 2))
    outputs = ["y", "m", "v"] if training else ["y"]
    found = run_node("BatchNormalization", given, outputs, 7, spatial=0)
    close(found, batch_formula(given, (0,), training, 0.9)[: len(outputs)])


def test_statistics_keep_their_own_type() -> None:
    given = batch_operands((4, 3, 5), (3,))
    mixed = {**given, **{name: given[name].astype(np.float16) for name in ("x", "scale", "b")}}
    found = run_node("BatchNormalization", mixed, ["y", "m", "v"], 15, types=[FLOAT16, FLOAT, FLOAT], training_mode=1)
    assert [array.dtype.name for array in found] == ["float16", "float32", "float32"]
    close(found, batch_formula(mixed, (0, 2), True, 0.9)[:3], 5e-3)


def test_batch_normalization_refuses() -> None:
    given = batch_operands((4, 3, 5), (3,))
    for inputs, outputs in ((given, ["y", "m", "v"]), ({**given, "b": drawn(4)}, ["y"])):
        with pytest.raises(ReproError) as caught:
            graph_of_node("BatchNormalization", inputs, outputs, 15)
        assert caught.value.op == "BatchNormalization"


# ── the others ──────────────────────────────────────────────────────────────────────────────────────


def test_instance_normalization() -> None:
    given = {"x": drawn(2, 3, 4, 5), "scale": drawn(3, seed=1), "b": drawn(3, seed=2)}
    model = model_of("InstanceNormalization", given, ["y"], 7, epsilon=0.01)
    close(run_model(model, given), by_onnxruntime(model, given))


@pytest.mark.parametrize(("opset", "count"), [(18, 2), (21, 6)])
def test_group_normalization_scales_groups_then_channels(opset: int, count: int) -> None:
    given = {"x": drawn(2, 6, 3, 4), "scale": drawn(count, seed=1), "b": drawn(count, seed=2)}
    x = given["x"].astype(np.float64).reshape(2, 2, 3, 3, 4)
    normal = (x - x.mean((2, 3, 4), keepdims=True)) / np.sqrt(x.var((2, 3, 4), keepdims=True) + 1e-5)
    scale, b = (np.repeat(given[name], 6 // count).reshape(6, 1, 1) for name in ("scale", "b"))
    found = run_node("GroupNormalization", given, ["y"], opset, num_groups=2)
    close(found, [normal.reshape(2, 6, 3, 4) * scale + b])


def test_norms_that_are_one_norm_give_the_same_bits() -> None:
    x, scale, b = drawn(2, 3, 40), drawn(3, seed=1), drawn(3, seed=2)
    given = {"x": x, "scale": scale, "b": b}
    [instance] = run_node("InstanceNormalization", given, ["y"], 22)
    [group] = run_node("GroupNormalization", given, ["y"], 22, num_groups=3)
    rows = {"x": x, "scale": scale[:, None].copy(), "b": b[:, None].copy()}
    [layer] = run_node("LayerNormalization", rows, ["y"], 22)
    assert instance.tobytes() == group.tobytes() == layer.tobytes()


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_normalization_and_its_statistics(axis: int) -> None:
    tail = (3, 40)[axis - 1 if axis > 0 else axis :]
    given = {"x": drawn(2, 3, 40), "scale": drawn(*tail, seed=1), "b": drawn(*tail, seed=2)}
    model = model_of("LayerNormalization", given, ["y", "m", "i"], 17, types=[FLOAT] * 3, axis=axis)
    found = run_model(model, given)
    close(found, by_onnxruntime(model, given))
    assert found[1].shape == found[2].shape == given["x"].shape[: -len(tail)] + (1,) * len(tail)


def test_layer_normalization_of_half_precision_keeps_wide_statistics() -> None:
    given = {"x": drawn(2, 40, dtype=np.float16), "scale": drawn(40, dtype=np.float16, seed=1)}
    found = run_node("LayerNormalization", given, ["y", "m", "i"], 17, types=[FLOAT16, FLOAT, FLOAT])
    assert [array.dtype.name for array in found] == ["float16", "float32", "float32"]
    wide = {name: array.astype(np.float32) for name, array in given.items()}
    [expected, mean, _] = run_node("LayerNormalization", wide, ["y", "m", "i"], 17)
    assert found[0].tobytes() == expected.astype(np.float16).tobytes()
    assert found[1].tobytes() == mean.tobytes()


def test_layer_normalization_before_opset_17_as_onnxruntime_has_it() -> None:
    given = {"x": drawn(2, 40), "scale": drawn(40, seed=1), "b": drawn(40, seed=2)}
    old = run_node("LayerNormalization", given, ["y"], 12)
    assert old[0].tobytes() == run_node("LayerNormalization", given, ["y"], 17)[0].tobytes()


def test_rms_normalization_in_all_its_domains() -> None:
    given = {"x": drawn(2, 3, 40), "scale": drawn(40, seed=1)}
    x = given["x"].astype(np.float64)
    inverse = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    [standard] = run_node("RMSNormalization", given, ["y"], 23)
    close([standard], [x * inverse * given["scale"]])
    for domain in ("", "com.microsoft"):
        found = run_node("SimplifiedLayerNormalization", given, ["y", "i"], 17, domain=domain)
        assert found[0].tobytes() == standard.tobytes()
        close([found[1]], [inverse])


def test_rms_normalization_gives_the_type_of_its_scale() -> None:
    given = {"x": drawn(3, 40, dtype=np.float16), "scale": drawn(40, seed=1)}
    assert run_node("RMSNormalization", given, ["y"], 23, types=[FLOAT])[0].dtype == np.float32


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_of_zeros_is_zero(p: int) -> None:
    x = drawn(3, 4, 5)
    x[1, :, 2] = [0.0, -0.0, 0.0, -0.0]
    [found] = run_node("LpNormalization", {"x": x}, ["y"], 22, axis=1, p=p)
    norm = np.linalg.norm(x.astype(np.float64), ord=p, axis=1, keepdims=True)
    close([found], [x / np.where(norm == 0, 1, norm)])
    assert found[1, :, 2].tobytes() == np.zeros(4, np.float32).tobytes()


@pytest.mark.parametrize("axes", [None, [1, 3], [-1]])
def test_mean_variance_normalization(axes: list[int] | None) -> None:
    x = drawn(2, 3, 4, 5) + 2
    attributes: dict[str, Any] = {} if axes is None else {"axes": axes}
    over = tuple(axes or (0, 2, 3))
    [found] = run_node("MeanVarianceNormalization", {"x": x}, ["y"], 13, **attributes)
    wide = x.astype(np.float64)
    close([found], [(wide - wide.mean(over, keepdims=True)) / (wide.std(over, keepdims=True) + 1e-9)])


@pytest.mark.parametrize("size", [1, 3, 4])
def test_local_response_normalization(size: int) -> None:
    x = drawn(2, 6, 3)
    [found] = run_node("LRN", {"x": x}, ["y"], 13, size=size, alpha=0.2, beta=0.6, bias=1.5)
    wide = x.astype(np.float64)
    square = np.zeros_like(wide)
    for c in range(6):
        square[:, c] = (wide[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1] ** 2).sum(1)
    close([found], [wide / (1.5 + 0.2 / size * square) ** 0.6])


def test_layer_normalization_as_exporters_write_it_has_the_same_bits() -> None:
    given = {"x": drawn(4, 5, 70) * 3, "scale": drawn(70, seed=1), "b": drawn(70, seed=2)}
    [expected] = run_node("LayerNormalization", given, ["y"], 17)
    written = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        written (float[4,5,70] x, float[70] scale, float[70] b) => (float[4,5,70] y)
        <float epsilon = {0.00001}>
        {
            m = ReduceMean <axes = [-1]> (x)
            d = Sub (x, m)
            dd = Mul (d, d)
            v = ReduceMean <axes = [-1]> (dd)
            e = Add (v, epsilon)
            s = Sqrt (e)
            n = Div (d, s)
            t = Mul (n, scale)
            y = Add (t, b)
        }"""
    )
    assert run_model(written, given)[0].tobytes() == expected.tobytes()
