"""Attention and RotaryEmbedding where onnx.backend.test has no case: against a float64 formula, and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repro.errors import ReproError
from repro.ir.types import Array
from tests.ops.one_node import FLOAT, FLOAT16, by_onnxruntime, graph_of_node, model_of, run_node

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, SIZE, V_SIZE = 2, 4, 2, 3, 5, 8, 6
OUTPUTS = ("Y", "", "", "scores")


def draw(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(dtype)


def operands(dtype: Any = np.float32, **rest: Any) -> dict[str, Any]:
    """Inputs in order, four axes, grouped heads; further ones by name."""
    q, k = draw(BATCH, HEADS, QUERIES, SIZE, dtype=dtype), draw(BATCH, KV_HEADS, KEYS, SIZE, dtype=dtype)
    given: dict[str, Any] = {"Q": q, "K": k, "V": draw(BATCH, KV_HEADS, KEYS, V_SIZE, dtype=dtype)}
    for name in ("attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"):
        given[name] = rest.pop(name, None)
    assert not rest
    while next(reversed(given.values())) is None:
        given.popitem()
    return given


def formula(given: dict[str, Any], **attributes: Any) -> list[Array]:
    """Y and the four stages of the scores in float64, query by query."""
    q, k, v = (given[name].astype(np.float64) for name in "QKV")
    past = 0
    if given.get("past_key") is not None:
        past = given["past_key"].shape[2]
        k = np.concatenate((given["past_key"].astype(np.float64), k), 2)
        v = np.concatenate((given["past_value"].astype(np.float64), v), 2)
    keys, group = k.shape[2], q.shape[1] // k.shape[1]
    scale, cap = attributes.get("scale", 1 / np.sqrt(q.shape[3])), attributes.get("softcap", 0.0)
    left, right = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
    lengths = given.get("nonpad_kv_seqlen")
    mask = given.get("attn_mask")
    if mask is not None:
        lacking = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
        mask = np.pad(mask, lacking, constant_values=False if mask.dtype == bool else -np.inf)
        mask = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
        mask = np.broadcast_to(mask, (*q.shape[:3], keys))
    stages = np.zeros((4, *q.shape[:3], keys))
    y = np.zeros((*q.shape[:3], v.shape[3]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        at = i + past if lengths is None else i + int(lengths[b]) - q.shape[2]
        raw = k[b, h // group] @ q[b, h, i] * scale
        capped = np.tanh(raw / cap) * cap if cap else raw
        j = np.arange(keys)
        live = np.ones(keys, bool) if lengths is None else j < lengths[b]
        live &= (j <= at) if attributes.get("is_causal") else True
        live &= (j >= at - left) if left >= 0 else True
        live &= (j <= at + right) if right >= 0 else True
        bias = np.where(live, 0.0, -np.inf) + (0 if mask is None else mask[b, h, i])
        p = np.zeros(keys)
        if np.any(bias > -np.inf):
            e = np.exp(capped + bias - np.max(capped + bias))
            p = e / e.sum()
        stages[:, b, h, i] = raw, capped, capped + bias, p
        y[b, h, i] = p @ v[b, h // group]
    return [y, *stages]


def check(given: dict[str, Any], opset: int = 24, modes: tuple[int, ...] = (3,), **attributes: Any) -> None:
    for mode in modes:
        y, scores = run_node("Attention", given, OUTPUTS, opset, qk_matmul_output_mode=mode, **attributes)
        expected = formula(given, **attributes)
        np.testing.assert_allclose(y, expected[0], rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(scores, expected[1 + mode], rtol=1e-5, atol=2e-6)


# ── the formula's parts ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"scale": 0.3, "softcap": 0.7}], ids=str)
@pytest.mark.parametrize("opset", [23, 24, 25])
def test_every_version_and_mode(opset: int, attributes: dict[str, Any]) -> None:
    check(operands(), opset, (0, 1, 2, 3), **attributes)


@pytest.mark.parametrize("shape", [(KEYS,), (QUERIES, KEYS), (1, 1, KEYS), (HEADS, QUERIES, KEYS), (BATCH, 1, 1, KEYS)])
def test_masks_of_every_rank(shape: tuple[int, ...]) -> None:
    check(operands(attn_mask=draw(*shape)), modes=(2,))
    check(operands(attn_mask=draw(*shape) > -0.5), is_causal=1)


def test_a_short_mask_leaves_the_last_keys_out() -> None:
    check(operands(attn_mask=draw(QUERIES, KEYS - 2)))
    check(operands(attn_mask=np.ones((HEADS, QUERIES, 2), bool)))


def test_opset_23_broadcasts_a_short_mask_only() -> None:
    with pytest.raises(ReproError):
        run_node("Attention", operands(attn_mask=draw(QUERIES, KEYS - 2)), OUTPUTS, 23)


def test_lengths_windows_and_masks_together() -> None:
    lengths, mask = np.array([5, 2]), draw(BATCH, 1, QUERIES, KEYS) > -0.6
    check(operands(nonpad_kv_seqlen=lengths))
    check(operands(nonpad_kv_seqlen=lengths, attn_mask=mask), is_causal=1)
    check(operands(nonpad_kv_seqlen=lengths, attn_mask=mask), 25, is_causal=1, left_window_size=1)
    check(operands(attn_mask=draw(QUERIES, KEYS)), 25, left_window_size=1, right_window_size=1)


def test_rows_without_a_key_are_zero() -> None:
    mask = np.ones((QUERIES, KEYS), bool)
    mask[1] = False
    given = operands(attn_mask=mask)
    y, scores = run_node("Attention", given, OUTPUTS, 24, qk_matmul_output_mode=3)
    assert not y[:, :, 1].view(np.uint32).any()
    assert not scores[:, :, 1].view(np.uint32).any()
    assert np.isfinite(y).all() and y[:, :, 0].any()
    check(operands(nonpad_kv_seqlen=np.array([0, 1])), is_causal=1)


def test_past_and_present() -> None:
    past_key, past_value = draw(BATCH, KV_HEADS, 4, SIZE), draw(BATCH, KV_HEADS, 4, V_SIZE)
    given = operands(past_key=past_key, past_value=past_value)
    check(given, is_causal=1)
    check(given, 25, left_window_size=2, right_window_size=0)
    found = run_node("Attention", given, ("Y", "present_key", "present_value"), 24)
    assert found[1].tobytes() == np.concatenate((past_key, given["K"]), 2).tobytes()
    assert found[2].tobytes() == np.concatenate((past_value, given["V"]), 2).tobytes()


def test_three_axes_are_four_axes() -> None:
    given = operands()
    flat = {name: a.transpose(0, 2, 1, 3).reshape(BATCH, a.shape[2], -1) for name, a in given.items()}
    found = run_node("Attention", flat, OUTPUTS, 24, q_num_heads=HEADS, kv_num_heads=KV_HEADS, is_causal=1)
    plain = run_node("Attention", given, OUTPUTS, 24, is_causal=1)
    assert found[0].tobytes() == plain[0].transpose(0, 2, 1, 3).reshape(BATCH, QUERIES, -1).tobytes()
    assert found[1].tobytes() == plain[1].tobytes()


def test_grouped_heads_are_repeated_heads() -> None:
    given = operands()
    repeated = given | {name: np.repeat(given[name], HEADS // KV_HEADS, axis=1) for name in "KV"}
    found, plain = (run_node("Attention", each, OUTPUTS, 24, is_causal=1) for each in (given, repeated))
    assert [array.tobytes() for array in found] == [array.tobytes() for array in plain]


# ── types ───────────────────────────────────────────────────────────────────────────────────────────


def test_double() -> None:
    given = operands(np.float64, attn_mask=draw(QUERIES, KEYS, dtype=np.float64))
    y, scores = run_node("Attention", given, OUTPUTS, 24, qk_matmul_output_mode=3, softcap=2.0)
    expected = formula(given, softcap=2.0)
    np.testing.assert_allclose(y, expected[0], rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(scores, expected[4], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("precision", [None, FLOAT, FLOAT16])
def test_half_computes_in_single_and_rounds_once(precision: int | None) -> None:
    half = operands(np.float16)
    single = {name: array.astype(np.float32) for name, array in half.items()}
    attributes = {} if precision is None else {"softmax_precision": precision}
    found = run_node("Attention", half, OUTPUTS, 24, **attributes)
    for array, expected in zip(found, run_node("Attention", single, OUTPUTS, 24), strict=True):
        assert array.tobytes() == expected.astype(np.float16).tobytes()


def test_softmax_precision_is_a_cast_around_the_softmax() -> None:
    given = operands()
    scores = run_node("Attention", given, OUTPUTS, 24, qk_matmul_output_mode=2)[1]
    narrow = run_node("Softmax", {"X": scores.astype(np.float16)}, ("Y",), 24)[0].astype(np.float32)
    found = run_node("Attention", given, OUTPUTS, 24, qk_matmul_output_mode=3, softmax_precision=FLOAT16)[1]
    assert found.tobytes() == narrow.tobytes()


@pytest.mark.parametrize("causal", [0, 1])
def test_against_onnxruntime(causal: int) -> None:
    given = operands(attn_mask=draw(BATCH, 1, QUERIES, KEYS))
    model = model_of("Attention", given, ("Y",), 23, is_causal=causal, softcap=1.5)
    found = run_node("Attention", given, ("Y",), 23, is_causal=causal, softcap=1.5)
    np.testing.assert_allclose(found[0], by_onnxruntime(model, given)[0], rtol=1e-5, atol=2e-6)


# ── what it is not ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "attributes"),
    [
        ({"K": draw(BATCH, 3, KEYS, SIZE)}, {}),
        ({"K": draw(BATCH, KV_HEADS, KEYS, SIZE + 1)}, {}),
        ({"V": draw(BATCH, KV_HEADS, KEYS + 1, SIZE)}, {}),
        ({"Q": draw(BATCH, QUERIES, SIZE)}, {}),
        ({"attn_mask": draw(QUERIES, KEYS + 1)}, {}),
        ({"attn_mask": np.ones((QUERIES, KEYS), np.int32)}, {}),
        ({"attn_mask": None, "past_key": draw(BATCH, KV_HEADS, 1, SIZE)}, {}),
        ({}, {"qk_matmul_output_mode": 4}),
        ({}, {"scale": -1.0}),
        ({}, {"q_num_heads": 3, "kv_num_heads": 2}),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], attributes: dict[str, Any]) -> None:
    with pytest.raises(ReproError) as refused:
        run_node("Attention", operands() | change, OUTPUTS, 24, **attributes)
    assert refused.value.op == "Attention"


def test_a_plain_causal_attention_has_no_guard() -> None:
    """Every query sees the first key, so no row needs the zero that rows without a key get."""
    graph = graph_of_node("Attention", operands(), ("Y",), 24, is_causal=1)
    (node,) = (node for node in graph.nodes if node.op == "composite")
    assert sum(inner.op == "select" for inner in node.regions[0].nodes) == 1


# ── RotaryEmbedding ─────────────────────────────────────────────────────────────────────────────────


def rotary(x: Array, cos: Array, sin: Array, positions: Array | None, turned: int, interleaved: int) -> Array:
    """float64; x [batch, heads, length, size]."""
    y = x.astype(np.float64).copy()
    half = turned // 2
    for b, h, t in np.ndindex(*x.shape[:3]):
        row = (b, t) if positions is None else (positions[b, t],)
        for n in range(half):
            one, two = (2 * n, 2 * n + 1) if interleaved else (n, half + n)
            c, s = float(cos[row][n]), float(sin[row][n])
            a, d = float(x[b, h, t, one]), float(x[b, h, t, two])
            y[b, h, t, one], y[b, h, t, two] = c * a - s * d, s * a + c * d
    return y


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 4])
@pytest.mark.parametrize("table", [True, False])
def test_rotary_embedding(interleaved: int, turned: int, table: bool) -> None:
    x, half = draw(2, 3, 5, 8), (turned or 8) // 2
    angles = draw(16, half) if table else draw(2, 5, half)
    positions = np.random.default_rng(3).integers(0, 16, (2, 5)) if table else None
    given: dict[str, Any] = {"X": x, "cos": np.cos(angles), "sin": np.sin(angles), "positions": positions}
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": turned}
    expected = rotary(x, given["cos"], given["sin"], positions, turned or 8, interleaved)
    (found,) = run_node("RotaryEmbedding", given, ("Y",), 23, **attributes)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    flat = given | {"X": x.transpose(0, 2, 1, 3).reshape(2, 5, 24)}
    (other,) = run_node("RotaryEmbedding", flat, ("Y",), 23, num_heads=3, **attributes)
    assert other.tobytes() == found.transpose(0, 2, 1, 3).reshape(2, 5, 24).tobytes()


@pytest.mark.parametrize("one_position", [True, False])
def test_the_rotary_embedding_of_com_microsoft(one_position: bool) -> None:
    angles = draw(16, 4)
    positions = np.array([7]) if one_position else np.random.default_rng(3).integers(0, 16, (2, 5))
    given = {"X": draw(2, 5, 24), "positions": positions, "cos": np.cos(angles), "sin": np.sin(angles)}
    model = model_of("RotaryEmbedding", given, ("Y",), 20, domain="com.microsoft")
    (found,) = run_node("RotaryEmbedding", given, ("Y",), 20, domain="com.microsoft")
    np.testing.assert_allclose(found, by_onnxruntime(model, given)[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "change", [{"X": draw(2, 3, 5, 7)}, {"cos": draw(16, 3)}, {"positions": np.zeros((2, 4), int)}]
)
def test_tables_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    given = {"X": draw(2, 3, 5, 8), "cos": draw(16, 4), "sin": draw(16, 4), "positions": np.zeros((2, 5), int)}
    with pytest.raises(ReproError) as refused:
        run_node("RotaryEmbedding", given | change, ("Y",), 23)
    assert refused.value.op == "RotaryEmbedding"
