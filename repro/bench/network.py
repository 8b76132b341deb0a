"""A small builder of ONNX models with seeded weights, so that a workload is stated once and needs no exporter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TrainingInfoProto, helper, numpy_helper

from repro.ir.types import Array

OPSET, IR_VERSION = 20, 9


class Network:
    """A model under construction. Weights are drawn in the order of their making, from the seed."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.weights: dict[str, Array] = {}
        self._random = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._domains: dict[str, int] = {"": OPSET}
        self._algorithms: list[TrainingInfoProto] = []

    def input(self, name: str, shape: Sequence[int], kind: Any = np.float32) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape))
        return name

    def weight(self, name: str, shape: Sequence[int], scale: float = 0.02, mean: float = 0.0) -> str:
        """A parameter drawn from a normal distribution."""
        drawn = mean + scale * self._random.standard_normal(shape)
        return self.constant(name, drawn.astype(np.float32))

    def constant(self, name: str, array: Array) -> str:
        self.weights[name] = np.asarray(array)
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        """Add a node; the name of its first output. The others are that name with `.1`, `.2`, ..."""
        first = f"{operator}_{len(self._nodes)}"
        names = [first, *(f"{first}.{position}" for position in range(1, outputs))]
        if domain:
            self._domains.setdefault(domain, 1)
        self._nodes.append(helper.make_node(operator, inputs, names, name=first, domain=domain, **attributes))
        return first

    def linear(self, name: str, x: str, inputs: int, outputs: int, scale: float = 0.02) -> str:
        """x W^T + b over the last axis of a matrix, as torch.nn.Linear keeps its weight."""
        weight = self.weight(f"{name}.weight", (outputs, inputs), scale)
        bias = self.weight(f"{name}.bias", (outputs,), 0.02)
        return self.node("Gemm", x, weight, bias, transB=1)

    def algorithm(self, step: Network, outputs: Sequence[str], updates: Mapping[str, str]) -> None:
        """A training step that the model brings with it: the nodes of another network, which read this one's weights
        by name; `updates` gives a weight the name of its next value."""
        info = TrainingInfoProto(algorithm=step.model(*outputs, *updates.values()).graph)
        for weight, value in updates.items():
            info.update_binding.add(key=weight, value=value)
        self._domains |= step._domains
        self._algorithms.append(info)

    def model(self, *outputs: str) -> ModelProto:
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        initializers = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, results, initializers)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._domains.items()]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="repro bench")
        made.training_info.extend(self._algorithms)
        return made
