"""A runtime that is repro but for what its executor's options plant: an order, a weight's bit, an attribute.

`order=A;B` makes the nodes A and B add backwards; `weight=NAME` flips a bit of a weight's greatest element;
`attribute=NODE` gives a node another attribute; `hidden=COUNT` keeps every COUNT-th value to itself, as a runtime that
fuses does; `version` is what it says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from repro.artifact.canonical import Json
from repro.audit.golden import own_executors
from repro.audit.peers.own import Own
from repro.audit.records import Executor
from repro.ir.types import Array

PEERS = {"planted": "tests.audit.planted_own:Planted"}
FLIPPED = 1 << 18
"""A bit of an f32 number that is worth 3 % of it: seen in whatever is computed with it."""


def planted(**options: str) -> Executor:
    return Executor("planted", tuple(options.items()))


class Planted(Own):
    """repro on this host's best CPU, on a model that is not quite the one given."""

    family = "planted"

    def variants(self) -> tuple[Executor, ...]:
        return ()

    def versions(self) -> Mapping[str, Json]:
        return {"planted": "1"}

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        """Values that are kept back have other names."""
        count = int(executor.option("hidden", "0"))
        if not count:
            return model
        copy = copied(model)
        outputs = {item.name for item in copy.graph.output}
        inner = [name for node in copy.graph.node for name in node.output if name and name not in outputs]
        names = {name: f"{name}!" for name in inner[::count]}
        for node in copy.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        for item in copy.graph.value_info:
            item.name = names.get(item.name, item.name)
        return copy

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        best = max(own_executors()[:-1], key=lambda each: (each.option("target"), each.option("threads") == "1"))
        return super().run(*with_shapes(changed(model, executor), inputs), best, lowered)


def copied(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def changed(model: ModelProto, executor: Executor) -> ModelProto:
    """The model with what is planted in it."""
    copy = copied(model)
    if name := executor.option("weight"):
        flip(copy, name)
    if name := executor.option("attribute"):
        node = next((each for each in copy.graph.node if each.name == name), None)
        if node is not None:
            ATTRIBUTES[node.op_type](node)
    shuffled, extents = set(executor.option("order").split(";")), shapes(copy)
    nodes = [
        each for node in copy.graph.node for each in (reordered(node, extents) if node.name in shuffled else [node])
    ]
    kept = [copied_node(each) for each in nodes]
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    return copy


def with_shapes(model: ModelProto, inputs: Mapping[str, Array]) -> tuple[ModelProto, dict[str, Array]]:
    """Integer values that are fed stand in the model: repro has to know shapes when it compiles."""
    known = {name for name, array in inputs.items() if name.endswith("::fed") and array.dtype.kind == "i"}
    kept = [item for item in model.graph.input if item.name not in known]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(inputs[name], name) for name in known)
    return model, {name: array for name, array in inputs.items() if name not in known}


def copied_node(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def flip(model: ModelProto, name: str) -> None:
    """Flip a bit of the greatest element of a weight, in place."""
    for item in model.graph.initializer:
        if item.name == name:
            array = numpy_helper.to_array(item).copy()
            array.reshape(-1).view(np.uint32)[np.argmax(np.abs(array))] ^= FLIPPED
            item.CopyFrom(numpy_helper.from_array(array, name))


# ── orders ──────────────────────────────────────────────────────────────────────────────────────────

Axes = tuple[dict[int, int], bool]
"""Of each operand whose elements change places, the axis; whether those of the result go back, along its last."""
Shapes = Mapping[str, tuple[int, ...]]


def _gemm(node: NodeProto) -> Axes:
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    return {0: 0 if attributes.get("transA") else 1, 1: 1 if attributes.get("transB") else 0}, False


ORDERS: Mapping[str, Callable[[NodeProto], Axes]] = {
    "MatMul": lambda node: ({0: -1, 1: -2}, False),
    "Gemm": _gemm,
    "Conv": lambda node: ({0: 1, 1: 1}, False),
    "Softmax": lambda node: ({0: -1}, True),
    "LayerNormalization": lambda node: (dict.fromkeys(range(len(node.input)), -1), True),
}
"""What adds up, and along which axes of its operands."""


def shapes(model: ModelProto) -> Shapes:
    """Of all values of a prepared model."""
    graph = model.graph
    found = {item.name: tuple(item.dims) for item in graph.initializer}
    for item in (*graph.input, *graph.value_info, *graph.output):
        found[item.name] = tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
    return found


def reordered(node: NodeProto, extents: Shapes) -> list[NodeProto]:
    """The node with its sums in another order: turning it round would leave sums in lanes as they are."""
    axes, back = ORDERS[node.op_type](node)
    made: list[NodeProto] = []
    copy = copied_node(node)
    for position, axis in axes.items():
        value = node.input[position]
        order = np.random.default_rng(0).permutation(extents[value][axis])
        copy.input[position] = f"{node.name}!{position}"
        made += _gather(value, axis, order, copy.input[position])
    made.append(copy)
    if back:
        order = np.random.default_rng(0).permutation(extents[node.input[0]][-1])
        copy.output[0] = f"{node.name}!result"
        made += _gather(copy.output[0], -1, np.argsort(order), node.output[0])
    return made


def _gather(value: str, axis: int, places: Array, result: str) -> list[NodeProto]:
    """The elements at these places along an axis."""
    indices = helper.make_node("Constant", [], [f"{result}!at"], f"{result}!at", value_ints=places.tolist())
    return [indices, helper.make_node("Gather", [value, f"{result}!at"], [result], f"{result}!moved", axis=axis)]


# ── attributes ──────────────────────────────────────────────────────────────────────────────────────


def _set(name: str, value: Any) -> Callable[[NodeProto], None]:
    def change(node: NodeProto) -> None:
        kept = [item for item in node.attribute if item.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return change


ATTRIBUTES: Mapping[str, Callable[[NodeProto], None]] = {
    "Gemm": _set("alpha", 1.25),
    "LayerNormalization": _set("epsilon", 0.125),
    "BatchNormalization": _set("epsilon", 0.125),
    "Softmax": _set("axis", 0),
}
"""By operator, a change of an attribute that keeps the result's shape."""
