"""Runs models whose inputs lie against pages that nobody may read: `python -m tests.targets.guarded TARGET`.

What a model reads outside of an input ends the process. The name of each is printed first.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import repro
from repro.ir.types import Array
from tests.targets.guards import Guarded


def model(nodes: list[NodeProto], inputs: dict[str, Array], constants: dict[str, Array]) -> ModelProto:
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    given = [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in inputs.items()]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "guarded", given, [helper.make_empty_tensor_value_info("y")], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def sliced(rows: int, pitch: int, first: int) -> tuple[ModelProto, dict[str, Array]]:
    """A product with the last columns of a matrix, whose rows are as long as register tiles of some machines."""
    inputs = {"a": drawn(rows, 16), "w": drawn(16, pitch)}
    ends = {"first": np.array([first]), "end": np.array([pitch]), "axis": np.array([1])}
    cut = helper.make_node("Slice", ["w", *ends], ["s"])
    return model([cut, helper.make_node("MatMul", ["a", "s"], ["y"])], inputs, ends), inputs


def turned(dtype: type) -> tuple[ModelProto, dict[str, Array]]:
    """A transposed convolution, whose first pixels have terms in front of the image."""
    inputs = {"x": drawn(1, 3, 1, 33).astype(dtype), "w": drawn(3, 1, 4, 2).astype(dtype)}
    spaced: dict[str, Any] = {"dilations": [2, 1], "pads": [0, 1, 0, 0], "strides": [3, 2]}
    return model([helper.make_node("ConvTranspose", ["x", "w"], ["y"], **spaced)], inputs, {}), inputs


def narrowed(given: type, narrow: TensorProto.DataType) -> tuple[ModelProto, dict[str, Array]]:
    """A product of integers, one column of which is beyond whole vectors, stored as smaller ones."""
    inputs = {"a": (drawn(20, 64) * 50).astype(given), "b": (drawn(64, 33) * 50).astype(given)}
    narrowing = helper.make_node("Cast", ["z"], ["y"], to=narrow)
    return model([helper.make_node("MatMul", ["a", "b"], ["z"]), narrowing], inputs, {}), inputs


def drawn(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def cases() -> Iterator[tuple[str, ModelProto, dict[str, Array]]]:
    for rows in (1, 16, 64):
        for pitch in (8, 16, 32, 48, 64):
            yield f"sliced {rows} {pitch}", *sliced(rows, pitch, pitch // 2 - 1)
    for dtype in (np.float32, np.float64):
        yield f"turned {dtype.__name__}", *turned(dtype)
    types = TensorProto.DataType
    for given, narrow in (
        (np.int32, types.INT8),
        (np.int32, types.INT16),
        (np.int64, types.INT32),
        (np.int64, types.INT8),
    ):
        yield f"narrowed {given.__name__} {types.Name(narrow)}", *narrowed(given, narrow)


def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, made, inputs) in enumerate(cases()):
            print(name, flush=True)
            artifact = repro.build(made, out=Path(folder) / str(number), targets=[target])
            with artifact.session(target="reference") as session:
                (wanted,) = session.run(inputs).values()
            with artifact.session(target=target, threads=1) as session:
                for last in (False, True):
                    memory = Guarded(last)
                    (found,) = session.run({key: memory.copy(array) for key, array in inputs.items()}).values()
                    assert found.tobytes() == wanted.tobytes(), name


if __name__ == "__main__":
    main(sys.argv[1])
