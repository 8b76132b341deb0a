"""What an audit asks of another runtime. All of it but `variants` runs in a process of the executor's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from onnx import ModelProto

from repro.artifact.canonical import Json
from repro.audit.records import Executor, Outcome
from repro.ir.types import Array

Adder = Callable[[Array, Array], float]
"""The runtime's own reduction of two f32 vectors of one length: sum of products, or, where it sums, of the first."""


class PeerError(Exception):
    """A run that did not come to results: how it ended, and why, in a sentence."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


class Peer(Protocol):
    """A runtime. `family` is the first part of its executors' names."""

    family: str

    def variants(self) -> tuple[Executor, ...]:
        """The executors that an audit runs unless told otherwise, plainest first. Does not import the runtime."""
        ...

    def named(self) -> tuple[Executor, ...]:
        """Further executors, which run only when asked for by name: slow ones, or near doubles of `variants`."""
        ...

    def versions(self) -> Mapping[str, Json]:
        """The libraries that run and their versions. Raises PeerError(MISSING) where one is not installed."""
        ...

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        """The model that really runs: fused and folded, values that survive under their old names. The model itself
        where nodes run as they are."""
        ...

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        """The model's outputs by name. `lowered`: the model came from there and is run as it is. Raises PeerError."""
        ...

    def implementations(self, model: ModelProto) -> Mapping[str, str]:
        """By node name, what runs the nodes that the runtime does not run itself, or not as they are. Asked for after
        the model was run and lowered: for some runtimes only that shows it."""
        ...

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        """Its sums and dots by name (`sum`, `dot`), for probing their orders."""
        ...
