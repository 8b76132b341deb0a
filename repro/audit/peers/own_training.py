"""repro's own training steps as executors: its targets must agree with golden in every value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from onnx import ModelProto

from repro.artifact.cache import Cache
from repro.artifact.sessions import Session
from repro.artifact.verify import REFERENCE_LIMIT
from repro.audit import unrolled
from repro.audit.golden import session_of
from repro.audit.model import fed_name
from repro.audit.peers.own import Own
from repro.audit.peers.peer import PeerError
from repro.audit.records import Executor, Outcome
from repro.frontend.tensors import read_array
from repro.ir.types import Array, to_face

Progress = Callable[[str, int, int], None]
FED = fed_name("")
"""How the names end of inputs that stand for values."""


class OwnTraining(Own):
    """Runs a model of training steps with the entries `train_step` and `gradients`, on the executor's target."""

    def execute(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor) -> dict[str, Array]:
        if any(item.name.endswith(FED) for item in model.graph.input):
            raise PeerError(Outcome.REFUSED, "a compiled step is not run node by node")
        found = run_steps(model, inputs, executor, self.cache, limit=REFERENCE_LIMIT)
        return {item.name: found[item.name] for item in model.graph.output}


def run_steps(
    model: ModelProto,
    inputs: Mapping[str, Array],
    executor: Executor,
    cache: Cache | None,
    progress: Progress = lambda *_: None,
    limit: int | None = None,
) -> dict[str, Array]:
    """Every value of a training run, by name. Raises ReproError, and TooMuchWorkError above the limit."""
    entry, slopes = unrolled.entries_of(model)
    changed = [entry.parameters[slot].name for slot, _ in entry.updates]
    found: dict[str, Array] = {}
    with contextlib.ExitStack() as stack:
        training = stack.enter_context(session_of(entry, executor, cache, progress, limit))
        gradients = stack.enter_context(session_of(slopes, executor, cache, progress, limit)) if slopes else None
        training.state = _initial(model, training)
        for number in range(1, unrolled.steps_of(model) + 1):
            given = {port.name: inputs[unrolled.at(number, port.name)] for port in entry.inputs}
            if gradients is not None:
                found |= _gradients(gradients, training, given, number)
            found |= {unrolled.at(number, name): array for name, array in training.run(given).items()}
            after = training.state
            found |= {unrolled.state_at(number, name): after[name] for name in changed}
    return found


def _initial(model: ModelProto, session: Session) -> dict[str, Array]:
    """The state before the first step, as the model has it."""
    own = session.state_views()
    arrays = ((item.name, *read_array(item, None)) for item in model.graph.initializer if item.name in own)
    return {name: to_face(array, dtype) for name, array, dtype in arrays}


def _gradients(session: Session, training: Session, given: Mapping[str, Array], number: int) -> dict[str, Array]:
    """By name; the loss of this entry is that of the step."""
    before = training.state_views()
    session.state = {name: before[name] for name in session.state_views()}
    found = session.run(given)
    ends = {f"{name}.grad": name for name in before}
    return {unrolled.gradient_at(number, ends[name]): array for name, array in found.items() if name in ends}
