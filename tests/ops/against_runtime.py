"""One ONNX node against ONNX Runtime, with inputs that are known at build where an operator asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from repro.ir.types import Array
from tests.ops.one_node import by_onnxruntime, model_of, run_model


def model_with(
    op: str, inputs: Mapping[str, Array], fixed: Mapping[str, Array], opset: int, outputs: Sequence[str], **rest: Any
) -> onnx.ModelProto:
    """A model of one node whose `fixed` inputs, behind the others, are initializers."""
    model = model_of(op, {**inputs, **fixed}, outputs, opset, **rest)
    kept = [item for item in model.graph.input if item.name not in fixed]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in fixed.items())
    return model


def agrees(
    op: str,
    opset: int,
    *inputs: Array,
    fixed: Sequence[Array] = (),
    tolerance: float = 1e-6,
    outputs: Sequence[str] = ("y",),
    **rest: Any,
) -> list[Array]:
    """Our outputs, the same from reference and CPU code, and close to ONNX Runtime's."""
    arrays = {f"x{number}": array for number, array in enumerate(inputs)}
    known = {f"c{number}": array for number, array in enumerate(fixed)}
    model = model_with(op, arrays, known, opset, outputs, **rest)
    found = run_model(model, arrays)
    for ours, theirs in zip(found, by_onnxruntime(model, arrays), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    return found
