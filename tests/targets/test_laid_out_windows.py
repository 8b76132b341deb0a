"""Convolutions whose weights were laid out at load: the bits of the reference, whatever a picture's blanks meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from passes import pipeline
from passes.at_load import at_load
from passes.schedule import schedule, tile_orders
from passes.windows import any_window
from repro.ir.graph import Graph, argument, parameter
from repro.ir.program import Call, walk
from repro.ir.types import F32, Array, TensorType
from repro.machines import Machine
from repro.ops import add, concatenate, convolution, mul, window_reduce
from repro.ops.record import evaluate
from tests.running import executable
from tests.targets.native import HERE

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)


@dataclass(frozen=True)
class Case:
    """A convolution of square pictures, whose result is added to something of its shape."""

    channels: int
    filters: int
    size: int
    taps: int = 1
    stride: int = 1
    groups: int = 1
    images: int = 2
    squared: bool = False
    """Whether pictures are computed where they are read."""

    @property
    def out(self) -> int:
        return (self.size + 2 * (self.taps // 2) - self.taps) // self.stride + 1

    def graph(self) -> Graph:
        picture = TensorType(F32, (self.images, self.channels, self.size, self.size))
        beside = TensorType(F32, (self.images, self.filters, self.out, self.out))
        shape = (self.filters, self.channels // self.groups, self.taps, self.taps)
        x, pad = argument(0, picture), -(self.taps // 2)
        found = convolution(
            mul(x, x) if self.squared else x, parameter(0, TensorType(F32, shape)), (self.out,) * 2,
            (self.stride,) * 2, (1, 1), (pad, pad), groups=self.groups,
        )  # fmt: skip
        return Graph((picture, beside), (add(found, argument(1, beside)),))


FEW_PIXELS = (
    Case(40, 48, 2), Case(24, 80, 3), Case(600, 33, 3), Case(64, 40, 7), Case(32, 64, 6, stride=2),
    Case(48, 96, 3, squared=True), Case(40, 48, 3, images=1),
)  # fmt: skip
WIDER = (Case(24, 48, 5, taps=3), Case(130, 37, 3, taps=3, stride=2), Case(64, 64, 6, taps=3, groups=2))


def arrays(kinds: tuple[TensorType, ...], seed: int) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(kind.shape).astype(np.float32) for kind in kinds]


def agree(graph: Graph, weights: Array, inputs: list[Array], machine: Machine, threads: int) -> None:
    """The convolution reads its weights as they were laid out, and gives the reference's bits."""
    program = at_load(pipeline.run(graph).program, lambda kernel: tile_orders(kernel, machine))
    assert len(program.once) == 1
    (call,) = (step for step in walk(program.steps) if isinstance(step, Call))
    chosen = schedule(program.kernels[call.kernel], machine)
    assert chosen.tile is not None
    seen = any_window(program.kernels[call.kernel], chosen.tile.block_m) if chosen.tile.window else None
    assert seen is not None
    assert seen.contraction.laid_out(chosen.tile.vectors * chosen.vector_width)
    made = executable(program, machine, threads)
    made.bind_parameter(0, weights)
    made.prepare()
    with np.errstate(all="ignore"):
        (wanted,) = evaluate(graph, inputs, [weights])
    found = made.run([value.reshape(-1).copy() for value in inputs])[0]
    made.close()
    assert found.tobytes() == wanted.tobytes()


@MACHINES
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", [*FEW_PIXELS, *WIDER])
def test_laid_out(machine: Machine, case: Case, threads: int) -> None:
    graph = case.graph()
    (weights,) = arrays(tuple(node.value.type for node in graph.nodes if node.op == "parameter"), 3)
    agree(graph, weights, arrays(graph.arguments, 1), machine, threads)


@MACHINES
@pytest.mark.parametrize("case", WIDER)
@pytest.mark.parametrize("where", ["weights", "picture"])
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_does_not_meet_a_blank(machine: Machine, case: Case, where: str, number: float) -> None:
    """An absent term is none: an infinite weight makes no NaN of the places around a picture."""
    graph = case.graph()
    (weights,) = arrays(tuple(node.value.type for node in graph.nodes if node.op == "parameter"), 3)
    inputs = arrays(graph.arguments, 1)
    changed = weights if where == "weights" else inputs[0]
    changed[0, -1, 0, 0] = number
    agree(graph, weights, inputs, machine, 1)


def test_overlapping_windows_read_a_concatenation_that_is_stored() -> None:
    """Each of a window's positions would choose among its parts anew."""
    kind = TensorType(F32, (1, 4, 6, 6))
    both = concatenate((argument(0, kind), argument(1, kind)), 1)

    def calls(window: int, stride: int) -> int:
        reduced = window_reduce(
            "max", both, (1, 1, window, window), (1, 1, stride, stride), (1,) * 4, (0,) * 4, (0,) * 4
        )
        return len(pipeline.run(Graph((kind, kind), (reduced,))).program.steps)

    assert calls(3, 2) == 2
    assert calls(2, 2) == 1
