"""A runtime that computes a product in another way where an addition follows: what it does depends on the model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto

from repro.audit.records import Executor
from repro.ir.types import Array
from tests.audit.small_peers import Missing


class Neighbours(Missing):
    family = "neighbours"

    def versions(self) -> Mapping[str, str]:
        return {"neighbours": "1"}

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        readers = {
            name.removesuffix("::fed") for node in model.graph.node if node.op_type == "Add" for name in node.input
        }
        found = super().run(model, inputs, Executor("repro", (("target", "reference"),)), lowered)
        for node in model.graph.node:
            name = node.output[0]
            if node.op_type == "MatMul" and name in readers and name in found:
                found[name] = np.nextafter(found[name], np.float32(np.inf))
        return found
