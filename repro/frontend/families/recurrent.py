"""LSTM, GRU and RNN: one counted loop of core ops each, both directions side by side.

The input projection of all steps is one dot in front of the loop: an element's chain over K does not know how many rows
there are, so its bits are those of a dot per step. A reverse direction walks the time axis backwards; a step at or
behind a row's sequence length keeps the row's state and shows zeros, so that each row starts at its own last element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.recurrent_activations import Activation, clipped, parse_activations, per_direction
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import I64, TensorType
from repro.ops import (
    add,
    broadcast,
    compare,
    concatenate,
    convert_to,
    dot,
    fill,
    iota,
    loop,
    mul,
    reshape,
    reverse,
    select,
    slice_,
    sub,
    transpose,
)

Parts = Mapping[str, Value]
"""Weights inside the loop, by name: `r...`, `wb`, `rb`, `p`; those that the node leaves out are not there."""


@dataclass(frozen=True)
class Cell:
    """What an operator's step needs to know besides values."""

    name: str
    gates: int
    states: int
    hidden: int
    directions: tuple[bool, ...]
    """For each direction, whether it runs backwards."""
    functions: tuple[tuple[Activation, ...], ...]
    """For each direction, its activations in ONNX's order."""
    clip: float | None
    flag: bool
    """input_forget (LSTM) or linear_before_reset (GRU)."""
    layout: int

    def activate(self, position: int, value: Value) -> Value:
        """Activation number `position` of each direction, on [directions, batch, hidden]."""
        return per_direction([of[position] for of in self.functions], value)

    def activate_gate(self, position: int, value: Value) -> Value:
        """The same behind the clip, which bounds the gates' sums and nothing else."""
        return self.activate(position, clipped(value, self.clip))

    def part(self, value: Value, gate: int) -> Value:
        """One gate's columns."""
        starts = (0,) * (value.rank - 1)
        first = gate * self.hidden
        return slice_(value, (*starts, first), (*value.shape[:-1], first + self.hidden))

    def plus(self, value: Value, parts: Parts, name: str, gate: int) -> Value:
        """`value` + the gate's bias, if the node has one. (A missing one is zero, and no sum here is -0.0.)"""
        if name not in parts:
            return value
        return add(value, broadcast(self.part(parts[name], gate), value.shape, (0, 2)))


Step = Callable[[Cell, Value, tuple[Value, ...], Parts], tuple[Value, ...]]
"""(cell, x*W of the step, states before, weights) -> states after; h is the first state."""


def recurrent_dot(h: Value, r: Value) -> Value:
    """[directions, batch, hidden] x [directions, columns, hidden] -> [directions, batch, columns]."""
    return dot(h, r, ((2,), (2,)), ((0,), (0,)))


def _one_minus(value: Value) -> Value:
    return sub(fill(1, value.type), value)


# ── the cells ───────────────────────────────────────────────────────────────────────────────────────


def lstm_step(cell: Cell, xw: Value, states: tuple[Value, ...], parts: Parts) -> tuple[Value, ...]:
    """Gates i, o, f, c: f(x*W + h*R + P.C + Wb + Rb); C' = f.C + i.c; o sees C'; H' = o.h(C')."""
    h, c = states
    sums = add(xw, recurrent_dot(h, parts["r"]))

    def gate(number: int, peephole: int | None, seen: Value) -> Value:
        value = cell.part(sums, number)
        if peephole is not None and "p" in parts:
            weights = broadcast(cell.part(parts["p"], peephole), value.shape, (0, 2))
            value = add(value, mul(weights, seen))
        return cell.plus(cell.plus(value, parts, "wb", number), parts, "rb", number)

    i = cell.activate_gate(0, gate(0, 0, c))
    f = _one_minus(i) if cell.flag else cell.activate_gate(0, gate(2, 2, c))
    candidate = cell.activate_gate(1, gate(3, None, c))
    after = add(mul(f, c), mul(i, candidate))
    o = cell.activate_gate(0, gate(1, 1, after))
    return mul(o, cell.activate(2, after)), after


def gru_step(cell: Cell, xw: Value, states: tuple[Value, ...], parts: Parts) -> tuple[Value, ...]:
    """Gates z, r: f(x*W + h*R + Wb + Rb); candidate by `linear_before_reset`; H' = (1 - z).candidate + z.H."""
    (h,) = states
    gated = recurrent_dot(h, parts["r"] if cell.flag else parts["r_zr"])

    def gate(number: int) -> Value:
        value = add(cell.part(xw, number), cell.part(gated, number))
        return cell.activate_gate(0, cell.plus(cell.plus(value, parts, "wb", number), parts, "rb", number))

    z, r = gate(0), gate(1)
    if cell.flag:  # x*W + r.(h*R + Rb) + Wb
        inner = mul(r, cell.plus(cell.part(gated, 2), parts, "rb", 2))
        total = cell.plus(add(cell.part(xw, 2), inner), parts, "wb", 2)
    else:  # x*W + (r.h)*R + Rb + Wb
        inner = recurrent_dot(mul(r, h), parts["r_h"])
        total = cell.plus(cell.plus(add(cell.part(xw, 2), inner), parts, "rb", 2), parts, "wb", 2)
    candidate = cell.activate_gate(1, total)
    return (add(mul(_one_minus(z), candidate), mul(z, h)),)


def rnn_step(cell: Cell, xw: Value, states: tuple[Value, ...], parts: Parts) -> tuple[Value, ...]:
    """H' = f(x*W + h*R + Wb + Rb)."""
    total = add(xw, recurrent_dot(states[0], parts["r"]))
    return (cell.activate_gate(0, cell.plus(cell.plus(total, parts, "wb", 0), parts, "rb", 0)),)


# ── around the loop ─────────────────────────────────────────────────────────────────────────────────


def _weights(cell: Cell, given: Parts) -> dict[str, Value]:
    """The weights as the step wants them: biases apart, GRU's candidate apart where it has a dot of its own."""
    parts: dict[str, Value] = {}
    r, columns = given["r"], cell.gates * cell.hidden
    if cell.gates == 3 and not cell.flag:
        split = 2 * cell.hidden
        parts["r_zr"] = slice_(r, (0, 0, 0), (r.shape[0], split, cell.hidden))
        parts["r_h"] = slice_(r, (0, split, 0), r.shape)
    else:
        parts["r"] = r
    if "b" in given:
        b = given["b"]
        parts["wb"] = slice_(b, (0, 0), (b.shape[0], columns))
        parts["rb"] = slice_(b, (0, columns), b.shape)
    if "p" in given:
        parts["p"] = given["p"]
    return parts


def _along_directions(cell: Cell, value: Value, time: int) -> Value:
    """One copy of `value` for each direction, stacked in front; a backward one with its time axis reversed."""
    copies = [reverse(value, (time,)) if backward else value for backward in cell.directions]
    return concatenate([reshape(copy, (1, *copy.shape)) for copy in copies], 0)


def _live_steps(cell: Cell, lengths: Value, steps: int) -> Value:
    """bool[steps, directions, batch]: whether the element that a step reads lies within its row's length."""
    shape = (steps, lengths.shape[0])
    live = compare("lt", iota(shape, 0), broadcast(convert_to(lengths, I64), shape, (1,)))
    return transpose(_along_directions(cell, live, 0), (1, 0, 2))


def run_cell(cell: Cell, step: Step, given: Parts, stacked: bool) -> tuple[Value, ...]:
    """Last states, then, if asked for, Y [steps, directions, batch, hidden]."""
    x = given["x"]
    steps, batch = x.shape[:2]
    projected = dot(_along_directions(cell, x, 0), given["w"], ((3,), (2,)), ((0,), (0,)))
    scanned = [transpose(projected, (1, 0, 2, 3))]
    if "lengths" in given:
        scanned.append(_live_steps(cell, given["lengths"], steps))
    zero = fill(0, TensorType(x.dtype, (len(cell.directions), batch, cell.hidden)))
    initial = [given.get(name, zero) for name in ("h", "c")[: cell.states]]
    parts = _weights(cell, given)

    def body(_: Value, *arguments: Value) -> Sequence[Value]:
        before, rest = arguments[: cell.states], arguments[cell.states :]
        rows, fixed = rest[: len(scanned)], dict(zip(parts, rest[len(scanned) :], strict=True))
        after = step(cell, rows[0], before, fixed)
        shown = after[0]
        if len(rows) > 1:
            live = broadcast(rows[1], zero.shape, (0, 1))
            after = tuple(select(live, new, old) for new, old in zip(after, before, strict=True))
            shown = select(live, shown, fill(0, shown.type))
        return (*after, shown) if stacked else after

    results = loop(steps, initial, scanned, tuple(parts.values()), body)
    if not stacked:
        return results
    return (*results[: cell.states], _in_time_order(cell, results[cell.states]))


def _in_time_order(cell: Cell, y: Value) -> Value:
    """The stacked steps with those of a backward direction turned round."""
    if not any(cell.directions):
        return y
    sides = [slice_(y, (0, d, 0, 0), (y.shape[0], d + 1, *y.shape[2:])) for d in range(len(cell.directions))]
    turned = [reverse(side, (0,)) if back else side for side, back in zip(sides, cell.directions, strict=True)]
    return concatenate(turned, 1)


def expect_shapes(ctx: NodeContext, cell: Cell, given: Parts) -> None:
    x, directions, columns = given["x"], len(cell.directions), cell.gates * cell.hidden
    batch = x.shape[1]
    state = (directions, batch, cell.hidden)
    expected = {
        "w": (directions, columns, x.shape[2]),
        "r": (directions, columns, cell.hidden),
        "b": (directions, 2 * columns),
        "lengths": (batch,),
        "h": state,
        "c": state,
        "p": (directions, 3 * cell.hidden),
    }
    for name, value in given.items():
        if name in expected and value.shape != expected[name]:
            found = f"'{name}' of shape {list(value.shape)}"
            raise ctx.error(f"an operand does not fit the {cell.name}", found, f"shape {list(expected[name])}")


def _directions(ctx: NodeContext) -> tuple[bool, ...]:
    known = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    direction = ctx.attr_str("direction", "forward")
    if direction not in known:
        raise ctx.error("the direction is unknown", direction, "forward, reverse or bidirectional")
    return known[direction]


def cell_of(ctx: NodeContext, gates: int, states: int, flag: str, r: Value) -> Cell:
    if r.rank != 3:
        raise ctx.error("the recurrence weights are not [directions, columns, hidden]", str(r.type))
    hidden = ctx.attr_int("hidden_size", r.shape[2])
    if hidden != r.shape[2]:
        raise ctx.error("hidden_size does not fit R", f"{hidden} and {r.type}", f"hidden_size = {r.shape[2]}")
    directions = _directions(ctx)
    defaults = ("Tanh",) if gates == 1 else ("Sigmoid", *("Tanh",) * states)
    clip = ctx.attr_float("clip") if ctx.has("clip") else None
    return Cell(
        name=ctx.op_type,
        gates=gates,
        states=states,
        hidden=hidden,
        directions=directions,
        functions=parse_activations(ctx, defaults, len(directions)),
        clip=clip or None,
        flag=ctx.attr_bool(flag) if flag else False,
        layout=ctx.attr_int("layout", 0),
    )


def _recurrent(
    ctx: NodeContext, cell: Cell, step: Step, operands: Mapping[str, Value | None]
) -> tuple[Value | None, ...]:
    """One composite: Y (if asked for), Y_h and, for an LSTM, Y_c."""
    given = {name: value for name, value in operands.items() if value is not None}
    if given["x"].rank != 3:
        raise ctx.error("the input is not [steps, batch, features]", str(given["x"].type), "a tensor of rank 3")
    if cell.layout == 1:
        given |= {name: transpose(given[name], (1, 0, 2)) for name in ("x", "h", "c") if name in given}
    elif cell.layout != 0:
        raise ctx.error("the layout is unknown", str(cell.layout), "0 or 1")
    expect_shapes(ctx, cell, given)
    if "lengths" in given:
        lengths = ctx.static_value(given["lengths"])
        if lengths is not None and bool(np.all(lengths >= given["x"].shape[0])):
            del given["lengths"]
    names, stacked = tuple(given), ctx.wants(0)
    made = ctx.composite(
        cell.name,
        tuple(given.values()),
        lambda *values: run_cell(cell, step, dict(zip(names, values, strict=True)), stacked),
        takes=names,
        directions=cell.directions,
        activations=[[function.text for function in of] for of in cell.functions],
        clip=cell.clip or 0.0,
        flag=cell.flag,
    ).results
    states: Sequence[Value] = made[: cell.states]
    y = made[cell.states] if stacked else None
    if cell.layout == 1:
        states = [transpose(state, (1, 0, 2)) for state in states]
        y = None if y is None else transpose(y, (2, 0, 1, 3))
    return (y, *states)


@onnx_op("LSTM", since=7)
def lstm(
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
    """See `lstm_step`."""
    cell = cell_of(ctx, 4, 2, "input_forget", r)
    given = {"x": x, "w": w, "r": r, "b": b, "lengths": lengths, "h": h, "c": c, "p": p}
    return _recurrent(ctx, cell, lstm_step, given)


@onnx_op("GRU", since=7)
def gru(
    ctx: NodeContext,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
) -> tuple[Value | None, ...]:
    """See `gru_step`."""
    cell = cell_of(ctx, 3, 1, "linear_before_reset", r)
    return _recurrent(ctx, cell, gru_step, {"x": x, "w": w, "r": r, "b": b, "lengths": lengths, "h": h})


@onnx_op("RNN", since=7)
def rnn(
    ctx: NodeContext,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    lengths: Value | None = None,
    h: Value | None = None,
) -> tuple[Value | None, ...]:
    """See `rnn_step`."""
    cell = cell_of(ctx, 1, 1, "", r)
    return _recurrent(ctx, cell, rnn_step, {"x": x, "w": w, "r": r, "b": b, "lengths": lengths, "h": h})
