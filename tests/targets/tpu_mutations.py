"""Routines with one instruction less, or two bundles the other way round; and inputs under which that should show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from golden import bless
from passes import pipeline
from repro.artifact import golden
from repro.ir.expressions import Const
from repro.ir.loops import Kernel
from repro.ir.program import Call, Program
from repro.ir.types import I64, Array, to_storage
from repro.numerics.host_mode import exact_arithmetic
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen.emit import emit
from repro.targets.tpu_sim.execution import Execution
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.loading import check
from repro.targets.tpu_sim.program import Bundle, Routine, Statement, instructions
from repro.targets.tpu_sim.simulator import Simulator

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, 88.8, -104.0, 0.5, 1.0, -1.0, 2.5, 1e30, -1e30)


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel's routine and arguments with which it runs: a model's own and drawn ones. The fewer results there are,
    the more often it runs: single values do not tell a step of a polynomial from one near it."""

    kernel: Kernel
    routine: Routine
    chip: Chip
    counters: tuple[int, ...]
    arrays: tuple[Array, ...]
    known: list[tuple[tuple[Array, ...], tuple[bytes, ...]] | None] = field(default_factory=list[Any])
    """Arguments and what comes out, as far as they were asked for; None where indices drawn point nowhere."""

    @property
    def runs(self) -> Iterator[tuple[tuple[Array, ...], tuple[bytes, ...]]]:
        results = min(buffer.elements for buffer in self.kernel.buffers if buffer.writable)
        for seed in range(max(16, min(512, 8192 // results))):
            if seed == len(self.known):
                self.known.append(self._run(seed))
            found = self.known[seed]
            if found is not None:
                yield found

    def _run(self, seed: int) -> tuple[tuple[Array, ...], tuple[bytes, ...]] | None:
        given = self.arrays if seed == 0 else tuple(_varied(self.kernel, array, seed) for array in self.arrays)
        try:
            return given, outputs(self.kernel, self.routine, self.chip, given, self.counters)
        except FaultError:
            return None

    def shows(self, changed: Routine) -> bool:
        """Whether the changed routine faults or gives other bits."""
        try:
            return any(
                outputs(self.kernel, changed, self.chip, given, self.counters) != out for given, out in self.runs
            )
        except FaultError:
            return True


def outputs(
    kernel: Kernel, routine: Routine, chip: Chip, given: Sequence[Array], counters: Sequence[int]
) -> tuple[bytes, ...]:
    arrays = [array.copy() for array in given]
    check(routine, kernel, chip)
    with exact_arithmetic():
        Execution(routine, chip).run(arrays, counters)
    return tuple(array.tobytes() for array, buffer in zip(arrays, kernel.buffers, strict=True) if buffer.writable)


class _Recorder(Simulator):
    """Keeps the arguments of each kernel's first call."""

    def __init__(self, program: Program, routines: Sequence[Routine], chip: Chip) -> None:
        super().__init__(program, routines, chip)
        self.seen: dict[int, tuple[list[Array], tuple[int, ...]]] = {}

    def _call(self, step: Call, arrays: list[Array], counters: list[int]) -> None:
        buffers, scalars = [arrays[b].copy() for b in step.buffers], tuple(counters[d] for d in step.scalars)
        self.seen.setdefault(step.kernel, (buffers, scalars))
        super()._call(step, arrays, counters)


def golden_cases(name: str, chip: Chip) -> Iterator[Case]:
    """Every kernel of a golden model's last entry, on its own values and on drawn ones."""
    entry = bless.entries(bless.cases()[name])[-1]
    program = pipeline.run(entry.graph, entry.locations, entry.updates).program
    routines = [emit(kernel, chip) for kernel in program.kernels]
    recorder = _Recorder(program, routines, chip)
    for position, slot in enumerate(entry.parameters):
        recorder.set_parameter(position, slot.initial.reshape(-1))
    drawn = golden.draw(entry.graph.arguments, golden.index_limits(entry.graph), 0)
    recorder.run([to_storage(a, kind.dtype).reshape(-1) for a, kind in zip(drawn, entry.graph.arguments, strict=True)])
    for number, (arrays, counters) in sorted(recorder.seen.items()):
        kernel, routine = program.kernels[number], routines[number]
        yield Case(kernel, routine, chip, counters, tuple(arrays))


def _varied(kernel: Kernel, array: Array, seed: int) -> Array:
    """Other values: floats of a few magnitudes, with special ones among them or a few that are not finite; integers
    near the kernel's constants."""
    rng = np.random.default_rng(seed)
    if array.dtype == np.bool_:
        return rng.integers(0, 2, array.size).astype(np.bool_)
    if array.dtype.kind == "f":
        drawn = rng.standard_normal(array.size) * 10.0 ** rng.integers(-3, 4)
        few = seed % 4 == 3
        special = rng.choice(np.array((np.inf, -np.inf, np.nan) if few else SPECIAL), array.size)
        chance = (0.0, 0.02, 0.3, 1 / 512)[seed % 4]
        return np.where(rng.random(array.size) < chance, special, drawn).astype(array.dtype)
    known = {e.bits - (1 << 64) * (e.bits >> 63) for e in kernel.expressions if isinstance(e, Const) and e.dtype is I64}
    picks = np.array(sorted(n + d for n in (*known, 0, 8) for d in (-1, 0, 1) if abs(n) < 1 << 62))
    if array.dtype != np.int64 or seed % 2:
        return np.where(rng.random(array.size) < 0.3, rng.permutation(array), array).astype(array.dtype)
    return picks[rng.integers(0, len(picks), array.size)]


# ── changes ─────────────────────────────────────────────────────────────────────────────────────────


def without(body: Sequence[Statement], position: int) -> tuple[Statement, ...]:
    """The body without the instruction at a position of the text's order."""
    made = list[Statement]()
    for statement in body:
        inside = tuple(instructions((statement,)))
        if not 0 <= position < len(inside):
            made.append(statement)
        elif isinstance(statement, Bundle):
            rest = statement.instructions[:position] + statement.instructions[position + 1 :]
            made += [Bundle(rest)] if rest else []
        else:
            made.append(replace(statement, body=without(statement.body, position)))
        position -= len(inside)
    return tuple(made)


def neighbours(body: Sequence[Statement]) -> Iterator[tuple[Bundle, Bundle, tuple[Statement, ...]]]:
    """Each pair of bundles that follow one another, and the body with them the other way round."""
    for position, statement in enumerate(body):
        following = body[position + 1] if position + 1 < len(body) else None
        if isinstance(statement, Bundle) and isinstance(following, Bundle):
            yield statement, following, (*body[:position], following, statement, *body[position + 2 :])
        elif not isinstance(statement, Bundle):
            for first, second, inside in neighbours(statement.body):
                yield first, second, (*body[:position], replace(statement, body=inside), *body[position + 1 :])
