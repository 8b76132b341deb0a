"""Drift that was planted is found exactly, and nothing else is: on every golden model, in processes of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from repro.artifact.cache import Cache
from repro.audit import capture
from repro.audit.capture import value_of
from repro.audit.comparison import audit
from repro.audit.golden import golden
from repro.audit.model import Audited, prepare
from repro.audit.records import Capture, Executor, Kind, Pair, Record
from repro.audit.running import Limits, run_all
from tests.audit.models import golden_models
from tests.audit.planted_own import ATTRIBUTES, ORDERS, PEERS, flip, planted

MODELS = golden_models()
QUICK = "digits_cnn/forward"


def quiet(stage: str, done: int, total: int) -> None: ...


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


def run(audited: Audited, best: Capture, executors: Sequence[Executor], cache: Cache, label: str = "") -> Record:
    captures = run_all(audited, best, executors, Limits(), True, quiet, cache, PEERS)
    assert [(each.outcome.value, each.reason) for each in captures] == [("ran", "")] * len(executors)
    inputs = {name: value_of(array) for name, array in audited.inputs.items()}
    return Record(audited.summary, inputs, best, captures, {}, label)


def adding(audited: Audited) -> list[str]:
    """The nodes whose sums have an order: more than two terms, and more than one input channel."""
    shapes = {name: kind.shape for name, kind in audited.types.items()}
    shapes |= {item.name: tuple(item.dims) for item in audited.proto.graph.initializer}
    shapes |= {name: array.shape for name, array in audited.inputs.items()}
    found = [node for node in audited.proto.graph.node if node.op_type in ORDERS]
    return [node.name for node in found if node.op_type != "Conv" or shapes[node.input[1]][1] > 2]


def attributed(audited: Audited) -> str | None:
    return next((node.name for node in audited.proto.graph.node if node.op_type in ATTRIBUTES), None)


def a_weight(audited: Audited) -> tuple[str, tuple[str, ...]]:
    """The last float weight that is not zero, and the nodes that read it."""
    floats = [item for item in audited.proto.graph.initializer if item.data_type == onnx.TensorProto.FLOAT]
    items = {item.name for item in floats if onnx.numpy_helper.to_array(item).any()}
    readers = {name: [node.name for node in audited.summary.nodes if name in node.inputs] for name in items}
    last = max(items, key=lambda name: [node.name for node in audited.summary.nodes].index(readers[name][0]))
    return last, tuple(readers[last])


def nodes(pair: Pair) -> list[tuple[str, ...]]:
    return sorted(origin.nodes for origin in pair.origins)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == QUICK else pytest.mark.full) for name in sorted(MODELS)]
)
def test_what_is_planted_is_found_and_nothing_else(name: str, cache: Cache):
    audited = prepare(MODELS[name]["model"], MODELS[name]["bind"])
    best = golden(audited, cache, quiet)
    sums = adding(audited)
    weight, readers = a_weight(audited)
    expected: dict[Executor, list[str]] = {
        planted(): [],
        planted(order=sums[0]): [sums[0]],
        planted(order=f"{sums[0]};{sums[-1]}"): [sums[0], sums[-1]],
        planted(weight=weight): [*readers],
        planted(order=sums[-1], hidden="2"): [sums[-1]],
    }
    if node := attributed(audited):
        expected[planted(attribute=node)] = [node]
    found = audit([run(audited, best, list(expected), cache)])
    pairs = {(pair.left, pair.right): pair for pair in found.pairs}
    finds = false = 0
    for executor, wanted in expected.items():
        pair = pairs["golden", executor.name]
        if not executor.option("hidden"):
            assert nodes(pair) == sorted((each,) for each in set(wanted))
        hit = [origin for origin in pair.origins if set(origin.nodes) & set(wanted)]
        assert len(hit) == len(set(wanted)), f"{executor.name}: {nodes(pair)}"
        finds += len(hit)
        false += len(pair.origins) - len(hit)
        assert pair.identical == (not wanted)
    assert finds == sum(len(set(wanted)) for wanted in expected.values())
    assert finds >= 5
    assert false == 0
    one, two = planted(order=sums[0]).name, planted(weight=weight).name
    assert nodes(pairs[one, two]) == sorted({(sums[0],), *((each,) for each in readers)})


def test_another_librarys_version_is_told_by_its_capture(cache: Cache, tmp_path: Path):
    """Recorded on two machines, one with a version that adds in another order; compared from the files."""
    audited = prepare(MODELS["digits_mlp/forward"]["model"], MODELS["digits_mlp/forward"]["bind"])
    best = golden(audited, cache, quiet)
    changed = adding(audited)[1]
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, executor in zip(paths, (planted(), planted(order=changed)), strict=True):
        made = run(audited, best, [executor], cache, path.stem)
        (kept,) = made.captures
        said = replace(kept, executor=planted(), environment={"versions": {"planted": path.stem}})
        capture.write(replace(made, captures=(said,)), path, values=path.stem == "two")
    found = audit([capture.read(path) for path in paths])
    pairs = {(pair.left, pair.right): pair for pair in found.pairs}
    (other,) = (pair for names, pair in pairs.items() if names == ("two:golden", "two:planted"))
    assert nodes(other) == [(changed,)]
    assert other.origins[0].drift is not None
    assert pairs["one:golden", "two:golden"].identical
    assert found.groups == (("one:golden", "two:golden", "one:planted"), ("two:planted",))


def test_a_changed_weight_or_attribute_of_the_model_is_told_from_drift(cache: Cache):
    """Two machines were given models that differ; the runtime is the same, and drifts on both at one node."""
    where = MODELS["digits_mlp/forward"]
    audited = prepare(where["model"], where["bind"])
    weight, _ = a_weight(audited)
    node = attributed(audited)
    assert node is not None
    other_weight, other_attribute = onnx.load(where["model"]), onnx.load(where["model"])
    flip(other_weight, weight)
    ATTRIBUTES["Gemm"](next(each for each in other_attribute.graph.node if each.name == node))
    drifting = [planted(order=adding(audited)[0])]
    records: list[Record] = []
    for label, model in (("given", where["model"]), ("weight", other_weight), ("attribute", other_attribute)):
        each = prepare(model, where["bind"], inputs=audited.inputs)
        records.append(run(each, golden(each, cache, quiet), drifting, cache, label))
    found = audit(records)
    pairs = {(pair.left, pair.right): pair for pair in found.pairs}
    for record in ("given", "weight", "attribute"):
        assert nodes(pairs[f"{record}:golden", f"{record}:{drifting[0].name}"]) == [(adding(audited)[0],)]
    expected = {"weight": (Kind.WEIGHT, (), weight), "attribute": (Kind.ATTRIBUTE, (node,))}
    for record, wanted in expected.items():
        for side in ("golden", drifting[0].name):
            (origin,) = pairs[f"given:{side}", f"{record}:{side}"].origins
            assert (origin.kind, origin.nodes, origin.value)[: len(wanted)] == wanted
