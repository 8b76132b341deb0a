"""Gemm, MatMul, Einsum, Conv, ConvTranspose and the integer forms, against ONNX Runtime and NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repro.errors import ReproError
from repro.ir.types import Array
from tests.ops.one_node import FLOAT, by_onnxruntime, graph_of_node, model_of, run_model, run_node


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 3) -> Array:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(dtype)


def agrees_with_onnxruntime(op: str, inputs: dict[str, Any], opset: int, **attributes: Any) -> list[Array]:
    model = model_of(op, inputs, ["y"], opset, **attributes)
    found = run_model(model, inputs)
    np.testing.assert_allclose(found[0], by_onnxruntime(model, inputs)[0], rtol=1e-5, atol=1e-5)
    return found


# ── matrices ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
def test_gemm_of_every_opset(opset: int) -> None:
    inputs = {"a": drawn(5, 7), "b": drawn(3, 5, seed=1), "c": drawn(1, 3, seed=2)}
    agrees_with_onnxruntime("Gemm", inputs, opset, transA=1, transB=1, alpha=0.3, beta=-1.7)


def test_the_epilogue_of_gemm_rounds_each_operation() -> None:
    a, b, c = drawn(4, 6), drawn(6, 5, seed=1), drawn(5, seed=2)
    [product] = run_node("MatMul", {"a": a, "b": b}, ["y"], 13)
    [found] = run_node("Gemm", {"a": a, "b": b, "c": c}, ["y"], 13, alpha=0.3, beta=-1.7)
    expected = product * np.float32(0.3) + c * np.float32(-1.7)
    assert found.tobytes() == expected.tobytes()


def test_gemm_of_half_precision_rounds_once() -> None:
    a, b, c = (drawn(4, 4, dtype=np.float16, seed=seed) for seed in range(3))
    [found] = run_node("Gemm", {"a": a, "b": b, "c": c}, ["y"], 13, alpha=0.3)
    wide = {name: array.astype(np.float32) for name, array in {"a": a, "b": b, "c": c}.items()}
    [expected] = run_node("Gemm", wide, ["y"], 13, alpha=0.3)
    assert found.dtype == np.float16
    assert found.tobytes() == expected.astype(np.float16).tobytes()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4,), (4,)),
        ((4,), (2, 4, 3)),
        ((2, 3, 4), (4,)),
        ((5, 1, 3, 4), (2, 4, 6)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (0, 4, 2)),
    ],
)
def test_matmul_of_every_rank(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = drawn(*left, dtype=np.float64), drawn(*right, dtype=np.float64, seed=1)
    [found] = run_node("MatMul", {"a": a, "b": b}, ["y"], 9)
    np.testing.assert_allclose(found, np.matmul(a, b), rtol=1e-12, atol=1e-12)


def test_matmul_of_integers_wraps() -> None:
    a = np.array([[2**31 - 1, 2]], np.int32)
    [found] = run_node("MatMul", {"a": a, "b": a.T.copy()}, ["y"], 13)
    assert found.tolist() == [[5]]


def test_matmul_integer_with_zero_points_per_row_and_column() -> None:
    random = np.random.default_rng(5)
    a, b = random.integers(0, 255, (4, 3), np.uint8), random.integers(-128, 127, (3, 5), np.int8)
    za, zb = random.integers(0, 255, 4, np.uint8), random.integers(-128, 127, 5, np.int8)
    inputs = {"a": a, "b": b, "za": za, "zb": zb}
    [found] = run_node("MatMulInteger", inputs, ["y"], 10, types=[6])
    expected = (a.astype(np.int32) - za[:, None]) @ (b.astype(np.int32) - zb)
    assert found.dtype == np.int32
    assert np.array_equal(found, expected)


# ── einsum ──────────────────────────────────────────────────────────────────────────────────────────


EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
    ("ij->", [(3, 4)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("iji->j", [(3, 5, 3)]),
    ("iiij->ji", [(3, 3, 3, 2)]),
    ("i,j->ji", [(3,), (4,)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("i...->...", [(3, 4, 2)]),
    ("...i,...i", [(2, 3), (1, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("a,ab,abc->abc", [(2,), (2, 3), (2, 3, 4)]),
    ("ij,kj,ik->k", [(2, 3), (4, 3), (2, 4)]),
    ("ab,cd->ad", [(2, 3), (4, 5)]),
    ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]),
    ("ba,Ab", [(2, 3), (4, 2)]),
    ("ij,jk->ik", [(3, 1), (4, 5)]),
    ("ij,ij->ij", [(3, 1), (1, 4)]),
    ("ij,jk->ik", [(3, 0), (0, 5)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[f"{i}:{e}" for i, (e, _) in enumerate(EQUATIONS)])
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = {f"x{i}": drawn(*shape, dtype=np.float64, seed=i) for i, shape in enumerate(shapes)}
    [found] = run_node("Einsum", inputs, ["y"], 12, equation=equation)
    expected = np.einsum(equation, *inputs.values())
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_einsum_of_a_matrix_product_is_the_matrix_product() -> None:
    inputs = {"a": drawn(3, 600), "b": drawn(600, 5, seed=1)}
    made = [
        graph_of_node("Einsum", inputs, ["y"], 13, equation="ij,jk->ik"),
        graph_of_node("MatMul", inputs, ["y"], 13),
    ]
    assert made[0].digest == made[1].digest


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (5, 6)]),
        ("ij->ijk", [(3, 4)]),
        ("i->ii", [(3,)]),
        ("ij", [(3, 4, 5)]),
        ("i1->i", [(3, 4)]),
        ("ij,j", [(3, 4)]),
        ("ii", [(3, 4)]),
    ],
)
def test_einsum_refuses(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = {f"x{i}": drawn(*shape) for i, shape in enumerate(shapes)}
    with pytest.raises(ReproError) as caught:
        graph_of_node("Einsum", inputs, ["y"], 12, equation=equation)
    assert caught.value.op == "Einsum"


# ── convolutions ────────────────────────────────────────────────────────────────────────────────────

CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), (4, 3, 3), {"pads": [1, 2], "strides": [2]}),
    ((2, 4, 7, 6), (6, 2, 3, 2), {"group": 2, "dilations": [2, 1], "pads": [1, 0, 2, 1]}),
    ((1, 4, 5, 5), (4, 1, 3, 3), {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 2, 6, 7), (3, 2, 2, 4), {"auto_pad": "SAME_LOWER", "strides": [1, 2]}),
    ((1, 2, 6, 7), (3, 2, 2, 3), {"auto_pad": "VALID"}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"strides": [1, 2, 1], "pads": [0, 1, 1, 1, 0, 0]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), CONVOLUTIONS)
def test_conv(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    inputs = {"x": drawn(*x), "w": drawn(*w, seed=1), "b": drawn(w[0], seed=2)}
    agrees_with_onnxruntime("Conv", inputs, 11, **attributes)


TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 5), (3, 4, 3), {"strides": [2], "pads": [1, 0], "output_padding": [1]}),
    ((1, 4, 5, 4), (4, 3, 3, 2), {"group": 2, "strides": [2, 1], "dilations": [1, 2]}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [3, 2], "output_shape": [10, 8]}),
    ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [3, 2], "output_shape": [8, 6]}),
    ((1, 2, 3, 4), (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 3, 2, 2), (2, 1, 2, 2, 3), {"strides": [1, 2, 2], "pads": [0, 1, 0, 1, 0, 1]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), TRANSPOSED)
def test_conv_transpose(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    inputs = {"x": drawn(*x), "w": drawn(*w, seed=1), "b": drawn(w[1] * attributes.get("group", 1), seed=2)}
    agrees_with_onnxruntime("ConvTranspose", inputs, 11, **attributes)


def test_conv_integer_with_a_zero_point_for_each_channel() -> None:
    random = np.random.default_rng(5)
    x, w = random.integers(0, 255, (1, 2, 5, 5), np.uint8), random.integers(0, 255, (3, 2, 3, 3), np.uint8)
    zx, zw = np.array(120, np.uint8), random.integers(0, 255, 3, np.uint8)
    inputs = {"x": x, "w": w, "zx": zx, "zw": zw}
    [found] = run_node("ConvInteger", inputs, ["y"], 10, types=[6], pads=[1, 1, 1, 1])
    floats = {"x": x.astype(np.float64) - zx, "w": w.astype(np.float64) - zw[:, None, None, None]}
    [expected] = run_node("Conv", floats, ["y"], 11, pads=[1, 1, 1, 1])
    assert np.array_equal(found, expected.astype(np.int32))


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("Conv", [(1, 3, 5), (2, 2, 3)], {}),
        ("Conv", [(1, 4, 5), (3, 2, 3)], {"group": 2}),
        ("Conv", [(1, 2, 5), (2, 2, 7)], {}),
        ("Conv", [(1, 2, 5), (2, 2, 3)], {"strides": [0]}),
        ("Conv", [(1, 2, 5), (2, 2, 3)], {"pads": [1]}),
        ("Conv", [(1, 2, 5), (2, 2, 3)], {"pads": [-1, 0]}),
        ("Conv", [(1, 2, 5), (2, 2, 3)], {"kernel_shape": [2]}),
        ("Conv", [(1, 2, 5), (2, 2, 3)], {"auto_pad": "SOME"}),
        ("Conv", [(1, 2, 5), (2, 2, 3), (3,)], {}),
        ("Conv", [(1, 2, 5), (2, 2, 3)], {"pads": [2**40, 0]}),
        ("ConvTranspose", [(1, 3, 5), (2, 2, 3)], {}),
        ("ConvTranspose", [(1, 2, 2), (2, 2, 2)], {"pads": [5, 5]}),
        ("ConvTranspose", [(1, 2, 5), (2, 2, 3)], {"strides": [2**31 - 1]}),
    ],
)
def test_convolutions_refuse(op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]) -> None:
    inputs = {f"x{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}
    with pytest.raises(ReproError) as caught:
        graph_of_node(op, inputs, ["y"], 11, types=[FLOAT], **attributes)
    assert caught.value.op == op
