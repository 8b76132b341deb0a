"""Quantized models on integers, an operator at a time: equal in every byte to the contract in NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from repro.ir.types import Array
from tests.frontend.qdq import (
    F32,
    FLOAT,
    I8,
    I16,
    I32,
    U8,
    U16,
    Quantized,
    Scaled,
    Sketch,
    To,
    assert_as_onnx,
    assert_scaled,
    assert_stays_float,
    bias_of,
    convolution,
    convolved,
    drawn,
    endings,
    full,
    multiplied,
    of,
    relu,
    same,
    transposed,
)

# ── contractions ────────────────────────────────────────────────────────────────────────────────────

PRODUCTS: list[tuple[Any, Sequence[int], int | None, Any, Sequence[int], int | None]] = [
    (U8, (5, 37), None, I8, (37, 6), None),
    (I8, (5, 37), 0, I8, (37, 6), 1),
    (U8, (5, 37), None, U8, (37, 6), 1),
    (U8, (2, 4, 17), None, I8, (17, 5), None),
    (U8, (2, 3, 4, 17), None, I8, (2, 3, 17, 5), None),
    (I8, (2, 3, 4, 17), 1, I8, (2, 3, 17, 5), 3),
    (U8, (2, 1, 4, 17), 2, I8, (3, 17, 5), 0),
    (U8, (17,), None, I8, (17, 5), 1),
    (U8, (4, 17), 0, I8, (17,), None),
    (U8, (17,), None, I8, (3, 17, 5), 0),
    (I8, (17,), None, I8, (17,), None),
    (I16, (3, 9), 0, I8, (9, 4), 1),
    (U8, (3, 1), None, I8, (1, 4), None),
]


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(("left", "shape", "axis", "right", "other", "column"), PRODUCTS)
def test_matmul(left: Any, shape: Any, axis: Any, right: Any, other: Any, column: Any, fixed: bool) -> None:
    random = np.random.default_rng(1)
    a, b = drawn(random, left, shape, axis), drawn(random, right, other, column)
    sketch = Sketch()
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed))
    assert_scaled(sketch, name, multiplied(a.scaled, b.scaled))


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("bias", ["none", "one row", "rows", "float"])
def test_gemm(turned: tuple[int, int], columns: bool, bias: str) -> None:
    random = np.random.default_rng(2)
    left, right = (((23, 5) if turned[0] else (5, 23)), ((6, 23) if turned[1] else (23, 6)))
    a, b = drawn(random, U8, left), drawn(random, I8, right, (0 if turned[1] else 1) if columns else None)
    turn = [Scaled(x.integers.T, x.scale.T) if t else x for x, t in zip((a.scaled, b.scaled), turned, strict=True)]
    wanted = multiplied(*turn)
    sketch = Sketch()
    operands = [sketch.dequantized(a), sketch.dequantized(b, fixed=True)]
    plain = (random.standard_normal(6) * 50).astype(F32)
    if bias == "float":
        name = sketch.op("Gemm", *operands, sketch.fixed(plain), transA=turned[0], transB=turned[1])
        return assert_as_onnx(sketch, name, wanted.floats + plain)
    if bias != "none":
        c = bias_of(random, a.scale * b.scale, 6)
        if bias == "rows":
            c = replace(c, stored=random.integers(-40000, 40000, (5, 6)).astype(I32), axis=1)
        operands.append(sketch.dequantized(c, fixed=True))
        wanted = replace(wanted, integers=wanted.integers + c.scaled.integers)
    return assert_scaled(sketch, sketch.op("Gemm", *operands, transA=turned[0], transB=turned[1]), wanted)


def test_alpha_and_beta_are_roundings_of_their_own() -> None:
    random = np.random.default_rng(3)
    a, b = drawn(random, U8, (5, 23)), drawn(random, I8, (23, 6))
    c = bias_of(random, a.scale * b.scale, 6)
    product = multiplied(a.scaled, b.scaled).floats
    for alpha, beta in ((0.7, 1.0), (1.0, 0.3), (0.7, 0.3)):
        sketch = Sketch()
        operands = sketch.dequantized(a), sketch.dequantized(b, fixed=True), sketch.dequantized(c, fixed=True)
        name = sketch.op("Gemm", *operands, alpha=alpha, beta=beta)
        left = product if alpha == 1 else product * F32(alpha)
        right = c.scaled.floats if beta == 1 else c.scaled.floats * F32(beta)
        assert_as_onnx(sketch, name, left + right)


CONVOLUTIONS: list[tuple[Sequence[int], Sequence[int], Mapping[str, Any]]] = [
    ((2, 3, 7, 6), (4, 3, 3, 3), {}),
    ((1, 3, 7, 6), (4, 3, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((2, 4, 7, 6), (6, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((1, 5, 6, 6), (5, 1, 3, 3), {"group": 5, "pads": [1, 1, 1, 1], "dilations": [2, 1]}),
    ((2, 3, 11), (4, 3, 4), {"pads": [3, 1], "strides": [3], "dilations": [2]}),
    ((2, 4, 9), (4, 1, 3), {"group": 4}),
    ((2, 8, 3, 3), (5, 8, 1, 1), {}),
    ((1, 2, 3, 4, 3), (3, 2, 2, 2, 2), {"pads": [0, 1, 0, 1, 0, 1]}),
]


@pytest.mark.parametrize(("left", "axis", "bias"), [(U8, None, True), (I8, 0, True), (U8, 0, False), (I8, None, False)])
@pytest.mark.parametrize(("shape", "kernel", "attributes"), CONVOLUTIONS)
def test_conv(left: Any, axis: Any, bias: bool, shape: Any, kernel: Any, attributes: Any) -> None:
    sketch = Sketch()
    random = np.random.default_rng(4)
    name, wanted = convolution(random, sketch, left, shape, kernel, attributes, axis, bias)
    assert_scaled(sketch, name, wanted)


def test_conv_with_a_scale_for_each_image() -> None:
    random = np.random.default_rng(5)
    x, w = drawn(random, U8, (3, 2, 5, 5), 0), drawn(random, I8, (4, 2, 3, 3), 0)
    sketch = Sketch()
    name = sketch.op("Conv", sketch.dequantized(x), sketch.dequantized(w, fixed=True))
    integers = convolved(x.scaled.integers, w.scaled.integers, **full({}, 2))
    assert_scaled(sketch, name, Scaled(integers, x.scaled.scale * w.scale.reshape(1, 4, 1, 1)))


def test_conv_with_a_scale_for_each_channel_of_the_image_stays() -> None:
    random = np.random.default_rng(6)
    x, w = drawn(random, U8, (2, 4, 6, 5), 1), drawn(random, I8, (4, 1, 3, 3), 0)
    sketch = Sketch()
    name = sketch.op("Conv", sketch.dequantized(x), sketch.dequantized(w, fixed=True), group=4, pads=[1, 1, 1, 1])
    assert_stays_float(sketch, name)


TRANSPOSED: list[tuple[Sequence[int], Sequence[int], Mapping[str, Any]]] = [
    ((2, 3, 4, 5), (3, 4, 3, 2), {}),
    ((1, 3, 4, 5), (3, 4, 3, 3), {"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 2]}),
    ((1, 4, 4, 3), (4, 3, 3, 3), {"group": 2, "strides": [2, 2], "dilations": [2, 1]}),
    ((2, 3, 6), (3, 2, 4), {"strides": [2], "pads": [1, 1]}),
]


@pytest.mark.parametrize(("left", "axis", "bias"), [(U8, None, True), (I8, 1, True), (U8, 1, False), (I8, None, False)])
@pytest.mark.parametrize(("shape", "kernel", "attributes"), TRANSPOSED)
def test_conv_transpose(left: Any, axis: Any, bias: bool, shape: Any, kernel: Any, attributes: Any) -> None:
    random = np.random.default_rng(7)
    x, w = drawn(random, left, shape), drawn(random, I8, kernel, axis)
    sketch = Sketch()
    axes, group = len(kernel) - 2, attributes.get("group", 1)
    given = dict(attributes)
    more = given.pop("output_padding", [0] * axes)
    integers = transposed(x.scaled.integers, w.scaled.integers, **full(given, axes), more=more)
    scale = x.scale * w.scale
    scale = np.tile(scale, group) if scale.ndim else scale
    operands = [sketch.dequantized(x), sketch.dequantized(w, fixed=True)]
    column = (-1, *[1] * axes)
    if bias:
        c = bias_of(random, scale, kernel[1] * group)
        operands.append(sketch.dequantized(c, fixed=True))
        integers = integers + c.scaled.integers.reshape(column)
    name = sketch.op("ConvTranspose", *operands, **attributes)
    assert_scaled(sketch, name, Scaled(integers, scale.reshape(column)))


EINSUMS: list[tuple[str, Sequence[int], int | None, Sequence[int], int | None]] = [
    ("ij,jk->ik", (4, 19), 0, (19, 5), 1),
    ("ij,jk", (4, 19), None, (19, 5), None),
    ("bij,bkj->bik", (2, 4, 19), 0, (2, 5, 19), 1),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 8), None, (2, 3, 5, 8), None),
    ("bqhd,hde->bqe", (2, 4, 3, 8), 1, (3, 8, 5), 2),
    ("ijk,kl->lij", (2, 3, 7), None, (7, 4), 1),
    ("i,j->ij", (4,), None, (5,), None),
    ("i,j->ij", (4,), 0, (5,), 0),
    ("ij,ij->", (4, 5), None, (4, 5), None),
    ("ij,jk->k", (4, 19), None, (19, 5), 1),
]


@pytest.mark.parametrize(("equation", "shape", "axis", "other", "column"), EINSUMS)
def test_einsum(equation: str, shape: Any, axis: Any, other: Any, column: Any) -> None:
    random = np.random.default_rng(8)
    a, b = drawn(random, U8, shape, axis), drawn(random, I8, other, column)
    sketch = Sketch()
    name = sketch.op("Einsum", sketch.dequantized(a), sketch.dequantized(b, fixed=True), equation=equation)
    left, right, result = (equation if "->" in equation else f"{equation}->ik").replace("->", ",").split(",")
    scales = []
    for labels, side in ((left, a.scaled), (right, b.scaled)):
        wide = np.broadcast_to(side.scale, side.integers.shape)
        scales.append(wide[tuple(slice(None) if label in result else slice(1) for label in labels)])
    written = f"{left},{right}->{result}"
    wanted = Scaled(
        np.asarray(np.einsum(written, a.scaled.integers, b.scaled.integers)), np.asarray(np.einsum(written, *scales))
    )
    assert_scaled(sketch, name, wanted)


def test_einsum_of_three_and_products_in_a_row() -> None:
    """The result of a contraction is scaled itself."""
    random = np.random.default_rng(9)
    a, b, c = drawn(random, U8, (4, 20)), drawn(random, I8, (20, 20)), drawn(random, I8, (20, 3))
    first = Scaled(a.scaled.integers @ b.scaled.integers, a.scale * b.scale)
    wanted = Scaled(first.integers @ c.scaled.integers, np.asarray(first.scale * c.scale))
    assert np.abs(wanted.integers).max() > 1 << 24
    sketch = Sketch()
    names = [sketch.dequantized(each, fixed=True) for each in (b, c)]
    x = sketch.dequantized(a)
    assert_scaled(sketch, sketch.op("Einsum", x, *names, equation="ij,jk,kl->il"), wanted)
    assert_scaled(sketch, sketch.op("MatMul", sketch.op("MatMul", x, names[0]), names[1]), wanted)


def test_a_negative_scale_keeps_the_sign_of_zero() -> None:
    a = Quantized(np.array([[3, 5], [4, 4]], I8), of(F32, 0.03), of(I8, 4))
    b = Quantized(np.array([[1, -2], [1, 7]], I8), of(F32, -0.07), of(I8, 0))
    wanted = multiplied(a.scaled, b.scaled).floats
    assert np.signbit(wanted[wanted == 0]).all() and (wanted == 0).sum() == 3
    sketch = Sketch()
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    same(sketch.run(name), [wanted])


@pytest.mark.parametrize("runtime", ["scales", "scales and zero points"])
def test_scales_that_are_inputs(runtime: str) -> None:
    random = np.random.default_rng(10)
    a, b = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6))
    wanted, sketch = multiplied(a.scaled, b.scaled), Sketch()
    hold = sketch.given if runtime == "scales and zero points" else sketch.fixed
    sides: list[str] = []
    for each in (a, b):
        assert each.zero is not None
        sides.append(
            sketch.op("DequantizeLinear", sketch.given(each.stored), sketch.given(each.scale), hold(each.zero))
        )
    name = sketch.op("MatMul", *sides)
    expected = {name: wanted.floats}
    for floor in (False, True):
        source = sketch.op("Relu", name) if floor else name
        for to in endings(wanted):
            zero = hold(of(to.kind, to.zero))
            output = sketch.op("QuantizeLinear", source, sketch.given(np.asarray(to.scale)), zero)
            expected[output] = to.of(wanted, floor)
    same(sketch.run(*expected), list(expected.values()))


@pytest.mark.parametrize("nodes", [("x",), ("w",), ("x", "w")])
def test_scales_that_are_constant_nodes(nodes: Sequence[str]) -> None:
    """What a DequantizeLinear of known numbers is does not depend on where its scale stands."""
    random = np.random.default_rng(50)
    a, b = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6), 1)
    sketch = Sketch()
    sides: list[str] = []
    for side, x, hold in (("x", a, sketch.given), ("w", b, sketch.fixed)):
        assert x.zero is not None
        scale = sketch.constant(x.scale) if side in nodes else sketch.fixed(x.scale)
        sides.append(sketch.op("DequantizeLinear", hold(x.stored), scale, sketch.fixed(x.zero), axis=1))
    assert_scaled(sketch, sketch.op("MatMul", *sides), multiplied(a.scaled, b.scaled))


# ── what may stand between DequantizeLinear and the operator ────────────────────────────────────────


@dataclass(frozen=True)
class Move:
    op: str
    does: Callable[[Array], Array]
    indices: Sequence[Sequence[int]] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def add(self, sketch: Sketch, name: str) -> str:
        return sketch.op(self.op, name, *(sketch.indices(*each) for each in self.indices), **self.attributes)


TURN = Move("Transpose", lambda x: x.T, (), {"perm": [1, 0]})
MOVES: dict[str, tuple[Sequence[int], int | None, Sequence[Move]]] = {
    "transpose": ((6, 17), None, [TURN]),
    "transpose of rows": ((6, 17), 0, [TURN]),
    "reshape": ((17, 2, 3), None, [Move("Reshape", lambda x: x.reshape(17, 6), ([17, -1],))]),
    "reshape of scales": ((17, 2, 3), 2, [Move("Reshape", lambda x: x.reshape(17, 6), ([17, 6],))]),
    "reshape of outer scales": ((17, 2, 3), 1, [Move("Reshape", lambda x: x.reshape(17, 6), ([17, 6],))]),
    "reshape that splits": ((17, 6), 1, [Move("Reshape", lambda x: x.reshape(17, 2, 3).reshape(17, 6), ([17, 6],))]),
    "flatten": ((17, 2, 3), None, [Move("Flatten", lambda x: x.reshape(17, 6))]),
    "slice": ((17, 15), 1, [Move("Slice", lambda x: x[:, 1:13:2], ([1], [13], [1], [2]))]),
    "slice backwards": ((34, 6), 1, [Move("Slice", lambda x: x[33:0:-2], ([33], [0], [0], [-2]))]),
    "expand of rows": ((1, 6), 1, [Move("Expand", lambda x: np.broadcast_to(x, (17, 6)), ([17, 6],))]),
    "expand of columns": ((17, 1), None, [Move("Expand", lambda x: np.broadcast_to(x, (17, 6)), ([17, 6],))]),
    "expand of a batch": ((17, 6), 1, [Move("Expand", lambda x: np.broadcast_to(x, (3, 17, 6)), ([3, 17, 6],))]),
    "four in a row": (
        (2, 3, 40),
        1,
        [
            Move("Reshape", lambda x: x.reshape(6, 40), ([6, 40],)),
            TURN,
            Move("Slice", lambda x: x[3:37:2], ([3], [37], [0], [2])),
            Move("Expand", lambda x: np.broadcast_to(x, (2, 17, 6)), ([2, 1, 1],)),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves_before_the_operator(name: str) -> None:
    shape, axis, moves = MOVES[name]
    random = np.random.default_rng(11)
    a, b = drawn(random, U8, (4, 17)), drawn(random, I8, shape, axis)
    sketch = Sketch()
    moved = sketch.dequantized(b)
    integers, scale = b.scaled.integers, np.broadcast_to(b.scaled.scale, b.stored.shape)
    for move in moves:
        moved, integers, scale = move.add(sketch, moved), move.does(integers), move.does(scale)
    assert (scale == scale[..., :1, :]).all()
    wanted = multiplied(a.scaled, Scaled(integers, scale[..., :1, :]))
    assert_scaled(sketch, sketch.op("MatMul", sketch.dequantized(a), moved), wanted)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_cast_and_mul_are_a_dequantize_linear(fixed: bool, zero: int, first: bool, columns: bool) -> None:
    random = np.random.default_rng(12)
    a, b = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6), 1 if columns else None)
    b = replace(b, zero=np.full_like(b.scale, zero, I8))
    sketch = Sketch()
    integers = sketch.op("Cast", sketch.fixed(b.stored) if fixed else sketch.given(b.stored), to=TensorProto.INT32)
    if zero:
        integers = sketch.op("Sub", integers, sketch.fixed(of(I32, zero)))
    cast, scale = sketch.op("Cast", integers, to=TensorProto.FLOAT), sketch.fixed(b.scale)
    scaled = sketch.op("Mul", *((scale, cast) if first else (cast, scale)))
    assert_scaled(sketch, sketch.op("MatMul", sketch.dequantized(a), scaled), multiplied(a.scaled, b.scaled))


def _halves(sketch: Sketch, x: str) -> str:
    return sketch.op("Cast", sketch.op("Cast", x, to=TensorProto.FLOAT16), to=TensorProto.FLOAT)


OTHERS: dict[str, Callable[[Sketch, str], str]] = {
    "Relu": lambda sketch, x: sketch.op("Relu", x),
    "Mul": lambda sketch, x: sketch.op("Mul", x, sketch.fixed(of(F32, 1.3))),
    "Add": lambda sketch, x: sketch.op("Add", x, sketch.fixed(of(F32, 1.3))),
    "Softmax": lambda sketch, x: sketch.op("Softmax", x),
    "Pad": lambda sketch, x: sketch.op("Pad", x, sketch.indices(1, 0, 1, 0)),
    "Gather": lambda sketch, x: sketch.op("Gather", x, sketch.indices(3, 0, 3), axis=0),
    "Concat": lambda sketch, x: sketch.op("Concat", x, x, axis=0),
    "LayerNormalization": lambda sketch, x: sketch.op("LayerNormalization", x, sketch.fixed(np.ones(37, F32))),
    "Cast": _halves,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_operators_between_compute_on_floats(name: str) -> None:
    random = np.random.default_rng(13)
    a, b = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6))
    sketch = Sketch()
    left = OTHERS[name](sketch, sketch.dequantized(a))
    assert_stays_float(sketch, sketch.op("MatMul", left, sketch.dequantized(b, fixed=True)))


# ── what stays in floats ────────────────────────────────────────────────────────────────────────────


def _along(op: str, shape: Any, axis: Any, other: Any, column: Any, **attributes: Any) -> Any:
    words = f"{op}-{'x'.join(map(str, shape))}-{axis}-{column}"
    return pytest.param(op, shape, axis, other, column, attributes, id=words)


ALONG = [
    _along("MatMul", (4, 17), 1, (17, 5), None),
    _along("MatMul", (4, 17), None, (17, 5), 0),
    _along("MatMul", (2, 4, 17), 2, (2, 17, 5), 1),
    _along("MatMul", (17,), None, (17,), 0),
    _along("Gemm", (17, 4), 0, (5, 17), None, transA=1, transB=1),
    _along("Gemm", (4, 17), None, (5, 17), 1, transB=1),
    _along("Conv", (2, 3, 6, 5), 1, (4, 3, 3, 3), None),
    _along("Conv", (2, 3, 6, 5), None, (4, 3, 3, 3), 1),
    _along("Conv", (2, 3, 6, 5), None, (4, 3, 3, 3), 2),
    _along("Conv", (2, 4, 6, 5), 1, (4, 2, 3, 3), 0, group=2),
    _along("Conv", (2, 3, 6, 5), 3, (4, 3, 1, 2), None),
    _along("ConvTranspose", (2, 3, 6, 5), None, (3, 4, 3, 3), 0),
    _along("ConvTranspose", (2, 3, 6, 5), 1, (3, 4, 3, 3), 1),
    _along("Einsum", (2, 4, 17), 2, (2, 17, 5), 0, equation="bij,bjk->bik"),
    _along("Einsum", (4, 17), 0, (17, 5), None, equation="ij,jk->k"),
]


@pytest.mark.parametrize(("op", "shape", "axis", "other", "column", "attributes"), ALONG)
def test_a_scale_along_what_is_added(op: str, shape: Any, axis: Any, other: Any, column: Any, attributes: Any) -> None:
    random = np.random.default_rng(14)
    a, b = drawn(random, U8, shape, axis), drawn(random, I8, other, column)
    sketch = Sketch()
    assert_stays_float(sketch, sketch.op(op, sketch.dequantized(a), sketch.dequantized(b, fixed=True), **attributes))


def test_blocks_along_what_is_added() -> None:
    random = np.random.default_rng(15)
    a, b = drawn(random, U8, (4, 16)), drawn(random, I8, (16, 5))
    scale = random.uniform(0.01, 0.1, (4, 5)).astype(F32)
    sketch = Sketch()
    blocks = sketch.op("DequantizeLinear", sketch.fixed(b.stored), sketch.fixed(scale), axis=0, block_size=4)
    assert_stays_float(sketch, sketch.op("MatMul", sketch.dequantized(a), blocks))


def test_halves_and_floats() -> None:
    """Scaled is an f32 value, and both operands are."""
    random = np.random.default_rng(16)
    a, b = drawn(random, U8, (4, 17)), drawn(random, I8, (17, 5))
    sketch = Sketch()
    left, right = (sketch.dequantized(replace(each, scale=each.scale.astype(np.float16))) for each in (a, b))
    name = sketch.op("MatMul", left, right)
    same(sketch.run(name), sketch.run(name, qdq=FLOAT))
    weights = sketch.fixed(random.standard_normal((17, 5)).astype(F32))
    assert_stays_float(sketch, sketch.op("MatMul", sketch.dequantized(a), weights))


def ends(kind: Any, count: int, zero: int, low: bool = False) -> tuple[Quantized, Quantized]:
    """Operands of one sum of `count` products, as large as their type has them."""
    most = np.iinfo(kind).min if low else np.iinfo(kind).max
    row = Quantized(np.full((1, count), most, kind), of(F32, 0.013), of(kind, zero))
    return row, Quantized(np.full((count, 1), most, kind), of(F32, 0.017), of(kind, zero))


FITTING = [
    (U8, 32768, 0),
    (U8, 33025, 0),
    (U8, 40000, 128),
    (I8, 32768, -128),
    (I8, 131071, 0),
    (I16, 1, 0),
    (U16, 1, 32768),
]
OVERFLOWING = [(U8, 33026, 0), (U8, 40000, 0), (I8, 40000, 127), (I16, 2, 0), (I16, 9, -5), (U16, 1, 0)]


@pytest.mark.parametrize(("kind", "count", "zero"), FITTING)
def test_sums_that_fit(kind: Any, count: int, zero: int) -> None:
    for a, b in (ends(kind, count, zero), ends(kind, count, zero, low=True)):
        wanted, sketch = multiplied(a.scaled, b.scaled), Sketch()
        assert np.abs(wanted.integers).max() < 2**31
        name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b))
        same(sketch.run(name), [wanted.floats])


@pytest.mark.parametrize(("kind", "count", "zero"), OVERFLOWING)
def test_sums_that_might_not_fit(kind: Any, count: int, zero: int) -> None:
    """What wrapped around would have the other sign, or another size."""
    random = np.random.default_rng(17)
    for a, b in (ends(kind, count, zero), (drawn(random, kind, (1, count)), drawn(random, kind, (count, 1)))):
        a, b = (replace(each, zero=of(kind, zero)) for each in (a, b))
        sketch = Sketch()
        name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b))
        (found, _) = assert_stays_float(sketch, name)
        np.testing.assert_allclose(found, multiplied(a.scaled, b.scaled).floats, rtol=1e-3)


def test_types_decide_and_not_values() -> None:
    """Weights of small numbers take the rule of their type: no value of a tensor changes what another computes."""
    random = np.random.default_rng(47)
    a, b = drawn(random, U8, (1, 40000)), drawn(random, U8, (40000, 1))
    b = replace(b, stored=b.stored % 16)
    sketch = Sketch()
    left, right = (replace(each, zero=of(U8, 0)) for each in (a, b))
    assert_stays_float(sketch, sketch.op("MatMul", sketch.dequantized(left), sketch.dequantized(right, fixed=True)))


@pytest.mark.parametrize(("kind", "other", "stored", "zero"), [(I8, U8, -1, 0), (U8, I8, 128, 127)])
def test_what_a_cast_makes_of_stored_integers_is_of_the_new_type(kind: Any, other: Any, stored: int, zero: int) -> None:
    """The cast wraps, so that the range before it says nothing of the range behind it."""
    cast = TensorProto.UINT8 if other is U8 else TensorProto.INT8
    scale, sketch = of(F32, 0.013), Sketch()
    sides: list[str] = []
    for shape in ((1, 40000), (40000, 1)):
        x = sketch.op("Cast", sketch.given(np.full(shape, stored, kind)), to=cast)
        sides.append(sketch.op("DequantizeLinear", x, sketch.fixed(scale), sketch.fixed(of(other, zero))))
    (found, _) = assert_stays_float(sketch, sketch.op("MatMul", *sides))
    np.testing.assert_allclose(found, 40000 * 255.0**2 * float(scale) ** 2, rtol=1e-3)


def test_a_row_of_products_that_might_not_fit() -> None:
    """The second product's left operand is as large as the first product can be: only the second is in floats."""
    random = np.random.default_rng(18)
    a, b, c = drawn(random, U8, (4, 60)), drawn(random, I8, (60, 50)), drawn(random, I8, (50, 3))
    sketch = Sketch()
    first = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b))
    second = sketch.op("MatMul", first, sketch.dequantized(c))
    inner = multiplied(a.scaled, b.scaled).floats
    other = Sketch()
    alone = other.op("MatMul", other.given(inner), other.dequantized(c))
    same(sketch.run(first, second), [inner, *other.run(alone, qdq=FLOAT)])


def test_a_product_with_i32_and_a_sum_of_i32() -> None:
    random = np.random.default_rng(19)
    a, c = drawn(random, U8, (4, 5)), bias_of(random, of(F32, 0.02), 5)
    sketch = Sketch()
    x = sketch.dequantized(c)
    assert_stays_float(sketch, sketch.op("MatMul", sketch.dequantized(a), x))
    assert_stays_float(sketch, sketch.op("ReduceSum", x, keepdims=0))


def test_composites_keep_their_rules() -> None:
    random = np.random.default_rng(20)
    sketch = Sketch(23)
    q, k, v = (sketch.dequantized(drawn(random, U8, (1, 2, 5, 8))) for _ in range(3))
    assert_stays_float(sketch, sketch.op("Attention", q, k, v))
    x = sketch.dequantized(drawn(random, U8, (3, 2, 4)))
    w, r = (sketch.dequantized(drawn(random, I8, (1, 20, size)), fixed=True) for size in (4, 5))
    assert_stays_float(sketch, sketch.op("LSTM", x, w, r, hidden_size=5))


# ── the bias ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("op", ["Conv", "Gemm", "Add", "Add from the left", "ConvTranspose"])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("apart", [-1, 0, 1])
def test_a_bias_is_added_to_the_sum_where_its_scale_has_the_same_bits(op: str, columns: bool, apart: int) -> None:
    random = np.random.default_rng(21)
    column, axis = (1, -1) if op in ("Gemm", "Add", "Add from the left") else (1, -1, 1, 1), None
    if op in ("Conv", "ConvTranspose"):
        axis = (0 if op == "Conv" else 1) if columns else None
        a, b = drawn(random, U8, (2, 4, 6, 5)), drawn(random, I8, (4, 4, 3, 3), axis)
        given, kernel = a.scaled.integers, b.scaled.integers
        plain = full({}, 2)
        integers = (
            convolved(given, kernel, **plain) if op == "Conv" else transposed(given, kernel, **plain, more=[0, 0])
        )
    else:
        a, b = drawn(random, U8, (7, 29)), drawn(random, I8, (29, 4), 1 if columns else None)
        integers = a.scaled.integers @ b.scaled.integers
    scale = a.scale * b.scale
    product = Scaled(integers, scale.reshape(column) if columns else scale)
    other = scale if apart == 0 else np.nextafter(scale, F32(apart * np.inf))
    if columns and apart:  # one place in four is enough
        other = np.where(np.arange(4) == 2, other, scale)
    c = bias_of(random, other, 4)
    sketch = Sketch()
    left, right, bias = sketch.dequantized(a), sketch.dequantized(b, fixed=True), sketch.dequantized(c, fixed=True)
    if op.startswith("Add"):
        sides = [sketch.op("MatMul", left, right), bias]
        name = sketch.op("Add", *(sides if op == "Add" else reversed(sides)))
    else:
        name = sketch.op(op, left, right, bias)
    added = product.floats + c.scaled.floats.reshape(column)
    merged = Scaled(integers + c.scaled.integers.reshape(column), product.scale)
    assert added.tobytes() != merged.floats.tobytes()
    if apart:
        assert_as_onnx(sketch, name, added)
    else:
        assert_scaled(sketch, name, merged)


@pytest.mark.parametrize("kind", [I8, U8, I16])
@pytest.mark.parametrize(("rows", "shape"), [(5, (5, 6)), (5, (5, 1)), (1, (5, 6)), (5, ())])
def test_a_bias_of_any_type_and_shape(kind: Any, rows: int, shape: Any) -> None:
    random = np.random.default_rng(22)
    a, b = drawn(random, U8, (rows, 37)), drawn(random, I8, (37, 6))
    c = replace(drawn(random, kind, shape), scale=a.scale * b.scale)
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    wanted = multiplied(a.scaled, b.scaled).integers + c.scaled.integers
    name = sketch.op("Add", product, sketch.dequantized(c))
    assert_scaled(sketch, name, Scaled(wanted, a.scale * b.scale))


@pytest.mark.parametrize("fixed", [False, True])
def test_a_bias_with_which_i32_might_not_hold_the_sum(fixed: bool) -> None:
    """Added in floats: initializers say how large they are, an input of i32 may be anything."""
    random = np.random.default_rng(23)
    a, b = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6))
    c = bias_of(random, a.scale * b.scale, 6)
    if fixed:
        c = replace(c, stored=np.full(6, 2**31 - 1, I32))
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    name = sketch.op("Add", product, sketch.dequantized(c, fixed))
    assert_as_onnx(sketch, name, multiplied(a.scaled, b.scaled).floats + c.scaled.floats)


def test_two_products_of_the_same_scale_are_one_sum() -> None:
    """The second is a scaled value as any other."""
    random = np.random.default_rng(48)
    a, b = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6))
    c, d = replace(drawn(random, U8, (5, 11)), scale=b.scale), replace(drawn(random, I8, (11, 6)), scale=a.scale)
    sketch = Sketch()
    names = [sketch.dequantized(each, fixed=each is b or each is d) for each in (a, b, c, d)]
    name = sketch.op("Add", sketch.op("MatMul", *names[:2]), sketch.op("MatMul", *names[2:]))
    integers = a.scaled.integers @ b.scaled.integers + c.scaled.integers @ d.scaled.integers
    assert_scaled(sketch, name, Scaled(integers, a.scale * b.scale))


def test_a_product_of_a_sum_with_its_bias_is_on_integers() -> None:
    random = np.random.default_rng(24)
    a, b, d = drawn(random, U8, (5, 7)), drawn(random, I8, (7, 6)), drawn(random, I8, (6, 3))
    c = bias_of(random, a.scale * b.scale, 6)
    sketch = Sketch()
    sides = sketch.dequantized(a), sketch.dequantized(b, fixed=True), sketch.dequantized(c, fixed=True)
    inner = sketch.op("Gemm", *sides)
    middle = Scaled(multiplied(a.scaled, b.scaled).integers + c.scaled.integers, c.scale.reshape(1, 1))
    assert_scaled(sketch, sketch.op("MatMul", inner, sketch.dequantized(d, fixed=True)), multiplied(middle, d.scaled))


def test_an_add_of_dequantized_values_stays() -> None:
    random = np.random.default_rng(25)
    a = drawn(random, U8, (5, 37))
    sketch = Sketch()
    sides = [sketch.dequantized(replace(drawn(random, U8, (5, 37)), scale=a.scale)) for _ in range(2)]
    assert_stays_float(sketch, sketch.op("Add", *sides))


# ── sums and means ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [U8, I8, I16])
@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [(2, 3), (0,), (0, -1)])
def test_sums(kind: Any, axis: Any, keep: int, axes: tuple[int, ...]) -> None:
    x = drawn(np.random.default_rng(26), kind, (2, 3, 9, 7), axis)
    sketch = Sketch()
    name = sketch.op("ReduceSum", sketch.dequantized(x), sketch.indices(*axes), keepdims=keep)
    integers = x.scaled.integers.sum(axes, keepdims=True)
    wanted = Scaled(integers, np.broadcast_to(x.scaled.scale, integers.shape))
    if not keep:
        wanted = Scaled(*(each.squeeze(axes) for each in (wanted.integers, wanted.scale)))
    assert_scaled(sketch, name, wanted)


def test_sums_of_what_was_multiplied_and_products_of_what_was_summed() -> None:
    random = np.random.default_rng(27)
    a, b = drawn(random, U8, (5, 9)), drawn(random, I8, (9, 6))
    sketch = Sketch()
    left, right, rows = sketch.dequantized(a), sketch.dequantized(b), sketch.indices(0)
    wanted = multiplied(a.scaled, b.scaled)
    wanted = Scaled(wanted.integers.sum(0, keepdims=True), wanted.scale[:1])
    assert_scaled(sketch, sketch.op("ReduceSum", sketch.op("MatMul", left, right), rows), wanted)
    assert_scaled(sketch, sketch.op("MatMul", sketch.op("ReduceSum", left, rows), right), wanted)


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 9, 7), 2), ((2, 3, 9, 7), 3)])
def test_sums_along_scales(shape: Any, axis: int) -> None:
    x = drawn(np.random.default_rng(28), U8, shape, axis)
    sketch = Sketch()
    name = sketch.dequantized(x)
    assert_stays_float(sketch, sketch.op("GlobalAveragePool", name))
    assert_stays_float(sketch, sketch.op("ReduceSum", name, sketch.indices(2, 3)))


@pytest.mark.parametrize(("count", "fits"), [(32768, True), (32769, False), (40000, False)])
def test_sums_that_might_not_fit_are_in_floats(count: int, fits: bool) -> None:
    x = Quantized(np.full((2, count), 65535, U16), of(F32, 0.0131), of(U16, 0))
    wanted = Scaled(x.scaled.integers.sum(1, keepdims=True), x.scale).floats
    sketch = Sketch()
    name = sketch.op("ReduceSum", sketch.dequantized(x), sketch.indices(1))
    (found,), (plain,) = sketch.run(name), sketch.run(name, qdq=FLOAT)
    assert plain.tobytes() != wanted.tobytes()
    same([found], [wanted if fits else plain])


MEANS: dict[str, Callable[[Sketch, str], str]] = {
    "GlobalAveragePool": lambda sketch, x: sketch.op("GlobalAveragePool", x),
    "ReduceSum and Div": lambda sketch, x: sketch.op(
        "Div", sketch.op("ReduceSum", x, sketch.indices(2, 3)), sketch.constant(of(F32, 63))
    ),
}


@pytest.mark.parametrize("kind", [U8, I8])
@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("name", MEANS)
def test_means(kind: Any, axis: Any, name: str) -> None:
    x = drawn(np.random.default_rng(29), kind, (4, 50, 9, 7), axis)
    sketch = Sketch()
    mean = MEANS[name](sketch, sketch.dequantized(x))
    total = Scaled(x.scaled.integers.sum((2, 3), keepdims=True), x.scaled.scale)
    assert_divided(sketch, mean, total, 63)


def assert_divided(sketch: Sketch, name: str, total: Scaled, count: int) -> None:
    expected = {name: total.floats / F32(count)}
    part = replace(total, scale=total.scale * F32(1 / count))
    for to in endings(part):
        expected[sketch.quantized(name, to)] = to.of(part)
    same(sketch.run(*expected), list(expected.values()))
    for alone in list(expected)[1:]:
        same(sketch.run(alone), [expected[alone]])


def test_a_product_that_is_divided() -> None:
    random = np.random.default_rng(30)
    a, b = drawn(random, U8, (40, 37)), drawn(random, I8, (37, 30), 1)
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    assert_divided(sketch, sketch.op("Div", product, sketch.constant(of(F32, 7))), multiplied(a.scaled, b.scaled), 7)


def test_a_quotient_that_is_divided_again_is_as_onnx_has_it() -> None:
    random = np.random.default_rng(51)
    a, b = drawn(random, U8, (50, 37)), drawn(random, I8, (37, 60))
    sketch = Sketch()
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    for count in (7, 3):
        name = sketch.op("Div", name, sketch.constant(of(F32, count)))
    assert_as_onnx(sketch, name, multiplied(a.scaled, b.scaled).floats / F32(7) / F32(3))


def test_other_means_stay() -> None:
    x = drawn(np.random.default_rng(31), U8, (2, 3, 8, 6))
    sketch = Sketch()
    name = sketch.dequantized(x)
    assert_stays_float(sketch, sketch.op("AveragePool", name, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]))
    assert_stays_float(sketch, sketch.op("GlobalAveragePool", sketch.op("Relu", name)))
    assert_stays_float(sketch, sketch.op("ReduceMean", name, sketch.indices(2, 3)))


# ── between the operator and QuantizeLinear ─────────────────────────────────────────────────────────


def test_a_scale_for_each_column_of_quantize_linear_divides() -> None:
    random = np.random.default_rng(32)
    a, b = drawn(random, U8, (40, 37)), drawn(random, I8, (37, 6))
    scale, zero = random.uniform(0.001, 0.002, 6).astype(F32), random.integers(-9, 9, 6).astype(I16)
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    name = sketch.op("QuantizeLinear", product, sketch.fixed(scale), sketch.fixed(zero), axis=1)
    floats = multiplied(a.scaled, b.scaled).floats
    same(sketch.run(name), [np.clip(np.rint(floats / scale) + zero.astype(F32), -32768, 32767).astype(I16)])


def test_a_moved_product_is_scaled_once() -> None:
    random = np.random.default_rng(49)
    a, b = drawn(random, U8, (40, 37)), drawn(random, I8, (37, 30), 1)
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    heads = sketch.op("Reshape", product, sketch.indices(40, 1, 30))
    wanted = multiplied(a.scaled, b.scaled)
    turned = Scaled(*(each.reshape(40, 1, 30).transpose(1, 2, 0) for each in (wanted.integers, wanted.scale)))
    assert_scaled(sketch, sketch.op("Transpose", heads, perm=[1, 2, 0]), turned)


@pytest.mark.parametrize("zero", [0, 100])
def test_a_relu_before_a_negative_scale_is_as_onnx_has_it(zero: int) -> None:
    random = np.random.default_rng(36)
    a, b = drawn(random, U8, (40, 37)), drawn(random, I8, (37, 30))
    sketch = Sketch()
    product = sketch.op("Relu", sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True)))
    to = To(U8, F32(-0.3), zero)
    same(sketch.run(sketch.quantized(product, to)), [to.as_onnx(relu(multiplied(a.scaled, b.scaled).floats))])


@pytest.mark.parametrize("last", [False, True])
def test_max_and_zero_is_a_relu(last: bool) -> None:
    random = np.random.default_rng(37)
    a, b = drawn(random, U8, (40, 37)), drawn(random, I8, (37, 30))
    sketch = Sketch()
    operands = [sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))]
    operands.insert(int(last), sketch.constant(of(F32, 0)))
    name, wanted = sketch.op("Max", *operands), multiplied(a.scaled, b.scaled)
    for to in endings(wanted):
        same(sketch.run(sketch.quantized(name, to)), [to.of(wanted, floor=True)])


def test_what_is_no_relu_computes_on_floats() -> None:
    random = np.random.default_rng(33)
    a, b = drawn(random, U8, (40, 37)), drawn(random, I8, (37, 30))
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    floats = multiplied(a.scaled, b.scaled).floats
    low, high = of(F32, -1.5), of(F32, 6)
    clipped = sketch.op("Clip", product, sketch.fixed(low), sketch.fixed(high))
    assert_as_onnx(sketch, clipped, np.minimum(np.maximum(floats, low), high))
    assert_as_onnx(sketch, sketch.op("Mul", product, sketch.fixed(of(F32, 1.3))), floats * F32(1.3))
    assert_as_onnx(sketch, sketch.op("Neg", sketch.op("Relu", product)), -relu(floats))


def _pooled(x: Array) -> Array:
    """MaxPool of 2 by 3 with strides of 2 and 1, padded by 1."""
    size = (x.shape[2] // 2 + 1, x.shape[3])
    windows = (x[:, :, max(0, 2 * i - 1) : 2 * i + 1, max(0, j - 1) : j + 2] for i, j in np.ndindex(*size))
    return np.stack([each.max((2, 3)) for each in windows], -1).reshape(*x.shape[:2], *size)


POOL = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}
SAME: dict[str, Move] = {
    "nothing": Move("Identity", lambda x: x),
    "Reshape": Move("Reshape", lambda x: x.reshape(6, -1), ([6, -1],)),
    "Transpose": Move("Transpose", lambda x: x.transpose(0, 2, 3, 1), (), {"perm": [0, 2, 3, 1]}),
    "Slice": Move("Slice", lambda x: x[:, :, 5:0:-2], ([5], [0], [2], [-2])),
    "Expand": Move("Expand", lambda x: np.stack([x, x]), ([2, 1, 1, 1, 1],)),
    "MaxPool": Move("MaxPool", _pooled, (), POOL),
    "GlobalMaxPool": Move("GlobalMaxPool", lambda x: x.max((2, 3), keepdims=True)),
    "ReduceMax": Move("ReduceMax", lambda x: x.max(1), ([1],), {"keepdims": 0}),
}


WITHIN = [(U8, 0.0371, True), (I8, 0.0371, False), (I16, 0.0371, True), (U16, 2.0**-100, True), (I16, 2.0**100, True)]


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize(("kind", "scale", "shared"), WITHIN)
def test_the_same_scale_and_zero_point_gives_the_integers(name: str, kind: Any, scale: float, shared: bool) -> None:
    x = replace(drawn(np.random.default_rng(34), kind, (2, 3, 8, 6)), scale=of(F32, scale))
    assert x.zero is not None
    sketch, to = Sketch(shared=shared), To(kind, F32(scale), int(x.zero))
    output = sketch.quantized(SAME[name].add(sketch, sketch.dequantized(x)), to)
    wanted = SAME[name].does(x.stored)
    same([to.as_onnx(SAME[name].does(x.scaled.floats))], [wanted])
    same(sketch.run(output), [wanted])
    if not shared:
        return
    floats = [each.op for each in sketch.imported(output).graph.nodes if any(t.dtype.is_float for t in each.types)]
    assert not set(floats) - {"parameter", "constant"}


@pytest.mark.parametrize("name", ["nothing", "Slice", "MaxPool"])
@pytest.mark.parametrize("scale", [1e-45, 3e-43, 2.0**-126, 1e-33, 1e33, 2.0**120, 3e38, -0.0371])
def test_the_same_scale_far_from_one_is_as_onnx_has_it(name: str, scale: float) -> None:
    x = replace(drawn(np.random.default_rng(35), U16, (2, 3, 8, 6)), scale=of(F32, scale))
    assert x.zero is not None
    sketch, to = Sketch(), To(U16, F32(scale), int(x.zero))
    output = sketch.quantized(SAME[name].add(sketch, sketch.dequantized(x)), to)
    with np.errstate(over="ignore", under="ignore"):
        same(sketch.run(output), [to.as_onnx(SAME[name].does(x.scaled.floats))])


UNLIKE: list[tuple[Any, int, Any, int, float]] = [
    (U8, 3, U8, 5, 1.0),
    (U8, 128, I8, 0, 1.0),
    (U8, 0, I8, 0, 1.0),
    (I8, 0, U8, 0, 1.0),
    (I16, 0, U8, 0, 1.0),
    (U8, 7, U16, 7, 1.0),
    (I32, 0, I16, 0, 1.0),
    (U8, 3, U8, 3, 1.0000001),
    (I16, 3, I16, 3, 1.37),
    (U16, 3, I16, 0, 2.1),
    (I16, -9, I16, -9, 0.9999),
]


@pytest.mark.parametrize("name", ["nothing", "Slice", "MaxPool"])
@pytest.mark.parametrize(("kind", "zero", "other", "shifted", "ratio"), UNLIKE)
def test_another_scale_zero_point_or_type_is_as_onnx_has_it(
    name: str, kind: Any, zero: int, other: Any, shifted: int, ratio: float
) -> None:
    x = replace(drawn(np.random.default_rng(36), kind, (2, 3, 8, 6)), scale=of(F32, 0.0371), zero=of(kind, zero))
    sketch, to = Sketch(), To(other, F32(F32(0.0371) * F32(ratio)), shifted)
    output = sketch.quantized(SAME[name].add(sketch, sketch.dequantized(x)), to)
    same(sketch.run(output), [to.as_onnx(SAME[name].does(x.scaled.floats))])


def test_a_scale_for_each_column_quantizes_again() -> None:
    sketch = Sketch()
    stored = sketch.dequantized(Quantized(of(I8, [[10, 10, 10]]), of(F32, 0.5), of(I8, 0)))
    scales = sketch.fixed(of(F32, [0.5, 1, 2]))
    name = sketch.op("QuantizeLinear", stored, scales, sketch.fixed(np.zeros(3, I8)), axis=1)
    same(sketch.run(name), [of(I8, [[10, 5, 2]])])
    blocks = sketch.fixed(of(F32, [[0.5, 1, 2]]))
    name = sketch.op("QuantizeLinear", stored, blocks, axis=0, block_size=1, output_dtype=TensorProto.INT8)
    same(sketch.run(name), [of(I8, [[10, 5, 2]])])


def test_infinities_of_f8_saturate() -> None:
    sketch = Sketch()
    x, scale = sketch.given(of(F32, [np.inf, -np.inf, 3])), sketch.fixed(of(F32, 0.5))
    eighth = sketch.op("Cast", x, to=TensorProto.FLOAT8E5M2, saturate=0)
    back = sketch.op("DequantizeLinear", eighth, scale)
    name = sketch.op("QuantizeLinear", back, scale, output_dtype=TensorProto.FLOAT8E5M2)
    wide = sketch.op("Cast", name, to=TensorProto.FLOAT)
    same(sketch.run(wide), sketch.run(wide, qdq=FLOAT))


def test_no_scales_of_nothing() -> None:
    sketch = Sketch()
    stored = sketch.dequantized(Quantized(np.zeros((2, 0), I8), of(F32, 0.5), of(I8, 0)), fixed=True)
    scales, zeros = sketch.constant(np.zeros(0, F32)), sketch.constant(np.zeros(0, I8))
    name = sketch.op("QuantizeLinear", stored, scales, zeros, axis=1)
    same(sketch.run(name), [np.zeros((2, 0), I8)])


def test_long_chains_of_moves_and_biases_take_no_longer_each() -> None:
    """Each bias asks for the scale of what it is added to, which has been moved as often as there are biases before."""
    random = np.random.default_rng(38)
    a, b = drawn(random, U8, (4, 7)), drawn(random, I8, (7, 6))
    sketch = Sketch()
    total = multiplied(a.scaled, b.scaled).integers
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    scale = a.scale * b.scale
    for number in range(400):
        shape = ((24,), (4, 6))[number % 2]
        bias = Quantized(of(I32, number), scale, of(I32, 0), 0)
        name = sketch.op(
            "Add", sketch.op("Reshape", name, sketch.indices(*shape)), sketch.dequantized(bias, fixed=True)
        )
        total = total.reshape(shape) + number
    start = time.perf_counter()
    found = sketch.run(name)
    assert time.perf_counter() - start < 10, "with the square of their number it takes minutes"
    same(found, [Scaled(total, scale.reshape(1, 1)).floats])


def test_the_maximum_of_nothing_is_as_onnx_has_it() -> None:
    x = Quantized(np.zeros((3, 2), I8), of(F32, 0.1), of(I8, 4))
    sketch = Sketch()
    one = sketch.indices(1)
    none = sketch.op("Slice", sketch.dequantized(x), one, one, one)
    most = sketch.op("ReduceMax", none, one, keepdims=0)
    output = sketch.quantized(most, To(I8, F32(0.1), 4))
    same(sketch.run(output), [np.full(3, -128, I8)])
    same(sketch.run(output, qdq=FLOAT), [np.full(3, -128, I8)])
