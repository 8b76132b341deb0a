"""Executors that go wrong in one known way each: one adds in another order, the others do not come to results."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from repro.artifact.canonical import Json
from repro.audit.golden import own_executors
from repro.audit.peers.own import Own
from repro.audit.peers.peer import PeerError
from repro.audit.records import Executor, Outcome
from repro.ir.types import Array

PEERS = {
    name: f"tests.audit.planted_peers:{name.title()}"
    for name in ("backwards", "aborts", "hangs", "eats", "missing", "refuses", "raises")
}


def backwards(node: str) -> Executor:
    return Executor("backwards", (("node", node),))


class Backwards(Own):
    """repro's own results, but that one node, a matrix product, adds its products from the last to the first."""

    family = "backwards"

    def versions(self) -> Mapping[str, Json]:
        return {"backwards": "1.0"}

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        return super().run(reversed_terms(model, executor.option("node")), inputs, own_executors()[0], lowered)


def reversed_terms(model: ModelProto, name: str) -> ModelProto:
    """The model with both operands of one product reversed along the axis that it adds over."""
    copy = ModelProto()
    copy.CopyFrom(model)
    nodes = list(copy.graph.node)
    (place,) = (position for position, node in enumerate(nodes) if node.name == name)
    product = nodes[place]
    axes = _term_axes(product)
    for position, axis in enumerate(axes):
        parts = {"starts": -1, "ends": -(1 << 40), "axes": axis, "steps": -1}
        names = [f"{name}/{position}/{part}" for part in parts]
        copy.graph.initializer.extend(
            numpy_helper.from_array(np.array([value]), each) for each, value in zip(names, parts.values(), strict=True)
        )
        reverse = helper.make_node("Slice", [product.input[position], *names], [f"{name}/{position}"])
        product.input[position] = f"{name}/{position}"
        nodes.insert(place, reverse)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _term_axes(product: NodeProto) -> tuple[int, int]:
    if product.op_type == "MatMul":
        return -1, -2
    flags = {attribute.name: attribute.i for attribute in product.attribute}
    assert product.op_type == "Gemm", product.op_type
    return (0 if flags.get("transA") else 1), (1 if flags.get("transB") else 0)


class _Failing(Backwards):
    """Ends in its own way when it is first asked for results."""

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        self.fail()
        return {}

    def fail(self) -> None: ...


class Aborts(_Failing):
    def fail(self) -> None:
        sys.stderr.write("planted: a broken invariant\n")
        sys.stderr.flush()
        os.abort()


class Hangs(_Failing):
    def fail(self) -> None:
        while True:
            time.sleep(0.05)


class Eats(_Failing):
    def fail(self) -> None:
        eaten: list[Array] = []
        while True:
            eaten.append(np.ones(1 << 22))


class Missing(_Failing):
    def versions(self) -> Mapping[str, Json]:
        raise PeerError(Outcome.MISSING, "planted is not installed")


class Refuses(_Failing):
    def fail(self) -> None:
        raise PeerError(Outcome.REFUSED, "no kernel for this operator")


class Raises(_Failing):
    def fail(self) -> None:
        raise OverflowError("an error of its own\nwith a second line")
