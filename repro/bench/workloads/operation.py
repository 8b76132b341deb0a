"""A workload of one operation, stated once for every side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from repro.bench.network import Network
from repro.bench.workloads.inputs import drawn
from repro.bench.workloads.workload import Tensors, Workload

MICROSOFT = "com.microsoft"


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
