"""RNN, GRU and LSTM where their form is the one that PyTorch's kernels have."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from repro.audit.peers.torch_ops.call import Call, integers, op, require

LSTM_GATES, GRU_GATES = (0, 2, 3, 1), (1, 0, 2)
"""PyTorch's gates in ONNX's order (input, output, forget, cell; update, reset, hidden)."""
PLAIN_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def _check(call: Call, kind: str, x: Tensor, lengths: Tensor | None) -> tuple[int, bool]:
    """The number of directions, and whether it is both of them."""
    direction = call.get("direction", "forward")
    require(direction in ("forward", "bidirectional"), f"direction {direction}")
    directions = 2 if direction == "bidirectional" else 1
    plain = list(PLAIN_ACTIVATIONS[kind]) * directions
    require(list(call.get("activations", plain)) == plain, "other activations")
    unknown = {"clip", "activation_alpha", "activation_beta"} & set(call.attributes)
    require(not unknown and not call.get("input_forget", 0), "clipping, or coupled gates")
    require(not call.get("layout", 0), "layout 1")
    require(lengths is None or set(integers(lengths)) == {x.shape[0]}, "sequences of several lengths")
    return directions, directions == 2


def _gates(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """[gates * hidden, ...] with its gates in PyTorch's order."""
    parts = tensor.chunk(len(order))
    return torch.cat([parts[gate] for gate in order])


def _weights(w: Tensor, r: Tensor, b: Tensor | None, order: Sequence[int]) -> list[Tensor]:
    """For each direction: input weights, recurrent weights, and both biases where there are any."""
    found: list[Tensor] = []
    for direction in range(w.shape[0]):
        parts = [w[direction], r[direction]]
        parts += [] if b is None else list(b[direction].chunk(2))
        found += [_gates(part, order).contiguous() for part in parts]
    return found


def _start(state: Tensor | None, x: Tensor, r: Tensor) -> Tensor:
    return torch.zeros(r.shape[0], x.shape[1], r.shape[-1], dtype=x.dtype) if state is None else state


def _sequence(y: Tensor, directions: int) -> Tensor:
    """[length, batch, directions * hidden] as ONNX has it: [length, directions, batch, hidden]."""
    return y.unflatten(-1, (directions, -1)).transpose(1, 2)


@op("LSTM")
def lstm(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    hidden: Tensor | None = None,
    cell: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> tuple[Tensor, ...]:
    directions, both = _check(call, "LSTM", x, lengths)
    require(peepholes is None, "peepholes")
    start = [_start(state, x, r) for state in (hidden, cell)]
    weights = _weights(w, r, b, LSTM_GATES)
    y, last, memory = torch.lstm(x, start, weights, b is not None, 1, 0.0, False, both, False)
    return _sequence(y, directions), last, memory


@op("GRU")
def gru(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    hidden: Tensor | None = None,
) -> tuple[Tensor, ...]:
    directions, both = _check(call, "GRU", x, lengths)
    require(bool(call.get("linear_before_reset", 0)), "a reset before the product")
    weights = _weights(w, r, b, GRU_GATES)
    y, last = torch.gru(x, _start(hidden, x, r), weights, b is not None, 1, 0.0, False, both, False)
    return _sequence(y, directions), last


@op("RNN")
def rnn(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    hidden: Tensor | None = None,
) -> tuple[Tensor, ...]:
    directions, both = _check(call, "RNN", x, lengths)
    weights = _weights(w, r, b, (0,))
    y, last = torch.rnn_tanh(x, _start(hidden, x, r), weights, b is not None, 1, 0.0, False, both, False)
    return _sequence(y, directions), last
