"""A profile as one HTML page: no scripts, no network, drawings inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.energy import energy
from repro.targets.tpu_sim.operands import LANES
from repro.targets.tpu_sim.profile import UNITS, KernelRow, Profile, occupancy

BINS = 460
LEFT, WIDTH = 80, 920


def render(profile: Profile, title: str) -> str:
    """The page. Raises ReproError where Jinja2 is not installed."""
    ranked = sorted(profile.rows, key=lambda row: -row.cycles)
    joules = energy(profile.counts)
    total = sum(joules.values()) or 1.0
    return _template().render(
        title=title,
        facts=_facts(profile),
        per_bin=f"{profile.seconds * 1e6 / BINS:.3g} µs",
        timeline=_timeline(profile),
        roofline=_roofline(profile),
        rows=[_row(row, profile) for row in ranked],
        energies=[(name, f"{value * 1e6:.3f}", f"{value / total:.1%}") for name, value in joules.items()],
    )


def _template() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        what, advice = "the HTML report needs Jinja2, which is not installed", "pip install 'repro[report]'"
        raise ReproError(what, next=advice, exit_code=EXIT_INCOMPLETE) from error
    loader = PackageLoader("repro.targets.tpu_sim")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("profile.html")


def _facts(profile: Profile) -> list[tuple[str, str]]:
    counts = profile.counts
    moved = counts["hbm read"] + counts["hbm written"]
    return [
        ("chip", profile.chip.name),
        ("time", f"{profile.seconds * 1e6:,.1f} µs"),
        ("cycles", f"{profile.cycles:,}"),
        ("kernel calls", f"{len(profile.events):,}"),
        ("matrix units used", f"{profile.matrix_utilisation:.1%}"),
        ("HBM traffic", f"{moved / 1e6:,.2f} MB"),
        ("transfers hidden", f"{profile.transfers_hidden:.0%} or more"),
        ("HBM used", f"{occupancy(counts, profile.cycles, profile.chip)['hbm']:.1%}"),
        ("VMEM at most", f"{max((row.vmem_bytes for row in profile.rows), default=0) / 1024:,.0f} KiB"),
        ("energy", f"{profile.joules * 1e6:,.1f} µJ"),
    ]


def _row(row: KernelRow, profile: Profile) -> list[str]:
    chip, used = profile.chip, occupancy(row.counts, row.cycles, profile.chip)
    (unit, near), (cause, share) = row.busiest(chip), row.stall()
    return [
        row.name,
        f"{row.calls:,}",
        f"{row.cycles / chip.clock_mhz:,.2f}",
        f"{row.cycles / max(1, profile.cycles):.1%}",
        f"{unit} {near:.0%}",
        f"{cause} {share:.0%}",
        f"{used['matrix']:.0%}",
        f"{used['alu']:.0%}",
        f"{row.hbm_bytes / 1e6:,.3f}",
        f"{row.vmem_bytes / 1024:,.0f}",
        f"{row.joules * 1e6:,.2f}",
    ]


# ── drawings ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class UnitLane:
    name: str
    y: int
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Timeline:
    lanes: Sequence[UnitLane]
    starts: Sequence[tuple[float, str]]
    height: int


def _timeline(profile: Profile) -> Timeline:
    named = dict(enumerate(_by_kernel(profile)))
    shares = {number: occupancy(row.counts, row.cycles, profile.chip) for number, row in named.items() if row}
    binned = {unit: [0.0] * BINS for unit in UNITS}
    per_bin = max(1, profile.cycles) / BINS
    for event in profile.events:
        for unit in UNITS:
            _spread(
                binned[unit], event.start / per_bin, (event.start + event.cycles) / per_bin, shares[event.kernel][unit]
            )
    lanes = [
        UnitLane(unit, 40 * number, list(_bars(values, 40 * number)))
        for number, (unit, values) in enumerate(binned.items())
    ]
    starts = [
        (round(LEFT + WIDTH * event.start / max(1, profile.cycles), 1), f"{row.name}: {event.cycles:,} cycles")
        for event in profile.events[:2000]
        if (row := named[event.kernel])
    ]
    return Timeline(lanes, starts, 40 * len(UNITS) + 20)


def _by_kernel(profile: Profile) -> list[KernelRow | None]:
    """Rows by kernel number: kernels that never ran have none."""
    used = sorted({event.kernel for event in profile.events})
    found: list[KernelRow | None] = [None] * (used[-1] + 1 if used else 0)
    for number, row in zip(used, profile.rows, strict=True):
        found[number] = row
    return found


def _spread(bins: list[float], start: float, end: float, share: float) -> None:
    """Add a share over bins start..end, in parts of bins."""
    for number in range(int(start), min(BINS, math.ceil(end))):
        bins[number] += share * max(0.0, min(end, number + 1) - max(start, number))


def _bars(values: Sequence[float], y: int) -> list[Bar]:
    width = WIDTH / BINS
    found = list[Bar]()
    for number, value in enumerate(values):
        height = round(32 * min(1.0, value), 1)
        if height > 0:
            found.append(Bar(round(LEFT + number * width, 1), round(y + 32 - height, 1), round(width, 2), height))
    return found


@dataclass(frozen=True)
class Roofline:
    columns: Sequence[tuple[float, str]]
    lines: Sequence[tuple[float, str]]
    roofs: Sequence[tuple[str, str, float, float]]
    points: Sequence[tuple[float, float, float, str]]


_X, _Y = (-2, 5), (6, 15)
"""Powers of ten on the axes: operations a byte, operations a second."""


def _place(per_byte: float, per_second: float) -> tuple[float, float]:
    x = (math.log10(max(per_byte, 10.0 ** _X[0])) - _X[0]) / (_X[1] - _X[0])
    y = (math.log10(max(per_second, 10.0 ** _Y[0])) - _Y[0]) / (_Y[1] - _Y[0])
    return round(LEFT + min(1.0, x) * (WIDTH - 10), 1), round(380 - min(1.0, y) * 370, 1)


def peaks(chip: Chip) -> dict[str, float]:
    """Operations a second of the matrix units and of the vector unit (fma there counted once, as a pass is)."""
    clock = chip.clock_mhz * 1e6
    return {
        "matrix units": 2 * chip.matrix_units * chip.array**2 * clock,
        "vector unit": chip.alu_slots * LANES * clock,
    }


def _roofline(profile: Profile) -> Roofline:
    chip = profile.chip
    roofs = list[tuple[str, str, float, float]]()
    for name, peak in peaks(chip).items():
        corner = peak / (chip.hbm_gbps * 1e9)
        left, right = 10.0 ** _X[0], 10.0 ** _X[1]
        line = [_place(left, left * chip.hbm_gbps * 1e9), _place(corner, peak), _place(right, peak)]
        end = line[-1]
        roofs.append((" ".join(f"{x},{y}" for x, y in line), f"{name}: {peak / 1e12:.1f} T/s", end[0], end[1] - 5))
    points = [
        (
            *_place(row.operations / max(1, row.hbm_bytes), row.operations * chip.clock_mhz * 1e6 / max(1, row.cycles)),
            round(3 + 14 * math.sqrt(row.cycles / max(1, profile.cycles)), 1),
            f"{row.name}: {row.operations:,} operations, {row.hbm_bytes:,} bytes, {row.cycles:,} cycles",
        )
        for row in profile.rows
    ]
    columns = [(_place(10.0**power, 1)[0], f"1e{power}") for power in range(_X[0], _X[1] + 1)]
    lines = [(_place(1, 10.0**power)[1], f"1e{power}/s") for power in range(_Y[0], _Y[1] + 1)]
    return Roofline(columns, lines, roofs, points)
