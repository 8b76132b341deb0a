# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.
"""Architectures as timm, diffusers and libraries for tables and graphs write them, in plain PyTorch and small."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import nn

from benchmarks.zoo_cases import Case, drawn, integers

# ── images ──────────────────────────────────────────────────────────────────────────────────────────


class Mixer(nn.Module):
    """Patches, mixed over places and over channels in turn (Tolstikhin et al. 2021)."""

    def __init__(self, places: int = 16, width: int = 64, depth: int = 2) -> None:
        super().__init__()

        def mlp(size: int) -> nn.Module:
            return nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

        self.patches = nn.Conv2d(3, width, 8, 8)
        self.places = nn.ModuleList(mlp(places) for _ in range(depth))
        self.channels = nn.ModuleList(mlp(width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth + 1))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for i, (places, channels) in enumerate(zip(self.places, self.channels, strict=True)):
            x = x + places(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * i + 1](x))
        return self.head(self.norms[-1](x).mean(1))


class WindowAttention(nn.Module):
    """Attention in windows, shifted by half of one or not, with a bias by relative place (Liu et al. 2021)."""

    index: torch.Tensor

    def __init__(self, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None, :] + window - 1
        self.register_buffer("index", apart[0] * (2 * window - 1) + apart[1])

    def forward(self, x):
        b, h, w, c = x.shape
        n = self.window
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2)) if self.shift else self.norm(x)
        y = y.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, c)
        q, k, v = self.qkv(y).view(-1, n * n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.bias[self.index.view(-1)].view(n * n, n * n, self.heads).permute(2, 0, 1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads) + bias
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, n * n, c))
        y = y.view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)


class Swin(nn.Module):
    """One stage of windows and of shifted ones, then a head."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.body = nn.Sequential(WindowAttention(width, 4, 4, 0), WindowAttention(width, 4, 4, 2))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.body(self.patches(x).permute(0, 2, 3, 1)).mean((1, 2)))


class ConvNeXt(nn.Module):
    """Depthwise 7 by 7, a layer norm over channels, GELU, and a global response norm (Woo et al. 2023)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, width, 4, 4), nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.Linear(4 * width, width),
        )  # fmt: skip
        self.gamma, self.beta = nn.Parameter(torch.zeros(4 * width)), nn.Parameter(torch.zeros(4 * width))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x)
        y = functional.gelu(self.wide(self.norm(self.depthwise(x).permute(0, 2, 3, 1))))
        size = torch.linalg.vector_norm(y, dim=(1, 2), keepdim=True)
        y = y + self.gamma * (y * size / (size.mean(-1, keepdim=True) + 1e-6)) + self.beta
        x = x + self.narrow(y).permute(0, 3, 1, 2)
        return self.head(x.mean((2, 3)))


# ── diffusion ───────────────────────────────────────────────────────────────────────────────────────


def moments(t, width: int):
    """Sine and cosine of a time at many rates."""
    rates = torch.exp(-math.log(10000.0) * torch.arange(width // 2, dtype=torch.float32) / (width // 2))
    angles = t[:, None].float() * rates
    return torch.cat([angles.cos(), angles.sin()], -1)


class Residual(nn.Module):
    """Group norm, SiLU and convolution twice, the time added between."""

    def __init__(self, i: int, o: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, i), nn.GroupNorm(8, o)
        self.conv1, self.conv2 = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
        self.time, self.skip = nn.Linear(time, o), nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(functional.silu(self.norm1(x))) + self.time(functional.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(h)))


class CrossAttention(nn.Module):
    """Places ask a text, by scaled_dot_product_attention."""

    def __init__(self, width: int, text: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, width)
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(text, width), nn.Linear(text, width)
        self.out = nn.Linear(width, width)

    def forward(self, x, text):
        b, c, h, w = x.shape

        def split(y):
            return y.view(b, -1, self.heads, c // self.heads).transpose(1, 2)

        rows = self.norm(x).flatten(2).transpose(1, 2)
        found = functional.scaled_dot_product_attention(split(self.q(rows)), split(self.k(text)), split(self.v(text)))
        return x + self.out(found.transpose(1, 2).reshape(b, h * w, c)).transpose(1, 2).reshape(b, c, h, w)


class LatentUNet(nn.Module):
    """Two scales of residual blocks with cross-attention on the lower one (Rombach et al. 2022)."""

    def __init__(self, width: int = 32, text: int = 24) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, 64))
        self.width, self.first = width, nn.Conv2d(4, width, 3, padding=1)
        self.down, self.smaller = Residual(width, width, 64), nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.middle, self.attention = Residual(2 * width, 2 * width, 64), CrossAttention(2 * width, text)
        self.larger, self.up = nn.Conv2d(2 * width, width, 3, padding=1), Residual(2 * width, width, 64)
        self.norm, self.last = nn.GroupNorm(8, width), nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x, t, text):
        time = self.time(moments(t, self.width).to(x.dtype))
        a = self.down(self.first(x), time)
        b = self.attention(self.middle(self.smaller(a), time), text)
        b = self.larger(functional.interpolate(b, scale_factor=2.0, mode="nearest"))
        return self.last(functional.silu(self.norm(self.up(torch.cat([a, b], 1), time))))


class DiT(nn.Module):
    """A transformer over patches, scaled and shifted by time and class (Peebles and Xie 2023)."""

    def __init__(self, width: int = 64, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.patches, self.classes = nn.Conv2d(4, width, 2, 2), nn.Embedding(11, width)
        self.places = nn.Parameter(torch.zeros(1, 64, width))
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.shape = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(depth))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.last = nn.Linear(width, 2 * 2 * 4)

    def attend(self, x, i):
        b, n, c = x.shape
        q, k, v = self.qkv[i](x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        return self.out[i](functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))

    def forward(self, x, t, kind):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        c = functional.silu(self.time(moments(t, self.width).to(x.dtype)) + self.classes(kind))
        for i, shape in enumerate(self.shape):
            a, b, d, e, f, g = (each[:, None] for each in shape(c).chunk(6, 1))
            x = x + d * self.attend(self.norm(x) * (1 + b) + a, i)
            x = x + g * self.mlp[i](self.norm(x) * (1 + f) + e)
        y = self.last(self.norm(x)).view(-1, 8, 8, 2, 2, 4)
        return torch.einsum("nhwpqc->nchpwq", y).reshape(-1, 4, 16, 16)


# ── tables, graphs, speech ──────────────────────────────────────────────────────────────────────────


class TabNet(nn.Module):
    """Steps that each choose columns by a sparse maximum and gate what they read (Arik and Pfister 2019)."""

    def __init__(self, columns: int = 20, width: int = 16, steps: int = 3) -> None:
        super().__init__()
        self.norm, self.steps = nn.BatchNorm1d(columns), steps
        self.first = nn.Linear(columns, 2 * width)
        self.choose = nn.ModuleList(
            nn.Sequential(nn.Linear(width, columns), nn.BatchNorm1d(columns)) for _ in range(steps)
        )
        self.read = nn.ModuleList(nn.Linear(columns, 4 * width) for _ in range(steps))
        self.head = nn.Linear(width, 3)

    @staticmethod
    def sparsemax(z):
        """The nearest point of the simplex (Martins and Astudillo 2016)."""
        ordered = torch.sort(z, -1, descending=True).values
        sums, places = ordered.cumsum(-1), torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        kept = 1 + places * ordered > sums
        count = kept.sum(-1, keepdim=True)
        return torch.relu(z - (torch.gather(sums, -1, count - 1) - 1) / count.to(z.dtype))

    def forward(self, x):
        x = self.norm(x)
        attention, total, prior = functional.glu(self.first(x), -1), 0, torch.ones_like(x)
        for choose, read in zip(self.choose, self.read, strict=True):
            mask = self.sparsemax(choose(attention) * prior)
            prior = prior * (1.3 - mask)
            out, attention = functional.glu(read(x * mask), -1).chunk(2, -1)
            total = total + torch.relu(out)
        return self.head(total)


class GraphAttention(nn.Module):
    """Softmax over the edges that meet at a node, by scatter (Velickovic et al. 2018)."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.project, self.head = nn.Linear(12, width), nn.Linear(width, 5)
        self.here, self.there = (nn.Parameter(torch.zeros(heads, width // heads)) for _ in range(2))

    def forward(self, nodes, edges):
        h = self.project(nodes).view(-1, self.heads, self.size)
        source, target = edges[0], edges[1]
        scores = functional.leaky_relu((h * self.here).sum(-1)[source] + (h * self.there).sum(-1)[target], 0.2)
        at = target[:, None].expand(-1, self.heads)
        greatest = torch.full_like(h[..., 0], -1e9).scatter_reduce(0, at, scores, "amax")
        share = torch.exp(scores - greatest[target])
        total = torch.zeros_like(h[..., 0]).scatter_add(0, at, share)
        share = share / total[target]
        at = target[:, None, None].expand(-1, self.heads, self.size)
        found = torch.zeros_like(h).scatter_add(0, at, h[source] * share[..., None])
        return self.head(functional.elu(found.flatten(1)))


class Speech(nn.Module):
    """Convolutions over mel frames, an encoder, and a causal decoder that asks it (Radford et al. 2022)."""

    frames: torch.Tensor

    def __init__(self, mels: int = 20, width: int = 64, words: int = 100) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(mels, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.register_buffer("frames", moments(torch.arange(50), width))
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(16, width))
        self.encoder = nn.TransformerEncoderLayer(
            width, 4, 128, activation="gelu", batch_first=True, norm_first=True, dropout=0.0)  # fmt: skip
        self.decoder = nn.TransformerDecoderLayer(
            width, 4, 128, activation="gelu", batch_first=True, norm_first=True, dropout=0.0)  # fmt: skip
        self.norm = nn.LayerNorm(width)

    def forward(self, mel, ids):
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(mel)))).transpose(1, 2)
        memory = self.encoder(x + self.frames.to(x.dtype))
        n = ids.shape[1]
        y = self.words(ids) + self.places[:n]
        hidden = torch.full((n, n), -math.inf, dtype=y.dtype).triu(1)
        return self.norm(self.decoder(y, memory, tgt_mask=hidden)) @ self.words.weight.T


_BATCH = {0: "batch"}

CASES = (
    Case("mixer", "images", Mixer, lambda: {"x": drawn(2, 3, 32, 32)}, {"x": _BATCH}, classes=10),
    Case("swin", "images", Swin, lambda: {"x": drawn(2, 3, 32, 32)}, classes=10),
    Case("convnext_v2", "images", ConvNeXt, lambda: {"x": drawn(2, 3, 64, 64)}, {"x": _BATCH}, classes=10),
    Case(
        "latent_unet", "diffusion", LatentUNet,
        lambda: {"x": drawn(2, 4, 16, 16), "t": integers(1000, 2), "text": drawn(2, 7, 24, seed=1)},
    ),
    Case(
        "dit", "diffusion", DiT, lambda: {"x": drawn(2, 4, 16, 16), "t": integers(1000, 2), "kind": integers(11, 2)},
    ),
    Case("tabnet", "tables", TabNet, lambda: {"x": drawn(32, 20)}, {"x": _BATCH}, classes=3),
    Case(
        "graph_attention", "science", GraphAttention, lambda: {"nodes": drawn(40, 12), "edges": integers(40, 2, 120)},
        {"nodes": {0: "nodes"}, "edges": {1: "edges"}}, classes=5,
    ),
    Case("speech", "signals", Speech, lambda: {"mel": drawn(1, 20, 100), "ids": integers(100, 1, 6)}),
)  # fmt: skip
