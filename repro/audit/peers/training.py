"""Who runs training steps: PyTorch, and those that say why they do not."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto

from repro.artifact.canonical import Json
from repro.audit.peers.peer import Adder, PeerError
from repro.audit.peers.pytorch import COMPILE, TorchPeer, settle
from repro.audit.records import Executor, Outcome
from repro.ir.types import Array


class TorchTraining(TorchPeer):
    """PyTorch's autograd, losses and optimizers."""

    def named(self) -> tuple[Executor, ...]:
        return tuple(each for each in super().named() if not each.option(COMPILE))

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        settle(executor)
        from repro.audit.peers.torch_ops.training import Steps

        steps = Steps(model)
        found = steps.run(inputs)
        self._fallbacks = dict(steps.fallbacks)
        return found

    def implementations(self, model: ModelProto) -> Mapping[str, str]:
        """By the names of the forward model's nodes."""
        return dict(self._fallbacks)


class NoTraining:
    """A runtime that cannot train."""

    family = ""
    reason = ""

    def variants(self) -> tuple[Executor, ...]:
        return (Executor(self.family),)

    def named(self) -> tuple[Executor, ...]:
        return ()

    def versions(self) -> Mapping[str, Json]:
        return {}

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        return model

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        raise PeerError(Outcome.REFUSED, self.reason)

    def implementations(self, model: ModelProto) -> Mapping[str, str]:
        return {}

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        return {}


class OnnxRuntimeTraining(NoTraining):
    family = "onnxruntime"
    reason = "the inference package has no gradients and no optimizers"


class OnnxReferenceTraining(NoTraining):
    family = "onnx-reference"
    reason = "the evaluator has no gradients"
