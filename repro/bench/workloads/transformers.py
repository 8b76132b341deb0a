# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.
"""Transformers: a decoder and an encoder over all of their tokens, and a decoder over its next token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import numpy_helper

from repro.bench.network import Network
from repro.bench.workloads.inputs import drawn, integers
from repro.bench.workloads.workload import ADAMW, Tensors, Workload
from repro.ir.types import Array

CACHED = ("keys", "values")
"""What is kept of earlier tokens for each block's attention."""


class _Transformer:
    """Attention and feed-forward blocks over rows of (batch, tokens). With `cached` tokens before them, whose keys and
    values are inputs, all of their keys and values are outputs (`kept`)."""

    def __init__(self, name: str, batch: int, tokens: int, width: int, heads: int, cached: int = 0) -> None:
        self.net = Network(name)
        self.batch, self.tokens, self.width, self.heads, self.cached = batch, tokens, width, heads, cached
        self.kept: list[str] = []

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
        if self.cached:
            pieces[1:] = [
                self._after_cached(f"{name}.{what}", piece) for what, piece in zip(CACHED, pieces[1:], strict=True)
            ]
        keys = net.node("Transpose", pieces[1], perm=[0, 1, 3, 2])
        scores = net.node("MatMul", pieces[0], keys)
        scores = net.node("Mul", scores, net.constant(f"{name}.scale", np.array(size**-0.5, np.float32)))
        scores = scores if mask is None else net.node("Add", scores, mask)
        mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), pieces[2])
        rows = net.node("Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), "rows")
        return net.linear(f"{name}.proj", rows, self.width, self.width)

    def _after_cached(self, name: str, new: str) -> str:
        before = self.net.input(name, (self.batch, self.heads, self.cached, self.width // self.heads))
        self.kept.append(self.net.node("Concat", before, new, axis=2))
        return self.kept[-1]

    def feed_forward(self, name: str, x: str) -> str:
        hidden = self.net.node("Gelu", self.net.linear(f"{name}.up", x, self.width, 4 * self.width))
        return self.net.linear(f"{name}.down", hidden, 4 * self.width, self.width)


_GPT = {"layers": 6, "width": 384, "heads": 6, "tokens": 256, "batch": 8, "vocabulary": 96}
_TOKEN = {"layers": 6, "width": 768, "heads": 12, "tokens": 1, "cached": 1023, "batch": 1, "vocabulary": 8192}
_BERT = {"layers": 4, "width": 256, "heads": 4, "tokens": 128, "batch": 16, "vocabulary": 1024}


def gpt(sizes: dict[str, int]) -> tuple[Network, tuple[str, ...]]:
    """A GPT of pre-norm blocks with causal attention, its sizes as in `_GPT`; logits are rows of (batch, tokens). Of a
    single token, with `cached` ones before it, keys and values are outputs too."""
    shape = (sizes["batch"], sizes["tokens"], sizes["width"], sizes["heads"])
    made = _Transformer("gpt", *shape, cached=sizes.get("cached", 0))
    x, mask = made.embedding(sizes["vocabulary"]), None
    if made.tokens > 1:
        hidden = np.triu(np.full((made.tokens, made.tokens), -np.inf, np.float32), 1)
        mask = made.net.node("Constant", value=numpy_helper.from_array(hidden))
    for layer in range(sizes["layers"]):
        x = made.net.node("Add", x, made.attention(f"b{layer}", made.norm(f"b{layer}.ln1", x), mask))
        x = made.net.node("Add", x, made.feed_forward(f"b{layer}", made.norm(f"b{layer}.ln2", x)))
    weight = made.net.weight("head.weight", (made.width, sizes["vocabulary"]))
    return made.net, (made.net.node("MatMul", made.norm("ln", x), weight), *made.kept)


def _gpt(mode: str) -> tuple[Network, tuple[str, ...]]:
    return gpt(_GPT)


def _token(mode: str) -> tuple[Network, tuple[str, ...]]:
    return gpt(_TOKEN)


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
        import torch
        import torch.nn.functional as f

        batch, tokens, width, heads = (sizes[name] for name in ("batch", "tokens", "width", "heads"))

        def norm(name: str, x: Any) -> Any:
            return f.layer_norm(x, (width,), p[f"{name}.weight"], p[f"{name}.bias"])

        def linear(name: str, x: Any) -> Any:
            return f.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

        def attention(name: str, x: Any) -> Any:
            qkv = linear(f"{name}.qkv", x).view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            q, k, v = qkv
            if sizes.get("cached"):
                k, v = (torch.cat((inputs[f"{name}.{each}"], new), 2) for each, new in zip(CACHED, (k, v), strict=True))
            mixed = f.scaled_dot_product_attention(q, k, v, is_causal=causal and tokens > 1)
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
    return lambda: {"ids": integers((sizes["batch"], sizes["tokens"]), sizes["vocabulary"])()}


def _next_token() -> dict[str, Array]:
    cache = (_TOKEN["batch"], _TOKEN["heads"], _TOKEN["cached"], _TOKEN["width"] // _TOKEN["heads"])
    names = [f"b{layer}.{what}" for layer in range(_TOKEN["layers"]) for what in CACHED]
    return {**_ids(_TOKEN)(), **drawn(dict.fromkeys(names, cache))()}


TRANSFORMERS = (
    Workload(
        "gpt", "6 layers, width 384, 6 heads, 256 tokens, batch 8", _gpt, _ids(_GPT), _blocks_torch(_GPT, True), ADAMW,
        integers((2048,), 96),
    ),
    Workload(
        "gpt_token", "a token after 1023 others, 6 layers, width 768, 12 heads", _token, _next_token,
        _blocks_torch(_TOKEN, True),
    ),
    Workload(
        "bert", "encoder of 4 layers, width 256, 128 tokens, batch 16", _bert, _ids(_BERT), _blocks_torch(_BERT, False),
        ADAMW, integers((2048,), 1024),
    ),
)  # fmt: skip
