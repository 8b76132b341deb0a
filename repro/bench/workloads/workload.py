"""One thing to measure: a model, its inputs, and the same computation in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from repro.bench.network import Network
from repro.ir.types import Array

FORWARD, STEP = "forward", "step"
MODES = (FORWARD, STEP)

Tensors = Mapping[str, Any]
"""PyTorch tensors by name."""

ADAMW = {"loss": "softmax_cross_entropy", "optimizer": "adamw", "learning_rate": 1e-3}
MOMENTUM = {"loss": "softmax_cross_entropy", "optimizer": "momentum", "learning_rate": 1e-2}
"""Options of `repro.build` that make a step of a classifier."""


@dataclass(frozen=True, eq=False)
class Workload:
    """`network(mode)` gives the model and the names of its outputs; `torch(parameters, inputs)` is the same
    computation from tensors of the same names (None: PyTorch has no such operators). A `step` is one of the model with
    a loss and an optimizer (`training`, options of `repro.build`); a workload without them is measured forward alone.
    `buffers` are weights that no gradient changes. With `own_step` the model brings a step itself, and `torch` makes
    one: it is measured as that alone.
    """

    name: str
    what: str
    network: Callable[[str], tuple[Network, tuple[str, ...]]]
    inputs: Callable[[], dict[str, Array]]
    torch: Callable[[Tensors, Tensors, str], Any] | None
    training: Mapping[str, Any] = field(default_factory=dict[str, Any])
    labels: Callable[[], Array] | None = None
    buffers: tuple[str, ...] = ()
    own_step: bool = False
    onnxruntime: bool = True
    """Whether ONNX Runtime has its operators."""

    @property
    def modes(self) -> tuple[str, ...]:
        if self.own_step:
            return (STEP,)
        return MODES if self.training else (FORWARD,)
