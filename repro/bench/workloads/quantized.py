"""Products and convolutions of bytes, and weights in narrow types, as quantized models have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from repro.bench.network import Network
from repro.bench.workloads.inputs import drawn
from repro.bench.workloads.operation import MICROSOFT
from repro.bench.workloads.workload import Workload
from repro.ir.types import Array

Build = Callable[[Network, str], str]
"""Adds nodes behind an input; the name of the result."""


def _workload(name: str, what: str, shape: tuple[int, ...], build: Build) -> Workload:
    """Forward alone; PyTorch has no such operators that take a model's own scales and zero points."""

    def network(mode: str) -> tuple[Network, tuple[str, ...]]:
        net = Network(name.replace("/", "_"))
        return net, (build(net, net.input("x", shape)),)

    return Workload(name, what, network, drawn({"x": shape}), None)


def _bytes(net: Network, name: str, shape: tuple[int, ...]) -> str:
    return net.constant(name, np.random.default_rng(2).integers(-127, 127, shape, np.int8, endpoint=True))


def _number(net: Network, name: str, value: float, kind: Any = np.float32) -> str:
    return net.constant(name, np.array(value, kind))


def _dynamic(m: int, n: int, k: int) -> Workload:
    """What dynamic quantization makes of a linear layer."""

    def build(net: Network, x: str) -> str:
        quantized = net.node("DynamicQuantizeLinear", x, outputs=3)
        weight, zero = _bytes(net, "weight", (k, n)), _number(net, "zero", 0, np.int8)
        product = net.node("MatMulInteger", quantized, weight, f"{quantized}.2", zero)
        scale = net.node("Mul", f"{quantized}.1", _number(net, "scale", 0.01))
        return net.node("Mul", net.node("Cast", product, to=1), scale)

    what = f"linear layer quantized as it runs: ({m}, {k}) with bytes ({k}, {n})"
    return _workload(f"dynamic_int8/{m}x{n}x{k}", what, (m, k), build)


def _between(net: Network, x: str, of: Callable[[str, str, str], str]) -> str:
    """x as bytes, what is computed of them (from x, its scale and its zero point), and back."""
    scale, zero = _number(net, "x_scale", 0.03), _number(net, "x_zero", 128, np.uint8)
    made = of(net.node("QuantizeLinear", x, scale, zero), scale, zero)
    return net.node("DequantizeLinear", made, _number(net, "y_scale", 0.5), _number(net, "y_zero", 120, np.uint8))


def _convolution(name: str, x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Workload:
    def build(net: Network, given: str) -> str:
        channels = w[0]
        scales = net.constant("w_scale", np.full(channels, 0.01, np.float32))
        zeros = net.constant("w_zero", np.zeros(channels, np.int8))
        bias = net.constant("bias", np.arange(channels, dtype=np.int32))
        weight, out = _bytes(net, "weight", w), (_number(net, "s", 0.5), _number(net, "z", 120, np.uint8))

        def of(q: str, scale: str, zero: str) -> str:
            return net.node("QLinearConv", q, scale, zero, weight, scales, zeros, *out, bias, **attributes)

        return _between(net, given, of)

    return _workload(f"qlinear_conv/{name}", f"bytes {x} with {w}", x, build)


def _add(shape: tuple[int, ...]) -> Workload:
    def build(net: Network, x: str) -> str:
        out = (_number(net, "s", 0.5), _number(net, "z", 120, np.uint8))
        return _between(net, x, lambda q, *of: net.node("QLinearAdd", q, *of, q, *of, *out, domain=MICROSOFT))

    return _workload("qlinear_add", f"bytes {shape}", shape, build)


def _weights(kind: str, m: int, n: int, k: int) -> Workload:
    """f32 times weights that are stored in a narrower type."""

    def build(net: Network, x: str) -> str:
        if kind == "f16":
            held: Array = (np.random.default_rng(2).standard_normal((k, n)) * 0.05).astype(np.float16)
            return net.node("MatMul", x, net.node("Cast", net.constant("weight", held), to=1))
        scale, zero = net.constant("scale", np.full(n, 0.01, np.float32)), net.constant("zero", np.zeros(n, np.int8))
        return net.node("MatMul", x, net.node("DequantizeLinear", _bytes(net, "weight", (k, n)), scale, zero, axis=1))

    what = f"linear layer: f32 ({m}, {k}) with {kind} ({k}, {n})"
    return _workload(f"{kind}_weights/{m}x{n}x{k}", what, (m, k), build)


QUANTIZED = (
    _dynamic(1, 3072, 768),
    _dynamic(16, 3072, 768),
    _dynamic(256, 1024, 1024),
    _convolution("3x3", (1, 64, 28, 28), (64, 64, 3, 3), pads=[1, 1, 1, 1]),
    _convolution("3x3_stride", (1, 64, 56, 56), (128, 64, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]),
    _convolution("1x1", (1, 96, 28, 28), (576, 96, 1, 1)),
    _convolution("7x7_image", (1, 3, 224, 224), (64, 3, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2]),
    _convolution("depthwise", (1, 96, 28, 28), (96, 1, 3, 3), pads=[1, 1, 1, 1], group=96),
    _add((1, 256, 56, 56)),
    _weights("f16", 1, 3072, 768),
    _weights("i8", 1, 3072, 768),
    _weights("f16", 16, 3072, 768),
    _weights("i8", 16, 3072, 768),
)
