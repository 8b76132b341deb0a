"""What units that run beside the vector unit still do with VMEM, and when whatever else touches it may go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from repro.targets.tpu_sim.operands import Ref


@dataclass(frozen=True)
class Stretch:
    """Elements low .. high of an area; with a pitch, lines of `width` elements that far apart."""

    name: str
    low: int
    high: int
    pitch: int = 0
    width: int = 0

    def meets(self, other: Stretch) -> bool:
        """Whether they share an element of one area. Columns of one matrix may lie between each other's."""
        if self.low > other.high or other.low > self.high:
            return False
        if not other.pitch or other.pitch != self.pitch:
            return True
        shift = (other.low - self.low) % other.pitch
        return shift < self.width or shift + other.width > other.pitch


def lines(ref: Ref, start: int, pitch: int, count: int, width: int) -> Stretch:
    """So many lines of elements from a place on."""
    return Stretch(ref.name, start, start + (count - 1) * pitch + width - 1, pitch, width)


@dataclass(frozen=True)
class Use:
    """A unit writes (or reads) a stretch, row by row from cycle `first` on, until `last`."""

    stretch: Stretch
    first: int
    last: int
    writes: bool
    unit: str

    @property
    def cause(self) -> str:
        return f"{self.unit} {'result' if self.writes else 'operand'}"


class Scoreboard:
    """Uses that are not over. Of several uses of one stretch by one unit the last is enough: it ends last."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, bool], dict[tuple[Stretch, str], Use]] = {}
        self._room = 64

    def add(self, use: Use) -> None:
        uses = self._uses.setdefault((use.stretch.name, use.writes), {})
        key = (use.stretch, use.unit)
        uses.pop(key, None)
        uses[key] = use

    def _met(self, stretch: Stretch, writes: bool) -> Iterator[Use]:
        for kind in (True, False) if writes else (True,):
            for use in self._uses.get((stretch.name, kind), {}).values():
                if use.stretch.meets(stretch):
                    yield use

    def after(self, stretch: Stretch, writes: bool) -> list[tuple[int, str]]:
        """(cycle, cause) of all that an access has to come after."""
        return [(use.last, use.cause) for use in self._met(stretch, writes)]

    def behind(self, stretch: Stretch, writes: bool, later: int) -> list[tuple[int, str]]:
        """When rows may enter a matrix unit that come to the stretch so many cycles `later`: where another pass uses
        the same lines, row by row behind it; else when all is done."""
        found = list[tuple[int, str]]()
        for use in self._met(stretch, writes):
            follows = use.unit == "matrix" and (use.stretch.low, use.stretch.high) == (stretch.low, stretch.high)
            found.append(((use.first if follows else use.last) - later, "matrix result"))
        return found

    def __bool__(self) -> bool:
        return any(self._uses.values())

    def forget(self, now: int) -> None:
        """Leave out what is over."""
        for uses in self._uses.values():
            for key in [key for key, use in uses.items() if use.last <= now]:
                del uses[key]

    def state(self, now: int) -> tuple[object, ...]:
        """What lies ahead, relative to now."""
        self.forget(now)
        every = (use for uses in self._uses.values() for use in uses.values())
        return tuple((use.stretch.name, use.first - now, use.last - now) for use in every)

    def delay(self, cycles: int) -> None:
        """Everything so much later."""
        for uses in self._uses.values():
            for key, use in uses.items():
                uses[key] = replace(use, first=use.first + cycles, last=use.last + cycles)

    @property
    def end(self) -> int:
        """When all is over."""
        return max((use.last for uses in self._uses.values() for use in uses.values()), default=0)
