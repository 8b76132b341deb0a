"""What changed between two builds, and whether the results' bits did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import repro
from repro.artifact.config import Config, Pass, Passes, Tensor, Versions
from repro.artifact.layout import Artifact, Layer, write
from repro.artifact.media import SOURCE_TYPE
from repro.artifact.reading import Stored, open_artifact
from repro.audit.history import Bits, Change, History, history
from tests.artifact.sample import sample_artifact


def model(second: str = "Exp", **attributes: Any) -> Layer:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], "first", axis=attributes.get("axis", 0)),
        helper.make_node(second, ["a"], ["y"], "second"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, attributes.get("name", "g"), values[:1], values[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return Layer("source/model.onnx", SOURCE_TYPE, made.SerializeToString(deterministic=True))


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Stored]:
    """An artifact on disk: the sample with another source, and a config changed as said."""
    count = 0

    def make(source: Layer | None = None, change: Callable[[Config], Config] = lambda config: config) -> Stored:
        nonlocal count
        count += 1
        base, layer = sample_artifact(), source or model()
        config = replace(base.config, source=replace(base.config.source, digest=layer.digest))
        layers = (layer, *(each for each in base.layers if each.title != layer.title))
        write(Artifact(change(config), layers), tmp_path / f"{count}.repro")
        return open_artifact(tmp_path / f"{count}.repro")

    return make


def found(history: History) -> list[tuple[str, str]]:
    return [(change.stage, change.where) for change in history.changes]


def test_an_artifact_and_itself(stored: Callable[..., Stored]) -> None:
    same = history(stored(), stored())
    assert (same.changes, same.first_pass, same.bits, same.leaves, same.exit_code) == ((), None, Bits.SAME, 0, 0)
    assert "identical" in same.summary


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def with_passes(*numbers: int) -> Callable[[Config], Config]:
    names = ("simplify", "expand", "lower")
    passes = tuple(
        Pass(name, digest(before), digest(after))
        for name, before, after in zip(names, numbers, numbers[1:], strict=False)
    )
    return lambda config: replace(config, passes=(Passes("infer", "", passes),))


@pytest.mark.parametrize(
    ("numbers", "first"),
    [
        ((9, 2, 3, 4), "import of infer"),
        ((1, 9, 3, 4), "simplify of infer"),
        ((1, 2, 9, 9), "expand of infer"),
        ((1, 2, 3, 9), "lower of infer"),
        ((1, 2, 3), "lower (now no such pass) of infer"),
    ],
)
def test_the_first_pass_that_differs_is_named(stored: Callable[..., Stored], numbers: Any, first: str) -> None:
    found = history(stored(change=with_passes(1, 2, 3, 4)), stored(change=with_passes(*numbers)))
    assert found.first_pass == first
    assert [change.stage for change in found.changes] == ["pass"], "one row for each entry, not for each pass below"
    assert found.exit_code == 0, "the golden results have the same bits"


@pytest.mark.parametrize(
    ("source", "where"),
    [
        (model("Log"), "operator of second (Exp)"),
        (model(axis=-1), "attributes of first (Softmax)"),
        (model(name="h"), "order of nodes, functions, names or metadata"),
    ],
    ids=["operator", "attribute", "metadata"],
)
def test_a_change_of_the_source_is_told_by_its_nodes(stored: Callable[..., Stored], source: Layer, where: str) -> None:
    assert found(history(stored(), stored(source))) == [("source", where)]


@pytest.mark.parametrize(
    ("change", "stage", "where"),
    [
        (lambda c: replace(c, contract=2), "contract", "version"),
        (lambda c: replace(c, versions=Versions("0.2.0", "0.50.0", "22.1.0")), "toolchain", "repro"),
        (lambda c: replace(c, build=replace(c.build, bind={"N": 2})), "options", "bind.N"),
        (lambda c: replace(c, limits={"nodes": 7}), "limits", "nodes"),
        (lambda c: replace(c, weights=(Tensor("w", "f32[]", digest(5)),)), "weight", "w"),
        (lambda c: replace(c, weights=(*c.weights, Tensor("v", "f32[]", digest(5)))), "weight", "v"),
    ],
)
def test_each_stage_is_a_row(
    stored: Callable[..., Stored], change: Callable[[Config], Config], stage: str, where: str
) -> None:
    seen = history(stored(), stored(change=change))
    assert found(seen) == [(stage, where)]
    assert seen.exit_code == 0


def recompiled(**fields: Any) -> Callable[[Config], Config]:
    def change(config: Config) -> Config:
        (target,) = config.targets
        (entry,) = target.entries
        kernel = replace(entry.kernels[0], **{name: value for name, value in fields.items() if name != "program"})
        made = replace(entry, kernels=(kernel,), program=fields.get("program", entry.program))
        return replace(config, targets=(replace(target, entries=(made,)),))

    return change


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kernel": digest(1), "code": digest(2)}, [("kernels", "infer on cpu/x86-64-v3")]),
        ({"schedule": "axis=2", "code": digest(2)}, [("schedule", "infer on cpu/x86-64-v3, other schedules")]),
        ({"code": digest(2)}, [("code", "infer on cpu/x86-64-v3, other code")]),
        ({"program": digest(3)}, [("program", "infer on cpu/x86-64-v3")]),
    ],
)
def test_a_kernel_s_own_change_is_told_from_that_of_its_schedule_and_code(
    stored: Callable[..., Stored], fields: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    assert found(history(stored(), stored(change=recompiled(**fields)))) == expected


def test_a_target_that_only_one_has_is_a_row(stored: Callable[..., Stored]) -> None:
    seen = history(stored(), stored(change=lambda c: replace(c, targets=())))
    assert seen.changes == (Change("code", "infer on cpu/x86-64-v3", "made", "absent"),)


def results(**fields: Any) -> Callable[[Config], Config]:
    return lambda config: replace(config, golden=(replace(config.golden[0], **fields),))


def test_other_results_are_a_mismatch(stored: Callable[..., Stored]) -> None:
    seen = history(stored(), stored(change=results(outputs=(Tensor("y", "f32[1]", digest(1)),))))
    assert (seen.bits, seen.exit_code, found(seen)) == (Bits.DIFFERENT, 1, [("results", "output y of infer")])


def test_results_on_other_inputs_cannot_be_compared(stored: Callable[..., Stored]) -> None:
    changed = {"inputs": (Tensor("x", "f32[1]", digest(1)),), "outputs": (Tensor("y", "f32[1]", digest(1)),)}
    seen = history(stored(), stored(change=results(**changed)))
    assert (seen.bits, seen.exit_code) == (Bits.UNKNOWN, 3)
    assert "other inputs" in seen.summary


def test_an_entry_that_only_one_has_cannot_be_compared(stored: Callable[..., Stored]) -> None:
    def more(config: Config) -> Config:
        step = replace(config.entries[0], name="train_step")
        return replace(
            config,
            entries=(*config.entries, step),
            golden=(*config.golden, replace(config.golden[0], entry="train_step")),
        )

    seen = history(stored(), stored(change=more))
    assert (seen.bits, seen.exit_code) == (Bits.UNKNOWN, 3)
    assert "train_step" in seen.reason


# ── real builds ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"], "dot"), helper.make_node("Tanh", ["a"], ["y"], "squash")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor("w", TensorProto.FLOAT, [3, 4], [number / 8 for number in range(12)])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(made, folder / "m.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_CACHE", str(folder / "cache"))
        repro.build(folder / "m.onnx", folder / "old.repro")
    return folder


def test_two_builds_of_one_model_with_one_changed_weight(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(built / "cache"))
    changed = onnx.load(built / "m.onnx")
    changed.graph.initializer[0].float_data[5] += 2.0**-20
    repro.build(changed, built / "new.repro")
    seen = history(open_artifact(built / "old.repro"), open_artifact(built / "new.repro"))
    assert found(seen) == [("weight", "w"), ("results", "output y of infer")]
    assert (seen.first_pass, seen.exit_code) == (None, 1), "weights stand outside the graph"


def test_two_builds_of_two_operators(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(built / "cache"))
    changed = onnx.load(built / "m.onnx")
    changed.graph.node[1].op_type = "Sigmoid"
    repro.build(changed, built / "other.repro")
    seen = history(open_artifact(built / "old.repro"), open_artifact(built / "other.repro"))
    stages = [change.stage for change in seen.changes]
    assert stages[:2] == ["source", "pass"]
    assert set(stages) >= {"source", "pass", "program", "kernels", "results"}
    assert (seen.first_pass, seen.exit_code) == ("import of infer", 1)
