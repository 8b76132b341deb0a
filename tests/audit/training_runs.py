"""Training runs for the tests of their audit, and captures of them made in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from repro.artifact.cache import Cache
from repro.audit import training, unrolled, worker
from repro.audit.capture import capture_of, key, load_arrays, store_arrays, value_of, with_arrays
from repro.audit.model import Audited
from repro.audit.peers.own_training import OwnTraining
from repro.audit.records import Capture, Executor, Record
from repro.ir.types import Array
from repro.train_step import training_of

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "golden"
STEPS = 5
OPTIONS: dict[str, dict[str, Any]] = {
    "digits_mlp": {"loss": "softmax_cross_entropy", "optimizer": "momentum", "learning_rate": 0.1},
    "digits_cnn": {"loss": "softmax_cross_entropy", "optimizer": "momentum", "learning_rate": 0.05},
}
PLANTED = 0.91
"""The momentum of a planted peer, in place of 0.9."""
_CODE = tempfile.TemporaryDirectory(prefix="repro-test-cache-")
CACHE = Cache(Path(_CODE.name))


@cache
def audited(name: str) -> Audited:
    return training.prepare(str(GOLDEN / name / "forward.onnx"), training_of(OPTIONS[name]), STEPS, {"N": 8})


@cache
def golden(name: str) -> Capture:
    return training.golden(audited(name), CACHE, lambda *_: None)


def captured(run: Audited, best: Capture, executor: Executor, peers: Mapping[str, str]) -> Capture:
    """The capture that a worker makes of an executor, made in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arrays = {key(value): best.fed_arrays[each] for each, value in best.fed.items()}
        store_arrays(folder / "golden", arrays)
        job = worker.Job(
            model=run.proto,
            inputs=run.inputs,
            golden=dict(best.fed),
            arrays=folder / "golden",
            executor=executor,
            peers=dict(peers),
            keep=True,
            memory=None,
            cache=CACHE.folder,
        )
        worker.work(job, folder)
        capture = capture_of(worker.json.loads((folder / worker.CAPTURE).read_bytes()))
        return with_arrays(capture, {**arrays, **load_arrays(folder / worker.ARRAYS)}) if capture.ran else capture


def record(run: Audited, best: Capture, *captures: Capture) -> Record:
    return Record(run.summary, {name: value_of(array) for name, array in run.inputs.items()}, best, captures, {})


# ── planted ─────────────────────────────────────────────────────────────────────────────────────────


def with_momentum(model: ModelProto, momentum: float) -> ModelProto:
    """The run with another momentum in every update."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for node in changed.graph.node:
        if node.op_type == unrolled.UPDATE:
            words = {**unrolled.words_in(node), "momentum": momentum.hex()}
            next(item for item in node.attribute if item.name == "words").s = unrolled.text(words).encode()
    return changed


class PlantedOwn(OwnTraining):
    """repro's own steps with another momentum, as a foreign runtime."""

    family = "planted"

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Array]:
        return super().run(with_momentum(model, PLANTED), inputs, executor, lowered)


# ── a small model for every loss and optimizer ──────────────────────────────────────────────────────


def random_model() -> ModelProto:
    """The small model with a Dropout in training mode."""
    model = small_model(None)
    for name, value in (("ratio", np.float32(0.25)), ("training", np.bool_(True))):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    model.graph.node.insert(2, helper.make_node("Dropout", ["t", "ratio", "training"], ["kept"], "drop", seed=3))
    model.graph.node[3].input[0] = "kept"
    return model


def small_model(last: str | None) -> ModelProto:
    """[N, 3] -> Gemm, Tanh, Gemm -> [N, 4], and an activation behind it; initializers in no canonical order."""
    draw = np.random.default_rng(1)
    shapes = {"a": (3, 6), "b": (6,), "c": (6, 4), "d": (4,)}
    weights = {name: (0.4 * draw.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["h"], "first"),
        helper.make_node("Tanh", ["h"], ["t"], "tanh"),
        helper.make_node("Gemm", ["t", "c", "d"], ["z"], "second"),
    ]
    nodes += [helper.make_node(last, ["z"], ["y"], "last")] if last else []
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name, width in (("x", 3), ("z", 4))
    ]
    if last:
        ports[1].name = "y"
    initial = [numpy_helper.from_array(array, name) for name, array in reversed(weights.items())]
    graph = helper.make_graph(nodes, "small", ports[:1], ports[1:], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
