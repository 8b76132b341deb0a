"""Chips in a ring or a torus: which links a message takes, and how long a step of messages takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from repro.targets.tpu_sim.chips import Chip

HOP = 100
"""Cycles from chip to chip for the first byte: an assumption."""


@dataclass(frozen=True)
class Topology:
    """A torus of the given extents (one extent: a ring); chip numbers are row-major. Each link has both directions."""

    extents: tuple[int, ...]

    @property
    def chips(self) -> int:
        return prod(self.extents)

    def route(self, source: int, target: int) -> list[tuple[int, int]]:
        """The (chip, next chip) hops of a message: dimension by dimension, the shorter way round."""
        at, hops = self._place(source), list[tuple[int, int]]()
        goal = self._place(target)
        for axis, extent in enumerate(self.extents):
            forward = (goal[axis] - at[axis]) % extent
            step = 1 if 2 * forward <= extent else -1
            while at[axis] != goal[axis]:
                after = list(at)
                after[axis] = (at[axis] + step) % extent
                hops.append((self._number(at), self._number(after)))
                at = after
        return hops

    def _place(self, number: int) -> list[int]:
        place = list[int]()
        for extent in reversed(self.extents):
            place.append(number % extent)
            number //= extent
        return place[::-1]

    def _number(self, place: Sequence[int]) -> int:
        number = 0
        for extent, at in zip(self.extents, place, strict=True):
            number = number * extent + at
        return number

    def cycles(self, targets: Sequence[int], nbytes: int, chip: Chip) -> int:
        """A step in which each chip c sends so many bytes to targets[c]: the busiest link and the longest way."""
        loads: Counter[tuple[int, int]] = Counter()
        farthest = 0
        for source, target in enumerate(targets):
            hops = self.route(source, target)
            loads.update(hops)
            farthest = max(farthest, len(hops))
        busiest = max(loads.values(), default=0)
        return farthest * HOP + -(-busiest * nbytes * chip.clock_mhz // (chip.link_gbps * 1000))


def ring(chips: int) -> Topology:
    return Topology((chips,))


def torus(chips: int, dimensions: int) -> Topology:
    """The most even torus of a power of two of chips."""
    extents = [1] * dimensions
    while prod(extents) < chips:
        extents[extents.index(min(extents))] *= 2
    return Topology(tuple(sorted(extent for extent in extents if extent > 1)) or (1,))


def of(chips: int, chip: Chip) -> Topology:
    """How so many of these chips are wired."""
    return torus(chips, chip.torus_dimensions)
