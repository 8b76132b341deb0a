"""LSTM, GRU, RNN against a float64 formula, row by row and step by step, and against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from repro.errors import ReproError
from repro.ir.graph import Graph
from repro.ir.types import Array
from tests.ops.one_node import by_onnxruntime, graph_of_node, model_of, run_node

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": ("Y", "Y_h", "Y_c"), "GRU": ("Y", "Y_h"), "RNN": ("Y", "Y_h")}
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 4, 6
LENGTHS = (5, 2, 4)


def operands(op: str, direction: str, *left_out: str, dtype: Any = np.float32) -> dict[str, Any]:
    """Every input of the operator in its order, layout 0; those named in `left_out` are None."""
    random, gates = np.random.default_rng(7), GATES[op]
    sides = 2 if direction == "bidirectional" else 1
    shapes = {
        "X": (STEPS, BATCH, FEATURES),
        "W": (sides, gates * HIDDEN, FEATURES),
        "R": (sides, gates * HIDDEN, HIDDEN),
        "B": (sides, 2 * gates * HIDDEN),
        "sequence_lens": None,
        "initial_h": (sides, BATCH, HIDDEN),
    }
    if op == "LSTM":
        shapes |= {"initial_c": (sides, BATCH, HIDDEN), "P": (sides, 3 * HIDDEN)}
    made: dict[str, Any] = {}
    for name, shape in shapes.items():
        if name in left_out:
            made[name] = None
        elif shape is None:
            made[name] = np.array(LENGTHS, np.int32)
        else:
            made[name] = random.uniform(-0.9, 0.9, shape).astype(dtype)
    return made


# ── the formula ─────────────────────────────────────────────────────────────────────────────────────

FUNCTIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x >= 0, x, a * (np.exp(x) - 1)),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.log1p(np.exp(x)),
}
TAKES = {"Affine": "ab", "LeakyRelu": "a", "ThresholdedRelu": "a", "ScaledTanh": "ab", "HardSigmoid": "ab", "Elu": "a"}


def chosen(names: Any, alphas: Any, betas: Any) -> list[Callable[[Array], Array]]:
    left, right = list(alphas), list(betas)
    made = []
    for name in names:
        takes = TAKES.get(name, "")
        a = left.pop(0) if "a" in takes else 0.0
        b = right.pop(0) if "b" in takes else 0.0
        made.append(lambda x, of=FUNCTIONS[name], a=a, b=b: of(x, a, b))
    return made


def cell(op: str, x: Array, state: list[Array], w: Any, attributes: dict[str, Any], f: list[Any]) -> list[Array]:
    clip = attributes.get("clip", np.inf)
    run = [lambda v, g=g: g(np.clip(v, -clip, clip)) for g in f]
    h = state[0]
    gates = GATES[op]
    W, R = np.split(w["W"], gates), np.split(w["R"], gates)
    wb, rb = np.split(w["B"][: gates * HIDDEN], gates), np.split(w["B"][gates * HIDDEN :], gates)
    plain = [x @ W[g].T + h @ R[g].T + wb[g] + rb[g] for g in range(gates)]
    if op == "RNN":
        return [run[0](plain[0])]
    if op == "GRU":
        z, r = run[0](plain[0]), run[0](plain[1])
        if attributes.get("linear_before_reset"):
            inner = x @ W[2].T + r * (h @ R[2].T + rb[2]) + wb[2]
        else:
            inner = x @ W[2].T + (r * h) @ R[2].T + rb[2] + wb[2]
        return [(1 - z) * run[1](inner) + z * h]
    c = state[1]
    peep_i, peep_o, peep_f = np.split(w["P"], 3)
    i = run[0](plain[0] + peep_i * c)
    forget = 1 - i if attributes.get("input_forget") else run[0](plain[2] + peep_f * c)
    after = forget * c + i * run[1](plain[3])
    o = run[0](plain[1] + peep_o * after)
    return [o * f[2](after), after]


def formula(op: str, given: dict[str, Any], **attributes: Any) -> list[Array]:
    """Every output in float64, row by row: each row on its own, cut to its own length."""
    wide: dict[str, Any] = {
        name: None if a is None else a.astype(np.float64) for name, a in given.items() if name != "sequence_lens"
    }
    direction = attributes.get("direction", "forward")
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    lengths = given.get("sequence_lens")
    lengths = [STEPS] * BATCH if lengths is None else list(lengths)
    names = attributes.get("activations", DEFAULTS[op] * len(backward))
    functions = chosen(names, attributes.get("activation_alpha", ()), attributes.get("activation_beta", ()))
    count, each = len(OUTPUTS[op]) - 1, len(DEFAULTS[op])
    y = np.zeros((STEPS, len(backward), BATCH, HIDDEN))
    last = np.zeros((count, len(backward), BATCH, HIDDEN))
    for side, back in enumerate(backward):
        sizes = {"B": 2 * GATES[op] * HIDDEN, "P": 3 * HIDDEN}
        weights = {n: np.zeros(sizes.get(n, 1)) if wide.get(n) is None else wide[n][side] for n in ("W", "R", "B", "P")}
        for row in range(BATCH):
            starts = [wide.get(name) for name in ("initial_h", "initial_c")[:count]]
            state = [np.zeros(HIDDEN) if start is None else start[side, row] for start in starts]
            steps = range(lengths[row])
            for t in reversed(steps) if back else steps:
                own = functions[side * each : (side + 1) * each]
                state = cell(op, wide["X"][t, row], state, weights, attributes, own)
                y[t, side, row] = state[0]
            last[:, side, row] = state
    return [y, *last]


def check(op: str, given: dict[str, Any], opset: int = 14, **attributes: Any) -> None:
    found = run_node(op, given, OUTPUTS[op], opset, hidden_size=HIDDEN, **attributes)
    for array, expected in zip(found, formula(op, given, **attributes), strict=True):
        np.testing.assert_allclose(array, expected, rtol=2e-5, atol=2e-6)


# ── tests ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", list(GATES))
def test_everything_given(op: str, direction: str) -> None:
    given = operands(op, direction)
    check(op, given, direction=direction)
    check(op, operands(op, direction, "B", "sequence_lens", "initial_h", "initial_c", "P"), direction=direction)


@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize("op", list(GATES))
def test_every_version(op: str, opset: int) -> None:
    check(op, operands(op, "forward"), opset)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_gru_linear_before_reset(direction: str) -> None:
    check("GRU", operands("GRU", direction), direction=direction, linear_before_reset=1)


def test_lstm_coupled_gates() -> None:
    check("LSTM", operands("LSTM", "reverse"), direction="reverse", input_forget=1)


@pytest.mark.parametrize("op", list(GATES))
def test_clip_bounds_the_gates(op: str) -> None:
    given = operands(op, "bidirectional")
    check(op, given, direction="bidirectional", clip=0.25)
    model = model_of(op, given, OUTPUTS[op], 14, hidden_size=HIDDEN, direction="bidirectional", clip=0.25)
    for array, expected in zip(
        by_onnxruntime(model, given), formula(op, given, direction="bidirectional", clip=0.25), strict=True
    ):
        np.testing.assert_allclose(array, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_each_activation(name: str) -> None:
    takes = TAKES.get(name, "")
    constants: dict[str, Any] = {}
    if "a" in takes:
        constants["activation_alpha"] = [0.25]
    if "b" in takes:
        constants["activation_beta"] = [0.5]
    check("RNN", operands("RNN", "forward"), activations=[name], **constants)


def test_activations_of_two_directions() -> None:
    names = ["HardSigmoid", "Tanh", "Affine", "Sigmoid", "ScaledTanh", "Elu"]
    constants: dict[str, Any] = {"activation_alpha": [0.25, 0.75, 1.5, 0.5], "activation_beta": [0.5, 0.125, 0.375]}
    check("LSTM", operands("LSTM", "bidirectional"), direction="bidirectional", activations=names, **constants)


@pytest.mark.parametrize("op", list(GATES))
def test_batch_first(op: str) -> None:
    given = operands(op, "bidirectional")
    turned = {n: a.transpose(1, 0, 2) if n in ("X", "initial_h", "initial_c") else a for n, a in given.items()}
    found = run_node(op, turned, OUTPUTS[op], 14, hidden_size=HIDDEN, direction="bidirectional", layout=1)
    plain = run_node(op, given, OUTPUTS[op], 14, hidden_size=HIDDEN, direction="bidirectional")
    assert found[0].tobytes() == plain[0].transpose(2, 0, 1, 3).tobytes()
    for one, other in zip(found[1:], plain[1:], strict=True):
        assert one.tobytes() == other.transpose(1, 0, 2).tobytes()


@pytest.mark.parametrize("op", list(GATES))
def test_both_directions_are_the_two_directions(op: str) -> None:
    both = operands(op, "bidirectional")
    found = run_node(op, both, OUTPUTS[op], 14, direction="bidirectional")
    for side, direction in enumerate(("forward", "reverse")):
        halves = {
            n: a if n in ("X", "sequence_lens") else np.ascontiguousarray(a[side : side + 1]) for n, a in both.items()
        }
        alone = run_node(op, halves, OUTPUTS[op], 14, direction=direction)
        assert alone[0].tobytes() == np.ascontiguousarray(found[0][:, side : side + 1]).tobytes()
        for one, other in zip(alone[1:], found[1:], strict=True):
            assert one.tobytes() == np.ascontiguousarray(other[side : side + 1]).tobytes()


@pytest.mark.parametrize("op", list(GATES))
def test_against_onnxruntime(op: str) -> None:
    given = operands(op, "bidirectional")
    attributes: dict[str, Any] = {"hidden_size": HIDDEN, "direction": "bidirectional"}
    if op == "GRU":
        attributes["linear_before_reset"] = 1
    peer = by_onnxruntime(model_of(op, given, OUTPUTS[op], 14, **attributes), given)
    for array, expected in zip(run_node(op, given, OUTPUTS[op], 14, **attributes), peer, strict=True):
        np.testing.assert_allclose(array, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("op", list(GATES))
def test_double_and_half(op: str) -> None:
    wide = operands(op, "bidirectional", dtype=np.float64)
    found = run_node(op, wide, OUTPUTS[op], 14, direction="bidirectional")
    for array, expected in zip(found, formula(op, wide, direction="bidirectional"), strict=True):
        assert array.dtype == np.float64
        np.testing.assert_allclose(array, expected, rtol=1e-13, atol=1e-14)
    half = operands(op, "forward", dtype=np.float16)
    single = {n: a.astype(np.float32) if a is not None and a.dtype == np.float16 else a for n, a in half.items()}
    found, plain = (run_node(op, given, OUTPUTS[op], 14) for given in (half, single))
    for array, expected in zip(found, plain, strict=True):
        assert array.tobytes() == expected.astype(np.float16).tobytes()  # computed in f32, rounded once


def _loops(graph: Graph) -> int:
    inner = sum(_loops(region) for node in graph.nodes for region in node.regions)
    return inner + sum(node.op == "loop" for node in graph.nodes)


@pytest.mark.parametrize("op", list(GATES))
def test_one_loop_whatever_the_length(op: str) -> None:
    given = operands(op, "bidirectional", "sequence_lens")
    short = graph_of_node(op, given, OUTPUTS[op], 14, direction="bidirectional")
    given["X"] = np.zeros((400, BATCH, FEATURES), np.float32)
    long = graph_of_node(op, given, OUTPUTS[op], 14, direction="bidirectional")
    assert _loops(short) == _loops(long) == 1
    assert len(long.nodes) == len(short.nodes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"direction": "sideways"},
        {"layout": 2},
        {"hidden_size": 5},
        {"activations": ["Tanh"]},
        {"activations": ["Sigmoid", "Tanh", "Softmax"]},
    ],
    ids=str,
)
def test_bad_attributes_are_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(ReproError) as refused:
        run_node("LSTM", operands("LSTM", "forward"), OUTPUTS["LSTM"], 14, **attributes)
    assert refused.value.op == "LSTM"
    assert refused.value.node == "node"


@pytest.mark.parametrize("name", ["W", "R", "B", "sequence_lens", "initial_h", "P"])
def test_shapes_that_do_not_fit_are_refused(name: str) -> None:
    given = operands("LSTM", "forward")
    given[name] = np.concatenate((given[name], given[name]), 0)
    with pytest.raises(ReproError):
        run_node("LSTM", given, OUTPUTS["LSTM"], 14)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("op", sorted(GATES))
def test_lengths_that_are_none_or_beyond_the_steps(op: str, direction: str) -> None:
    """A row of no steps keeps its initial states and shows zeros; one of more steps than there are has all of them."""
    given = operands(op, direction, "P")
    given["sequence_lens"] = np.array([0, -2, STEPS + 4], np.int32)
    y, *states = run_node(op, given, OUTPUTS[op], 14, hidden_size=HIDDEN, direction=direction)
    assert not y[:, 0, :2].any() and not np.signbit(y[:, 0, :2]).any()
    for state, initial in zip(states, ("initial_h", "initial_c"), strict=False):
        assert state[:, :2].tobytes() == given[initial][:, :2].tobytes()
    given["sequence_lens"] = np.array([STEPS] * BATCH, np.int32)
    whole, *ends = run_node(op, given, OUTPUTS[op], 14, hidden_size=HIDDEN, direction=direction)
    assert y[:, 0, 2].tobytes() == whole[:, 0, 2].tobytes()
    assert all(some[:, 2].tobytes() == every[:, 2].tobytes() for some, every in zip(states, ends, strict=True))
