"""What comes behind a sum: the nodes that a runtime fused into a dot or a convolution, on single elements of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import NodeProto

from repro.audit.causes.problem import NotCoveredError, Problem, attribute
from repro.ir.types import F32, Array
from repro.numerics.elementary import evaluate

Finish = Callable[[Array], Array]
Behind = Callable[[Array], tuple[Array | None, Finish]]
"""Of some elements, the addend of their sums and all that comes after it."""
ZERO, ONE = np.float32(0), np.float32(1)


def epilogue(problem: Problem, units: Array) -> tuple[Array | None, Finish]:
    """The addend of an Add that was fused in first, and all that comes after it, each operation rounded."""
    shape, value = problem.golden.shape, problem.node.output[0]
    made = {value, *(node.output[0] for node in problem.after)}
    names = {name for node in problem.after for name in node.input if name and name not in made}
    others = {name: at(problem.arrays[name], shape, units) for name in names}
    nodes = list(problem.after)
    addend: Array | None = None
    if nodes and nodes[0].op_type == "Add" and not any(value in node.input for node in nodes[1:]):
        first = nodes.pop(0)
        addend = others[next(name for name in first.input if name != value)]
        value = first.output[0]
    for node in nodes:
        if node.op_type not in OPERATIONS:
            raise NotCoveredError(f"{node.op_type} fused behind it")

    def finish(result: Array) -> Array:
        values = others | {value: result}
        for node in nodes:
            values[node.output[0]] = OPERATIONS[node.op_type](node, [values[name] for name in node.input if name])
        return values[nodes[-1].output[0]] if nodes else result

    return addend, finish


def at(array: Array, shape: tuple[int, ...], units: Array) -> Array:
    """The elements of an operand at places of the result that it is broadcast to."""
    try:
        return np.broadcast_to(array, shape)[np.unravel_index(units, shape)]
    except ValueError:
        raise NotCoveredError(f"an operand of shape {list(array.shape)} beside {list(shape)}") from None


def _clipped(node: NodeProto, x: Sequence[Array]) -> Array:
    least, most = attribute(node, "min", -np.inf), attribute(node, "max", np.inf)
    bounds = [*x[1:], np.float32(least), np.float32(most)] if len(x) == 1 else [*x[1:], np.float32(np.inf)]
    return np.minimum(np.maximum(x[0], bounds[0]), bounds[1])


def _hard_sigmoid(node: NodeProto, x: Sequence[Array]) -> Array:
    alpha, beta = (np.float32(attribute(node, name, value)) for name, value in (("alpha", 0.2), ("beta", 0.5)))
    return np.maximum(ZERO, np.minimum(ONE, alpha * x[0] + beta))


def _hard_swish(node: NodeProto, x: Sequence[Array]) -> Array:
    return x[0] * np.maximum(ZERO, np.minimum(ONE, np.float32(1 / 6) * x[0] + np.float32(0.5)))


def _leaky(node: NodeProto, x: Sequence[Array]) -> Array:
    return np.where(x[0] < 0, x[0] * np.float32(attribute(node, "alpha", 0.01)), x[0])


OPERATIONS: dict[str, Callable[[NodeProto, Sequence[Array]], Array]] = {
    "Identity": lambda node, x: x[0],
    "Relu": lambda node, x: np.where(x[0] > 0, x[0], ZERO),
    "LeakyRelu": _leaky,
    "PRelu": lambda node, x: np.where(x[0] < 0, x[0] * x[1], x[0]),
    "Clip": _clipped,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Sigmoid": lambda node, x: ONE / (ONE + evaluate("exp", [-x[0]], F32)),
    "Add": lambda node, x: x[0] + x[1],
    "Sub": lambda node, x: x[0] - x[1],
    "Mul": lambda node, x: x[0] * x[1],
    "Div": lambda node, x: x[0] / x[1],
}
"""The operators that may stand behind a dot, each as the contract rounds it."""
