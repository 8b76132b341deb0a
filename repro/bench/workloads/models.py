# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.
"""Whole models, of the sizes that research and small products train on CPUs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from repro.bench.network import Network
from repro.bench.workloads.inputs import drawn, integers
from repro.bench.workloads.transformers import TRANSFORMERS
from repro.bench.workloads.workload import ADAMW, MOMENTUM, STEP, Tensors, Workload

# ── multilayer perceptron ───────────────────────────────────────────────────────────────────────────

_MLP = (784, 1024, 1024, 10)


def _mlp(mode: str) -> tuple[Network, tuple[str, ...]]:
    net = Network("mlp")
    x = net.input("x", (256, _MLP[0]))
    for layer, (inputs, outputs) in enumerate(pairwise(_MLP)):
        x = net.linear(f"fc{layer}", x, inputs, outputs, 0.04)
        x = net.node("Relu", x) if layer < 2 else x
    return net, (x,)


def _mlp_torch(p: Tensors, inputs: Tensors, mode: str) -> Any:
    import torch.nn.functional as f

    x = inputs["x"]
    for layer in range(3):
        x = f.linear(x, p[f"fc{layer}.weight"], p[f"fc{layer}.bias"])
        x = f.relu(x) if layer < 2 else x
    return x


# ── residual network ────────────────────────────────────────────────────────────────────────────────

_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and first stride of each of the four stages of ResNet-18, for images of 32x32 (He et al. 2016)."""


class _ResNet:
    def __init__(self, training: bool) -> None:
        self.net, self.training = Network("resnet18"), training
        self.outputs: list[str] = []

    def convolution(self, name: str, x: str, inputs: int, outputs: int, size: int, stride: int) -> str:
        scale = (2 / (outputs * size * size)) ** 0.5
        weight = self.net.weight(f"{name}.weight", (outputs, inputs, size, size), scale)
        pad = size // 2
        return self.net.node("Conv", x, weight, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def norm(self, name: str, x: str, channels: int) -> str:
        gamma = self.net.constant(f"{name}.weight", np.ones(channels, np.float32))
        beta = self.net.constant(f"{name}.bias", np.zeros(channels, np.float32))
        mean = self.net.constant(f"{name}.running_mean", np.zeros(channels, np.float32))
        variance = self.net.constant(f"{name}.running_var", np.ones(channels, np.float32))
        operands = (x, gamma, beta, mean, variance)
        if not self.training:
            return self.net.node("BatchNormalization", *operands)
        first = self.net.node("BatchNormalization", *operands, outputs=3, training_mode=1, momentum=0.9)
        self.outputs += [f"{first}.1", f"{first}.2"]
        return first

    def block(self, name: str, x: str, inputs: int, outputs: int, stride: int) -> str:
        y = self.norm(f"{name}.bn1", self.convolution(f"{name}.conv1", x, inputs, outputs, 3, stride), outputs)
        y = self.convolution(f"{name}.conv2", self.net.node("Relu", y), outputs, outputs, 3, 1)
        y = self.norm(f"{name}.bn2", y, outputs)
        if stride != 1 or inputs != outputs:
            x = self.norm(f"{name}.bn0", self.convolution(f"{name}.conv0", x, inputs, outputs, 1, stride), outputs)
        return self.net.node("Relu", self.net.node("Add", y, x))


def _resnet(mode: str) -> tuple[Network, tuple[str, ...]]:
    made = _ResNet(mode == STEP)
    x = made.net.input("x", (32, 3, 32, 32))
    x = made.net.node("Relu", made.norm("bn", made.convolution("conv", x, 3, 64, 3, 1), 64))
    channels = 64
    for stage, (outputs, stride) in enumerate(_STAGES):
        x = made.block(f"s{stage}.0", x, channels, outputs, stride)
        x = made.block(f"s{stage}.1", x, outputs, outputs, 1)
        channels = outputs
    x = made.net.node("Flatten", made.net.node("GlobalAveragePool", x))
    return made.net, (made.net.linear("fc", x, 512, 10), *made.outputs)


def _resnet_torch(p: Tensors, inputs: Tensors, mode: str) -> Any:
    import torch.nn.functional as f

    training = mode == STEP

    def norm(name: str, x: Any) -> Any:
        mean, variance = p[f"{name}.running_mean"], p[f"{name}.running_var"]
        return f.batch_norm(x, mean, variance, p[f"{name}.weight"], p[f"{name}.bias"], training)

    def block(name: str, x: Any, stride: int) -> Any:
        y = f.relu(norm(f"{name}.bn1", f.conv2d(x, p[f"{name}.conv1.weight"], None, stride, 1)))
        y = norm(f"{name}.bn2", f.conv2d(y, p[f"{name}.conv2.weight"], None, 1, 1))
        if f"{name}.conv0.weight" in p:
            x = norm(f"{name}.bn0", f.conv2d(x, p[f"{name}.conv0.weight"], None, stride))
        return f.relu(y + x)

    x = f.relu(norm("bn", f.conv2d(inputs["x"], p["conv.weight"], None, 1, 1)))
    for stage, (_, stride) in enumerate(_STAGES):
        x = block(f"s{stage}.1", block(f"s{stage}.0", x, stride), 1)
    return f.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])


# ── recurrent network ───────────────────────────────────────────────────────────────────────────────

_STEPS, _BATCH, _SIZE = 128, 32, 256


def _lstm(mode: str) -> tuple[Network, tuple[str, ...]]:
    net = Network("lstm")
    x = net.input("x", (_STEPS, _BATCH, _SIZE))
    scale = _SIZE**-0.5
    weights = [net.weight(name, (1, 4 * _SIZE, _SIZE), scale) for name in ("W", "R")]
    bias = net.weight("B", (1, 8 * _SIZE), scale)
    last = net.node("LSTM", x, *weights, bias, outputs=2, hidden_size=_SIZE) + ".1"
    rows = net.node("Reshape", last, net.constant("rows", np.array((_BATCH, _SIZE), np.int64)))
    return net, (net.linear("fc", rows, _SIZE, 10),)


def _lstm_torch(p: Tensors, inputs: Tensors, mode: str) -> Any:
    import torch

    def gates(rows: Any) -> Any:
        """From ONNX's gates (input, output, forget, cell) to PyTorch's (input, forget, cell, output)."""
        i, o, f, c = rows.chunk(4, 0)
        return torch.cat((i, f, c, o))

    forward, recurrent = p["B"][0].chunk(2, 0)
    flat = [gates(p["W"][0]), gates(p["R"][0]), gates(forward), gates(recurrent)]
    zero = inputs["x"].new_zeros(1, _BATCH, _SIZE)
    _, hidden, _ = torch.lstm(inputs["x"], (zero, zero), flat, True, 1, 0.0, mode == STEP, False, False)
    return torch.nn.functional.linear(hidden[0], p["fc.weight"], p["fc.bias"])


MODELS = (
    Workload(
        "mlp", "784-1024-1024-10, batch 256", _mlp, drawn({"x": (256, 784)}), _mlp_torch, ADAMW, integers((256,), 10),
    ),
    Workload(
        "resnet18", "images 32x32, batch 32, batch normalization in training mode", _resnet,
        drawn({"x": (32, 3, 32, 32)}), _resnet_torch, MOMENTUM, integers((32,), 10), ("running_mean", "running_var"),
    ),
    *TRANSFORMERS,
    Workload(
        "lstm", "size 256, 128 steps, batch 32", _lstm, drawn({"x": (_STEPS, _BATCH, _SIZE)}), _lstm_torch, ADAMW,
        integers((_BATCH,), 10),
    ),
)  # fmt: skip
