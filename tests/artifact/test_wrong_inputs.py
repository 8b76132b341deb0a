"""What a program may give by mistake in place of arrays: each time an error of ours that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import repro
from repro.artifact.loaded import LoadedArtifact
from repro.errors import ReproError
from repro.targets import cpu

BATCH, TIME, WIDTH, CLASSES = 4, 7, 3, 10
X = np.zeros((BATCH, TIME, WIDTH), np.float32)
TARGET = "reference" if cpu.best_machine() is None else "cpu"


class Tensor:
    """Another library's, which NumPy cannot read."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.\nMore is said here.")


def sequence_model() -> Any:
    """Scores [batch, time, classes] of a sequence, with a buffer that is written as a float initializer."""
    nodes = [helper.make_node("Add", ["x", "pe"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["scores"])]
    tensors = {"pe": np.zeros((TIME, WIDTH), np.float32), "w": np.ones((WIDTH, CLASSES), np.float32)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (BATCH, TIME, CLASSES))],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> LoadedArtifact:
    return repro.build(sequence_model(), tmp_path_factory.mktemp("wrong") / "out", loss="softmax_cross_entropy")


def said(action: Callable[[], object], *parts: str) -> None:
    with pytest.raises(ReproError) as caught:
        action()
    for part in parts:
        assert part in str(caught.value)
    assert caught.value.found is not None and caught.value.expected is not None


WRONG: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a list": ({"x": X.tolist()}, ("input 'x'", "float64[4, 7, 3], which NumPy makes of a list", "float32[4, 7, 3]")),
    "rows of several lengths": ({"x": [[1.0], [1.0, 2.0]]}, ("input 'x' is not an array", "list: ")),
    "a tensor that needs a gradient": ({"x": Tensor()}, ("Tensor: Can't call numpy()", "x.detach().cpu().numpy()")),
    "integers": ({"x": X.astype(np.int64)}, ("int64[4, 7, 3]", "never converted", "np.asarray(x, 'float32')")),
    "doubles": ({"x": X.astype(np.float64)}, ("float64[4, 7, 3]", "never converted")),
    "another shape": ({"x": X[:2]}, ("float32[2, 7, 3]", "shapes are fixed at build")),
    "a mapping": ({"x": {"y": X}}, ("not an array of numbers", "dict")),
    "text": ({"x": "x.npy"}, ("not an array of numbers", "str")),
    "nothing": ({"x": None}, ("not an array of numbers", "NoneType")),
    "a missing name": ({}, ("missing: x", "expected: x")),
    "more than that": ({"y": X, 3: X}, ("missing: x; unknown: y, 3",)),
    "no names": ([X], ("given by name", "found: list", "{'x': ...}")),
    "one array": (X, ("given by name", "found: numpy.ndarray")),
}


@pytest.mark.parametrize(("given", "parts"), WRONG.values(), ids=WRONG.keys())
def test_inputs_of_a_run(artifact: LoadedArtifact, given: Any, parts: tuple[str, ...]) -> None:
    with artifact.session("infer", TARGET, 1) as session:
        said(lambda: session.run(given), *parts)
        assert session.run({"x": X})["scores"].shape == (BATCH, TIME, CLASSES)


@pytest.mark.parametrize(
    "given",
    [[X], {"pe": [[1.0], [1.0, 2.0]]}, {"pe": Tensor()}, {5: X}],
    ids=["no names", "rows of several lengths", "a tensor that needs a gradient", "a number as name"],
)
def test_a_state(artifact: LoadedArtifact, given: Any) -> None:
    with artifact.session("infer", TARGET, 1) as session:

        def set_it() -> None:
            session.state = given

        said(set_it, "parameter")


LABELS = np.zeros((BATCH, CLASSES), np.int64)
OF_TIME = np.zeros((BATCH, TIME), np.int64)
CLASSES_LAST = ("axis 1", "output 'scores' f32[4,7,10] has 7 classes", "(10)", "perm=[0, 2, 1]")
TRAINING: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a list": ({"x": X.tolist(), "labels": LABELS}, ("array 'x' of the data", "never converted")),
    "rows of several lengths": ({"x": [[1.0], [1.0, 2.0]], "labels": LABELS}, ("array 'x' of the data is not",)),
    "a tensor that needs a gradient": ({"x": Tensor(), "labels": LABELS}, ("x.detach()",)),
    "integers": ({"x": X.astype(np.int64), "labels": LABELS}, ("int64[4, 7, 3]", "never converted")),
    "a missing name": ({"x": X}, ("missing: labels",)),
    "an extra name": ({"x": X, "labels": LABELS, "z": X}, ("unknown: z",)),
    "no names": ([X, LABELS], ("given by name", "{'x': ..., 'labels': ...}")),
    "labels of classes that are last": ({"x": X, "labels": OF_TIME}, ("array 'labels'", "int64[4, 7]", *CLASSES_LAST)),
}


@pytest.mark.parametrize(("given", "parts"), TRAINING.values(), ids=TRAINING.keys())
def test_data_of_training(artifact: LoadedArtifact, tmp_path: Path, given: Any, parts: tuple[str, ...]) -> None:
    path = artifact.folder / "artifact.json"
    said(lambda: repro.train(path, given, checkpoint=tmp_path / "run", steps=1, target=TARGET), *parts)
    good = {"x": X, "labels": LABELS}
    train = lambda: repro.train(path, good, checkpoint=tmp_path / "r", steps=1, validation=given, target=TARGET)  # noqa: E731
    said(train, *(part.replace("the data", "the validation data") for part in parts))


def test_labels_of_classes_that_are_last(artifact: LoadedArtifact, tmp_path: Path) -> None:
    """In a run of the step, and in golden inputs."""
    with artifact.session("train_step", TARGET, 1) as session:
        said(lambda: session.run({"x": X, "labels": OF_TIME}), "input 'labels'", "int64[4, 10]", *CLASSES_LAST)
    given = {"x": X, "labels": OF_TIME}
    build = lambda: repro.build(sequence_model(), tmp_path / "o", inputs=given, loss="softmax_cross_entropy")  # noqa: E731
    said(build, "input 'labels'", *CLASSES_LAST)


@pytest.mark.parametrize("name", ["a list", "rows of several lengths", "integers", "a mapping", "no names"])
def test_golden_inputs(tmp_path: Path, name: str) -> None:
    given, parts = WRONG[name]
    kept = [part for part in parts if "which NumPy" not in part and "{" not in part]
    said(lambda: repro.build(sequence_model(), tmp_path / "out", inputs=given), *kept)


def test_arrays_that_numpy_makes_by_itself(artifact: LoadedArtifact) -> None:
    """Such as a tensor of another library that lies in the host's memory."""

    class Readable:
        def __array__(self, *_: Any, **__: Any) -> Any:
            return X

    with artifact.session("infer", TARGET, 1) as session:
        wanted = session.run({"x": X})["scores"]
        assert session.run({"x": Readable()})["scores"].tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("options", "trained", "kept"),
    [({}, ["pe", "w"], []), ({"frozen": ("pe",)}, ["w"], ["pe"])],
    ids=["as exported", "frozen"],
)
def test_a_build_says_what_it_trains(
    tmp_path: Path, options: dict[str, Any], trained: list[str], kept: list[str]
) -> None:
    made = repro.build(sequence_model(), tmp_path / "out", loss="softmax_cross_entropy", **options)
    assert [each.name for each in made.roles if each.role == "trained"] == trained
    assert [each.name for each in made.roles if each.role == "kept"] == kept


def test_bools_of_other_bytes_than_one(tmp_path: Path) -> None:
    """A view of other memory as bool: every target gives what NumPy says of it, in bytes of 0 and 1."""
    kind = helper.make_tensor_value_info("x", TensorProto.BOOL, (70,))
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", [kind], [helper.make_tensor_value_info("y", 9, (70,))]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    odd = (np.arange(70) % 5).astype(np.uint8).view(np.bool_)
    made = repro.build(model, tmp_path / "out", inputs={"x": odd})
    for target in {"reference", TARGET}:
        with made.session("infer", target, 1) as session:
            found = session.run({"x": odd})["y"]
            assert found.view(np.uint8).tolist() == [int(byte % 5 != 0) for byte in range(70)]
