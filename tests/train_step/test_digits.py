"""Twenty steps on the digits models: the reference and compiled programs give the same bits, and the loss falls."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from passes import pipeline
from passes.schedule import schedule
from repro.frontend import import_model, load_model
from repro.ir.program import Program
from repro.ir.types import Array
from repro.ops.record import evaluate
from repro.runtime.session import CpuExecutable
from repro.targets import cpu
from repro.train_step import TrainStep, train_step
from tests.train_step.digits import CASES, EVERYTHING, GOLDEN, STEPS, batches, step_of
from tests.train_step.record_torch import RECORD


def by_reference(step: TrainStep, data: Sequence[list[Array]]) -> list[tuple[Array, ...]]:
    """The results of each step."""
    state = [tensor.initial for tensor in step.state]
    found: list[tuple[Array, ...]] = []
    for inputs in data:
        found.append(evaluate(step.graph, inputs, state))
        for slot, result in step.updates:
            state[slot] = found[-1][result]
    return found


@dataclass(frozen=True)
class Compiled:
    """A step's program and code, for any number of threads."""

    step: TrainStep
    program: Program
    code: cpu.Code

    @classmethod
    def of(cls, step: TrainStep) -> Compiled:
        machine = cpu.best_machine()
        assert machine is not None
        program = pipeline.run(step.graph, dict(step.locations), step.updates).program
        schedules = [schedule(kernel, machine) for kernel in program.kernels]
        objects = [cpu.compile_kernel(*pair, machine) for pair in zip(program.kernels, schedules, strict=True)]
        objects.append(cpu.compile_program(program, schedules, machine))
        return cls(step, program, cpu.Code(objects))

    def run(self, data: Sequence[list[Array]], threads: int) -> list[list[bytes]]:
        """The outputs and the next state of each step."""
        made = CpuExecutable(self.program, self.code, threads)
        for slot, tensor in enumerate(self.step.state):
            made.set_parameter(slot, tensor.initial)
        found = [self._step(made, inputs) for inputs in data]
        made.close()
        return found

    def _step(self, made: CpuExecutable, inputs: list[Array]) -> list[bytes]:
        results = made.run(inputs)[: len(self.step.outputs)]
        state = [made.parameter(slot) for slot, _ in self.step.updates]
        return [array.tobytes() for array in (*results, *state) if array is not None]


def by_position(step: TrainStep, results: Sequence[Array]) -> list[bytes]:
    """A reference's results as a compiled step has them: outputs, then state by its bindings."""
    kept = [*results[: len(step.outputs)], *(results[result] for _, result in step.updates)]
    return [array.tobytes() for array in kept]


@dataclass(frozen=True)
class Case:
    """A training run by the reference, and its code."""

    step: TrainStep
    data: list[list[Array]]
    expected: list[tuple[Array, ...]]
    compiled: Compiled


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    step = step_of(*CASES[request.param])
    data = batches(step.inputs[0].type.shape)
    return Case(step, data, by_reference(step, data), Compiled.of(step))


def test_the_loss_falls(case: Case) -> None:
    losses = [float(results[0]) for results in case.expected]
    assert len(losses) == STEPS
    assert np.mean(losses[-4:]) < 0.6 * np.mean(losses[:4])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_compiled_steps_have_the_bits_of_the_reference(case: Case, threads: int) -> None:
    found = case.compiled.run(case.data, threads)
    assert len(found) == len(case.expected) == STEPS
    for mine, reference in zip(found, case.expected, strict=True):
        assert mine == by_position(case.step, reference)


def test_the_losses_are_those_of_pytorch() -> None:
    """With microbatches, clipping, schedule and frozen parameters: float64 of PyTorch on the whole batch."""
    step = step_of("digits_mlp", EVERYTHING)
    found = [results[0] for results in by_reference(step, batches(step.inputs[0].type.shape))]
    np.testing.assert_allclose(found, np.load(RECORD)["digits_mlp"], rtol=2e-5)


def test_what_is_trained_changes_and_nothing_else_does(case: Case) -> None:
    changed = {case.step.state[slot].name for slot, _ in case.step.updates}
    assert "learning_rate" not in changed
    assert {tensor.name for tensor in case.step.state if tensor.trainable} <= changed
    assert ("bn1.running_mean" in changed) == any("bn1" in tensor.name for tensor in case.step.state)
    for slot, result in case.step.updates:
        assert case.expected[-1][result].tobytes() != case.step.state[slot].initial.tobytes()


@pytest.mark.full
def test_a_transformer_has_the_bits_of_the_reference() -> None:
    loaded = load_model(GOLDEN / "nano_gpt" / "forward.onnx")
    step = train_step(import_model(loaded), dataclasses.replace(EVERYTHING, frozen=(), accumulation=1))
    ids, labels = step.inputs
    generator = np.random.default_rng(2)
    data = [[generator.integers(0, 96, ids.type.shape), generator.integers(0, 96, labels.type.shape)]] * 3
    found, expected = Compiled.of(step).run(data, 2), by_reference(step, data)
    for mine, reference in zip(found, expected, strict=True):
        assert mine == by_position(step, reference)
    assert float(expected[-1][0]) < float(expected[0][0])
