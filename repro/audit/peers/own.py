"""repro's own targets as executors: they must agree with golden, and their runs prove that they do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto

from repro.artifact.cache import Cache
from repro.artifact.canonical import Json
from repro.artifact.verify import REFERENCE_LIMIT
from repro.audit.golden import FAMILY, TooMuchWorkError, execute, own_executors, own_versions
from repro.audit.peers.peer import Adder, PeerError
from repro.audit.probes.own import own_adders
from repro.audit.records import Executor, Outcome
from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.ir.types import Array
from repro.targets import registry


class Own:
    """Compiles the model that it is given for the executor's target; code comes from `cache` where it can."""

    family = FAMILY

    def __init__(self, cache: Cache | None = None) -> None:
        self.cache = cache

    def variants(self) -> tuple[Executor, ...]:
        return own_executors()

    def named(self) -> tuple[Executor, ...]:
        return ()

    def versions(self) -> Mapping[str, Json]:
        return own_versions()

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        return model

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        try:
            return self.execute(model, inputs, executor)
        except TooMuchWorkError as error:
            raise PeerError(Outcome.SKIPPED, f"cost: {error}") from None
        except ReproError as error:
            outcome = Outcome.SKIPPED if error.exit_code == EXIT_INCOMPLETE else Outcome.FAILED
            raise PeerError(outcome, "; ".join(line.strip() for line in str(error).splitlines())) from None

    def execute(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor) -> dict[str, Array]:
        """The outputs. Raises ReproError, and TooMuchWorkError above the reference's limit."""
        return execute(model, Path(), inputs, executor, self.cache, limit=REFERENCE_LIMIT)

    def implementations(self, model: ModelProto) -> Mapping[str, str]:
        return {}

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        """Of compiled targets; the reference would take minutes over a tree."""
        target = executor.option("target")
        if registry.runner_called(target) is None:
            return {}
        return own_adders(target, int(executor.option("threads", "1")), self.cache)
