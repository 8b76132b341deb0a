"""Where the state of a model's own step starts: the file's initializers, or what its initialization graphs make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import repro
from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.frontend.training_info import initialised, training_step
from repro.ir.types import Array
from repro.ops.record import evaluate
from repro.train_step import TrainStep
from tests.frontend.models import node, value
from tests.train_step.test_training_info import COUNT, DIGITS
from tests.train_step.training_info import Info, graph, scaled, with_training


@pytest.fixture(scope="module")
def digits() -> TrainStep:
    return training_step(load_model(DIGITS), {"N": 8})


def initializers(proto: onnx.ModelProto) -> dict[str, Array]:
    """Those of the model and of its algorithms, by name."""
    graphs = (proto.graph, *(info.algorithm for info in proto.training_info))
    return {tensor.name: numpy_helper.to_array(tensor) for graph in graphs for tensor in graph.initializer}


def test_the_start_is_that_of_the_file_unless_asked_for(digits: TrainStep) -> None:
    loaded = load_model(DIGITS)
    file, fresh = initializers(loaded.proto), initializers(initialised(loaded).proto)
    again = training_step(initialised(loaded), {"N": 8})
    assert again.graph.digest == digits.graph.digest
    assert len(again.state) == len(digits.state) == 20
    for slot, old in zip(again.state, digits.state, strict=True):
        assert old.initial.tobytes() == file[old.name].tobytes()
        assert slot.initial.tobytes() == fresh[slot.name].tobytes()
        drawn = slot.name.endswith(".weight")
        assert np.array_equal(slot.initial, old.initial) != drawn
    assert initializers(loaded.proto)["fc1.weight"].tobytes() == file["fc1.weight"].tobytes()


def test_initial_numbers_are_those_of_the_operator() -> None:
    """The same node in a model of its own gives the same bits, whatever its slot there."""
    proto = onnx.load(DIGITS).training_info[0].initialization
    draws = [each for each in proto.node if each.op_type == "RandomNormal"]
    values = initializers(initialised(load_model(DIGITS)).proto)
    declared = [onnx.ValueInfoProto(name=draws[0].output[0])]
    alone = helper.make_model(
        helper.make_graph(draws[:1], "alone", [], declared), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    (expected,) = evaluate(import_model(load_model(alone)).graph, ())
    assert values["fc1.weight"].tobytes() == expected.tobytes()
    deviation = float(values["fc1.weight"].std())
    assert deviation == pytest.approx((2 / 64) ** 0.5, rel=0.03)


def test_the_seed_is_for_nodes_without_one() -> None:
    nodes = [node("RandomNormal", "", "w0", shape=[3]), node("Constant", "", "n0", value_int=7)]
    info = Info(graph([], initializers=COUNT), "", graph(nodes, outputs="w0 n0"), "w=w0 n=n0")
    loaded = with_training(scaled(), info)
    first, again, second = (initializers(initialised(loaded, seed).proto) for seed in (1, 1, 2))
    assert not np.array_equal(first["w"], second["w"])
    assert again["w"].tobytes() == first["w"].tobytes()
    assert first["n"].tolist() == 7
    assert first["one"].tolist() == 1


def test_each_algorithm_starts_its_own_tensors() -> None:
    """Two of one name are two tensors; one of the model is the model's."""
    starts = [graph([node("Constant", "", "n0", value_int=number)], outputs="n0") for number in (5, 6)]
    infos = [Info(graph([], initializers={"n": np.int64(0)}), "", start, "n=n0") for start in starts]
    made = initialised(with_training(scaled(), *infos)).proto
    assert [numpy_helper.to_array(info.algorithm.initializer[0]).tolist() for info in made.training_info] == [5, 6]


def test_an_artifact_may_start_from_the_initialization(tmp_path: Path) -> None:
    """Every entry starts there; it rebuilds from itself, and verifies."""
    options: dict[str, Any] = {"bind": {"N": 8}, "targets": ["cpu/x86-64-v3"]}
    file = repro.build(DIGITS, tmp_path / "file", **options)
    fresh = repro.build(DIGITS, tmp_path / "fresh", initialize=True, **options)
    expected = initializers(initialised(load_model(DIGITS)).proto)
    assert file.entries["train_step"].graph == fresh.entries["train_step"].graph
    for entry in ("infer", "train_step"):
        state = fresh.initial_state(entry)
        assert len(state) == len(file.initial_state(entry))
        assert all(array.tobytes() == expected[name].tobytes() for name, array in state.items())
    assert repro.verify(tmp_path / "fresh").exit_code == 0


def test_a_model_without_initialization_cannot_start_from_it(tmp_path: Path) -> None:
    for loaded in (with_training(scaled()), with_training(scaled(), Info(graph([])))):
        with pytest.raises(ReproError, match="the model has no initialization"):
            repro.build(loaded.proto, tmp_path / "out", initialize=True)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────


def _start(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], binding: str) -> Info:
    return Info(graph([]), "", graph(nodes, inputs, "w0"), binding)


ZEROS = [node("Constant", "", "w0", value_floats=[0.0, 0.0])]
BROKEN_STARTS = {
    "another shape": (_start(ZEROS, [], "w=w0"), "an initial value has another type"),
    "an unknown key": (_start(ZEROS, [], "u=w0"), "initialization_binding names no initializer"),
    "an unknown value": (_start(ZEROS, [], "w=w1"), "initialization_binding takes a value that is no output"),
    "inputs": (_start([node("Neg", "a", "w0")], [value("a")], "w=w0"), "the initialization has inputs"),
    "a name of the model": (_start([node("Neg", "w", "w0")], [], "w=w0"), "a name stands for nothing"),
}


@pytest.mark.parametrize("case", BROKEN_STARTS)
def test_what_is_wrong_with_a_start_is_said(case: str) -> None:
    info, message = BROKEN_STARTS[case]
    with pytest.raises(ReproError, match=message):
        initialised(with_training(scaled(), info))
