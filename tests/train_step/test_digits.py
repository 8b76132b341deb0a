"""Twenty steps on the digits models: the reference and compiled programs give the same bits, and the loss falls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
from repro.train_step.assemble import TrainStep, train_step
from repro.train_step.losses import SoftmaxCrossEntropy
from repro.train_step.optimizers import Adam, AdamW, Nesterov
from repro.train_step.problem import TrainOptions
from repro.train_step.schedules import Schedule

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
STEPS, BATCH = 20, 8
EVERYTHING = TrainOptions(
    SoftmaxCrossEntropy(),
    AdamW(),
    learning_rate=0.02,
    schedule=Schedule("cosine", total_steps=40, warmup_steps=3, warmup_start=0.1),
    clip_norm=1.0,
    accumulation=2,
    frozen=("fc*.bias",),
)
CASES = {
    "mlp": ("digits_mlp", TrainOptions(SoftmaxCrossEntropy(), Nesterov(), learning_rate=0.1)),
    "mlp, all options": ("digits_mlp", EVERYTHING),
    "cnn": ("digits_cnn", TrainOptions(SoftmaxCrossEntropy(), Adam(), learning_rate=0.02)),
    "cnn, all options": ("digits_cnn", EVERYTHING),
}


def step_of(model: str, options: TrainOptions) -> TrainStep:
    loaded = load_model(GOLDEN / model / "forward.onnx")
    return train_step(import_model(loaded, {"N": BATCH // options.accumulation}), options)


def batches(step: TrainStep) -> list[list[Array]]:
    """Blurred digits of ten kinds, the same four batches again and again."""
    generator = np.random.default_rng(5)
    shape = step.inputs[0].type.shape
    prototypes = generator.random((10, *shape[1:]))
    made: list[list[Array]] = []
    for _ in range(4):
        labels = generator.integers(0, 10, BATCH)
        images = prototypes[labels] + 0.1 * generator.standard_normal(shape)
        made.append([images.astype(np.float32), labels])
    return [made[number % 4] for number in range(STEPS)]


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
    scratch: int

    @classmethod
    def of(cls, step: TrainStep) -> Compiled:
        machine = cpu.best_machine()
        assert machine is not None
        program = pipeline.run(step.graph, dict(step.locations), step.updates).program
        schedules = [schedule(kernel, machine) for kernel in program.kernels]
        objects = [cpu.compile_kernel(*pair, machine) for pair in zip(program.kernels, schedules, strict=True)]
        objects.append(cpu.compile_program(program, schedules, machine))
        return cls(step, program, cpu.load(objects), cpu.scratch_bytes(program, schedules))

    def run(self, data: Sequence[list[Array]], threads: int) -> list[list[Array]]:
        """The results of each step, as flat arrays."""
        made = CpuExecutable(self.program, self.code, self.scratch, threads)
        for slot, tensor in enumerate(self.step.state):
            made.set_parameter(slot, tensor.initial)
        found = [made.run(inputs)[: len(self.step.graph.results)] for inputs in data]
        made.close()
        return found


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
    data = batches(step)
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
        assert [flat.tobytes() for flat in mine] == [value.tobytes() for value in reference]


def test_what_is_trained_changes_and_nothing_else_does(case: Case) -> None:
    changed = {case.step.state[slot].name for slot, _ in case.step.updates}
    assert "learning_rate" not in changed
    assert {tensor.name for tensor in case.step.state if tensor.trainable} <= changed
    assert ("bn1.running_mean" in changed) == any("bn1" in tensor.name for tensor in case.step.state)
    for slot, result in case.step.updates:
        assert case.expected[-1][result].tobytes() != case.step.state[slot].initial.tobytes()
