"""ONNX Runtime's training artifacts: steps against its own results, the same bits everywhere, what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import repro
from repro.errors import ReproError
from repro.frontend import import_model, load_model, load_source
from repro.frontend.ort_checkpoint import read_checkpoint
from repro.frontend.training_info import training_step
from repro.ir.types import Array
from repro.ops.record import evaluate
from repro.train_step import TrainStep, gradients, training_of
from tests.frontend.record_ort_training import ARTIFACTS, MODELS, RECORD, RESUMED, ROWS, SAVED, STEPS, batch, sample
from tests.train_step.test_digits import Compiled, by_position, by_reference

OPEN = ("digits_mlp", "digits_cnn", "normalized")
"""Models whose batch is bound at build."""
GOLDEN = Path(__file__).resolve().parents[2] / "golden"
NO_GRADIENT = {"digits_cnn": {"conv1.bias"}}
"""Stands before a normalization: its gradient is zero but for rounding, and Adam divides it by its own size."""


def batches(model: str) -> list[list[Array]]:
    return [[np.asarray(array) for array in batch(model, step)] for step in range(STEPS)]


def step_of(model: str) -> TrainStep:
    return training_step(load_source(ARTIFACTS / model), {"N": ROWS} if model in OPEN else {})


@dataclass(frozen=True)
class Case:
    """A model's steps by the reference, and their code."""

    model: str
    step: TrainStep
    expected: list[tuple[Array, ...]]
    compiled: Compiled


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest) -> Case:
    step = step_of(request.param)
    return Case(request.param, step, by_reference(step, batches(request.param)), Compiled.of(step))


def test_steps_are_those_of_onnxruntime(case: Case) -> None:
    model, step, results = case.model, case.step, case.expected
    state = {step.state[slot].name: results[-1][result] for slot, result in step.updates}
    with np.load(RECORD) as record:
        losses = [float(each[0]) for each in results]
        np.testing.assert_allclose(losses, record[f"{model}/losses"], rtol=2e-6)
        names = [name.partition("/")[2] for name in record.files if name.startswith(f"{model}/")]
        compared = 0
        for name in sorted(set(names) - {"losses"}):
            expected = record[f"{model}/{name}"].astype(np.float64)
            parameter, is_gradient, _ = name.partition("_grad")
            found = sample(state[f"{name}.accumulation.buffer" if is_gradient else name]).astype(np.float64)
            if parameter in NO_GRADIENT.get(model, ()):
                limit = 1e-6 if is_gradient else 1e-4
            else:
                limit = 5e-6 * np.abs(expected).max() if is_gradient else 1e-6
            assert np.abs(found - expected).max() <= limit, name
            compared += 1
    assert compared == len(names) - 1 > 10


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_compiled_steps_have_the_bits_of_the_reference(case: Case, threads: int) -> None:
    found = case.compiled.run(batches(case.model), threads)
    for mine, theirs in zip(found, case.expected, strict=True):
        assert mine == by_position(case.step, theirs)


def test_state_keeps_onnxruntimes_names() -> None:
    step = step_of("digits_cnn")
    trained = {f"{layer}.{kind}" for layer in ("conv1", "bn1", "conv2", "fc") for kind in ("weight", "bias")}
    made = {f"{name}{end}" for name in trained for end in ("", "_grad.accumulation.buffer", ".momentum0", ".momentum1")}
    changed = {step.state[slot].name for slot, _ in step.updates}
    assert changed == made | {"bn1.running_mean", "bn1.running_var", "step", "lazy_reset_grad"}
    assert {slot.name for slot in step.state} == changed | {"learning_rate"}
    assert [port.name for port in step.inputs] == ["input", "labels"]
    assert [port.name for port in step.outputs] == ["loss"]


def test_a_saved_optimizer_state_goes_on(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ARTIFACTS / RESUMED, tmp_path / "artifacts"))
    shutil.copy(folder / SAVED, folder / "checkpoint")
    step = training_step(load_source(folder))
    assert next(slot.initial for slot in step.state if slot.name == "step").tolist() == [STEPS]
    inputs = [np.asarray(array) for array in batch(RESUMED, STEPS)]
    after = by_name(step, by_reference(step, [inputs])[0])
    assert after["step"].tolist() == [STEPS + 1]
    with np.load(RECORD) as record:
        names = [name for name in record.files if name.startswith("resumed/")]
        assert len(names) == 8
        for name in names:
            np.testing.assert_allclose(sample(after[name.removeprefix("resumed/")]), record[name], rtol=0, atol=1e-6)


def test_gradients_are_those_that_repro_derives_itself() -> None:
    """Bit for bit, where the two state the same formulas."""
    step, model = step_of("digits_mlp"), GOLDEN / "digits_mlp" / "forward.onnx"
    own = gradients(import_model(load_model(model), {"N": ROWS}), training_of({"loss": "softmax_cross_entropy"}))
    inputs = batches("digits_mlp")[0]
    theirs = by_reference(step, [inputs])[0]
    mine = evaluate(own.graph, inputs, [slot.initial for slot in own.parameters])
    assert mine[0].tobytes() == theirs[0].tobytes()
    buffers = by_name(step, theirs)
    for port, array in zip(own.outputs[1:], mine[1:], strict=True):
        name = port.name.removesuffix(".grad")
        assert array.tobytes() == buffers[f"{name}_grad.accumulation.buffer"].tobytes(), name


def test_gradients_add_up_where_the_flag_is_lowered() -> None:
    step = step_of("digits_mlp")
    places = {slot.name: place for place, slot in enumerate(step.state)}
    results = dict(step.updates)
    buffer = places["fc3.bias_grad.accumulation.buffer"]
    (once,) = by_reference(step, batches("digits_mlp")[:1])
    lowered = [slot.initial for slot in step.state]
    lowered[places["lazy_reset_grad"]] = np.zeros(1, np.bool_)
    lowered[buffer] = np.full(10, 0.5, np.float32)
    added = evaluate(step.graph, batches("digits_mlp")[0], lowered)
    assert np.array_equal(added[results[buffer]], np.float32(0.5) + once[results[buffer]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ARTIFACTS / "digits_mlp", tmp_path / "artifacts"))


def by_name(step: TrainStep, results: Sequence[Array]) -> dict[str, Array]:
    return {step.state[slot].name: results[result] for slot, result in step.updates}


def test_gradients_that_are_clipped_before_the_optimizer(folder: Path) -> None:
    plain = step_of("digits_mlp")
    before = by_name(plain, by_reference(plain, batches("digits_mlp")[:1])[0])
    slopes = {name: array for name, array in before.items() if name.endswith(".buffer")}
    norm = np.sqrt(sum(float((array.astype(np.float64) ** 2).sum()) for array in slopes.values()))
    model = onnx.load(folder / "optimizer_model.onnx")
    clip = helper.make_node("InplaceClipGradNorm", ["gradients"], ["clipped"], domain="com.microsoft", max_norm=0.01)
    model.graph.node[0].input[3] = "clipped"
    model.graph.node.insert(0, clip)
    onnx.save(model, folder / "optimizer_model.onnx")
    step = training_step(load_source(folder), {"N": ROWS})
    after = by_name(step, by_reference(step, batches("digits_mlp")[:1])[0])
    assert norm > 0.1 and len(slopes) == 6
    for name, gradient in slopes.items():
        moment = after[name.replace("_grad.accumulation.buffer", ".momentum0")]
        np.testing.assert_allclose(moment, 0.1 * 0.01 / norm * gradient, rtol=1e-4, atol=1e-9)


def test_another_optimizer(folder: Path) -> None:
    model = onnx.load(folder / "optimizer_model.onnx")
    model.graph.node[0].CopyFrom(
        helper.make_node("SGDOptimizerV2", ["learning_rate", "params", "gradients"], ["done"], domain="com.microsoft")
    )
    kept = [item for item in model.graph.input if item.name in ("learning_rate", "params", "gradients")]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    onnx.save(model, folder / "optimizer_model.onnx")
    step = training_step(load_source(folder), {"N": ROWS})
    start = {slot.name: slot.initial for slot in step.state}
    after = by_name(step, by_reference(step, batches("digits_mlp")[:1])[0])
    assert "step" not in start and not any("momentum" in name for name in start)
    for name in ("fc1.weight", "fc3.bias"):
        moved = start[name] - np.float32(1e-3) * after[f"{name}_grad.accumulation.buffer"]
        assert np.array_equal(after[name], moved)


def test_the_folder_builds_and_verifies(tmp_path: Path) -> None:
    artifact = repro.build(ARTIFACTS / "digits_mlp", tmp_path / "made", bind={"N": ROWS}, targets="cpu/x86-64-v3")
    assert tuple(artifact.entries) == ("infer", "train_step")
    assert repro.verify(tmp_path / "made").exit_code == 0


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────


def refused(folder: Path, words: str) -> None:
    with pytest.raises(ReproError, match=words):
        training_step(load_source(folder), {"N": 2})


@pytest.mark.parametrize("name", ["checkpoint", "eval_model.onnx", "optimizer_model.onnx", "training_model.onnx"])
def test_a_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, name)


def test_an_unknown_optimizer(folder: Path) -> None:
    model = onnx.load(folder / "optimizer_model.onnx")
    model.graph.node[0].op_type = "LambOptimizer"
    onnx.save(model, folder / "optimizer_model.onnx")
    refused(folder, "LambOptimizer")


def test_an_input_that_nothing_gives(folder: Path) -> None:
    model = onnx.load(folder / "training_model.onnx")
    model.graph.input.append(helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, [1]))
    onnx.save(model, folder / "training_model.onnx")
    refused(folder, "more")


def test_a_parameter_without_a_gradient(folder: Path) -> None:
    model = onnx.load(folder / "training_model.onnx")
    del model.graph.node[-1]
    onnx.save(model, folder / "training_model.onnx")
    refused(folder, "fc1.bias|fc1.weight|fc2|fc3")


def test_a_damaged_checkpoint_is_an_error_and_never_a_fault() -> None:
    whole = (ARTIFACTS / "digits_cnn" / "checkpoint").read_bytes()
    random = np.random.Generator(np.random.Philox(5))
    outcomes = {True: 0, False: 0}
    for trial in range(3000):
        content = bytearray(whole)
        if trial % 3 == 0:
            del content[int(random.integers(0, len(whole))) :]
        # structure stands in the first bytes and around the names; the rest are numbers
        for _ in range(int(random.integers(1, 5))):
            if content:
                content[int(random.integers(0, min(len(content), 600 if trial % 2 else len(whole))))] ^= int(
                    random.integers(1, 256)
                )
        try:
            read_checkpoint(bytes(content))
        except ReproError:
            outcomes[False] += 1
        else:
            outcomes[True] += 1
    assert min(outcomes.values()) > 100


def _word(content: bytearray, at: int) -> int:
    return int.from_bytes(content[at : at + 4], "little")


def _field(content: bytearray, table: int, number: int) -> int:
    """Where the offset in a field of a table leads."""
    vtable = table - int.from_bytes(content[table : table + 4], "little", signed=True)
    place = table + int.from_bytes(content[vtable + 4 + 2 * number :][:2], "little")
    return place + _word(content, place)


def test_entries_that_share_a_tensor_are_refused() -> None:
    """Else a small file of many entries could ask for any amount of memory."""
    content = bytearray((ARTIFACTS / "digits_mlp" / "checkpoint").read_bytes())
    trained = _field(content, _field(content, _word(content, 0), 1), 0)
    entries = [trained + 4 + 4 * number for number in range(_word(content, trained))]
    state = read_checkpoint(bytes(content)).trained
    largest = max(range(len(state)), key=lambda number: state[number].array.nbytes)
    table = entries[largest] + _word(content, entries[largest])
    for entry in entries:
        content[entry : entry + 4] = (table - entry).to_bytes(4, "little")
    with pytest.raises(ReproError, match="damaged"):
        read_checkpoint(bytes(content))
