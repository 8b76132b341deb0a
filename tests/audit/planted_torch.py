"""A peer with another momentum than it was told."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto

from repro.audit.peers.training import TorchTraining
from repro.audit.records import Executor
from repro.ir.types import Array
from tests.audit.training_runs import PLANTED, with_momentum


class PlantedTorch(TorchTraining):
    family = "planted"

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        return super().run(with_momentum(model, PLANTED), inputs, executor, lowered)
