"""Models in the format QDQ, and what they come to by the contract (docs/numerics.md, "Quantized models on integers"):
sums of NumPy's 64-bit integers, scaled in f32 in the order that it states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from repro.frontend import Imported, import_model, load_model
from repro.ir.types import Array
from tests.frontend.models import model, value
from tests.frontend.running import by_reference

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


def of(kind: Any, number: Any) -> Array:
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
