# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.
"""Whole models, of the sizes that research and small products train on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import numpy_helper

from repro.bench.network import Network
from repro.bench.workloads.workload import STEP, Tensors, Workload
from repro.ir.types import Array

ADAMW = {"loss": "softmax_cross_entropy", "optimizer": "adamw", "learning_rate": 1e-3}
MOMENTUM = {"loss": "softmax_cross_entropy", "optimizer": "momentum", "learning_rate": 1e-2}


def _integers(shape: tuple[int, ...], below: int, seed: int = 1) -> Callable[[], Array]:
    return lambda: np.random.default_rng(seed).integers(0, below, shape)


def _normal(**shapes: tuple[int, ...]) -> Callable[[], dict[str, Array]]:
    def draw() -> dict[str, Array]:
        random = np.random.default_rng(1)
        return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    return draw


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


# ── transformers ────────────────────────────────────────────────────────────────────────────────────


class _Transformer:
    """Attention and feed-forward blocks over rows of (batch, tokens)."""

    def __init__(self, name: str, batch: int, tokens: int, width: int, heads: int) -> None:
        self.net = Network(name)
        self.batch, self.tokens, self.width, self.heads = batch, tokens, width, heads

    def shape(self, name: str, *extents: int) -> str:
        return self.net.constant(name, np.array(extents, np.int64))

    def norm(self, name: str, x: str) -> str:
        scale = self.net.weight(f"{name}.weight", (self.width,), 0.02, 1.0)
        bias = self.net.weight(f"{name}.bias", (self.width,))
        return self.net.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    def embedding(self, vocabulary: int) -> str:
        ids = self.net.input("ids", (self.batch, self.tokens), np.int64)
        rows = self.net.node("Gather", self.net.weight("tok", (vocabulary, self.width)), ids)
        x = self.net.node("Add", rows, self.net.weight("pos", (self.tokens, self.width)))
        return self.net.node("Reshape", x, self.shape("rows", self.batch * self.tokens, self.width))

    def attention(self, name: str, x: str, mask: str | None) -> str:
        net, size = self.net, self.width // self.heads
        heads = self.shape(f"{name}.heads", self.batch, self.tokens, 3, self.heads, size)
        qkv = net.node("Reshape", net.linear(f"{name}.qkv", x, self.width, 3 * self.width), heads)
        apart = net.node("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        pieces = [net.node("Gather", apart, net.constant(f"{name}.{which}", np.array(which))) for which in range(3)]
        keys = net.node("Transpose", pieces[1], perm=[0, 1, 3, 2])
        scores = net.node("MatMul", pieces[0], keys)
        scores = net.node("Mul", scores, net.constant(f"{name}.scale", np.array(size**-0.5, np.float32)))
        scores = scores if mask is None else net.node("Add", scores, mask)
        mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), pieces[2])
        rows = net.node("Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), "rows")
        return net.linear(f"{name}.proj", rows, self.width, self.width)

    def feed_forward(self, name: str, x: str) -> str:
        hidden = self.net.node("Gelu", self.net.linear(f"{name}.up", x, self.width, 4 * self.width))
        return self.net.linear(f"{name}.down", hidden, 4 * self.width, self.width)


_GPT = {"layers": 6, "width": 384, "heads": 6, "tokens": 256, "batch": 8, "vocabulary": 96}
_BERT = {"layers": 4, "width": 256, "heads": 4, "tokens": 128, "batch": 16, "vocabulary": 1024}


def gpt(sizes: dict[str, int]) -> tuple[Network, tuple[str, ...]]:
    """A GPT of pre-norm blocks with causal attention, its sizes as in `_GPT`; logits are rows of (batch, tokens)."""
    made = _Transformer("gpt", sizes["batch"], sizes["tokens"], sizes["width"], sizes["heads"])
    x = made.embedding(sizes["vocabulary"])
    hidden = np.triu(np.full((made.tokens, made.tokens), -np.inf, np.float32), 1)
    mask = made.net.node("Constant", value=numpy_helper.from_array(hidden))
    for layer in range(sizes["layers"]):
        x = made.net.node("Add", x, made.attention(f"b{layer}", made.norm(f"b{layer}.ln1", x), mask))
        x = made.net.node("Add", x, made.feed_forward(f"b{layer}", made.norm(f"b{layer}.ln2", x)))
    weight = made.net.weight("head.weight", (made.width, sizes["vocabulary"]))
    return made.net, (made.net.node("MatMul", made.norm("ln", x), weight),)


def _gpt(mode: str) -> tuple[Network, tuple[str, ...]]:
    return gpt(_GPT)


def gpt_torch(sizes: dict[str, int]) -> Callable[[Tensors, Tensors, str], Any]:
    """The same network in PyTorch, on weights of the same names."""
    return _blocks_torch(sizes, True)


def _bert(mode: str) -> tuple[Network, tuple[str, ...]]:
    made = _Transformer("bert", _BERT["batch"], _BERT["tokens"], _BERT["width"], _BERT["heads"])
    x = made.norm("ln", made.embedding(_BERT["vocabulary"]))
    for layer in range(_BERT["layers"]):
        x = made.norm(f"b{layer}.ln1", made.net.node("Add", x, made.attention(f"b{layer}", x, None)))
        x = made.norm(f"b{layer}.ln2", made.net.node("Add", x, made.feed_forward(f"b{layer}", x)))
    return made.net, (made.net.linear("head", x, made.width, _BERT["vocabulary"]),)


def _blocks_torch(sizes: dict[str, int], causal: bool) -> Callable[[Tensors, Tensors, str], Any]:
    def run(p: Tensors, inputs: Tensors, mode: str) -> Any:
        import torch.nn.functional as f

        batch, tokens, width, heads = (sizes[name] for name in ("batch", "tokens", "width", "heads"))

        def norm(name: str, x: Any) -> Any:
            return f.layer_norm(x, (width,), p[f"{name}.weight"], p[f"{name}.bias"])

        def linear(name: str, x: Any) -> Any:
            return f.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

        def attention(name: str, x: Any) -> Any:
            qkv = linear(f"{name}.qkv", x).view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = f.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=causal)
            return linear(f"{name}.proj", mixed.transpose(1, 2).reshape(batch * tokens, width))

        def feed_forward(name: str, x: Any) -> Any:
            return linear(f"{name}.down", f.gelu(linear(f"{name}.up", x)))

        x = (f.embedding(inputs["ids"], p["tok"]) + p["pos"]).view(batch * tokens, width)
        if not causal:
            x = norm("ln", x)
        for layer in range(sizes["layers"]):
            b = f"b{layer}"
            if causal:
                x = x + attention(b, norm(f"{b}.ln1", x))
                x = x + feed_forward(b, norm(f"{b}.ln2", x))
            else:
                x = norm(f"{b}.ln1", x + attention(b, x))
                x = norm(f"{b}.ln2", x + feed_forward(b, x))
        return norm("ln", x) @ p["head.weight"] if causal else linear("head", x)

    return run


def _ids(sizes: dict[str, int]) -> Callable[[], dict[str, Array]]:
    return lambda: {"ids": _integers((sizes["batch"], sizes["tokens"]), sizes["vocabulary"])()}


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
        "mlp", "784-1024-1024-10, batch 256", _mlp, _normal(x=(256, 784)), _mlp_torch, ADAMW, _integers((256,), 10),
    ),
    Workload(
        "resnet18", "images 32x32, batch 32, batch normalization in training mode", _resnet,
        _normal(x=(32, 3, 32, 32)), _resnet_torch, MOMENTUM, _integers((32,), 10), ("running_mean", "running_var"),
    ),
    Workload(
        "gpt", "6 layers, width 384, 6 heads, 256 tokens, batch 8", _gpt, _ids(_GPT), _blocks_torch(_GPT, True), ADAMW,
        _integers((2048,), 96),
    ),
    Workload(
        "bert", "encoder of 4 layers, width 256, 128 tokens, batch 16", _bert, _ids(_BERT), _blocks_torch(_BERT, False),
        ADAMW, _integers((2048,), 1024),
    ),
    Workload(
        "lstm", "size 256, 128 steps, batch 32", _lstm, _normal(x=(_STEPS, _BATCH, _SIZE)), _lstm_torch, ADAMW,
        _integers((_BATCH,), 10),
    ),
)  # fmt: skip
