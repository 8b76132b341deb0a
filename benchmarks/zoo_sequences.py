# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.
"""Sequences and recurrent states, in plain PyTorch and small."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import nn

from benchmarks.zoo_cases import Case, drawn, integers

# ── sequences ───────────────────────────────────────────────────────────────────────────────────────


class Translator(nn.Module):
    """A GRU reads, a GRU cell writes and asks what was read at every step (Bahdanau et al. 2014)."""

    def __init__(self, words: int = 50, width: int = 24) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(words, 16), nn.Embedding(words, 16)
        self.reader, self.writer = nn.GRU(16, width, batch_first=True), nn.GRUCell(16 + width, width)
        self.ask, self.out = nn.Linear(width, width), nn.Linear(2 * width, words)

    def forward(self, source, target):
        memory, state = self.reader(self.source(source))
        state, written = state[0], []
        for t in range(target.shape[1]):
            share = torch.softmax((memory @ self.ask(state)[:, :, None])[..., 0], -1)
            found = (share[..., None] * memory).sum(1)
            state = self.writer(torch.cat([self.target(target[:, t]), found], -1), state)
            written.append(self.out(torch.cat([state, found], -1)))
        return torch.stack(written, 1)


class Packed(nn.Module):
    """Rows of several lengths, packed for an LSTM in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 12, batch_first=True, bidirectional=True), nn.Linear(24, 4)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return self.head(nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0])


class EncoderDecoder(nn.Module):
    """torch.nn.Transformer with a causal mask and rows of several lengths (Vaswani et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Transformer(32, 4, 1, 1, 64, dropout=0.0, batch_first=True)

    def forward(self, source, target, padding):
        n = target.shape[1]
        hidden = torch.full((n, n), -math.inf, dtype=target.dtype).triu(1)
        return self.model(
            source, target, tgt_mask=hidden, src_key_padding_mask=padding, memory_key_padding_mask=padding
        )


class Tags(nn.Module):
    """The negative log likelihood of tags under a conditional random field (Lafferty et al. 2001)."""

    def __init__(self, tags: int = 5) -> None:
        super().__init__()
        self.score, self.follow = nn.Linear(8, tags), nn.Parameter(torch.randn(tags, tags) * 0.1)

    def forward(self, x, tags):
        scores = self.score(x)
        total = scores[:, 0]
        for t in range(1, x.shape[1]):
            total = torch.logsumexp(total[:, :, None] + self.follow, 1) + scores[:, t]
        path = scores.gather(2, tags[..., None])[..., 0].sum(1) + self.follow[tags[:, :-1], tags[:, 1:]].sum(1)
        return torch.logsumexp(total, 1) - path


# ── states ──────────────────────────────────────────────────────────────────────────────────────────


class SelectiveScan(nn.Module):
    """Mamba's block with its scan written out (Gu and Dao 2023)."""

    def __init__(self, width: int = 16, states: int = 4) -> None:
        super().__init__()
        self.states = states
        self.into, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.conv = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.select, self.step = nn.Linear(width, 1 + 2 * states), nn.Linear(1, width)
        self.decay = nn.Parameter(torch.log(torch.arange(1.0, states + 1)).repeat(width, 1))
        self.through = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x, gate = self.into(x).chunk(2, -1)
        x = functional.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, put, read = self.select(x).split([1, self.states, self.states], -1)
        step = functional.softplus(self.step(step))
        keep = torch.exp(step[..., None] * -torch.exp(self.decay))
        add = step[..., None] * put[:, :, None] * x[..., None]
        state, found = torch.zeros_like(add[:, 0]), []
        for t in range(x.shape[1]):
            state = keep[:, t] * state + add[:, t]
            found.append((state * read[:, t, None]).sum(-1))
        return self.out((torch.stack(found, 1) + x * self.through) * functional.silu(gate))


class DeltaRule(nn.Module):
    """A matrix as state, corrected towards each key's value (Schlag et al. 2021)."""

    def __init__(self, width: int = 16, size: int = 8) -> None:
        super().__init__()
        self.size, self.rate = size, nn.Linear(width, 1)
        self.q, self.k, self.v = (nn.Linear(width, size) for _ in range(3))

    def forward(self, x):
        q, k, v = self.q(x), functional.normalize(self.k(x), dim=-1), self.v(x)
        rate, found = self.rate(x).sigmoid(), []
        state = torch.zeros(x.shape[0], self.size, self.size, dtype=x.dtype)
        for t in range(x.shape[1]):
            known = torch.einsum("bd,bde->be", k[:, t], state)
            state = state + torch.einsum("bd,be->bde", k[:, t], rate[:, t] * (v[:, t] - known))
            found.append(torch.einsum("bd,bde->be", q[:, t], state))
        return torch.stack(found, 1)


class Retention(nn.Module):
    """Attention without a softmax, decaying with distance (Sun et al. 2023)."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(heads, width)
        self.q, self.k, self.v, self.gate, self.out = (nn.Linear(width, width, bias=False) for _ in range(5))

    def forward(self, x):
        b, n, c = x.shape
        rates = 1 - 2.0 ** (-5 - torch.arange(self.heads, dtype=x.dtype))
        apart = (torch.arange(n)[:, None] - torch.arange(n)).to(x.dtype)
        decay = torch.where(apart >= 0, rates[:, None, None] ** apart.clamp(min=0), torch.zeros((), dtype=x.dtype))
        q, k, v = (each(x).view(b, n, self.heads, -1).transpose(1, 2) for each in (self.q, self.k, self.v))
        found = ((q @ k.transpose(-1, -2) * decay) @ v).transpose(1, 2).reshape(b * n, c)
        return self.out(functional.silu(self.gate(x)) * self.norm(found).view(b, n, c))


class LongConvolution(nn.Module):
    """A filter as long as the sequence, by Fourier transforms (Poli et al. 2023)."""

    def __init__(self, places: int = 32, width: int = 8) -> None:
        super().__init__()
        self.filter, self.out = nn.Parameter(torch.randn(places, width) * 0.1), nn.Linear(width, width)
        self.project = nn.Linear(width, 3 * width)

    def forward(self, x):
        a, b, v = self.project(x).chunk(3, -1)
        n = 2 * x.shape[1]
        product = torch.fft.rfft(v * a, n=n, dim=1) * torch.fft.rfft(self.filter, n=n, dim=0)
        return self.out(torch.fft.irfft(product, n=n, dim=1)[:, : x.shape[1]] * b)


class NeuralODE(nn.Module):
    """A vector field, integrated by steps of Runge and Kutta (Chen et al. 2018)."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(width, 16), nn.Tanh(), nn.Linear(16, width))

    def forward(self, x):
        for _ in range(4):
            a = self.field(x)
            b = self.field(x + 0.05 * a)
            c = self.field(x + 0.05 * b)
            d = self.field(x + 0.1 * c)
            x = x + 0.1 / 6 * (a + 2 * b + 2 * c + d)
        return x


def _padded() -> dict:
    hidden = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    return {"source": drawn(2, 7, 32), "target": drawn(2, 5, 32, seed=1), "padding": hidden}


CASES = (
    Case("translator", "sequences", Translator, lambda: {"source": integers(50, 2, 7), "target": integers(50, 2, 5)}),
    Case("packed_lstm", "sequences", Packed, lambda: {"x": drawn(3, 9, 8), "lengths": torch.tensor([9, 6, 3])}),
    Case("transformer", "sequences", EncoderDecoder, _padded),
    Case("crf", "sequences", Tags, lambda: {"x": drawn(2, 6, 8), "tags": integers(5, 2, 6)}),
    Case("mamba_scan", "states", SelectiveScan, lambda: {"x": drawn(2, 12, 16)}),
    Case("delta_rule", "states", DeltaRule, lambda: {"x": drawn(2, 6, 16)}),
    Case("retention", "states", Retention, lambda: {"x": drawn(2, 10, 16)}),
    Case("hyena", "states", LongConvolution, lambda: {"x": drawn(2, 32, 8)}),
    Case("neural_ode", "states", NeuralODE, lambda: {"x": drawn(4, 6)}),
)
