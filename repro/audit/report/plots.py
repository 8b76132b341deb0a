"""The geometry of the page's drawings, in percent of their width and height: they stretch, their labels do not.

Distances in units in the last place span twenty powers of two, so they are drawn by their logarithm to base two.
What a drawing says is said in words too: each column has a title, and a table holds the greatest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from repro.audit.drift import BUCKETS
from repro.audit.records import Drift

COLUMNS = 320
"""At most so many columns are drawn; where there are more values, a column stands for the worst of several."""


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Column:
    """A bar with what it says, from `top` down to the axis at 100; `median` is where the median lies, if not 0."""

    x: float
    width: float
    top: float
    median: float | None
    title: str
    origin: bool


@dataclass(frozen=True)
class Growth:
    """Drift of every value in canonical order. `rulers` are lines at powers of two, `marks` labels along the graph."""

    columns: tuple[Column, ...]
    rulers: tuple[Tick, ...]
    marks: tuple[Tick, ...]


def height_of(ulp: int) -> float:
    """0 for 0, 1 for 1, then one for each doubling."""
    return log2(ulp) + 1.0 if ulp else 0.0


def growth(values: Sequence[tuple[str, Drift]], origins: frozenset[str], highest: int) -> Growth:
    """The drawing of a pair's growth; `highest` is the ULP distance at its top, the same for all pairs of a page."""
    top = max(height_of(highest), 4.0)

    def level(ulp: int) -> float:
        return round(100 - height_of(min(ulp, highest)) / top * 96, 2)

    per_column = max(1, -(-len(values) // COLUMNS))
    count = max(1, -(-len(values) // per_column))
    step = 100 / count
    columns: list[Column] = []
    for position in range(0, len(values), per_column):
        part = values[position : position + per_column]
        name, drift = max(part, key=lambda item: distance(item[1]))
        marked = next((name for name, _ in part if name in origins), None)
        if not drift.different:
            continue
        x = round(position // per_column * step, 3)
        median = level(drift.median_ulp) if drift.median_ulp else None
        title = f"{marked or name}: {said(drift)}" + (", an origin" if marked else "")
        columns.append(Column(x, round(step, 3), level(distance(drift)), median, title, marked is not None))
    steps = range(0, int(top) + 1, max(2, int(top) // 4))
    rulers = tuple(Tick(round(100 - each / top * 96, 2), _power(each)) for each in steps)
    return Growth(tuple(columns), rulers, _marks([name for name, _ in values], step / per_column))


def distance(drift: Drift) -> int:
    """The ULP distance that is drawn; what has none (a NaN against a number, a changed integer) stands at the top."""
    if drift.nan_changes or drift.infinity_changes or drift.max_ulp is None:
        return 1 << 64 if drift.different else 0
    return drift.max_ulp


def _power(height: int) -> str:
    return str(1 << height - 1) if 0 < height < 11 else f"2^{height - 1}" if height else "0"


def _marks(names: Sequence[str], step: float) -> tuple[Tick, ...]:
    """Where the steps of a training begin; along any other graph, its ends."""
    steps = [name.partition("/")[0] for name in names]
    if not all(each.startswith("step ") for each in steps):
        return (Tick(0, "inputs"), Tick(100, "outputs"))
    begins = [position for position, each in enumerate(steps) if position == 0 or each != steps[position - 1]]
    shown = begins[:: max(1, len(begins) // 5)]
    return tuple(Tick(round(position * step, 2), steps[position]) for position in shown)


def said(drift: Drift) -> str:
    """A drift in words: its elements and how far they are apart."""
    if not drift.different:
        return "no difference"
    parts = [f"{drift.different:,} of {drift.elements:,} elements"]
    if drift.max_ulp is not None:
        parts.append(f"max {drift.max_ulp:,} ULP, median {drift.median_ulp or 0:,}")
    changes = {
        "NaN": drift.nan_changes,
        "infinity": drift.infinity_changes,
        "sign": drift.sign_changes,
        "zero's sign": drift.zero_signs,
    }
    parts += [f"{count:,} {what} change{'s' if count > 1 else ''}" for what, count in changes.items() if count]
    return ", ".join(parts)


# ── histograms ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Bar:
    label: str
    count: int
    width: float
    """Percent of the widest bar."""


def histogram(drift: Drift) -> tuple[Bar, ...]:
    """A bar for each bucket up to the last one that holds an element."""
    counts = list(drift.histogram)
    if not any(counts):
        return ()
    last = max(position for position, count in enumerate(counts) if count)
    most = max(counts)
    return tuple(
        Bar(label, count, 100 * count / most) for label, count in zip(BUCKETS[: last + 1], counts, strict=False)
    )
