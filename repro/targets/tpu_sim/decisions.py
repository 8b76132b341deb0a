"""What decides where and whether instructions of a loop run: iterations of equal decisions take equal time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repro.targets.tpu_sim.isa import Dma, Matmul, Push, Wait
from repro.targets.tpu_sim.operands import Index
from repro.targets.tpu_sim.program import Statement, instructions


class Zeros(dict[str, int]):
    """Counters of loops inside count as 0."""

    def __missing__(self, key: str) -> int:
        return 0


@dataclass(frozen=True)
class Control:
    """An index that decides what runs and where; beyond its bounds one value is as good as another."""

    index: Index
    low: int = -(1 << 62)
    high: int = 1 << 62
    modulus: int = 0

    def decision(self, counters: Mapping[str, int]) -> int:
        value = min(max(self.index.value(counters), self.low), self.high)
        return value % self.modulus if self.modulus else value


def controls_of(body: Sequence[Statement]) -> list[Control]:
    """Predicates, limits, semaphores, units."""
    found = list[Control]()
    for each in instructions(tuple(body)):
        if each.predicate is not None:
            found.append(Control(each.predicate, -1, 0))
        match each:
            case Dma():
                found.append(Control(each.semaphore))
                found += [Control(dim.limit, 0, dim.count) for dim in each.dims if dim.limit is not None]
            case Wait():
                found.append(Control(each.semaphore))
            case Push() | Matmul():
                found += [Control(each.matrix), Control(each.slot, modulus=2)]
            case _:
                pass
    return [control for control in found if control.index.terms]
