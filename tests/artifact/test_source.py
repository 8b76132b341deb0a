from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repro.artifact.source import store

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
MODELS = sorted(GOLDEN.glob("*/*.onnx"))


def raw(tensor: TensorProto) -> bytes:
    return numpy_helper.to_array(tensor).tobytes()


def unpack(stored, folder: Path) -> Path:
    (folder / "model").write_bytes(stored.model.data)
    for layer in stored.weight_layers:
        (folder / layer.digest.removeprefix("sha256:")).write_bytes(layer.data)
    return folder / "model"


def test_there_are_models() -> None:
    assert len(MODELS) >= 5


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_blobs_are_a_model_that_onnx_loads(path: Path, tmp_path: Path) -> None:
    model = onnx.load(path)
    stored = store(model, raw)
    again = onnx.load(unpack(stored, tmp_path))
    assert len(stored.weights) > 0
    for left, right in zip(model.graph.initializer, again.graph.initializer, strict=True):
        assert (left.name, left.data_type, list(left.dims)) == (right.name, right.data_type, list(right.dims))
        assert raw(left) == raw(right)
    assert [node.SerializeToString() for node in model.graph.node] == [
        node.SerializeToString() for node in again.graph.node
    ]
    assert model.training_info == again.training_info
    once_more = store(again, raw)
    assert once_more.model.data == stored.model.data
    assert once_more.weights == stored.weights


def test_the_form_of_the_data_makes_no_difference() -> None:
    array = np.array([1.5, -0.0, 3.0], np.float32)
    typed = helper.make_tensor("w", TensorProto.FLOAT, [3], array.tolist())
    plain = numpy_helper.from_array(array, "w")
    integers = helper.make_tensor("i", TensorProto.INT64, [2], [1, 2])
    blobs = set()
    for tensor in (typed, plain):
        graph = helper.make_graph([], "g", [], [], initializer=[tensor, integers])
        blobs.add(store(helper.make_model(graph), raw).model.data)
    assert len(blobs) == 1
