"""Arguments of other types than public functions state: each time an error of ours that names the argument, before
anything is done with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import repro
from repro.artifact.loaded import LoadedArtifact
from repro.errors import EXIT_USAGE, ReproError
from repro.signatures import checked

MODEL = Path(__file__).resolve().parents[2] / "golden" / "digits_mlp" / "forward.onnx"
INPUTS = {"input": np.zeros((4, 64), np.float32)}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> LoadedArtifact:
    return repro.build(MODEL, tmp_path_factory.mktemp("arguments") / "out", bind={"N": 4}, targets=())


def refused(action: Callable[[], object], argument: str | None = None) -> ReproError:
    with pytest.raises(ReproError) as caught:
        action()
    assert argument is None or f"{argument}=..." in str(caught.value)
    assert caught.value.found
    return caught.value


@pytest.mark.parametrize("given", ["2", 1.5, True, np.float32(2), [1]], ids=repr)
@pytest.mark.parametrize("argument", ["threads", "chips"])
def test_counts_of_a_session(artifact: LoadedArtifact, argument: str, given: Any) -> None:
    assert "int" in str(refused(lambda: artifact.session(**{argument: given}), argument).expected)


def test_names_of_a_session(artifact: LoadedArtifact) -> None:
    refused(lambda: artifact.session(target=["cpu"]), "target")  # pyright: ignore[reportArgumentType]
    refused(lambda: artifact.session(entry=b"infer"), "entry")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("target", ["cpu", "cpu/x86-64-v4", "gpu", "gpu/interpreter", "tpu-sim", "tpu-sim/v4"])
def test_a_target_that_was_not_built(artifact: LoadedArtifact, target: str) -> None:
    error = refused(lambda: artifact.session("infer", target))
    assert error.next == f"build it with --targets {target}"
    assert error.expected == "reference"
    assert error.exit_code == EXIT_USAGE
    assert refused(lambda: artifact.session("infer", "abacus")).next is None


def test_integers_of_any_kind(artifact: LoadedArtifact) -> None:
    with artifact.session(target="reference", threads=np.int64(1)) as session:  # pyright: ignore[reportArgumentType]
        assert session.run(INPUTS)


WRONG: dict[str, tuple[Any, ...]] = {
    "model": (None, 5, b"x", [MODEL], "a\0b"),
    "out": (5, b"x", "\0", "x" * 5000),
    "bind": (5, "N=2", [("N", 2)], {5: 2}),
    "set": (5, "N=2", {5: 5}),
    "targets": (None, 5, [None], {"cpu": 1}, {"cpu"}),
    "seed": ("1", 1.5, None, True),
    "memory_budget": ("1", 1.5, [1]),
    "tuning": (5, b"x", "\0"),
    "gradients": ("yes", 1),
    "progress": (5, "x"),
}


@pytest.mark.parametrize(("argument", "given"), [(name, each) for name, some in WRONG.items() for each in some])
def test_a_build(argument: str, given: Any, tmp_path: Path) -> None:
    words: dict[str, Any] = {"model": MODEL, "out": tmp_path / "out", "bind": {"N": 2}, argument: given}
    refused(lambda: repro.build(**words), argument)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", [10**30, str(10**30), -(10**30), float("inf"), 1e30], ids=repr)
@pytest.mark.parametrize("option", ["accumulation", "shards", "total_steps", "warmup_steps", "ignore_index"])
def test_numbers_of_training_that_no_graph_can_hold(option: str, given: Any, tmp_path: Path) -> None:
    words: dict[str, Any] = {"loss": "nll", "schedule": "linear", option: given}
    with pytest.raises(ReproError, match=f"option {option} has no such value"):
        repro.build(MODEL, tmp_path / "out", bind={"N": 2}, **words)


def test_a_rate_beyond_f64(tmp_path: Path) -> None:
    with pytest.raises(ReproError, match="option learning_rate has no such value"):
        repro.build(MODEL, tmp_path / "out", bind={"N": 2}, loss="nll", learning_rate=10**400)


TRAINING: dict[str, tuple[Any, ...]] = {
    "epochs": (1.5, "2", True), "steps": (1.5, "2"), "batch": (1.5,), "seed": (1.5, "1"), "keep": (1.5, None),
    "evaluate_every": ("1",), "trace_nodes_at": (5, "x", [1.5]), "trace": (5, "\0"), "resume": ("x",),
    "checkpoint": (5, None, "\0"), "progress": (5,), "threads": ("2",),
}  # fmt: skip


@pytest.mark.parametrize(("argument", "given"), [(name, each) for name, some in TRAINING.items() for each in some])
def test_training(argument: str, given: Any, tmp_path: Path) -> None:
    words: dict[str, Any] = {"path": "a", "data": "b", "checkpoint": tmp_path / "c", argument: given}
    refused(lambda: repro.train(**words), argument)


@pytest.mark.parametrize("given", [None, 5, b"x", ["a"], "\0", "x" * 5000], ids=lambda given: repr(given)[:12])
def test_paths(given: Any, tmp_path: Path) -> None:
    for function in (repro.load, repro.inspect, repro.verify, repro.audit_model, repro.tune, repro.read_npz):
        refused(
            lambda function=function: function(given),
            "model" if "tune audit_model".count(function.__name__) else "path",
        )
    refused(lambda: repro.diff(given, "x"), "left")
    refused(lambda: repro.run(given, INPUTS), "path")
    refused(lambda: repro.export(given, "x"), "checkpoint")
    refused(lambda: repro.audit_manifests("x", given), "old")


def test_thresholds_and_budgets() -> None:
    refused(lambda: repro.audit_model(MODEL, max_ulp="x"), "max_ulp")  # pyright: ignore[reportArgumentType]
    refused(lambda: repro.audit_model(MODEL, time_limit="x"), "time_limit")  # pyright: ignore[reportArgumentType]
    refused(lambda: repro.tune(MODEL, budget="x"), "budget")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("words", [{"threads": 0}, {"threads": -1}, {"budget": 0.0}, {"budget": float("nan")}], ids=str)
def test_ranges_of_tuning(words: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ReproError) as caught:
        repro.tune(MODEL, tmp_path / "tuning.json", bind={"N": 2}, **words)
    assert caught.value.found and caught.value.expected


@pytest.mark.parametrize(
    "given", [None, 5, [INPUTS["input"]], {"x": object()}, {"x": "text"}], ids=lambda g: str(g)[:10]
)
def test_arrays_to_write(given: Any, tmp_path: Path) -> None:
    with pytest.raises(ReproError):
        repro.write_npz(tmp_path / "out.npz", given)
    repro.write_npz(tmp_path / "out.npz", {"x": [1.0, 2.0]})  # pyright: ignore[reportArgumentType]
    assert repro.read_npz(tmp_path / "out.npz")["x"].tolist() == [1.0, 2.0]


def test_every_public_function_is_checked() -> None:
    functions = [getattr(repro, name) for name in repro.__all__]
    unchecked = [each.__name__ for each in functions if not isinstance(each, type) and not hasattr(each, "__wrapped__")]
    assert not unchecked
    assert sum(not isinstance(each, type) for each in functions) > 10


def test_what_python_says_itself_stays() -> None:
    """Of a name that no parameter has."""

    @checked
    def function(one: int) -> int:
        return one

    assert function(one=np.int8(3)) == 3  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        function(two=2)  # pyright: ignore[reportCallIssue]
