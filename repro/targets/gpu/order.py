"""Which launches of a run wait for which: those that touch memory that another one writes.

Launches that leave each other's memory alone may run side by side, so that the multiprocessors that one no longer fills
have work of the next. A gradient of weights waits for nothing that the gradient of the layer below waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Span = tuple[int, int]
"""Addresses from the first to the second, without that."""


@dataclass(frozen=True)
class Touched:
    """What a launch reads, and what it writes (and may read)."""

    reads: frozenset[Span]
    writes: frozenset[Span]


def waits(launches: Sequence[Touched]) -> list[list[int]]:
    """For each launch the earlier ones that it waits for, none of which another of them waits for."""
    near = _meetings(span for each in launches for span in (*each.reads, *each.writes))
    writer: dict[Span, int] = {}
    readers: dict[Span, list[int]] = {}
    behind: list[int] = []
    """Of each launch, as bits, all that have ended when it begins, and itself."""
    found: list[list[int]] = []
    for number, each in enumerate(launches):
        earlier = {writer[other] for span in each.reads | each.writes for other in near[span] if other in writer}
        earlier |= {one for span in each.writes for other in near[span] for one in readers.get(other, ())}
        direct, ended = list[int](), 1 << number
        for one in sorted(earlier, reverse=True):
            if not ended >> one & 1:
                direct.append(one)
                ended |= behind[one]
        found.append(direct[::-1])
        behind.append(ended)
        for span in each.writes:  # who touches it later waits for this launch, and so for all that it waited for
            for other in near[span]:
                if span[0] <= other[0] and other[1] <= span[1]:
                    writer.pop(other, None)
                    readers.pop(other, None)
            writer[span] = number
        for span in each.reads - each.writes:
            readers.setdefault(span, []).append(number)
    return found


def _meetings(spans: Iterable[Span]) -> Mapping[Span, list[Span]]:
    """Of each span those that share an address with it, itself among them."""
    found: dict[Span, list[Span]] = {}
    open_spans: list[Span] = []
    for span in sorted(set(spans)):
        open_spans = [other for other in open_spans if other[1] > span[0]]
        found[span] = [*open_spans, span]
        for other in open_spans:
            found[other].append(span)
        open_spans.append(span)
    return found
