"""Quantized models on integers (docs/numerics.md), byte for byte: sums of NumPy's 64-bit integers, scaled in f32 in the
order that the contract states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import repro
from repro import cli
from repro.errors import EXIT_USAGE, ReproError
from repro.frontend import Imported, import_model, load_model
from repro.ir.types import Array, to_storage
from tests.frontend import disguises
from tests.frontend.models import GOLDEN, function, model, node, value
from tests.frontend.running import by_onnxruntime, by_reference
from tests.running import run_on_cpu
from tests.targets.native import HERE

ROOT = Path(__file__).resolve().parents[2]
FLOAT, INTEGER = "float", "integer"
F32 = np.float32
U8, I8, U16, I16, I32 = np.uint8, np.int8, np.uint16, np.int16, np.int32
MICROSOFT = "com.microsoft"

# ── the contract in NumPy ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Scaled:
    """float(integers) * scale: i64, less zero points, and f32 that broadcast over them."""

    integers: Array
    scale: Array

    @property
    def floats(self) -> Array:
        return np.asarray(self.integers.astype(F32) * self.scale)


@dataclass(frozen=True)
class Quantized:
    """What DequantizeLinear is given: a scale, and a zero point if any, for the whole or for each place of an axis."""

    stored: Array
    scale: Array
    zero: Array | None
    axis: int = 1

    @property
    def scaled(self) -> Scaled:
        places = [1] * self.stored.ndim
        if self.scale.ndim:
            places[self.axis] = -1
        zero = np.zeros_like(self.scale) if self.zero is None else self.zero
        integers = self.stored.astype(np.int64) - zero.astype(np.int64).reshape(places)
        return Scaled(integers, self.scale.reshape(places))


@dataclass(frozen=True)
class To:
    """What QuantizeLinear is given."""

    kind: Any
    scale: np.float32
    zero: int

    def saturated(self, rounded: Array) -> Array:
        ends = np.iinfo(self.kind)
        moved = rounded + F32(self.zero)
        return np.clip(np.where(np.isnan(moved), 0, moved), ends.min, ends.max).astype(self.kind)

    def as_onnx(self, values: Array) -> Array:
        """Of floats, in floats."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.saturated(np.rint(values / self.scale))

    def of(self, value: Scaled, floor: bool = False) -> Array:
        """Of integers, scaled once; `floor` says that a Relu stands between."""
        product = value.integers.astype(F32) * (value.scale / self.scale)
        return self.saturated(np.rint(np.where(product > 0, product, F32(0)) if floor else product))


def relu(values: Array) -> Array:
    return np.where(values > 0, values, F32(0))


def multiplied(left: Scaled, right: Scaled) -> Scaled:
    """MatMul, either side a vector (of one scale) or a batch of matrices."""
    shape = np.matmul(left.integers, right.integers).shape
    a, b = left, right
    if a.integers.ndim == 1:
        a = Scaled(a.integers[None, :], a.scale.reshape(1, 1))
    if b.integers.ndim == 1:
        b = Scaled(b.integers[:, None], b.scale.reshape(1, 1))
    product = np.matmul(a.integers, b.integers)
    return Scaled(product.reshape(shape), np.broadcast_to(a.scale * b.scale, product.shape).reshape(shape))


def convolved(x: Array, w: Array, group: int, strides: Any, pads: Any, dilations: Any) -> Array:
    """Conv of integers: what lies in the padding adds nothing."""
    axes = w.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    steps = list(zip(padded.shape[2:], w.shape[2:], strides, dilations, strict=True))
    extent = [(size - far * (taps - 1) - 1) // stride + 1 for size, taps, stride, far in steps]
    total = np.zeros((len(x), len(w), *extent), np.int64)
    for tap in np.ndindex(*w.shape[2:]):
        places = [
            slice(t * far, t * far + stride * (count - 1) + 1, stride)
            for t, far, stride, count in zip(tap, dilations, strides, extent, strict=True)
        ]
        seen = padded[:, :, *places].reshape(len(x), group, -1, *extent)
        kernel = w[:, :, *tap].reshape(group, -1, w.shape[1])
        total += np.einsum("ngc...,goc->ngo...", seen, kernel).reshape(total.shape)
    return total


def transposed(x: Array, w: Array, group: int, strides: Any, pads: Any, dilations: Any, more: Any) -> Array:
    """ConvTranspose of integers; `more` is output_padding."""
    axes, size = w.ndim - 2, x.shape[2:]
    steps = list(zip(size, w.shape[2:], strides, dilations, more, strict=True))
    full = [stride * (count - 1) + far * (taps - 1) + 1 + rest for count, taps, stride, far, rest in steps]
    total = np.zeros((len(x), w.shape[1] * group, *full), np.int64)
    parts = x.reshape(len(x), group, -1, *size)
    for tap in np.ndindex(*w.shape[2:]):
        places = [
            slice(t * far, t * far + stride * (count - 1) + 1, stride)
            for t, far, stride, count in zip(tap, dilations, strides, size, strict=True)
        ]
        kernel = w[:, :, *tap].reshape(group, -1, w.shape[1])
        total[:, :, *places] += np.einsum("ngc...,gco->ngo...", parts, kernel).reshape(len(x), -1, *size)
    kept = [slice(low, length - high) for low, length, high in zip(pads[:axes], full, pads[axes:], strict=True)]
    return total[:, :, *kept]


# ── models ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Sketch:
    """A model in the making, with what its inputs are fed."""

    opset: int = 21
    shared: bool = True
    """Whether equal numbers are one initializer."""
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    tensors: dict[str, Array] = field(default_factory=dict[str, Array])
    feeds: dict[str, Array] = field(default_factory=dict[str, Array])

    def given(self, array: Array) -> str:
        return self._held(self.feeds, array)

    def fixed(self, array: Array) -> str:
        for name, other in self.tensors.items() if self.shared else ():
            if (array.dtype, array.shape, array.tobytes()) == (other.dtype, other.shape, other.tobytes()):
                return name
        return self._held(self.tensors, array)

    def indices(self, *numbers: int) -> str:
        return self.fixed(np.array(numbers, np.int64))

    def op(self, kind: str, *operands: str, domain: str = "", **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(operands), [name], f"node_{name}", domain=domain, **attributes))
        return name

    def constant(self, array: Array) -> str:
        return self.op("Constant", value=numpy_helper.from_array(array))

    def dequantized(self, x: Quantized, fixed: bool = False, **attributes: Any) -> str:
        stored = self.fixed(x.stored) if fixed else self.given(x.stored)
        zero = [] if x.zero is None else [self.fixed(x.zero)]
        return self.op("DequantizeLinear", stored, self.fixed(x.scale), *zero, axis=x.axis, **attributes)

    def quantized(self, name: str, to: To) -> str:
        return self.op("QuantizeLinear", name, self.fixed(np.asarray(to.scale)), self.fixed(of(to.kind, to.zero)))

    def proto(self, *outputs: str) -> onnx.ModelProto:
        inputs = [
            value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in self.feeds.items()
        ]
        return model(self.nodes, inputs, outputs, self.tensors, self.opset, domains=[MICROSOFT])

    def imported(self, *outputs: str, qdq: str = INTEGER) -> Imported:
        return import_model(load_model(self.proto(*outputs)), qdq=qdq)

    def run(self, *outputs: str, qdq: str = INTEGER) -> list[Array]:
        return by_reference(self.imported(*outputs, qdq=qdq), self.feeds)

    def _held(self, where: dict[str, Array], array: Array) -> str:
        name = f"{'x' if where is self.feeds else 'c'}{len(where)}"
        where[name] = np.asarray(array)
        return name


def of(kind: Any, number: float) -> Array:
    return np.asarray(number, kind)


def drawn(random: np.random.Generator, kind: Any, shape: Sequence[int], axis: int | None = None) -> Quantized:
    """Integers of the whole range of their type, with scales and zero points of no pattern."""
    ends, places = np.iinfo(kind), () if axis is None else (shape[axis],)
    stored = random.integers(ends.min, ends.max, shape, kind, endpoint=True)
    middle = (int(ends.min) + int(ends.max) + 1) // 2
    zero = (middle + random.integers(-9, 10, places)).astype(kind)
    scale = np.asarray(random.uniform(0.01, 0.1, places), F32)
    return Quantized(stored, scale, zero, 1 if axis is None else axis)


def bias_of(random: np.random.Generator, scale: Array, count: int, axis: int = 0) -> Quantized:
    """i32 of a size that matters beside a sum of products of bytes."""
    return Quantized(random.integers(-40000, 40000, count).astype(I32), scale, np.zeros_like(scale, I32), axis)


def same(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    assert len(found) == len(wanted) > 0
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.tobytes() != other.tobytes():
            places = np.flatnonzero(one.reshape(-1) != other.reshape(-1))
            first = [array.reshape(-1)[places[:3]].tolist() for array in (one, other)]
            raise AssertionError(f"{len(places)} of {one.size} differ: found {first[0]}, wanted {first[1]}")


def endings(value: Scaled) -> list[To]:
    """Byte types by a power of two times a scale of the value, so that ties come up; and 16 bits, in which another
    order of roundings shows."""
    largest = np.abs(value.floats).max(initial=F32(1e-3))
    scale = value.scale.reshape(-1)[0]
    coarse = F32(np.ldexp(scale, int(np.ceil(np.log2(largest / scale / 150)))))
    return [
        To(U8, coarse, 0),
        To(U8, coarse, 90),
        To(I8, coarse, -128),
        To(I8, coarse, 5),
        To(I16, F32(largest / 31000), -3),
        To(U16, F32(largest / 60000), 0),
    ]


def assert_scaled(sketch: Sketch, name: str, wanted: Scaled) -> None:
    """The value, its Relu, and what each QuantizeLinear makes of both: all at once and some alone."""
    wanted = replace(wanted, scale=np.broadcast_to(wanted.scale, wanted.integers.shape))
    floor = sketch.op("Relu", name)
    expected = {name: wanted.floats, floor: relu(wanted.floats)}
    for to in endings(wanted):
        expected[sketch.quantized(name, to)] = to.of(wanted)
        expected[sketch.quantized(floor, to)] = to.of(wanted, floor=True)
    same(sketch.run(*expected), list(expected.values()))
    for alone in (0, 5):
        output = list(expected)[alone]
        same(sketch.run(output), [expected[output]])


def assert_as_onnx(sketch: Sketch, name: str, wanted: Array) -> None:
    """A float value that is not scaled any more: what reads it computes on floats."""
    expected = {name: wanted}
    largest = np.abs(wanted).max()
    for to in (To(U8, F32(largest / 130), 120), To(I16, F32(largest / 31000), -3)):
        expected[sketch.quantized(name, to)] = to.as_onnx(wanted)
    same(sketch.run(*expected), list(expected.values()))


def assert_stays_float(sketch: Sketch, name: str) -> list[Array]:
    """The bits of ONNX's definition, before and behind QuantizeLinear."""
    outputs = [name, sketch.quantized(name, To(I16, F32(0.0137), 7))]
    found = sketch.run(*outputs)
    same(found, sketch.run(*outputs, qdq=FLOAT))
    return found


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


def full(attributes: Mapping[str, Any], axes: int) -> dict[str, Any]:
    """The attributes of a convolution with the defaults of those left out."""
    ones = [1] * axes
    return {"group": 1, "strides": ones, "pads": [0] * (2 * axes), "dilations": ones, **attributes}


def convolution(
    random: np.random.Generator,
    sketch: Sketch,
    left: Any,
    shape: Any,
    kernel: Any,
    attributes: Any,
    axis: Any,
    bias: Any,
) -> tuple[str, Scaled]:
    x, w = drawn(random, left, shape), drawn(random, I8, kernel, axis)
    operands = [sketch.dequantized(x), sketch.dequantized(w, fixed=True)]
    integers = convolved(x.scaled.integers, w.scaled.integers, **full(attributes, len(kernel) - 2))
    column = (-1, *[1] * (len(kernel) - 2))
    if bias:
        c = bias_of(random, x.scale * w.scale, kernel[0])
        operands.append(sketch.dequantized(c, fixed=True))
        integers = integers + c.scaled.integers.reshape(column)
    scale = x.scale * w.scale
    return sketch.op("Conv", *operands, **attributes), Scaled(integers, np.asarray(scale).reshape(column))


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


def test_depthwise_conv_with_a_scale_for_each_channel_of_the_image() -> None:
    """What such a convolution adds are the taps of one channel, along which the scale does not change."""
    random = np.random.default_rng(6)
    x, w = drawn(random, U8, (2, 4, 6, 5), 1), drawn(random, I8, (4, 1, 3, 3), 0)
    sketch = Sketch()
    name = sketch.op("Conv", sketch.dequantized(x), sketch.dequantized(w, fixed=True), group=4, pads=[1, 1, 1, 1])
    integers = convolved(x.scaled.integers, w.scaled.integers, **full({"group": 4, "pads": [1, 1, 1, 1]}, 2))
    assert_scaled(sketch, name, Scaled(integers, x.scaled.scale * w.scale.reshape(1, 4, 1, 1)))


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


def test_behind_a_bias_no_product_is_on_integers() -> None:
    """A sum of a product and a bias is in the third line of the table: it is not scaled itself."""
    random = np.random.default_rng(24)
    a, b, d = drawn(random, U8, (5, 7)), drawn(random, I8, (7, 6)), drawn(random, I8, (6, 3))
    c = bias_of(random, a.scale * b.scale, 6)
    sketch = Sketch()
    sides = sketch.dequantized(a), sketch.dequantized(b, fixed=True), sketch.dequantized(c, fixed=True)
    inner = sketch.op("Gemm", *sides)
    outer = sketch.op("MatMul", inner, sketch.dequantized(d, fixed=True))
    middle = Scaled(multiplied(a.scaled, b.scaled).integers + c.scaled.integers, c.scale).floats
    other = Sketch()
    alone = other.op("MatMul", other.given(middle), other.dequantized(d, fixed=True))
    same(sketch.run(inner, outer), [middle, *other.run(alone, qdq=FLOAT)])


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


def test_the_maximum_of_nothing_is_as_onnx_has_it() -> None:
    x = Quantized(np.zeros((3, 2), I8), of(F32, 0.1), of(I8, 4))
    sketch = Sketch()
    one = sketch.indices(1)
    none = sketch.op("Slice", sketch.dequantized(x), one, one, one)
    most = sketch.op("ReduceMax", none, one, keepdims=0)
    output = sketch.quantized(most, To(I8, F32(0.1), 4))
    same(sketch.run(output), [np.full(3, -128, I8)])
    same(sketch.run(output, qdq=FLOAT), [np.full(3, -128, I8)])


# ── whole models ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Chain:
    """A float image through Q, DQ, Conv, Relu, Q, DQ, Conv, Q, and DQ, GlobalAveragePool, Q."""

    sketch: Sketch
    image: Array
    outputs: tuple[str, str, str]
    wanted: tuple[Array, Array, Array]


def chain(bias: bool = True, seven_bits: bool = True) -> Chain:
    """Weights of 7 bits: of 8, pairs of products saturate in ONNX Runtime's code for AVX2."""
    random = np.random.default_rng(37)
    sketch = Sketch()
    image = (random.standard_normal((2, 3, 9, 8)) * 2).astype(F32)
    step = To(U8, F32(0.031), 117)
    now = sketch.quantized(sketch.given(image), step)
    x = Quantized(step.as_onnx(image), np.asarray(step.scale), of(U8, step.zero))
    wanted: list[Array] = []
    names: list[str] = []
    for number, (channels, floor, zero) in enumerate(((8, True, 0), (4, False, 131))):
        w = drawn(random, I8, (channels, x.stored.shape[1], 3, 3), 0)
        stored = random.integers(-64, 64, w.stored.shape).astype(I8) if seven_bits else w.stored
        w = replace(w, stored=stored, zero=np.zeros(channels, I8))
        attributes: dict[str, Any] = {"pads": [1, 1, 1, 1], "strides": [1 + number, 1]}
        integers = convolved(x.scaled.integers, w.scaled.integers, **full(attributes, 2))
        left = sketch.op("DequantizeLinear", now, sketch.fixed(x.scale), sketch.fixed(np.asarray(x.zero)))
        operands = [left, sketch.dequantized(w, fixed=True)]
        if bias:
            c = bias_of(random, x.scale * w.scale, channels)
            operands.append(sketch.dequantized(c, fixed=True))
            integers = integers + c.scaled.integers.reshape(-1, 1, 1)
        result = Scaled(integers, (x.scale * w.scale).reshape(-1, 1, 1))
        to = To(U8, F32(result.floats.max() / (220 if floor else 100)), zero)
        now = sketch.op("Conv", *operands, **attributes)
        now = sketch.quantized(sketch.op("Relu", now) if floor else now, to)
        stored = to.of(result, floor)
        x = Quantized(stored, np.asarray(to.scale), of(U8, to.zero))
        wanted.append(stored)
        names.append(now)
    left = sketch.op("DequantizeLinear", now, sketch.fixed(x.scale), sketch.fixed(np.asarray(x.zero)))
    total = x.scaled.integers.sum((2, 3), keepdims=True)
    part = Scaled(total, x.scale * F32(1 / np.prod(x.stored.shape[2:])))
    to = To(I8, F32(np.abs(part.floats).max() / 100), -5)
    names.append(sketch.quantized(sketch.op("GlobalAveragePool", left), to))
    wanted.append(to.of(part))
    for each in wanted:
        assert len(np.unique(each)) > 4
    return Chain(sketch, image, (names[0], names[1], names[2]), (wanted[0], wanted[1], wanted[2]))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seven_bits", [False, True])
def test_a_chain(bias: bool, seven_bits: bool) -> None:
    made = chain(bias, seven_bits)
    same(made.sketch.run(*made.outputs), made.wanted)
    for output, wanted in zip(made.outputs, made.wanted, strict=True):
        same(made.sketch.run(output), [wanted])


@pytest.mark.parametrize("bias", [False, True])
def test_a_chain_as_onnxruntime_computes_it(bias: bool) -> None:
    made = chain(bias)
    proto = made.sketch.proto(made.outputs[1])
    same(made.sketch.run(made.outputs[1]), by_onnxruntime(proto, made.sketch.feeds))


@pytest.mark.parametrize("kind", [U8, I8])
def test_a_product_as_onnxruntime_computes_it(kind: Any) -> None:
    random = np.random.default_rng(38)
    a, b = drawn(random, kind, (60, 64)), drawn(random, I8, (64, 50))
    b = replace(b, stored=random.integers(-64, 64, (64, 50)).astype(I8), zero=of(I8, 0))
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    output = sketch.quantized(
        product, To(kind, F32(np.abs(multiplied(a.scaled, b.scaled).floats).max() / 120), 3 if kind is I8 else 120)
    )
    found = sketch.run(output)
    assert len(np.unique(found[0])) > 100
    same(found, by_onnxruntime(sketch.proto(output), sketch.feeds))


def operator_form(op: str, x: Quantized, w: Quantized, to: To, bias: Quantized | None, **attributes: Any) -> Sketch:
    """The same numbers in the format QOperator; its last node is the output."""
    sketch = Sketch()
    sides: list[str] = []
    for side, fixed in ((x, False), (w, True)):
        assert side.zero is not None
        hold = sketch.fixed if fixed else sketch.given
        sides += [hold(side.stored), sketch.fixed(side.scale), sketch.fixed(side.zero)]
    sides += [sketch.fixed(np.asarray(to.scale)), sketch.fixed(of(to.kind, to.zero))]
    sketch.op(op, *sides, *([] if bias is None else [sketch.fixed(bias.stored)]), **attributes)
    return sketch


@pytest.mark.parametrize("setting", [FLOAT, INTEGER])
@pytest.mark.parametrize("op", ["QLinearMatMul", "QLinearConv", "QLinearConv with a bias"])
def test_the_format_qoperator_has_the_same_bits(op: str, setting: str) -> None:
    random = np.random.default_rng(39)
    convolves = op != "QLinearMatMul"
    x = drawn(random, U8, (2, 4, 9, 8) if convolves else (30, 37))
    w = drawn(random, I8, (20, 4, 3, 3), 0) if convolves else drawn(random, I8, (37, 20))
    c = bias_of(random, x.scale * w.scale, 20) if op.endswith("bias") else None
    attributes: dict[str, Any] = {"pads": [1, 0, 2, 1], "strides": [2, 1]} if convolves else {}
    to = To(U8, F32(2.3 if convolves else 1.3), 117)
    sketch = Sketch()
    operands = [sketch.dequantized(x), sketch.dequantized(w, fixed=True)]
    operands += [] if c is None else [sketch.dequantized(c, fixed=True)]
    output = sketch.quantized(sketch.op("Conv" if convolves else "MatMul", *operands, **attributes), to)
    other = operator_form(op.split()[0], x, w, to, c, **attributes)
    found = sketch.run(output)
    assert len(np.unique(found[0])) > 100
    same(found, other.run(other.nodes[-1].output[0], qdq=setting))


@pytest.mark.parametrize("setting", [FLOAT, INTEGER])
def test_operators_of_onnxruntime_have_the_same_bits(setting: str) -> None:
    random = np.random.default_rng(40)
    x, to = drawn(random, U8, (3, 40, 9, 7)), To(U8, F32(0.0007), 117)
    assert x.zero is not None
    sketch = Sketch()
    plain = sketch.quantized(sketch.op("GlobalAveragePool", sketch.dequantized(x)), to)
    scales = [sketch.fixed(each) for each in (x.scale, x.zero, np.asarray(to.scale), of(U8, to.zero))]
    operands = [next(iter(sketch.feeds)), *scales]
    pooled = sketch.op("QLinearGlobalAveragePool", *operands, domain=MICROSOFT, channels_last=0)
    same(sketch.run(plain), sketch.run(pooled, qdq=setting))
    for op in ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"):
        more: dict[str, Any] = {"opset": 13} if op == "QLinearSoftmax" else {}
        name = sketch.op(op, *operands, domain=MICROSOFT, **more)
        same(sketch.run(name, qdq=setting), sketch.run(name, qdq=FLOAT))


def _body(sketch: Sketch, row: str, x: Quantized, w: Quantized, outside: bool) -> list[onnx.NodeProto]:
    """The nodes of a body that multiplies a row; the weights are dequantized inside, or outside of it."""
    assert x.zero is not None and w.zero is not None
    scale, zero, *weights = (sketch.fixed(each) for each in (x.scale, x.zero, w.stored, w.scale, w.zero))
    right = sketch.op("DequantizeLinear", *weights) if outside else "right"
    inside = [] if outside else [node("DequantizeLinear", " ".join(weights), "right")]
    left = node("DequantizeLinear", f"{row} {scale} {zero}", "left")
    return [left, *inside, node("MatMul", f"left {right}", "product")]


@pytest.mark.parametrize("outside", [False, True])
def test_in_the_body_of_a_scan(outside: bool) -> None:
    random = np.random.default_rng(41)
    rows, w, sketch = drawn(random, U8, (4, 1, 37)), drawn(random, I8, (37, 20)), Sketch()
    nodes = _body(sketch, "row", rows, w, outside)
    body = helper.make_graph(nodes, "body", [value("row", (1, 37), TensorProto.UINT8)], [value("product", (1, 20))])
    output = sketch.op("Scan", sketch.given(rows.stored), body=body, num_scan_inputs=1)
    same(sketch.run(output), [multiplied(rows.scaled, replace(w.scaled, scale=w.scale.reshape(1, 1, 1))).floats])


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("taken", [False, True])
def test_in_the_branches_of_an_if(outside: bool, taken: bool) -> None:
    random = np.random.default_rng(52)
    x, w, sketch = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6)), Sketch()
    nodes = _body(sketch, sketch.given(x.stored), x, w, outside)
    one = helper.make_graph(nodes, "one", [], [value("product", (5, 6))])
    other = helper.make_graph([*nodes, node("Neg", "product", "minus")], "other", [], [value("minus", (5, 6))])
    output = sketch.op("If", sketch.given(of(np.bool_, taken)), then_branch=one, else_branch=other)
    wanted = multiplied(x.scaled, w.scaled).floats
    same(sketch.run(output), [wanted if taken else -wanted])


def test_in_a_local_function() -> None:
    random = np.random.default_rng(42)
    a, b = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6))
    nodes = [
        node("DequantizeLinear", "q s z", "left"),
        node("MatMul", "left w", "product"),
    ]
    sketch = Sketch()
    assert a.zero is not None
    operands = [sketch.given(a.stored), sketch.fixed(a.scale), sketch.fixed(a.zero), sketch.dequantized(b, fixed=True)]
    name = sketch.op("product", *operands, domain="local")
    proto = sketch.proto(name)
    proto.functions.append(function("product", "q s z w", "product", nodes))
    proto.opset_import.append(helper.make_opsetid("local", 1))
    found = by_reference(import_model(load_model(proto), qdq=INTEGER), sketch.feeds)
    same(found, [multiplied(a.scaled, b.scaled).floats])


GENTLY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)


@GENTLY
@given(
    seed=st.integers(0, 2**32),
    left=st.sampled_from([U8, I8]),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 40), st.integers(1, 6)),
    axis=st.sampled_from([None, 0, 1]),
    column=st.sampled_from([None, 2]),
    bias=st.booleans(),
)
def test_any_product(seed: int, left: Any, sizes: Any, axis: Any, column: Any, bias: bool) -> None:
    random, (batch, rows, count, columns) = np.random.default_rng(seed), sizes
    a, b = drawn(random, left, (batch, rows, count), axis), drawn(random, I8, (batch, count, columns), column)
    wanted, sketch = multiplied(a.scaled, b.scaled), Sketch()
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    if bias and axis is None:
        c = bias_of(random, a.scale * b.scale, columns)
        name = sketch.op("Add", name, sketch.dequantized(c, fixed=True))
        wanted = replace(wanted, integers=wanted.integers + c.scaled.integers)
    assert_scaled(sketch, name, wanted)


@GENTLY
@given(
    seed=st.integers(0, 2**32),
    left=st.sampled_from([U8, I8]),
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(4, 8), st.integers(4, 8)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    group=st.integers(1, 3),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    axis=st.sampled_from([None, 0]),
    bias=st.booleans(),
)
def test_any_convolution(
    seed: int, left: Any, shape: Any, kernel: Any, group: int, strides: Any, pads: Any, axis: Any, bias: bool
) -> None:
    attributes = {"group": group, "strides": list(strides), "pads": list(pads)}
    given_shape = (shape[0], shape[1] * group, *shape[2:])
    taps = (kernel[0] * group, shape[1], *kernel[1:])
    sketch, random = Sketch(), np.random.default_rng(seed)
    assert_scaled(sketch, *convolution(random, sketch, left, given_shape, taps, attributes, axis, bias))


WRONG: dict[str, Callable[[Array, Any, Any, To], Array]] = {
    "scales one by one": lambda p, a, b, to: np.rint(((p * a) * b) / to.scale),
    "the value divided": lambda p, a, b, to: np.rint((p * (a * b)) / to.scale),
    "the scales in another order": lambda p, a, b, to: np.rint(p * (a * (b / to.scale))),
    "a reciprocal": lambda p, a, b, to: np.rint(p * ((a * b) * (F32(1) / to.scale))),
    "scales in f64": lambda p, a, b, to: np.rint(p * F32(np.float64(a) * b / to.scale)),
    "ties away from zero": lambda p, a, b, to: np.copysign(np.floor(np.abs(p * (a * b / to.scale)) + F32(0.5)), p),
    "truncated": lambda p, a, b, to: np.trunc(p * (a * b / to.scale)),
}  # fmt: skip


def test_other_orders_of_rounding_would_be_seen() -> None:
    """Each wrong formula gives other bytes than the contract's somewhere in the endings of a product."""
    random = np.random.default_rng(43)
    a, b = drawn(random, U8, (60, 37)), drawn(random, I8, (37, 50))
    wanted = multiplied(a.scaled, b.scaled)
    p, left, right = wanted.integers.astype(F32), a.scale[()], b.scale[()]
    assert ((p * left) * right).tobytes() != wanted.floats.tobytes()
    seen = {
        name: [
            to for to in endings(wanted) if not np.array_equal(to.saturated(wrong(p, left, right, to)), to.of(wanted))
        ]
        for name, wrong in WRONG.items()
    }
    assert all(seen.values()), seen
    sketch = Sketch()
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    assert_scaled(sketch, name, wanted)
    (plain,) = sketch.run(name, qdq=FLOAT)
    assert plain.tobytes() != wanted.floats.tobytes()


# ── graphs ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", GOLDEN)
def test_a_model_without_dequantize_linear_is_the_same_graph(name: str) -> None:
    path, bind = GOLDEN[name]
    one, other = (import_model(load_model(ROOT / path), bind=bind, qdq=qdq) for qdq in (FLOAT, INTEGER))
    assert one.graph.digest == other.graph.digest
    assert one.graph.digest == import_model(load_model(ROOT / path), bind=bind).graph.digest


@pytest.mark.parametrize("disguise", disguises.ALL, ids=lambda disguise: disguise.__name__)
def test_names_and_order_change_no_digest(disguise: disguises.Disguise) -> None:
    made = chain()
    proto = made.sketch.proto(*made.outputs)
    digests = {import_model(load_model(proto), qdq=INTEGER).graph.digest for _ in range(2)}
    assert import_model(load_model(proto)).graph.digest not in digests
    for seed in range(3):
        changed = onnx.ModelProto()
        changed.CopyFrom(proto)
        disguise(changed, Random(seed))
        digests.add(import_model(load_model(changed), qdq=INTEGER).graph.digest)
    assert len(digests) == 1


def test_compiled_code_has_the_same_bits() -> None:
    made = chain()
    found = made.sketch.imported(*made.outputs)
    parameters = [slot.initial for slot in found.parameters]
    inputs = [to_storage(made.image, found.inputs[0].type.dtype)]
    for machine in HERE:
        for threads in (1, 2):
            same(run_on_cpu(found.graph, inputs, parameters, machine, threads), made.wanted)


# ── artifacts ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> repro.LoadedArtifact:
    made = chain()
    return repro.build(
        made.sketch.proto(*made.outputs),
        tmp_path_factory.mktemp("built") / "out",
        targets=[machine.name for machine in HERE],
        inputs=made.sketch.feeds,
        qdq=INTEGER,
    )


def test_an_artifact_keeps_the_setting(built: repro.LoadedArtifact, tmp_path: Path) -> None:
    assert built.config.build.qdq == INTEGER
    assert repro.load(built.folder).config.build.qdq == INTEGER
    assert not any("--qdq" in text for text in built.warnings)
    made = chain()
    proto = made.sketch.proto(*made.outputs)
    plain = repro.build(proto, tmp_path / "plain", targets=HERE[0].name, inputs=made.sketch.feeds)
    assert plain.config.build.qdq == FLOAT
    assert any("--qdq integer" in text for text in plain.warnings)
    assert plain.id != built.id
    assert plain.graph_digest != built.graph_digest


def test_an_artifact_has_the_evaluated_bits(built: repro.LoadedArtifact) -> None:
    made = chain()
    assert HERE
    for target in ("reference", *(machine.name for machine in HERE)):
        for threads in (1, 2):
            with built.session(target=target, threads=threads) as session:
                outputs = session.run(made.sketch.feeds)
            same([outputs[name] for name in made.outputs], made.wanted)


def test_an_artifact_verifies(built: repro.LoadedArtifact) -> None:
    report = repro.verify(built.folder, targets=["reference", *(machine.name for machine in HERE)])
    assert report.exit_code == 0, report.summary
    ran = {check.name for check in report.checks if check.status.value == "good"}
    assert "rebuild" in ran
    assert all(any(name.startswith(f"run {machine.name}") for name in ran) for machine in HERE)


def test_a_float_model_gets_no_hint(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [value("x")])
    assert repro.build(proto, tmp_path / "out", targets=HERE[0].name).warnings == ()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = drawn(np.random.default_rng(44), U8, (2, 3)), drawn(np.random.default_rng(45), I8, (3, 2))
    sketch = Sketch()
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    onnx.save(sketch.proto(name), tmp_path / "m.onnx")
    words = ["build", str(tmp_path / "m.onnx"), "--targets", HERE[0].name]
    assert cli.main([*words, "--qdq", INTEGER, "-o", str(tmp_path / "one")]) == 0
    assert "--qdq" not in "".join(capsys.readouterr())
    assert cli.main([*words, "-o", str(tmp_path / "two")]) == 0
    assert "--qdq integer" in "".join(capsys.readouterr())
    assert [repro.load(tmp_path / each).config.build.qdq for each in ("one", "two")] == [INTEGER, FLOAT]
    assert cli.main([*words, "--qdq", "nonsense", "-o", str(tmp_path / "three")]) == EXIT_USAGE
    assert "nonsense" in "".join(capsys.readouterr())


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("qdq", ["nonsense", "", "Integer"])
def test_a_setting_that_is_none(qdq: str, tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [value("x")])
    with pytest.raises(ReproError) as caught:
        repro.build(proto, tmp_path / "out", qdq=qdq)
    assert caught.value.exit_code == EXIT_USAGE
    text = str(caught.value)
    assert "qdq" in text and qdq in text and FLOAT in text and INTEGER in text
    assert not (tmp_path / "out").exists()


def test_a_training_step_is_refused(tmp_path: Path) -> None:
    made = chain()
    proto = made.sketch.proto(made.outputs[1])
    with pytest.raises(ReproError) as caught:
        repro.build(proto, tmp_path / "out", qdq=INTEGER, loss="mse", optimizer="sgd", learning_rate=0.1)
    assert caught.value.exit_code == EXIT_USAGE
    text = str(caught.value)
    assert "qdq" in text and INTEGER in text and "train" in text
    assert not (tmp_path / "out").exists()
