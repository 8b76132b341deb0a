"""Executors for tests of the command: one that agrees, one whose dot is off by an ULP, one missing, one that aborts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from onnx import ModelProto

from repro.artifact.canonical import Json
from repro.audit.golden import own_executors
from repro.audit.peers.own import Own
from repro.audit.peers.own_training import OwnTraining
from repro.audit.peers.peer import Adder, PeerError
from repro.audit.records import Executor, Outcome
from repro.ir.types import Array

PEERS = {
    "repro": "tests.audit.small_peers:OneTarget",
    "off": "tests.audit.small_peers:Off",
    "missing": "tests.audit.small_peers:Missing",
    "aborting": "tests.audit.small_peers:Aborting",
}
TRAINING = {"repro": "tests.audit.small_peers:OneTargetTraining"}
OFF, OTHER = Executor("off"), Executor("off", (("threads", "1"), ("way", "other")))


class OneTarget(Own):
    """repro on one target: quick."""

    def variants(self) -> tuple[Executor, ...]:
        return own_executors()[:1]

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        return {}


class OneTargetTraining(OwnTraining):
    """The same for training steps."""

    def variants(self) -> tuple[Executor, ...]:
        return own_executors()[:1]


class Off(Own):
    """repro's own results, those of MatMul moved to the next float; the other way by two."""

    family = "off"

    def variants(self) -> tuple[Executor, ...]:
        return (OFF,)

    def named(self) -> tuple[Executor, ...]:
        return (OTHER,)

    def versions(self) -> Mapping[str, Json]:
        return {"off": "1.0"}

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        found = super().run(model, inputs, replace(own_executors()[0]), lowered)
        dots = {node.output[0] for node in model.graph.node if node.op_type == "MatMul"}
        steps = 2 if executor == OTHER else 1
        for name in dots & found.keys():
            for _ in range(steps):
                found[name] = np.nextafter(found[name], np.float32(np.inf))
        return found

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        """A sum in sequence: NumPy's running sums are."""
        return {"sum": lambda terms, _: float(np.cumsum(terms, dtype=np.float32)[-1])}


class Missing(Own):
    """A library that is not installed."""

    family = "missing"

    def variants(self) -> tuple[Executor, ...]:
        return (Executor("missing"),)

    def versions(self) -> Mapping[str, Json]:
        raise PeerError(Outcome.MISSING, "missing is not installed")

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        raise PeerError(Outcome.MISSING, "missing is not installed")


class Aborting(Missing):
    """A library that ends the process."""

    family = "aborting"

    def variants(self) -> tuple[Executor, ...]:
        return (Executor("aborting"),)

    def versions(self) -> Mapping[str, Json]:
        os.abort()
