"""A sharded training step on several chips: each runs its shards, sums go over the links, each takes the step.

The bits do not depend on the number of chips, because the sums do not (rule 17): `collectives` adds by the upper levels
of the same tree whose lower levels each chip adds by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from passes import pipeline
from passes.workers import divide
from repro.errors import ReproError
from repro.ir.graph import Graph
from repro.ir.parse_kernel import parse_kernel
from repro.ir.program import PARAMETER
from repro.ir.types import Array, DType, TensorType
from repro.numerics.host_mode import exact_arithmetic
from repro.targets.protocol import SharedStep
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen.emit import emit
from repro.targets.tpu_sim.collectives import all_reduce
from repro.targets.tpu_sim.links import Topology
from repro.targets.tpu_sim.pod import Choose, Pod, first
from repro.targets.tpu_sim.profile import Profile
from repro.targets.tpu_sim.program import Routine
from repro.targets.tpu_sim.simulator import Simulator
from repro.targets.tpu_sim.timing import Timing, time_routine


class _Part:
    """One program, on each chip."""

    def __init__(self, graph: Graph, chips: int, chip: Chip) -> None:
        lowered = pipeline.run(graph)
        self.results, self.checked = len(graph.results), bool(lowered.checked)
        program = lowered.program
        self.parameters = {buffer.position for buffer in program.buffers if buffer.role == PARAMETER}
        routines = [_routine(kernel.text, chip) for kernel in program.kernels]
        one = Simulator(program, routines, chip)
        self.on = [one, *(one.beside() for _ in range(chips - 1))]

    def run(self, number: int, inputs: Sequence[Array], state: Sequence[Array]) -> list[Array]:
        simulator = self.on[number]
        for position in self.parameters:
            simulator.set_parameter(position, state[position])
        found = simulator.run(inputs)
        if self.checked and found[-1].reshape(-1, 3)[:, 0].any():
            raise ReproError("an index is out of range", found=str(found[-1].reshape(-1, 3).tolist()))
        return found[: self.results]


@lru_cache(maxsize=4096)
def _routine(text: str, chip: Chip) -> Routine:
    """The end of a step is the same for any number of chips, and so is most of its stages."""
    return emit(parse_kernel(text), chip)


@dataclass(frozen=True)
class StepTime:
    """Cycles of a step: the chips' own work, and what goes over links."""

    computing: int
    communicating: int
    link_bytes: int
    parts: tuple[Profile, ...]
    """Of chip 0, stage by stage, then the end."""


class DataParallel:
    """A training step's graph with `shards` virtual shards on the chips of a topology."""

    def __init__(
        self, graph: Graph, updates: Sequence[tuple[int, int]], shards: int, topology: Topology, chip: Chip
    ) -> None:
        """Raises ReproError where the shards cannot be shared out so."""
        self.topology, self.chip, self.updates = topology, chip, tuple(updates)
        chips = topology.chips
        self.division = divide(graph, shards, chips)
        self._stages = [_Part(stage.graph, chips, chip) for stage in self.division.stages]
        self._end = _Part(self.division.end, chips, chip)
        self._sums = [_Sums(stage.graph.types, chips, chip) for stage in self.division.stages]

    def run(self, inputs: Sequence[Array], states: Sequence[list[Array]], choose: Choose = first) -> list[list[Array]]:
        """One step: the results on each chip, as flat storage arrays; `states` (each chip's own, changed) take their
        updates."""
        chips = range(self.topology.chips)
        totals: list[list[Array]] = [[] for _ in chips]
        with exact_arithmetic():
            for stage, part, sums in zip(self.division.stages, self._stages, self._sums, strict=True):
                partial = list[list[Array]]()
                for number in chips:
                    start = np.asarray([number * stage.shards], np.int64)
                    own = [*inputs, *totals[number], *stage.shard_rows(inputs, number), start]
                    partial.append(part.run(number, own, states[number]))
                for known, made in zip(totals, sums.run(partial, choose), strict=True):
                    known += made
            results = [self._end.run(number, [*inputs, *totals[number]], states[number]) for number in chips]
        for state, made in zip(states, results, strict=True):
            for parameter, output in self.updates:
                state[parameter] = made[output]
        return results

    def time(self) -> StepTime:
        """What the last step took; chips do the same, so one of them says it."""
        parts = tuple(part.on[0].profile() for part in (*self._stages, self._end))
        timings = [timing for sums in self._sums for timing in sums.timings(self.topology)]
        talking = sum(timing.cycles + self.chip.call_latency for timing in timings)
        sent = sum(timing.counts["link bytes"] for timing in timings)
        return StepTime(sum(part.cycles for part in parts), talking, sent, parts)


class ChipsExecutable:
    """A training step on several chips as one: all hold the same state, and chip 0 answers for it."""

    def __init__(self, step: SharedStep, parameters: Sequence[Array], topology: Topology, chip: Chip) -> None:
        self._together = DataParallel(step.graph, step.updates, step.shards, topology, chip)
        self._states = [[value.reshape(-1).copy() for value in parameters] for _ in range(topology.chips)]
        self._reports = [np.zeros(3 * step.checks, np.int64)] if step.checks else []

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """As `Executable`; an index out of range is an error of the chip that finds it, before any state changes."""
        return [*self._together.run(inputs, self._states)[0], *self._reports]

    def set_parameter(self, position: int, value: Array) -> None:
        for state in self._states:
            state[position] = value.reshape(-1).copy()

    def parameter(self, position: int) -> Array | None:
        return self._states[0][position]

    def time(self) -> StepTime:
        """What the last step took."""
        return self._together.time()

    def close(self) -> None:
        """Nothing is held."""


class _Sums:
    """The sums over chips after one stage: one routine for each element type, or several where VMEM is small."""

    def __init__(self, types: Sequence[TensorType], chips: int, chip: Chip) -> None:
        self.types, self.chip = tuple(types), chip
        self._groups = list(_groups(self.types, chip.vmem_bytes // 4))
        self._pods = [
            Pod(all_reduce(dtype, [self.types[place].elements for place in places], chips, chip), chips, chip)
            for dtype, places in self._groups
        ]

    def run(self, partial: Sequence[Sequence[Array]], choose: Choose) -> list[list[Array]]:
        """From partial sums by chip to totals by chip."""
        totals = [[np.zeros(kind.elements, kind.dtype.storage) for kind in self.types] for _ in partial]
        for (_, places), pod in zip(self._groups, self._pods, strict=True):
            arguments = [
                [*(own[place] for place in places), *(made[place] for place in places)]
                for own, made in zip(partial, totals, strict=True)
            ]
            pod.run(arguments, choose)
        return totals

    def timings(self, topology: Topology) -> list[Timing]:
        return [time_routine(pod.routine, self.chip, topology) for pod in self._pods]


def _groups(types: Sequence[TensorType], room: int) -> list[tuple[DType, list[int]]]:
    """Positions of one element type each, in order, of at most `room` bytes where a tensor does not need more."""
    found = list[tuple[DType, list[int]]]()
    for dtype in dict.fromkeys(kind.dtype for kind in types):
        held = room + 1
        for place, kind in enumerate(types):
            if kind.dtype is not dtype:
                continue
            if held + kind.nbytes > room:
                found.append((dtype, []))
                held = 0
            found[-1][1].append(place)
            held += kind.nbytes
    return found
