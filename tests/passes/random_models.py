"""Random forward models with everything that trains them: losses, optimizers, microbatches, shards, clipping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper

from repro.frontend import EntryGraph, import_model, load_model
from repro.ir.types import I64, Array, to_storage
from repro.train_step import train_step
from repro.train_step.losses import SoftmaxCrossEntropy
from repro.train_step.optimizers import OPTIMIZERS
from repro.train_step.problem import TrainOptions
from tests.passes.random_steps import RandomStep
from tests.train_step.running import model

WIDE, TABLE = 17, 9
"""Columns of every hidden value, along which loops run; rows of a table."""


@dataclass
class Network:
    """A model of [rows, WIDE] values under construction. `known` are the names of those made so far."""

    draw: st.DrawFn
    rows: int
    nodes: list[NodeProto] = field(default_factory=list[NodeProto])
    weights: dict[str, Array] = field(default_factory=dict[str, Array])
    known: list[str] = field(default_factory=lambda: ["x"])

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(choices))

    def name(self) -> str:
        return f"v{len(self.nodes)}"

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """The first output's name."""
        names = [f"{self.name()}.{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0]

    def value(self) -> str:
        return self.pick(self.known[-3:])

    def weight(self, *shape: int) -> str:
        """A new one, or by chance one that is used already: a shared tensor."""
        same = [name for name, array in self.weights.items() if array.shape == shape and array.dtype == np.float32]
        if same and self.pick((True, False)):
            return self.pick(same)
        random = np.random.default_rng(len(self.weights))
        self.weights[f"w{len(self.weights)}"] = np.asarray(random.integers(-8, 9, shape) / 16, np.float32)
        return f"w{len(self.weights) - 1}"

    def integers(self, values: Any) -> str:
        name = f"i{len(self.weights)}"
        self.weights[name] = np.asarray(values, np.int64)
        return name


Layer = Callable[[Network, str], str]


def dense(n: Network, x: str) -> str:
    return n.node("Gemm", x, n.weight(WIDE, WIDE), n.weight(WIDE), transB=n.pick((0, 1)))


def activation(n: Network, x: str) -> str:
    return n.node(n.pick(("Relu", "Tanh", "Softmax", "Neg")), x)


def both(n: Network, x: str) -> str:
    return n.node(n.pick(("Add", "Sub", "Mul", "Max")), x, n.value())


def running(n: Network, x: str) -> str:
    return n.node("CumSum", x, n.integers(n.pick((1, 1, 0))))


def normalized(n: Network, x: str) -> str:
    return n.node("LayerNormalization", x, n.weight(WIDE), n.weight(WIDE))


def batch_normalized(n: Network, x: str) -> str:
    """With running statistics, which are state that no gradient reaches."""
    mean, variance = (f"{kind}{len(n.weights)}" for kind in ("mean", "variance"))
    n.weights |= {mean: np.zeros(WIDE, np.float32), variance: np.ones(WIDE, np.float32)}
    return n.node("BatchNormalization", x, n.weight(WIDE), n.weight(WIDE), mean, variance, outputs=3, training_mode=1)


def embedded(n: Network, x: str) -> str:
    """Rows of a table by the input `picks`; duplicates add up in its gradient."""
    index = n.node("Cast", "picks", to=TensorProto.INT64)
    return n.node("Add", x, n.node("Gather", n.weight(TABLE, WIDE), index))


def looked_up(n: Network, x: str) -> str:
    """Columns by a table that is the same for all rows."""
    order = np.random.default_rng(3).integers(0, WIDE, (n.rows, WIDE))
    return n.node("GatherElements", x, n.integers(order), axis=1)


def scattered(n: Network, x: str) -> str:
    order = np.random.default_rng(4).integers(0, WIDE, (n.rows, 5))
    updates = n.node("Slice", n.value(), n.integers([0]), n.integers([5]), n.integers([1]))
    return n.node("ScatterElements", x, n.integers(order), updates, axis=1, reduction=n.pick(("add", "none")))


def recurrent(n: Network, x: str) -> str:
    """A GRU along the columns: a loop of WIDE iterations."""
    hidden = 3
    turned = n.node("Unsqueeze", n.node("Transpose", x, perm=[1, 0]), n.integers([2]))
    cell = n.node("GRU", turned, n.weight(1, 3 * hidden, 1), n.weight(1, 3 * hidden, hidden), hidden_size=hidden)
    flat = n.node("Reshape", n.node("Transpose", cell, perm=[2, 0, 1, 3]), n.integers([n.rows, -1]))
    return n.node("MatMul", flat, n.weight(WIDE * hidden, WIDE))


def branched(n: Network, x: str) -> str:
    """One side by the sign of a sum; both see what is around them."""
    total = n.node("ReduceSum", x, keepdims=0)
    condition = n.node("Less", total, n.node("Neg", total))
    other, weight = n.value(), n.weight(WIDE)
    sides: list[Any] = []
    for op in ("Mul", "Sub"):
        result = helper.make_tensor_value_info(f"{n.name()}.{op}", TensorProto.FLOAT, [n.rows, WIDE])
        inner = [helper.make_node(op, [x, weight], [f"{n.name()}.{op}.a"])]
        inner.append(helper.make_node("Add", [f"{n.name()}.{op}.a", other], [result.name]))
        sides.append(helper.make_graph(inner, op, [], [result]))
    return n.node("If", condition, then_branch=sides[0], else_branch=sides[1])


def dropped(n: Network, x: str) -> str:
    n.weights.setdefault("ratio", np.array(0.5, np.float32))
    n.weights.setdefault("training", np.array(True))
    return n.node("Dropout", x, "ratio", "training")


LAYERS: tuple[Layer, ...] = (
    *(dense,) * 3,
    *(activation,) * 2,
    *(both,) * 2,
    running,
    normalized,
    batch_normalized,
    *(embedded,) * 2,
    looked_up,
    scattered,
    recurrent,
    branched,
    dropped,
)


@st.composite
def networks(draw: st.DrawFn, rows: int, most: int) -> ModelProto:
    n = Network(draw, rows)
    n.known.append(dense(n, "x"))
    for _ in range(draw(st.integers(1, most))):
        n.known.append(n.pick(LAYERS)(n, n.value()))
    last = n.node("Add", dense(n, n.known[-1]), n.value())
    return model(n.nodes, {"x": (rows, WIDE), "picks": (rows,)}, [last], n.weights)


@st.composite
def models(draw: st.DrawFn, most: int = 4, microbatches: Sequence[int] = (1, 2)) -> RandomStep:
    """A training step of one of those."""
    made = draw(networks(draw(st.integers(2, 3)), most))
    options = TrainOptions(
        SoftmaxCrossEntropy(),
        OPTIMIZERS[draw(st.sampled_from(sorted(OPTIMIZERS)))](),
        learning_rate=0.05,
        clip_norm=draw(st.sampled_from((None, 1.0))),
        accumulation=draw(st.sampled_from(microbatches)),
        shards=draw(st.sampled_from((1, 1, 2))),
    )
    entry = train_step(import_model(load_model(made)), options).entry
    start = [slot.initial for slot in entry.parameters]
    return RandomStep(entry.graph, tuple(entry.updates), start, partial(_inputs, entry, draw(st.integers(0, 1 << 32))))


def _inputs(entry: EntryGraph, seed: int, number: int, stray: bool) -> list[Array]:
    """Numbers of a few bits, indices of rows of the table and of classes; one of these may be out of range."""
    random = np.random.default_rng((seed, number))
    found: dict[str, Array] = {}
    for port in entry.inputs:
        whole = port.name == "picks" or port.type.dtype is I64
        drawn = random.integers(0, TABLE, port.type.shape) if whole else random.integers(-16, 17, port.type.shape) / 8
        found[port.name] = np.asarray(drawn, port.type.dtype.face)
    if stray:
        found["labels"].flat[random.integers(found["labels"].size)] = WIDE + 3
    return [to_storage(found[port.name], port.type.dtype) for port in entry.inputs]
