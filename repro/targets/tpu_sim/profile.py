"""What a run on a chip took: cycles, units, stalls, traffic and energy, by kernel and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repro.targets.tpu_sim.bundles import slots
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.energy import energy
from repro.targets.tpu_sim.operands import LANES
from repro.targets.tpu_sim.program import Routine
from repro.targets.tpu_sim.timing import Timing

UNITS = ("matrix", "alu", "load", "store", "cross", "hbm")
"""Units whose occupancy is shown."""


@dataclass(frozen=True)
class Event:
    """One call on the timeline: cycles from the start of the run."""

    kernel: int
    start: int
    cycles: int


@dataclass(frozen=True)
class KernelRow:
    """All calls of one kernel in a run. `counts` as in `timing.Timing`."""

    name: str
    calls: int
    cycles: int
    vmem_bytes: int
    counts: Counter[str]

    @property
    def operations(self) -> int:
        """A product of the matrix unit counts two, a vector pass one on each lane."""
        return 2 * self.counts["products"] + LANES * self.counts["passes"]

    @property
    def hbm_bytes(self) -> int:
        return self.counts["hbm read"] + self.counts["hbm written"]

    @property
    def joules(self) -> float:
        return sum(energy(self.counts).values())

    def busiest(self, chip: Chip) -> tuple[str, float]:
        """The unit nearest to its limit, and how near."""
        found = occupancy(self.counts, self.cycles, chip)
        return max(found.items(), key=lambda item: item[1])

    def stall(self) -> tuple[str, float]:
        """The cause that it waited for longest, and its share of all cycles."""
        stalls = {name.removeprefix("stall "): n for name, n in self.counts.items() if name.startswith("stall ")}
        cause = max(stalls, key=lambda name: stalls[name], default="none")
        return cause, stalls.get(cause, 0) / max(1, self.cycles)


def occupancy(counts: Counter[str], cycles: int, chip: Chip) -> dict[str, float]:
    """The share of its slots that each unit was busy."""
    room = {**slots(chip), "matrix": chip.matrix_units, "hbm": 1}
    return {unit: counts[f"busy {unit}"] / max(1, cycles * room[unit]) for unit in UNITS}


@dataclass(frozen=True)
class Profile:
    """One run on one chip."""

    chip: Chip
    rows: tuple[KernelRow, ...]
    events: tuple[Event, ...]
    cycles: int

    @property
    def counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for row in self.rows:
            total += row.counts
        return total

    @property
    def seconds(self) -> float:
        return self.cycles / (self.chip.clock_mhz * 1e6)

    @property
    def joules(self) -> float:
        return sum(row.joules for row in self.rows)

    @property
    def matrix_utilisation(self) -> float:
        """Products done beside what the matrix units could have done."""
        chip = self.chip
        return self.counts["products"] / max(1, self.cycles * chip.matrix_units * chip.array**2)

    @property
    def transfers_hidden(self) -> float:
        """At least this share of the time that HBM was busy something else went on: only waits for transfers count
        against it, and those hold latency too."""
        busy, waited = self.counts["busy hbm"], self.counts["stall transfer"]
        return max(0.0, 1 - waited / busy) if busy else 1.0

    def page(self, title: str) -> str:
        """One HTML page. Raises ReproError where Jinja2 is not installed."""
        from repro.targets.tpu_sim.page import render  # which draws profiles

        return render(self, title)

    def document(self) -> dict[str, Any]:
        """As JSON: times in seconds, energy in joules, the rest as counted."""
        chip = self.chip
        return {
            "format": "repro tpu-sim profile 1",
            "chip": chip.name,
            "clock_mhz": chip.clock_mhz,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "joules": self.joules,
            "joules_by": energy(self.counts),
            "matrix_utilisation": self.matrix_utilisation,
            "transfers_hidden": self.transfers_hidden,
            "occupancy": occupancy(self.counts, self.cycles, chip),
            "vmem_high_water": max((row.vmem_bytes for row in self.rows), default=0),
            "counts": dict(sorted(self.counts.items())),
            "kernels": [
                {
                    "name": row.name,
                    "calls": row.calls,
                    "cycles": row.cycles,
                    "seconds": row.cycles / (chip.clock_mhz * 1e6),
                    "joules": row.joules,
                    "vmem_bytes": row.vmem_bytes,
                    "occupancy": occupancy(row.counts, row.cycles, chip),
                    "counts": dict(sorted(row.counts.items())),
                }
                for row in self.rows
            ],
        }


def profile(
    chip: Chip, routines: Sequence[Routine], timings: Sequence[Timing], trace: Sequence[tuple[int, tuple[int, ...]]]
) -> Profile:
    """From the calls of a run in order: (kernel, how many iterations went into each of its `when_any`)."""
    cycles, calls = [0] * len(routines), [0] * len(routines)
    counts: list[Counter[str]] = [Counter() for _ in routines]
    events, now = list[Event](), 0
    for kernel, taken in trace:
        timing = timings[kernel]
        branches = sum(times * each for times, each in zip(taken, timing.branches, strict=True))
        took = chip.call_latency + timing.cycles + branches
        calls[kernel] += 1
        cycles[kernel] += took
        counts[kernel] += timing.counts + Counter({"stall launch": chip.call_latency, "branch cycles": branches})
        events.append(Event(kernel, now, took))
        now += took
    rows = tuple(
        KernelRow(routine.name, calls[n], cycles[n], routine.vmem_bytes, counts[n])
        for n, routine in enumerate(routines)
        if calls[n]
    )
    return Profile(chip, rows, tuple(events), now)
