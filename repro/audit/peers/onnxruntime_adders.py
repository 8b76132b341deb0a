"""ONNX Runtime's sums and dots, as its layers make them: the same operators, with weights where layers have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from repro.audit.peers.peer import Adder, PeerError
from repro.audit.records import Outcome
from repro.ir.types import Array

ROWS = 4
COLUMNS = 16
"""Columns and channels beside the one that is read: a wide vector's lanes, so that kernels for whole vectors run."""
SIDE = 12
"""Extent of the image of a convolution: at 128 places and more its blocks of terms are as in larger images."""


class Sessions:
    """Sessions of one-node models, one for each length and weight, and what they read; the latest kept.

    Of an operand only the terms that are read change from call to call: the rest stays zero.
    """

    def __init__(self, make: Callable[[ModelProto], Any]) -> None:
        self._make = make
        self.get = lru_cache(maxsize=4)(self._get)
        self.zeros = lru_cache(maxsize=4)(lambda *shape: np.zeros(shape, np.float32))

    def _get(self, build: Callable[..., ModelProto], *arguments: Any) -> Any:
        return self._make(build(*arguments))


def adders(sessions: Sessions) -> Mapping[str, Adder]:
    """`sum` of a vector, `sum of columns` of a matrix, `dot` of two vectors that both are operands, and with constant
    weights, as in a layer: `matmul`, and `conv` with a kernel of 1x1 and of 2x2 (a multiple of 4 terms)."""

    def total(terms: Array, factors: Array) -> float:
        return float(sessions.get(_reduce, terms.shape).run(None, {"x": terms})[0])

    def columns(terms: Array, factors: Array) -> float:
        x = sessions.zeros(terms.size, COLUMNS)
        x[:, 0] = terms
        return float(sessions.get(_reduce, x.shape).run(None, {"x": x})[0][0])

    def dot(terms: Array, factors: Array) -> float:
        session = sessions.get(_dot, terms.size)
        return float(session.run(None, {"x": terms[None, :], "w": factors[:, None]})[0][0, 0])

    def matmul(terms: Array, factors: Array) -> float:
        x = sessions.zeros(ROWS, terms.size)
        x[0] = terms
        return float(sessions.get(_matmul, factors.tobytes()).run(None, {"x": x})[0][0, 0])

    def convolution(terms: Array, factors: Array, kernel: int) -> float:
        taps = kernel * kernel
        if terms.size % taps:
            raise PeerError(Outcome.REFUSED, f"a kernel of {kernel}x{kernel} has no {terms.size} terms")
        x = sessions.zeros(1, terms.size // taps, SIDE, SIDE)
        x[0, :, :kernel, :kernel] = terms.reshape(-1, kernel, kernel)
        return float(sessions.get(_convolution, factors.tobytes(), kernel).run(None, {"x": x})[0][0, 0, 0, 0])

    return {
        "sum": total,
        "sum of columns": columns,
        "dot": dot,
        "matmul": matmul,
        "conv 1x1": lambda terms, factors: convolution(terms, factors, 1),
        "conv 2x2": lambda terms, factors: convolution(terms, factors, 2),
    }


def _reduce(shape: tuple[int, ...]) -> ModelProto:
    return _model("ReduceSum", {"x": shape}, {"axes": np.array([0])}, keepdims=0)


def _dot(length: int) -> ModelProto:
    return _model("MatMul", {"x": (1, length), "w": (length, 1)}, {})


def _matmul(factors: bytes) -> ModelProto:
    weight = np.repeat(np.frombuffer(factors, np.float32)[:, None], COLUMNS, axis=1)
    return _model("MatMul", {"x": (ROWS, weight.shape[0])}, {"w": weight})


def _convolution(factors: bytes, kernel: int) -> ModelProto:
    taps = np.frombuffer(factors, np.float32).reshape(1, -1, kernel, kernel)
    weight = np.repeat(taps, COLUMNS, axis=0)
    return _model("Conv", {"x": (1, weight.shape[1], SIDE, SIDE)}, {"w": weight})


def _model(operator: str, inputs: Mapping[str, tuple[int, ...]], weights: Mapping[str, Array], **at: Any) -> ModelProto:
    """A model of one node that reads `inputs`, then `weights`."""
    graph = helper.make_graph(
        [helper.make_node(operator, [*inputs, *weights], ["y"], **at)],
        operator,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
