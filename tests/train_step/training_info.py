"""Models with training_info, made by hand, for the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from repro.frontend import LoadedModel, load_model
from repro.frontend.scope import TRAINING_DOMAIN
from tests.frontend.models import value


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: str = "",
    initializers: Mapping[str, Any] | None = None,
) -> onnx.GraphProto:
    """A graph whose outputs are declared without a type."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (initializers or {}).items()]
    declared = [onnx.ValueInfoProto(name=name) for name in outputs.split()]
    return helper.make_graph(nodes, "graph", inputs, declared, tensors)


def _pairs(words: str) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (pair.partition("=") for pair in words.split())]


@dataclass(frozen=True)
class Info:
    """A TrainingInfoProto; bindings as pairs of words: `key=value key=value`."""

    algorithm: onnx.GraphProto
    update: str = ""
    initialization: onnx.GraphProto = field(default_factory=lambda: graph([]))
    start: str = ""

    @property
    def proto(self) -> onnx.TrainingInfoProto:
        return helper.make_training_info(self.algorithm, _pairs(self.update), self.initialization, _pairs(self.start))


def with_training(inference: onnx.GraphProto, *infos: Info) -> LoadedModel:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(TRAINING_DOMAIN, 1)]
    made = helper.make_model(inference, opset_imports=imports, ir_version=10)
    made.training_info.extend(info.proto for info in infos)
    return load_model(made)


def scaled(outputs: str = "y") -> onnx.GraphProto:
    """y = x * w."""
    return graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])], [value("x", (3,))], outputs, {"w": np.ones(3, np.float32)}
    )
