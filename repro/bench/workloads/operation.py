"""A workload of one operation, stated once for every side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from repro.bench.network import Network
from repro.bench.workloads.workload import Tensors, Workload
from repro.ir.types import Array

MICROSOFT = "com.microsoft"


def drawn(shapes: dict[str, tuple[int, ...]], dtype: type[np.generic] = np.float32) -> Callable[[], dict[str, Array]]:
    def of(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        if issubclass(dtype, np.integer):
            return random.integers(0, np.iinfo(dtype).max, shape, dtype)
        return random.standard_normal(shape).astype(dtype)

    def draw() -> dict[str, Array]:
        random = np.random.default_rng(1)
        return {name: of(random, shape) for name, shape in shapes.items()}

    return draw


def operation(
    name: str,
    what: str,
    shapes: dict[str, tuple[int, ...]],
    build: Callable[..., str],
    torch: Callable[..., Any],
    onnxruntime: bool = True,
    dtype: type[np.generic] = np.float32,
) -> Workload:
    """A workload of inputs by name and shape; `build` adds its nodes from their names, `torch` takes tensors."""

    def network(mode: str) -> tuple[Network, tuple[str, ...]]:
        net = Network(name.replace("/", "_"))
        return net, (build(net, *(net.input(each, shape, dtype) for each, shape in shapes.items())),)

    def run(parameters: Tensors, inputs: Tensors, mode: str) -> Any:
        return torch(*(inputs[each] for each in shapes))

    return Workload(name, what, network, drawn(shapes, dtype), run, onnxruntime=onnxruntime)


def simple(operator: str, **attributes: Any) -> Callable[..., str]:
    return lambda net, *names: net.node(operator, *names, **attributes)
