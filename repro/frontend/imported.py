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
class TrainingNotes:
    """What the graph no longer shows and whoever trains it should know; nodes and initializers by name."""

    lost_dropouts: tuple[str, ...] = ()
    """Dropouts that were imported as the identity."""
    unseeded: tuple[str, ...] = ()
    """Random nodes without a seed of their own."""
    integer_tensors: tuple[Port, ...] = ()
    """Integer initializers of rank 2 and up: they may be weights, and are constants here."""
    decided: tuple[str, ...] = ()
    """Parameters whose initial values decided about the graph: the branch of an If, a shape, a count of iterations."""
    changing: tuple[str, ...] = ()
    """Parameters whose initial values were not to decide about it."""


INFER = "infer"


@dataclass(frozen=True)
class EntryGraph:
    """One way to call a model, as a closed graph. Everything is positional; names are for people.

    `updates` pairs a parameter with the result that is its value after a run: state. Results beyond `outputs` are
    such values alone.
    """

    name: str
    graph: Graph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    parameters: tuple[ParameterSlot, ...]
    locations: Locations
    updates: tuple[tuple[int, int], ...] = ()


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
    notes: TrainingNotes = TrainingNotes()

    @property
    def infer(self) -> EntryGraph:
        """The model's own outputs."""
        return EntryGraph(INFER, self.graph, self.inputs, self.outputs, self.parameters, self.locations)
