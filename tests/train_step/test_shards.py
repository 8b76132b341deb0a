"""Virtual shards (rule 17): equal bits with the unsharded graph, run shard by shard and added by hand.

The unsharded graph is given the count of all shards, so that its gradients start where those of a shard start.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from golden import bless
from repro.errors import ReproError
from repro.frontend import Imported, import_model, load_model
from repro.ir.graph import Value
from repro.ir.text import print_graph
from repro.ir.types import Array, DType
from repro.ops import scalar
from repro.ops.record import evaluate
from repro.train_step import TrainStep, gradients, train_step, training_of, words_of
from repro.train_step.losses import MeanSquaredError, SoftmaxCrossEntropy
from repro.train_step.optimizers import Sgd
from repro.train_step.problem import TrainOptions
from tests.train_step.digits import GOLDEN
from tests.train_step.running import model
from tests.train_step.test_assemble import W, dropped, dropping, imported, linear, normalized, run
from tests.train_step.test_digits import Compiled, by_position, by_reference

RATE = 0.5
ENTROPY, SQUARES = SoftmaxCrossEntropy(ignore_index=1), MeanSquaredError()


def added(values: Sequence[Array]) -> Array:
    """(0, 1), (2, 3) ..., then pairs of pairs."""
    known = list(values)
    while len(known) > 1:
        known = [known[place] + known[place + 1] for place in range(0, len(known), 2)]
    return known[0]


@dataclass(frozen=True)
class CountedEntropy(SoftmaxCrossEntropy):
    """With a count that is given."""

    given: float = 1.0

    def count(self, y: Value, w: Value | None, dtype: DType) -> Value:
        return scalar(self.given, dtype)


@dataclass(frozen=True)
class CountedSquaredError(MeanSquaredError):
    """With a count that is given."""

    given: float = 1.0

    def count(self, y: Value, w: Value | None, dtype: DType) -> Value:
        return scalar(self.given, dtype)


def counted(options: TrainOptions, count: float) -> TrainOptions:
    entropy = CountedEntropy(ignore_index=ENTROPY.ignore_index, given=count)
    loss = entropy if isinstance(options.loss, SoftmaxCrossEntropy) else CountedSquaredError(given=count)
    return dataclasses.replace(options, loss=loss, shards=1)


def looked_up(rows: int) -> ModelProto:
    """Rows of a table, picked by an index in f32; duplicates are added up in its gradient."""
    nodes = [
        helper.make_node("Cast", ["x"], ["index"], to=7),
        helper.make_node("Gather", ["table", "index"], ["h"]),
        helper.make_node("Gemm", ["h", "w"], ["y"]),
    ]
    table = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    return model(nodes, {"x": (rows,)}, ["y"], {"table": table, "w": W})


def recurrent(rows: int) -> ModelProto:
    """An LSTM of five steps: a loop within that of the shards."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "w", "r"], ["", "last"], hidden_size=4),
        helper.make_node("Squeeze", ["last", "axes"], ["y"]),
    ]
    generator = np.random.default_rng(4)
    weights = {name: generator.standard_normal((1, 16, n)).astype(np.float32) for name, n in (("w", 3), ("r", 4))}
    return model(nodes, {"x": (rows, 5, 3)}, ["y"], weights | {"axes": np.array([0])})


def convolutional(rows: int) -> ModelProto:
    return load_model(GOLDEN / "digits_cnn" / "forward.onnx").proto


@dataclass(frozen=True)
class Case:
    """A model of `rows` rows, and how it is trained."""

    made: Any
    options: TrainOptions
    rows: int

    @property
    def imported(self) -> Imported:
        bind = {"N": self.rows} if self.made is convolutional else {}
        return import_model(load_model(self.made(self.rows)), bind)

    def step(self, options: TrainOptions) -> TrainStep:
        return train_step(self.imported, options)

    def data(self) -> list[Array]:
        """Inputs of the step with shards."""
        generator = np.random.default_rng(11)
        step = self.step(self.options)
        x, labels = (port.type for port in step.inputs[:2])
        rows = x.shape[0]
        first = generator.integers(0, 3, rows) if self.made is looked_up else generator.standard_normal(x.shape)
        entropy = isinstance(self.options.loss, SoftmaxCrossEntropy)
        second = generator.integers(0, 3, labels.shape) if entropy else generator.standard_normal(labels.shape)
        found = [first.astype(np.float32), second.astype(np.int64 if entropy else np.float32)]
        if len(step.inputs) > 2:
            found.append(generator.random(step.inputs[2].type.shape).astype(np.float32))
        return found

    def shard(self, data: Sequence[Array], number: int) -> list[Array]:
        """Its inputs: a run of each microbatch. Class weights are those of all."""
        options = self.options
        shared = options.weighted and not options.loss.weight_is_split
        cut: list[Array] = []
        for place, array in enumerate(data):
            runs = [
                microbatch[number * self.rows : (number + 1) * self.rows]
                for microbatch in np.split(array, options.accumulation)
            ]
            cut.append(array if shared and place == 2 else np.concatenate(runs))
        return cut

    def count(self, data: Sequence[Array]) -> Array:
        """Of one shard."""
        weight = data[2] if self.options.weighted else None
        if isinstance(self.options.loss, SoftmaxCrossEntropy):
            kept = data[1] != ENTROPY.ignore_index
            each = np.ones(len(kept), np.float32) if weight is None else weight[data[1]]
            return _leaf(np.where(kept, each, np.float32(0)))
        return np.array(data[1].size, np.float32) if weight is None else _leaf(weight.reshape(-1))


def _leaf(values: Array) -> Array:
    """A sum by rule 10 of up to 32 values: halves onto each other."""
    assert len(values) <= 32
    lanes = np.full(32, -0.0, np.float32)
    lanes[: len(values)] = values
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return lanes.reshape(())


def options(loss: Any, shards: int, accumulation: int = 1, weighted: bool = False) -> TrainOptions:
    rate = Sgd(), None, weighted, RATE
    return TrainOptions(loss, *rate, shards=shards, accumulation=accumulation)


CASES = {
    "gemm": Case(linear, options(SQUARES, 4), 3),
    "gemm, weights": Case(linear, options(SQUARES, 2, 2, True), 3),
    "classes, microbatches": Case(linear, options(ENTROPY, 4, 3), 2),
    "classes, weights": Case(linear, options(ENTROPY, 2, 1, True), 5),
    "BatchNormalization": Case(normalized, options(SQUARES, 8), 2),
    "BatchNormalization, microbatches": Case(normalized, options(SQUARES, 2, 3), 4),
    "duplicate indices": Case(looked_up, options(SQUARES, 4), 5),
    "LSTM, microbatches": Case(recurrent, options(SQUARES, 4, 2), 2),
    "cnn": Case(convolutional, options(ENTROPY, 4), 2),
    "cnn, microbatches": Case(convolutional, options(ENTROPY, 2, 2), 3),
}


@dataclass(frozen=True)
class Expected:
    """What a step with shards gives: the loss, by name the gradients, the next values of what changes."""

    loss: Array
    gradients: dict[str, Array]
    statistics: dict[str, Array]

    @classmethod
    def of(cls, case: Case, data: Sequence[Array]) -> Expected:
        """By unsharded graphs, one shard after another."""
        parts = [case.shard(data, number) for number in range(case.options.shards)]
        count = added([case.count(part) for part in parts])
        undivided = case.step(counted(case.options, 1.0))
        ran = [run(undivided, *part) for part in parts]
        entry = gradients(case.imported, counted(case.options, float(count)))
        initial = [slot.initial for slot in entry.parameters]
        slopes = zip(*(evaluate(entry.graph, part, initial)[1:] for part in parts), strict=True)
        names = [port.name.removesuffix(".grad") for port in entry.outputs[1:]]
        moving = {undivided.state[slot].name for slot, _ in undivided.updates}.difference(names, ("step",))
        return cls(
            loss=added([total for total, _ in ran]) / count,
            gradients={name: added(each) for name, each in zip(names, slopes, strict=True)},
            statistics={name: added([state[name] for _, state in ran]) / np.float32(len(parts)) for name in moving},
        )


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_the_shards_one_by_one(name: str) -> None:
    case = CASES[name]
    data, step = case.data(), case.step(case.options)
    expected = Expected.of(case, data)
    assert len(expected.statistics) == 2 * name.startswith(("BatchNormalization", "cnn"))
    loss, state = run(step, *data)
    assert loss.tobytes() == expected.loss.tobytes()
    before = {tensor.name: tensor.initial for tensor in step.state}
    after = {kept: before[kept] - np.float32(RATE) * slope for kept, slope in expected.gradients.items()}
    after |= expected.statistics
    assert {step.state[slot].name for slot, _ in step.updates} == {*after, "step"}
    for kept, value in after.items():
        assert state[kept].tobytes() == value.tobytes() != before[kept].tobytes()
    entry = gradients(case.imported, case.options)
    found = evaluate(entry.graph, data, [slot.initial for slot in entry.parameters])
    assert [value.tobytes() for value in found[1:]] == [slope.tobytes() for slope in expected.gradients.values()]
    assert found[0].tobytes() == loss.tobytes()


def test_gradients_are_added_in_pairs() -> None:
    """Where every other order gives other bits, and each shard adds up its microbatches first."""
    proto = model([helper.make_node("Add", ["x", "b"], ["y"])], {"x": (1, 2)}, ["y"], {"b": np.zeros(2, np.float32)})
    entry = gradients(imported(proto), TrainOptions(MeanSquaredError(), shards=4, accumulation=2))
    rows = [1e8, 3.1, -1e8, 1.7, 0.3, 7.7, 2.9, -1e4]
    x = np.array([[row, row / 3] for row in rows], np.float32)
    found = evaluate(entry.graph, (x, np.zeros_like(x)), [np.full(2, -0.0, np.float32)])[1]
    seed = np.float32(1) / np.float32(16)
    terms = [seed * row + seed * row for row in x]
    shards = [terms[number] + terms[4 + number] for number in range(4)]
    assert found.tobytes() == ((shards[0] + shards[1]) + (shards[2] + shards[3])).tobytes()
    assert found.tobytes() != (((shards[0] + shards[1]) + shards[2]) + shards[3]).tobytes()
    assert found.tobytes() != ((shards[0] + shards[2]) + (shards[1] + shards[3])).tobytes()
    first, second = (added(terms[start : start + 4]) for start in (0, 4))
    assert found.tobytes() != (first + second).tobytes()


def test_counts_are_added_in_pairs() -> None:
    """Where the sum over the whole batch has other bits."""
    proto = model([helper.make_node("Mul", ["x", "b"], ["y"])], {"x": (1, 1)}, ["y"], {"b": np.ones(1, np.float32)})
    entry = gradients(imported(proto), TrainOptions(MeanSquaredError(), shards=4, weighted=True))
    x, weight = (np.array([values], np.float32).T for values in ([0.5, 2, 3, 7], [1e8, 3, -1e8, 12]))
    found = evaluate(entry.graph, (x, np.zeros_like(x), weight), [np.ones(1, np.float32)])
    count = added(list(weight[:, 0]))
    assert count != _leaf(weight[:, 0])
    assert found[0].tobytes() == (added(list((x * x * weight)[:, 0])) / count).tobytes()


def test_shards_draw_the_numbers_of_the_whole_batch() -> None:
    whole = train_step(imported(dropping(8)), TrainOptions(MeanSquaredError()))
    expected = dropped(whole, 8, 3)
    assert 4 < expected.sum() < 28
    for shards, accumulation in ((2, 1), (4, 1), (2, 2)):
        rows = 8 // (shards * accumulation)
        training = TrainOptions(MeanSquaredError(), shards=shards, accumulation=accumulation)
        assert (dropped(train_step(imported(dropping(rows)), training), 8, 3) == expected).all()


@pytest.mark.parametrize("name", ["digits_mlp_trained", "digits_cnn_trained"])
def test_one_shard_gives_the_golden_graph(name: str) -> None:
    case = bless.cases()[name]
    layers = json.loads((bless.MANIFESTS / f"{name}.json").read_bytes())["layers"]
    golden = {layer["annotations"]["org.opencontainers.image.title"]: layer["digest"] for layer in layers}
    case["training"]["shards"] = 1
    entries = bless.entries(case)
    assert len(entries) >= 2
    for entry in entries:
        text = print_graph(entry.graph).encode()
        assert golden[f"graphs/{entry.name}.txt"] == f"sha256:{hashlib.sha256(text).hexdigest()}"


def test_the_number_of_shards_is_part_of_the_identity() -> None:
    digests = {CASES["gemm"].step(options(SQUARES, shards)).graph.digest for shards in (1, 2, 4)}
    assert len(digests) == 3


@pytest.mark.parametrize("name", ["BatchNormalization, microbatches", "classes, weights", "cnn", "cnn, microbatches"])
def test_compiled_steps_have_the_bits_of_the_reference(name: str) -> None:
    case = CASES[name]
    step = case.step(case.options)
    data = [case.data()] * 2
    compiled, expected = Compiled.of(step), by_reference(step, data)
    for threads in (1, 2, 5):
        found = compiled.run(data, threads)
        assert len(found) == len(expected)
        for mine, reference in zip(found, expected, strict=True):
            assert mine == by_position(step, reference)


@pytest.mark.parametrize("shards", [0, -1, 3, 12])
def test_shards_that_are_no_power_of_two_are_refused(shards: int) -> None:
    with pytest.raises(ReproError, match="option shards is no power of two") as caught:
        training_of({"loss": "mse", "shards": shards})
    assert caught.value.found == str(shards)
    assert caught.value.expected == "1, 2, 4, 8 ..."


@pytest.mark.parametrize("shards", ["two", 2.5, True])
def test_shards_that_are_no_number_are_refused(shards: Any) -> None:
    with pytest.raises(ReproError, match="option shards has no such value"):
        training_of({"loss": "mse", "shards": shards})


def test_shards_are_a_word() -> None:
    made = training_of({"loss": "mse", "shards": "4"})
    assert made.shards == 4
    assert words_of(made)["shards"] == "4"
    assert training_of(words_of(made)) == made
