"""What an import gives: the canonical graph, and beside it everything that has a name."""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir.graph import Graph, Locations
from repro.ir.types import Array, TensorType


@dataclass(frozen=True)
class Port:
    """An input or output of the model: its ONNX name and static type."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class ParameterSlot:
    """A parameter: its initializer's name, type, initial value (storage array), and whether training may change it."""

    name: str
    type: TensorType
    initial: Array
    trainable: bool


@dataclass(frozen=True)
class Imported:
    """A model as a canonical graph. Inputs, outputs, parameters and random nodes are positional; names stay here."""

    graph: Graph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    parameters: tuple[ParameterSlot, ...]
    random_nodes: tuple[str, ...]
    locations: Locations
    bound: dict[str, int]
    opsets: dict[str, int]
    warnings: tuple[str, ...]
