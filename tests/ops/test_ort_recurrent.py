"""Gradients of ONNX Runtime's LSTMTraining and GRUTraining against central differences of cells in NumPy, float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import Array
from tests.ops.numpy_differences import MICROSOFT, close, differences, drawn, model_of
from tests.ops.one_node import run_model

STEPS, BATCH, FEATURES, HIDDEN = 3, 2, 3, 2


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm(x: Array, w: Array, r: Array, b: Array, h: Array, c: Array, p: Array) -> tuple[Array, Array, Array]:
    """Y, Y_h, Y_c of one forward direction, by ONNX's equations."""
    h, c, shown = h[0], c[0], list[Array]()
    peepholes = np.split(p[0], 3)
    for row in x:
        i, o, f, g = np.split(row @ w[0].T + h @ r[0].T + b[0, : 4 * HIDDEN] + b[0, 4 * HIDDEN :], 4, 1)
        i, f = sigmoid(i + peepholes[0] * c), sigmoid(f + peepholes[2] * c)
        c = f * c + i * np.tanh(g)
        h = sigmoid(o + peepholes[1] * c) * np.tanh(c)
        shown.append(h)
    return np.stack(shown)[:, None], h[None], c[None]


def gru(x: Array, w: Array, r: Array, b: Array, h: Array, before: bool) -> tuple[Array, Array]:
    """Y and Y_h."""
    h, shown = h[0], list[Array]()
    wz, wr, wh = np.split(w[0], 3)
    rz, rr, rh = np.split(r[0], 3)
    bz, br, bh, cz, cr, ch = np.split(b[0], 6)
    for row in x:
        z = sigmoid(row @ wz.T + h @ rz.T + bz + cz)
        reset = sigmoid(row @ wr.T + h @ rr.T + br + cr)
        inner = reset * (h @ rh.T + ch) if before else (reset * h) @ rh.T + ch
        h = (1 - z) * np.tanh(row @ wh.T + inner + bh) + z * h
        shown.append(h)
    return np.stack(shown)[:, None], h[None]


def operands(gates: int, states: str) -> dict[str, Array]:
    made = {
        "x": drawn(STEPS, BATCH, FEATURES),
        "w": drawn(1, gates * HIDDEN, FEATURES),
        "r": drawn(1, gates * HIDDEN, HIDDEN),
        "b": drawn(1, 2 * gates * HIDDEN),
    }
    return made | {name: drawn(1, BATCH, HIDDEN, seed=seed) for seed, name in enumerate(states)}


def cotangents(*names: str) -> dict[str, Array]:
    shapes = {"dy": (STEPS, 1, BATCH, HIDDEN), "dh": (1, BATCH, HIDDEN), "dc": (1, BATCH, HIDDEN)}
    return {name: drawn(*shapes[name], seed=9) for name in names}


def run(forward: Any, backward: Any, inputs: dict[str, Array], outputs: list[str]) -> list[Array]:
    return run_model(model_of([forward, backward], inputs, {}, outputs), inputs)


@pytest.mark.parametrize("seeds", [("dy",), ("dh", "dc"), ("dy", "dh", "dc")])
def test_lstm(seeds: tuple[str, ...]) -> None:
    given = operands(4, "hc") | {"p": drawn(1, 3 * HIDDEN)}
    slopes = cotangents(*seeds)
    saved = ["all_h", "last_h", "last_c", "all_c", "iofc"]
    forward = helper.make_node(
        "LSTMTraining", ["x", "w", "r", "b", "", "h", "c", "p"], saved, domain=MICROSOFT, hidden_size=HIDDEN
    )
    named = [name if name in seeds else "" for name in ("dy", "dh", "dc")]
    made = ["dx", "dw", "dr", "db", "dh0", "dc0", "dp"]
    read = ["x", "w", "r", "", "h", "c", "all_h", "all_c", "iofc", *named]
    backward = helper.make_node("LSTMGrad", read, made, domain=MICROSOFT, hidden_size=HIDDEN)

    def loss(*values: Array) -> Array:
        results = zip(("dy", "dh", "dc"), lstm(*values), strict=True)
        return np.asarray(sum(float((value * slopes[name]).sum()) for name, value in results if name in slopes))

    found = run(forward, backward, given | slopes, ["all_h", *made])
    close(found[:1], lstm(*(array.astype(np.float64) for array in given.values()))[:1])
    order = [given[name] for name in ("x", "w", "r", "b", "h", "c", "p")]
    close(found[1:], differences(loss, order, np.ones(())), 1e-4)


@pytest.mark.parametrize("before", [0, 1])
def test_gru(before: int) -> None:
    given, slopes = operands(3, "h"), cotangents("dy", "dh")
    rest: dict[str, Any] = {"domain": MICROSOFT, "hidden_size": HIDDEN, "linear_before_reset": before}
    forward = helper.make_node("GRUTraining", ["x", "w", "r", "b", "", "h"], ["all_h", "last_h", "zrh"], **rest)
    made = ["dx", "dw", "dr", "db", "dh0"]
    read = ["x", "w", "r", "b", "", "h", "all_h", "zrh", "dy", "dh"]
    backward = helper.make_node("GRUGrad", read, made, **rest)

    def loss(*values: Array) -> Array:
        y, last = gru(*values, before=bool(before))
        return np.asarray(float((y * slopes["dy"]).sum() + (last * slopes["dh"]).sum()))

    found = run(forward, backward, given | slopes, ["all_h", *made])
    order = list(given.values())
    close(found[:1], gru(*(array.astype(np.float64) for array in order), before=bool(before))[:1])
    close(found[1:], differences(loss, order, np.ones(())), 1e-4)


def test_a_gradient_without_its_forward_pass_is_refused() -> None:
    given = operands(4, "hc") | {"saved": drawn(2), "dy": cotangents("dy")["dy"]}
    read = ["x", "w", "r", "", "h", "c", "", "", "saved", "dy"]
    node = helper.make_node("LSTMGrad", read, ["dx"], domain=MICROSOFT, hidden_size=HIDDEN)
    with pytest.raises(ReproError, match="forward pass"):
        import_model(load_model(model_of([node], given, {}, ["dx"])))
