"""However the arrays of a run lie in memory, in whatever mapping they come: the bytes that NumPy makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from onnx import helper

import repro
from repro.artifact.loaded import LoadedArtifact
from repro.errors import ReproError
from repro.ir.types import BF16, BOOL, F16, F32, F64, I64, U8, Array, DType
from repro.runtime.buffers import address_of
from repro.targets import cpu

SHAPE = ROWS, COLUMNS = 6, 10
TARGETS = ["reference"] if cpu.best_machine() is None else ["reference", "cpu"]
ELEMENTS = {F32: 1, F64: 11, F16: 10, BF16: 16, I64: 7, U8: 2, BOOL: 9}
"""Types of ONNX by ours."""


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def behind_a_byte(array: Array) -> Array:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    memory[1:] = array.reshape(-1).view(np.uint8)
    return memory[1:].view(array.dtype).reshape(array.shape)


LAYOUTS: dict[str, Any] = {
    "as stated": lambda array: array,
    "read-only": read_only,
    "by columns": np.asfortranarray,
    "every other row": lambda array: np.repeat(array, 2, axis=0)[::2],
    "from the last on": lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    "one row for all": lambda array: np.broadcast_to(array[:1], array.shape),
    "behind a byte": behind_a_byte,
    "the other byte order": lambda array: array if array.itemsize == 1 or array.dtype.kind == "V" else swapped(array),
    "a class of its own": lambda array: array.view(np.memmap),
}


def swapped(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder())


@pytest.fixture(scope="module", params=ELEMENTS, ids=repr)
def element(request: pytest.FixtureRequest) -> DType:
    return request.param


@pytest.fixture(scope="module")
def artifact(element: DType, tmp_path_factory: pytest.TempPathFactory) -> LoadedArtifact:
    """Two inputs, and each of them transposed."""
    number = ELEMENTS[element]
    values = [helper.make_tensor_value_info(name, number, SHAPE) for name in ("a", "b")]
    results = [helper.make_tensor_value_info(name, number, (COLUMNS, ROWS)) for name in ("y", "z")]
    nodes = [helper.make_node("Transpose", ["a"], ["y"]), helper.make_node("Transpose", ["b"], ["z"])]
    graph = helper.make_graph(nodes, "g", values, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return repro.build(model, tmp_path_factory.mktemp("given") / "out")


@pytest.mark.parametrize("target", TARGETS)
def test_layouts(artifact: LoadedArtifact, element: DType, target: str) -> None:
    numbers = np.random.default_rng(7).integers(0, 2, SHAPE) if element is BOOL else np.arange(60).reshape(SHAPE)
    array = numbers.astype(element.face)
    tried = 0
    with artifact.session("infer", target, 1) as session:
        for layout, make in LAYOUTS.items():
            given = {"a": make(array.copy()), "b": array}
            for mapping in (given, MappingProxyType(given), dict(reversed(given.items()))):
                found = session.run(mapping)
                assert found["y"].dtype == found["z"].dtype == element.face
                assert found["y"].tobytes() == given["a"].astype(element.face).T.tobytes(), layout
                assert found["z"].tobytes() == array.T.tobytes(), layout
                tried += 1
    assert tried == 3 * len(LAYOUTS)


@pytest.mark.parametrize("target", TARGETS)
def test_one_input_too_many_or_another_in_its_place(artifact: LoadedArtifact, element: DType, target: str) -> None:
    array = np.zeros(SHAPE, element.face)
    wrong: list[Mapping[str, Array]] = [{"a": array}, {"a": array, "c": array}, {"a": array, "b": array, "c": array}]
    with artifact.session("infer", target, 1) as session:
        for given in wrong:
            with pytest.raises(ReproError, match="inputs are"):
                session.run(given)


@pytest.mark.parametrize("target", TARGETS)
def test_a_model_without_inputs_takes_none(target: str, tmp_path: Path) -> None:
    result = helper.make_tensor_value_info("y", 1, (3,))
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["y"], value_floats=[1.0, 2.0, 3.0])], "g", [], [result]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with repro.build(model, tmp_path / "out").session("infer", target, 1) as session:
        assert session.run({})["y"].tolist() == [1, 2, 3]
        with pytest.raises(ReproError, match="unknown: x"):
            session.run({"x": np.zeros(3, np.float32)})


def test_where_arrays_begin() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    views = (whole, whole[1:], whole[:, 3:], whole.T, whole[::-1], whole[2:2], behind_a_byte(whole), read_only(whole))
    assert [address_of(view) for view in views] == [view.ctypes.data for view in views]
