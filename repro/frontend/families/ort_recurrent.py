"""LSTM and GRU of ONNX Runtime's training graphs: the cells' own gradients, by the rule of loops.

There the forward pass keeps the states and gates of every step for the backward pass. Here the gradient runs the cell
again, which after merging of equal nodes is the forward pass itself; so those outputs are not made, and nothing but the
gradient operator may read them.
"""

from __future__ import annotations

from collections.abc import Mapping

from repro.autodiff import cotangents
from repro.frontend.context import NodeContext
from repro.frontend.families.ort_common import MICROSOFT
from repro.frontend.families.recurrent import (
    Cell,
    Step,
    cell_of,
    expect_shapes,
    gru,
    gru_step,
    lstm,
    lstm_step,
    run_cell,
)
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ops import fill

Given = Mapping[str, Value | None]


@onnx_op("LSTMTraining", domain=MICROSOFT)
def lstm_training(
    ctx: NodeContext,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
    c: Value | None = None,
    p: Value | None = None,
) -> tuple[Value | None, ...]:
    """LSTM; the states and gates of every step are not made."""
    return *lstm(ctx, x, w, r, b, lengths, h, c, p), None, None


@onnx_op("GRUTraining", domain=MICROSOFT)
def gru_training(
    ctx: NodeContext,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
) -> tuple[Value | None, ...]:
    """GRU; the gates of every step are not made."""
    return *gru(ctx, x, w, r, b, lengths, h), None


@onnx_op("LSTMGrad", domain=MICROSOFT)
def lstm_grad(
    ctx: NodeContext,
    x: Value,
    w: Value,
    r: Value,
    lengths: Value | None = None,
    h: Value | None = None,
    c: Value | None = None,
    _: Value | None = None,
    __: Value | None = None,
    ___: Value | None = None,
    dy: Value | None = None,
    dh: Value | None = None,
    dc: Value | None = None,
) -> tuple[Value | None, ...]:
    """Of X, W, R, B, the initial states and P; B and P are those of the LSTMTraining whose gates the node is given."""
    forward = _forward_inputs(ctx, "LSTMTraining", (8, 7, 6))
    b, p = (forward[place] if place < len(forward) else None for place in (3, 7))
    given = {"x": x, "w": w, "r": r, "b": b, "h": h, "c": c, "p": p, "lengths": lengths}
    cell = cell_of(ctx, 4, 2, "input_forget", r)
    found = _gradients(ctx, cell, lstm_step, given, (dh, dc, dy))
    return tuple(found.get(name) for name in ("x", "w", "r", "b", "h", "c", "p"))


@onnx_op("GRUGrad", domain=MICROSOFT)
def gru_grad(
    ctx: NodeContext,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
    _: Value | None = None,
    __: Value | None = None,
    dy: Value | None = None,
    dh: Value | None = None,
) -> tuple[Value | None, ...]:
    """Of X, W, R, B and the initial state."""
    given = {"x": x, "w": w, "r": r, "b": b, "h": h, "lengths": lengths}
    cell = cell_of(ctx, 3, 1, "linear_before_reset", r)
    found = _gradients(ctx, cell, gru_step, given, (dh, dy))
    return tuple(found.get(name) for name in ("x", "w", "r", "b", "h"))


def _forward_inputs(ctx: NodeContext, op: str, places: tuple[int, ...]) -> tuple[Value | None, ...]:
    """The inputs of the forward node that made one of this node's inputs."""
    body = ctx.scope.body
    for place in places:
        name = ctx.node.input[place] if place < len(ctx.node.input) else ""
        maker = body.producer.get(name) if name else None
        if maker is not None and body.nodes[maker].op_type == op:
            items = [ctx.scope.find(name)[1] for name in body.nodes[maker].input]
            return tuple(item if isinstance(item, Value) else None for item in items)
    raise ctx.error(f"the forward pass of {ctx.op_type} is not known", expected=f"outputs of a {op} as inputs")


def _gradients(
    ctx: NodeContext, cell: Cell, step: Step, operands: Given, seeds: tuple[Value | None, ...]
) -> dict[str, Value]:
    """The cotangents of the operands that are there, by name; `seeds` are those of the last states, then of Y."""
    given = {name: value for name, value in operands.items() if value is not None}
    if given["x"].rank != 3:
        raise ctx.error("the input is not [steps, batch, features]", str(given["x"].type), "a tensor of rank 3")
    expect_shapes(ctx, cell, given)
    names, floats = tuple(given), [name for name, value in given.items() if value.dtype.is_float]
    used = [place for place, seed in enumerate(seeds) if seed is not None]

    def body(*values: Value) -> tuple[Value, ...]:
        own = dict(zip(names, values[len(used) :], strict=True))
        results = run_cell(cell, step, own, True)
        pairs = [(results[place], seed) for place, seed in zip(used, values, strict=False)]
        found = cotangents(pairs, [own[name] for name in floats])
        return tuple(
            fill(0, own[name].type) if made is None else made for name, made in zip(floats, found, strict=True)
        )

    arrived = [seed for seed in seeds if seed is not None]
    return dict(zip(floats, ctx.composite(ctx.op_type, (*arrived, *given.values()), body).results, strict=True))
