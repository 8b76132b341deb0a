"""Kernels that HBM should bound on the simulated TPU: each as a graph, and the bytes that it has to move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from passes import pipeline
from repro.bench.network import Network
from repro.frontend import import_model
from repro.frontend.load import load_model
from repro.ir.graph import Graph, Value, argument, parameter
from repro.ir.program import Program
from repro.ir.types import F32, F64, I64, TensorType
from repro.ops import add, broadcast, gather, maximum, mul, reduce_axes, transpose
from repro.train_step.optimizers import Adam

FLAT = TensorType(F32, (1 << 24,))
SQUARE, TALL = TensorType(F32, (4096, 4096)), TensorType(F32, (16384, 1024))
ROW = TensorType(F32, (1024,))
SCALAR = TensorType(F64, ())


@dataclass(frozen=True)
class BoundKernel:
    """`nbytes`: what crosses HBM at least, each operand and each result once. `updates` as `pipeline.run` has them."""

    name: str
    what: str
    graph: Graph
    nbytes: int
    updates: tuple[tuple[int, int], ...] = ()

    def program(self) -> Program:
        return pipeline.run(self.graph, updates=self.updates).program


def _kernel(name: str, what: str, build: Callable[..., Sequence[Value]], *kinds: TensorType) -> BoundKernel:
    return _of(name, what, Graph(kinds, tuple(build(*(argument(n, kind) for n, kind in enumerate(kinds))))))


def _of(name: str, what: str, graph: Graph) -> BoundKernel:
    return BoundKernel(name, what, graph, sum(kind.nbytes for kind in (*graph.arguments, *_results(graph))))


def _results(graph: Graph) -> list[TensorType]:
    return [result.type for result in graph.results]


def _imported(name: str, what: str, operator: str, *shapes: tuple[int, ...], **attributes: Any) -> BoundKernel:
    """An ONNX operator in the composite that it is imported as."""
    net = Network("case")
    output = net.node(operator, *(net.input(f"x{n}", shape) for n, shape in enumerate(shapes)), **attributes)
    return _of(name, what, import_model(load_model(net.model(output)), {}, {}, None, 0).infer.graph)


def _adam() -> BoundKernel:
    """Weights and averages are state, which the step changes in place."""
    state = [parameter(slot, FLAT) for slot in range(3)]
    gradient, rate, step = (argument(n, kind) for n, kind in enumerate((FLAT, SCALAR, SCALAR)))
    updated, averages = Adam().update(state[0], gradient, state[1:], rate, step)
    graph = Graph((FLAT, SCALAR, SCALAR), (updated, *averages))
    return BoundKernel("Adam", "2^24 parameters", graph, 7 * FLAT.nbytes, ((0, 0), (1, 1), (2, 2)))


KERNELS: tuple[BoundKernel, ...] = (
    _kernel("chain", "max(x y + x, y), 2^24", lambda x, y: (maximum(add(mul(x, y), x), y),), FLAT, FLAT),
    _kernel("broadcast", "16384 x 1024 + a row", lambda x, y: (add(x, broadcast(y, x.shape, (1,))),), TALL, ROW),
    _kernel("copies of a row", "to 16384 x 1024", lambda y: (broadcast(y, TALL.shape, (1,)),), ROW),
    _kernel("sum of rows", "16384 x 1024", lambda x: (reduce_axes("add", x, [1]),), TALL),
    _kernel("sum of columns", "4096 x 4096", lambda x: (reduce_axes("add", x, [0]),), SQUARE),
    _kernel("maximum of rows", "16384 x 1024", lambda x: (reduce_axes("max", x, [1]),), TALL),
    _kernel("transpose", "4096 x 4096", lambda x: (transpose(x, (1, 0)),), SQUARE),
    _kernel(
        "heads", "8 x 1024 x 16 x 64, middle axes", lambda x: (transpose(x, (0, 2, 1, 3)),),
        TensorType(F32, (8, 1024, 16, 64)),
    ),
    _adam(),
)  # fmt: skip
"""Held against bytes over bandwidth by tests."""

FURTHER: tuple[BoundKernel, ...] = (
    _kernel(
        "sum of short rows", "131072 x 128", lambda x: (reduce_axes("add", x, [1]),), TensorType(F32, (131072, 128)),
    ),
    _kernel("sum of long columns", "16384 x 1024", lambda x: (reduce_axes("add", x, [0]),), TALL),
    _kernel(
        "sum of few columns", "131072 x 128", lambda x: (reduce_axes("add", x, [0]),), TensorType(F32, (131072, 128)),
    ),
    _kernel(
        "narrow transpose", "262144 x 64", lambda x: (transpose(x, (1, 0)),), TensorType(F32, (262144, 64)),
    ),
    _imported("softmax", "16384 x 1024", "Softmax", TALL.shape, axis=-1),
    _imported("layer norm", "16384 x 1024", "LayerNormalization", TALL.shape, ROW.shape, ROW.shape, axis=-1),
    _kernel(
        "embedding", "16384 rows of 512 x 1024", lambda table, picks: (gather(table, picks, [0]),),
        TensorType(F32, (512, 1024)), TensorType(I64, (16384, 1)),
    ),
)  # fmt: skip
"""What is bound by something else somewhere, or runs as several kernels."""
