"""Operators against central differences of NumPy formulas in float64, and small models of several nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from repro.ir.types import Array
from tests.ops.one_node import run_node

MICROSOFT = "com.microsoft"
STEP = 1e-5


def drawn(*shape: int, seed: int = 0) -> Array:
    """Numbers at least 0.02 away from 0 and from each other in any one tensor of up to some hundred elements."""
    generator = np.random.Generator(np.random.Philox(seed + 17 * len(shape) + math.prod(shape)))
    count = math.prod(shape)
    steps = np.arange(count) - count // 2 + 0.5
    return (generator.permutation(steps) * (3.0 / max(count, 4))).astype(np.float32).reshape(shape)


def differences(forward: Callable[..., Array], operands: Sequence[Array], cotangent: Array) -> list[Array]:
    """The cotangents of all operands by central differences in float64."""
    wide = [np.asarray(operand, np.float64) for operand in operands]
    found = [np.zeros(operand.shape) for operand in wide]
    for operand, slope in zip(wide, found, strict=True):
        for place in np.ndindex(*operand.shape):
            kept = operand[place]
            ends: list[float] = []
            for shift in (STEP, -STEP):
                operand[place] = kept + shift
                ends.append(float((forward(*wide) * cotangent).sum()))
            operand[place] = kept
            slope[place] = (ends[0] - ends[1]) / (2 * STEP)
    return found


def close(found: Sequence[Array], expected: Sequence[Array], relative: float = 2e-5) -> None:
    assert len(found) == len(expected) > 0
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=relative, atol=relative * max(1.0, float(np.abs(theirs).max())))


def node(op: str, inputs: Mapping[str, Array | None], outputs: Sequence[str], **rest: Any) -> list[Array]:
    return run_node(op, inputs, outputs, 17, domain=MICROSOFT, **rest)


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Array], constants: Mapping[str, Array], outputs: Sequence[str]
) -> onnx.ModelProto:
    """A model of several nodes; the outputs' types are left to the importer."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(list(nodes), "model", given, made, kept)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
