# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.
"""Images, volumes, points, densities and adapters as papers' code writes them, in plain PyTorch and small."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import nn

from benchmarks.zoo_cases import Case, drawn, integers

# ── images, volumes, points ─────────────────────────────────────────────────────────────────────────


class Generator(nn.Module):
    """Noise to pictures by transposed convolutions (Radford et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z):
        return self.body(z[:, :, None, None])


class Volumes(nn.Module):
    """A U-Net of one scale over volumes (Cicek et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.norm = nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8)
        self.up, self.head = nn.ConvTranspose3d(8, 8, 2, 2), nn.Conv3d(16, 2, 1)

    def forward(self, x):
        a = functional.relu(self.norm(self.wide(x)))
        return self.head(torch.cat([a, self.up(functional.max_pool3d(a, 2))], 1))


class Detector(nn.Module):
    """Two scales joined by learned weights, and a head whose boxes are decoded (Tan et al. 2019, Jocher 2020)."""

    def __init__(self, width: int = 8, anchors: int = 2, kinds: int = 3) -> None:
        super().__init__()
        self.anchors, self.values = anchors, 5 + kinds
        self.down, self.side = nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(width, width, 1)
        self.weights, self.head = nn.Parameter(torch.ones(2)), nn.Conv2d(width, anchors * self.values, 1)

    def forward(self, x):
        size = x.shape[-2:]
        w = functional.relu(self.weights)
        y = w[0] * self.side(x) + w[1] * functional.interpolate(self.down(x), size=size, mode="nearest")
        y = self.head(y / (w.sum() + 1e-4)).view(x.shape[0], self.anchors, self.values, *size)
        y = y.permute(0, 1, 3, 4, 2).sigmoid()
        places = [torch.arange(n, dtype=x.dtype) for n in (size[1], size[0])]
        grid = torch.stack(torch.meshgrid(*places, indexing="xy"), -1)
        centre, extent = (y[..., :2] * 2 - 0.5 + grid) * 8, (y[..., 2:4] * 2) ** 2 * 12
        return torch.cat([centre, extent, y[..., 4:]], -1).flatten(1, 3)


class Overlapping(nn.Module):
    """Patches that overlap, mixed and put back where they came from (Yuan et al. 2021)."""

    def __init__(self, channels: int = 4, size: int = 12) -> None:
        super().__init__()
        self.size = (size, size)
        self.mix = nn.Linear(9 * channels, 9 * channels)

    def forward(self, x):
        patches = functional.unfold(x, 3, padding=1, stride=2).transpose(1, 2)
        return functional.fold(self.mix(patches).transpose(1, 2), self.size, 3, padding=1, stride=2)


class Points(nn.Module):
    """Convolutions over each point's nearest neighbours (Wang et al. 2018)."""

    def __init__(self, neighbours: int = 5) -> None:
        super().__init__()
        self.neighbours, self.head = neighbours, nn.Linear(16, 5)
        self.edge = nn.Sequential(nn.Conv2d(6, 16, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2))

    def forward(self, x):
        squares = (x**2).sum(1, keepdim=True)
        near = (2 * x.transpose(1, 2) @ x - squares - squares.transpose(1, 2)).topk(self.neighbours, -1)[1]
        here = x.transpose(1, 2)[:, :, None].expand(-1, -1, self.neighbours, -1)
        there = torch.gather(here, 1, near[..., None].expand(-1, -1, -1, x.shape[1]))
        return self.head(self.edge(torch.cat([there - here, here], -1).permute(0, 3, 1, 2)).amax((-1, -2)))


class Radiance(nn.Module):
    """Colour and depth along rays through a learned density (Mildenhall et al. 2020)."""

    def __init__(self, waves: int = 6, steps: int = 12) -> None:
        super().__init__()
        self.waves, self.steps = waves, steps
        self.density = nn.Sequential(nn.Linear(3 + 6 * waves, 32), nn.ReLU(), nn.Linear(32, 33))
        self.colour = nn.Sequential(nn.Linear(35, 16), nn.ReLU(), nn.Linear(16, 3), nn.Sigmoid())

    def forward(self, start, direction):
        direction = functional.normalize(direction, dim=-1)
        t = torch.linspace(0.1, 2.0, self.steps, dtype=start.dtype)
        places = start[:, None] + direction[:, None] * t[:, None]
        angles = (places[..., None] * 2.0 ** torch.arange(self.waves, dtype=start.dtype)).flatten(-2)
        h = self.density(torch.cat([places, angles.sin(), angles.cos()], -1))
        along = direction[:, None].expand(-1, self.steps, -1)
        thick = functional.softplus(h[..., 0]) * (1.9 / self.steps)
        seen = torch.exp(thick - thick.cumsum(-1))
        weights = (1 - torch.exp(-thick)) * seen
        return (weights[..., None] * self.colour(torch.cat([h[..., 1:], along], -1))).sum(1), (weights * t).sum(-1)


class Capsules(nn.Module):
    """Three rounds of routing by agreement (Sabour et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3, 6, 4) * 0.3)

    def forward(self, x):
        votes = torch.einsum("ijkl,bil->bijk", self.weight, x)
        scores, found = torch.zeros_like(votes[..., 0]), votes.sum(1)
        for _ in range(3):
            found = (scores.softmax(2)[..., None] * votes).sum(1)
            size = (found**2).sum(-1, keepdim=True)
            found = size / (1 + size) * found / torch.sqrt(size + 1e-8)
            scores = scores + (votes * found[:, None]).sum(-1)
        return found.norm(dim=-1)


# ── densities, adapters ─────────────────────────────────────────────────────────────────────────────


class Flow(nn.Module):
    """Affine couplings and the log density that they give (Dinh et al. 2016)."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        half = width // 2
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(half, 16), nn.Tanh(), nn.Linear(16, width)) for _ in range(4)
        )  # fmt: skip

    def forward(self, x):
        volume = 0
        for net in self.nets:
            a, b = x.chunk(2, -1)
            scale, shift = net(a).chunk(2, -1)
            scale = torch.tanh(scale)
            x, volume = torch.cat([b * torch.exp(scale) + shift, a], -1), volume + scale.sum(-1)
        return x, volume - 0.5 * (x**2 + math.log(2 * math.pi)).sum(-1)


class Splines(nn.Module):
    """Sums of B-splines of each input (Liu et al. 2024)."""

    knots: torch.Tensor

    def __init__(self, i: int = 5, o: int = 6) -> None:
        super().__init__()
        self.weights, self.base = nn.Parameter(torch.randn(o, i, 8) * 0.1), nn.Linear(i, o)
        self.register_buffer("knots", torch.linspace(-2.2, 2.2, 12))

    def forward(self, x):
        t, x1 = self.knots, x[..., None]
        basis = ((x1 >= t[:-1]) & (x1 < t[1:])).to(x.dtype)
        for k in range(1, 4):
            rising = (x1 - t[: -k - 1]) / (t[k:-1] - t[: -k - 1]) * basis[..., :-1]
            basis = rising + (t[k + 1 :] - x1) / (t[k + 1 :] - t[1:-k]) * basis[..., 1:]
        return self.base(functional.silu(x)) + torch.einsum("bik,oik->bo", basis, self.weights)


class Contrast(nn.Module):
    """The loss of pairs among a batch, with a temperature that is learned (Radford et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(16, 8), nn.Linear(16, 8), nn.Parameter(torch.tensor(2.6))

    def forward(self, a, b):
        logits = functional.normalize(self.a(a), dim=-1) @ functional.normalize(self.b(b), dim=-1).T * self.scale.exp()
        pair = torch.arange(a.shape[0])
        return (functional.cross_entropy(logits, pair) + functional.cross_entropy(logits.T, pair)) / 2


class Adapter(nn.Module):
    """A frozen layer with a trained one of low rank beside it (Hu et al. 2021)."""

    def __init__(self, width: int = 32, rank: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width).requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(rank, width) * 0.1), nn.Parameter(torch.randn(width, rank) * 0.1)

    def forward(self, x):
        return self.layer(x) + functional.linear(functional.linear(x, self.down), self.up) * 2.0


class FourBits(nn.Module):
    """A layer whose weights are two to a byte, with a scale for each group of eight."""

    packed: torch.Tensor

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.register_buffer("packed", integers(256, width, width // 2).to(torch.uint8))
        self.scale = nn.Parameter(torch.rand(width, width // 8, 1) * 0.01 + 0.01)

    def forward(self, x):
        width = self.packed.shape[0]
        whole = torch.stack([self.packed & 15, self.packed >> 4], -1).view(width, width // 8, 8).to(x.dtype) - 8
        return functional.linear(x, (whole * self.scale).view(width, width))


CASES = (
    Case("generator", "images", Generator, lambda: {"z": drawn(4, 16)}),
    Case("unet3d", "images", Volumes, lambda: {"x": drawn(1, 1, 8, 8, 8)}),
    Case("detector", "images", Detector, lambda: {"x": drawn(1, 8, 16, 16)}),
    Case("overlapping", "images", Overlapping, lambda: {"x": drawn(2, 4, 12, 12)}, opset=18),
    Case("points", "points", Points, lambda: {"x": drawn(2, 3, 32)}, classes=5),
    Case("radiance", "points", Radiance, lambda: {"start": drawn(16, 3), "direction": drawn(16, 3, seed=1)}),
    Case("capsules", "points", Capsules, lambda: {"x": drawn(2, 8, 4)}),
    Case("flow", "densities", Flow, lambda: {"x": drawn(8, 6)}),
    Case("splines", "densities", Splines, lambda: {"x": drawn(8, 5)}),
    Case("contrast", "densities", Contrast, lambda: {"a": drawn(6, 16), "b": drawn(6, 16, seed=1)}),
    Case("adapter", "adapters", Adapter, lambda: {"x": drawn(2, 8, 32)}),
    Case("four_bits", "adapters", FourBits, lambda: {"x": drawn(2, 8, 32)}),
)
