# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.
"""Architectures that users write themselves, in plain PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import nn

from benchmarks.zoo_cases import Case, drawn, integers

# ── images ──────────────────────────────────────────────────────────────────────────────────────────


class UNet(nn.Module):
    """Two scales down and up, one by ConvTranspose, one by Resize (Ronneberger et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()

        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())

        self.a, self.b, self.c = block(3, 16), block(16, 32), block(32, 64)
        self.up = nn.ConvTranspose2d(64, 32, 2, stride=2)
        self.d, self.e = block(64, 32), block(48, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(functional.max_pool2d(a, 2))
        c = self.c(functional.max_pool2d(b, 2))
        d = self.d(torch.cat([self.up(c), b], 1))
        wide = functional.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.e(torch.cat([wide, a], 1)))


class VAE(nn.Module):
    """Encoder, noise drawn outside, decoder of transposed convolutions (Kingma and Welling 2013)."""

    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.SiLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.SiLU())
        self.mean, self.log = nn.Linear(32 * 49, 16), nn.Linear(32 * 49, 16)
        self.back = nn.Linear(16, 32 * 49)
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Sigmoid()
        )

    def forward(self, x, noise):
        h = self.enc(x).flatten(1)
        mean, log = self.mean(h), self.log(h)
        z = mean + torch.exp(0.5 * log) * noise
        image = self.dec(self.back(z).view(-1, 32, 7, 7))
        divergence = -0.5 * torch.sum(1 + log - mean.pow(2) - log.exp(), 1)
        return image, divergence


class DiffusionBlock(nn.Module):
    """GroupNorm, SiLU, a time embedding and self-attention over places (Ho et al. 2020)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.norm1, self.norm2, self.norm3 = (nn.GroupNorm(8, width) for _ in range(3))
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2 * width))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x, t):
        half = self.width // 2
        rates = torch.exp(-math.log(10000.0) * torch.arange(half, device=x.device, dtype=x.dtype) / half)
        angles = t[:, None].to(x.dtype) * rates
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None].chunk(2, 1)
        h = self.conv1(functional.silu(self.norm1(x)))
        h = x + self.conv2(functional.silu(self.norm2(h) * (1 + scale) + shift))
        b, c, height, width = h.shape
        rows = self.norm3(h).view(b, c, height * width).transpose(1, 2)
        rows = self.attention(rows, rows, rows, need_weights=False)[0]
        return h + rows.transpose(1, 2).reshape(b, c, height, width)


# ── language ────────────────────────────────────────────────────────────────────────────────────────


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class LlamaLayer(nn.Module):
    """Rotary positions, grouped queries, a cache, SwiGLU (Touvron et al. 2023)."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, shared * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def rotate(self, x, positions):
        half = self.size // 2
        rates = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
        angles = positions[:, None].to(x.dtype) * rates
        cosine, sine = angles.cos(), angles.sin()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

    def forward(self, x, past_k, past_v):
        b, t, d = x.shape
        past = past_k.shape[2]
        h = self.norm1(x)
        positions = torch.arange(past, past + t)
        q = self.rotate(self.q(h).view(b, t, self.heads, self.size).transpose(1, 2), positions)
        k = self.rotate(self.k(h).view(b, t, self.shared, self.size).transpose(1, 2), positions)
        v = self.v(h).view(b, t, self.shared, self.size).transpose(1, 2)
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        wide_k, wide_v = (y.repeat_interleave(self.heads // self.shared, 1) for y in (k, v))
        seen = torch.arange(past + t)[None, :] <= positions[:, None]
        a = functional.scaled_dot_product_attention(q, wide_k, wide_v, attn_mask=seen)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        h = self.norm2(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h)), k, v


class Llama(nn.Module):
    """A decoder step: tokens and the cache of two layers in, logits and the longer cache out."""

    def __init__(self, vocabulary: int = 128, width: int = 64, heads: int = 8, shared: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, shared) for _ in range(2))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, k0, v0, k1, v1):
        x, k0, v0 = self.layers[0](self.tokens(ids), k0, v0)
        x, k1, v1 = self.layers[1](x, k1, v1)
        return self.head(self.norm(x)), k0, v0, k1, v1


class Tagger(nn.Module):
    """Two-layer recurrence in both directions over embedded tokens."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.rnn = kind(32, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(96, 9)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0]).transpose(1, 2)  # classes are axis 1 of a loss


class MixtureOfExperts(nn.Module):
    """Two of eight experts for each token, by TopK and a sum over all experts' weights (Shazeer et al. 2017)."""

    def __init__(self, width: int = 64, experts: int = 8) -> None:
        super().__init__()
        self.route = nn.Linear(width, experts)
        self.inner = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.1)
        self.outer = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.1)

    def forward(self, x):
        scores, chosen = self.route(x).topk(2, -1)
        weights = torch.zeros_like(self.route(x)).scatter(-1, chosen, scores.softmax(-1))
        inner = functional.gelu(torch.einsum("btd,edf->btef", x, self.inner))
        return torch.einsum("btef,efd,bte->btd", inner, self.outer, weights)


# ── graphs, control, signals ────────────────────────────────────────────────────────────────────────


class GraphNetwork(nn.Module):
    """Messages along edges, summed at their targets; the mean of a graph's nodes is its row (Gilmer et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(32, 32), nn.Linear(48, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, nodes, edges, graph):
        source, target = edges[0], edges[1]
        for _ in range(2):
            sent = functional.relu(self.message(torch.cat([nodes[source], nodes[target]], 1)))
            got = torch.zeros(nodes.shape[0], 32, dtype=nodes.dtype).index_add(0, target, sent)
            nodes = functional.relu(self.update(torch.cat([nodes, got], 1)))
        total = torch.zeros(4, 16, dtype=nodes.dtype).index_add(0, graph, nodes)
        count = torch.zeros(4, 1, dtype=nodes.dtype).index_add(0, graph, torch.ones_like(nodes[:, :1]))
        greatest = torch.full((4, 16), -1e9, dtype=nodes.dtype).scatter_reduce(
            0, graph[:, None].expand(-1, 16), nodes, "amax"
        )
        return self.head(total / count + greatest)


class DQN(nn.Module):
    """Atari's network, a greedy action and a duelling head (Mnih et al. 2015, Wang et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(),
        )  # fmt: skip
        self.value, self.advantage = nn.Linear(128, 1), nn.Linear(128, 6)

    def forward(self, frames):
        h = self.body(frames.to(self.value.weight.dtype) / 255.0)
        advantage = self.advantage(h)
        q = self.value(h) + advantage - advantage.mean(1, keepdim=True)
        return q, q.argmax(1)


class PPO(nn.Module):
    """A Gaussian policy with a value head: mean, log density of an action, entropy, value (Schulman et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mean, self.value = nn.Linear(64, 6), nn.Linear(64, 1)
        self.log = nn.Parameter(torch.full((6,), -0.5))

    def forward(self, state, action):
        h = self.body(state)
        policy = torch.distributions.Normal(self.mean(h), self.log.exp().expand(state.shape[0], 6), validate_args=False)
        density = policy.log_prob(action).sum(-1)
        return policy.loc, density, policy.entropy().sum(-1), self.value(h).squeeze(-1)


class SelectiveStateSpace(nn.Module):
    """A recurrence whose steps the input chooses, as a running sum of logarithms (Gu and Dao 2023, in short)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.step, self.put, self.out = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.conv = nn.Conv1d(width, width, 4, padding=3, groups=width)

    def forward(self, x):
        x = functional.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        decay = torch.cumsum(-functional.softplus(self.step(x)), 1)
        state = torch.cumsum(self.put(x) * torch.exp(-decay), 1) * torch.exp(decay)
        return self.out(state)


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates (van den Oord et al. 2016)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(5))
        self.last = nn.Conv1d(width, 16, 1)

    def forward(self, x):
        x = self.first(x)
        for i, gate in enumerate(self.gates):
            x = x + functional.glu(gate(functional.pad(x, (2**i, 0))), 1)
        return self.last(functional.leaky_relu(x))


class PixelShuffler(nn.Module):
    """Super-resolution: PReLU, pixel shuffle, bicubic residue, instance norm (Shi et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 24, 5, padding=2, padding_mode="reflect"), nn.Conv2d(24, 12, 3, padding=1)
        self.act, self.norm = nn.PReLU(24), nn.InstanceNorm2d(24, affine=True)

    def forward(self, x):
        y = functional.pixel_shuffle(self.b(self.act(self.norm(self.a(x)))), 2)
        return (y + functional.interpolate(x, scale_factor=2, mode="bicubic")).clamp(0, 1)


class SpatialTransformer(nn.Module):
    """affine_grid and grid_sample (Jaderberg et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Linear(3 * 16 * 16, 6)

    def forward(self, x):
        theta = self.where(x.flatten(1)).view(-1, 2, 3) * 0.1
        grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
        return functional.grid_sample(x, grid, align_corners=False)


class Half(nn.Module):
    """A block of Linear, LayerNorm, GELU and attention in f16 or bf16."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True, norm_first=True)
        self.to(dtype)

    def forward(self, x):
        return self.layer(x)


def _llama_inputs() -> dict:
    cache = [drawn(2, 2, 5, 8, seed=i) for i in range(4)]
    return {"ids": integers(128, 2, 7), "k0": cache[0], "v0": cache[1], "k1": cache[2], "v1": cache[3]}


_CACHE = {"ids": {0: "batch", 1: "sequence"}} | {name: {0: "batch", 2: "past"} for name in ("k0", "v0", "k1", "v1")}

CASES = (
    Case("unet", "images", UNet, lambda: {"x": drawn(1, 3, 64, 64)}),
    Case("vae", "images", VAE, lambda: {"x": drawn(8, 1, 28, 28), "noise": drawn(8, 16, seed=1)}),
    Case("diffusion", "images", DiffusionBlock, lambda: {"x": drawn(2, 64, 16, 16), "t": integers(1000, 2)}),
    Case("superres", "images", PixelShuffler, lambda: {"x": drawn(1, 3, 32, 32)}),
    Case("transformer2d", "images", SpatialTransformer, lambda: {"x": drawn(4, 3, 16, 16)}, opset=20),
    Case("llama_cache", "language", Llama, _llama_inputs, dynamic=_CACHE),
    Case("lstm_tagger", "language", lambda: Tagger(nn.LSTM), lambda: {"ids": integers(100, 4, 20)}, classes=9),
    Case("gru_tagger", "language", lambda: Tagger(nn.GRU), lambda: {"ids": integers(100, 4, 20)}, classes=9),
    Case("moe", "language", MixtureOfExperts, lambda: {"x": drawn(2, 32, 64)}),
    Case("mamba", "language", SelectiveStateSpace, lambda: {"x": drawn(2, 16, 32)}),
    Case(
        "graph", "science", GraphNetwork,
        lambda: {"nodes": drawn(40, 16), "edges": integers(40, 2, 120), "graph": integers(4, 40).sort().values},
        classes=3,
    ),
    Case("dqn", "control", DQN, lambda: {"frames": integers(256, 2, 4, 84, 84).byte()}, classes=6),
    Case(
        "ppo", "control", PPO, lambda: {"state": drawn(64, 17), "action": drawn(64, 6, seed=1)},
        dynamic={"state": {0: "batch"}, "action": {0: "batch"}},
    ),
    Case("wavenet", "signals", WaveNet, lambda: {"x": drawn(2, 1, 256)}),
    Case("encoder_f16", "types", lambda: Half(torch.float16), lambda: {"x": drawn(2, 16, 64).half()}),
    Case("encoder_bf16", "types", lambda: Half(torch.bfloat16), lambda: {"x": drawn(2, 16, 64).bfloat16()}),
)  # fmt: skip
