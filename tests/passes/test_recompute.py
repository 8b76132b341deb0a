"""Programs under a memory budget: they fit, they have the bits of the program that keeps everything."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import repro
from passes import pipeline
from passes.earlier import earlier
from passes.recompute import MemoryBudgetError, recompute
from repro.artifact.compiling import compile_programs
from repro.artifact.config import Config
from repro.cli import parse
from repro.driver import default_cache
from repro.frontend import import_model, load_model
from repro.ir.parse_program import parse_program
from repro.ir.program import TEMPORARY, Call, CountedLoop, Program, walk
from repro.ir.types import Array
from repro.ir.work import program_operations
from repro.targets import cpu, registry
from repro.targets.protocol import CompiledProgram
from repro.train_step import TrainStep, train_step, training_of
from tests.passes.symbolic import terms

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
BUDGETS = {"digits_cnn": (95, 85), "nano_gpt": (75, 60, 50)}
"""Percent of the arena with calls moved up. A call of digits_cnn reads and writes 84.9 % at once."""
CASES = [(name, percent) for name, percents in BUDGETS.items() for percent in percents]


@dataclass(frozen=True)
class Trained:
    step: TrainStep
    program: Program
    data: tuple[tuple[Array, ...], ...]


LOOPS: dict[str, dict[str, int]] = {
    "accumulation": {"accumulation": 2},
    "shards": {"shards": 2},
    "both": {"accumulation": 2, "shards": 2},
}
LOOP_BUDGETS = {
    **dict.fromkeys(["digits_cnn accumulation", "digits_cnn both"], (98, 96)),
    **dict.fromkeys([f"nano_gpt {way}" for way in LOOPS], (80, 60)),
}
"""Percent, by the ways above to have the step in loops. (What digits_mlp and digits_cnn by shards hold they hold all at
once: nothing to repeat.)"""
LOOP_CASES = [(case, percent) for case, kept in LOOP_BUDGETS.items() for percent in kept]


@cache
def trained(case: str) -> Trained:
    """By model, and the way in which its step has loops."""
    name, _, way = case.partition(" ")
    model = import_model(load_model(GOLDEN / name / "forward.onnx"), {} if name == "nano_gpt" else {"N": 16})
    step = train_step(model, training_of({"loss": "softmax_cross_entropy", "optimizer": "adamw", **LOOPS.get(way, {})}))
    program = pipeline.run(step.graph, dict(step.locations), step.updates).program
    generator = np.random.default_rng(5)
    data: list[tuple[Array, ...]] = []
    for _ in range(2):
        images = [port.type for port in step.inputs]
        data.append(
            tuple(
                np.asarray(generator.random(kind.shape), np.float32)
                if kind.dtype.name == "f32"
                else generator.integers(0, 10, kind.shape).astype(kind.dtype.face)
                for kind in images
            )
        )
    return Trained(step, program, tuple(data))


def budget(name: str, percent: int) -> int:
    return earlier(trained(name).program).arena_bytes * percent // 100


@cache
def bounded(name: str, percent: int) -> Program:
    return recompute(trained(name).program, budget(name, percent))


def compiled(program: Program) -> CompiledProgram:
    """Code for this host; programs share their kernels' objects by the session's cache."""
    best = registry.best(registry.CPU)
    assert best is not None
    return compile_programs([(best.code, program)], default_cache(), lambda *_: None)[0]


def results(name: str, code: CompiledProgram, threads: int) -> list[bytes]:
    """Outputs of two steps, then every parameter."""
    case = trained(name)
    made = registry.runner(code.target.name).open(
        code, [tensor.initial.reshape(-1) for tensor in case.step.state], threads
    )
    found = [flat.tobytes() for inputs in case.data for flat in made.run(inputs)]
    parameters = [made.parameter(slot) for slot in range(len(case.step.state))]
    found += [value.tobytes() for value in parameters if value is not None]
    made.close()
    return found


@pytest.mark.parametrize(("name", "percent"), CASES)
def test_the_arena_fits_and_calls_are_repeated(name: str, percent: int) -> None:
    before, after = trained(name).program, bounded(name, percent)
    assert after.arena_bytes <= budget(name, percent)
    assert len(after.steps) > len(before.steps)
    assert program_operations(before) < program_operations(after) < 2 * program_operations(before)
    assert (after.kernels, after.constants, after.written) == (before.kernels, before.constants, before.written)
    ends = [b.position + b.nbytes for b in after.buffers if b.role == TEMPORARY]
    assert max(ends) <= after.arena_bytes


@pytest.mark.parametrize("name", BUDGETS)
def test_outputs_and_state_have_the_same_bits(name: str) -> None:
    expected = results(name, compiled(trained(name).program), 1)
    assert len(expected) > len(trained(name).step.updates)
    for percent in BUDGETS[name]:
        code = compiled(bounded(name, percent))
        for threads in (1, 2):
            assert results(name, code, threads) == expected, (percent, threads)


@pytest.mark.parametrize(("case", "percent"), LOOP_CASES)
def test_in_loops_the_arena_fits_and_a_run_ends_in_the_same_values(case: str, percent: int) -> None:
    before, after = trained(case).program, bounded(case, percent)
    assert any(isinstance(step, CountedLoop) for step in before.steps)
    assert after.arena_bytes <= budget(case, percent)
    assert program_operations(before) <= program_operations(after) < 2 * program_operations(before)
    assert (after.kernels, after.constants, after.written) == (before.kernels, before.constants, before.written)
    assert terms(after) == terms(before)


def in_bodies(program: Program) -> int:
    """Calls inside of loops."""
    return sum(isinstance(step, Call) for step in walk(program.steps)) - sum(
        isinstance(step, Call) for step in program.steps
    )


@pytest.mark.parametrize("case", LOOP_BUDGETS)
def test_calls_are_repeated_in_bodies(case: str) -> None:
    assert in_bodies(bounded(case, LOOP_BUDGETS[case][-1])) > in_bodies(trained(case).program) > 0


def test_calls_that_are_moved_up_lower_the_arena_alone() -> None:
    """A sum over shards takes its new value before the next is begun: nothing is repeated."""
    program = trained("digits_mlp shards").program
    after = recompute(program, program.arena_bytes - 1)
    assert program_operations(after) == program_operations(program)
    assert after.steps != program.steps
    assert terms(after) == terms(program)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.endswith("both") else pytest.mark.full) for case in LOOP_BUDGETS],
)  # fmt: skip
def test_in_loops_outputs_and_state_have_the_same_bits(case: str) -> None:
    expected = results(case, compiled(trained(case).program), 1)
    assert len(expected) > len(trained(case).step.updates)
    for percent in LOOP_BUDGETS[case]:
        code = compiled(bounded(case, percent))
        for threads in (1, 2):
            assert results(case, code, threads) == expected, (percent, threads)


@pytest.mark.parametrize(("name", "percent"), CASES)
def test_the_text_parses_back(name: str, percent: int) -> None:
    program = bounded(name, percent)
    kernels = {f"sha256:{kernel.digest}": kernel for kernel in program.kernels}
    constants = iter(program.constants)
    parsed = parse_program(program.text, kernels.__getitem__, lambda _: next(constants))
    assert parsed.text == program.text


@pytest.mark.parametrize(("name", "percent"), CASES)
def test_every_read_sees_the_value_that_the_whole_program_gives_it(name: str, percent: int) -> None:
    """Each call as a term over the calls before it: both programs leave the same terms in their outputs."""
    assert terms(bounded(name, percent)) == terms(trained(name).program)


def test_an_impossible_budget_is_refused_and_the_size_named_is_met() -> None:
    program = trained("digits_cnn").program
    with pytest.raises(MemoryBudgetError) as caught:
        recompute(program, program.arena_bytes // 100)
    error = caught.value
    assert error.found is not None and error.expected == f"at most {program.arena_bytes // 100} bytes"
    least = int(error.found.split()[0])
    assert program.arena_bytes // 100 < least < program.arena_bytes
    assert recompute(program, least).arena_bytes <= least


def test_a_budget_that_fits_changes_nothing_and_the_choice_is_repeated() -> None:
    program = trained("nano_gpt").program
    assert recompute(program, program.arena_bytes) is program
    again = recompute(program, budget("nano_gpt", 60))
    assert again.text == bounded("nano_gpt", 60).text


def test_an_artifact_with_a_budget_verifies(tmp_path: Path) -> None:
    machine = cpu.best_machine()
    assert machine is not None

    def build(folder: str, budget: int | None) -> Config:
        built = repro.build(
            GOLDEN / "digits_cnn" / "forward.onnx", tmp_path / folder, bind={"N": 16}, targets=machine.name,
            memory_budget=budget, loss="softmax_cross_entropy", optimizer="adamw",
        )  # fmt: skip
        return built.config

    most = budget("digits_cnn", 95)
    whole, small = build("whole", None), build("small", most)
    assert (whole.build.memory_budget, small.build.memory_budget) == (None, most)
    assert whole.entries == small.entries and whole.golden == small.golden
    assert whole.targets[0].entries[-1].program != small.targets[0].entries[-1].program
    passes = [
        [step.name for each in config.passes if not each.target for step in each.passes] for config in (whole, small)
    ]
    assert passes[1] == [*passes[0], "recompute"]
    report = repro.verify(tmp_path / "small", targets=machine.name)
    assert report.exit_code == 0, report.summary
    with pytest.raises(repro.ReproError, match="by entry infer"):
        build("none", 64)


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("512MiB", 512 << 20), ("2GB", 2 * 10**9), ("3kB", 3000), ("0", 0), ("7B", 7)],
)
def test_sizes_on_the_command_line(text: str, size: int) -> None:
    options = parse(["build", "model.onnx", "--memory-budget", text])
    assert options.memory_budget == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1.5GB", "1 GB", "1TB", "9007199254740992", "1mib", "٣"])
def test_words_that_are_no_size(text: str) -> None:
    with pytest.raises(SystemExit):
        parse(["build", "model.onnx", "--memory-budget", text])
