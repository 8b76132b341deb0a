"""One HTML page: no scripts, no network, every drawing inline SVG.

The page is made with Jinja2, whose escaping keeps names out of a model from being markup. Plotly was measured and left:
its script is 4.8 MB in every page and needs scripts allowed; these pages are some hundred kB, and their content policy
forbids scripts and the network altogether.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from repro.audit.records import Drift, Pair
from repro.audit.report import plots
from repro.audit.report.view import View
from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.version import VERSION


@dataclass(frozen=True)
class Cell:
    """Two groups in the matrix: what it says, and how far they are apart from 0 (identical) to 5."""

    text: str
    level: int
    title: str


def render(view: View) -> str:
    """The page. Raises ReproError where Jinja2 is not installed."""
    environment = _environment()
    environment.filters |= {
        "printable": printable,
        "breakable": _breakable,
        "said": plots.said,
        "pretty": _pretty,
        "ulp": ulp,
    }
    page = environment.get_template("report.html")
    return page.render(
        view=view,
        matrix=_matrix(view),
        growths=_growths(view),
        outputs=_outputs(view),
        histogram=plots.histogram,
        plots=plots,
        version=VERSION,
    )


def check() -> None:
    """Raise ReproError where a page cannot be made, for want of Jinja2."""
    _environment()


def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise ReproError(
            "the HTML report needs Jinja2, which is not installed",
            next="pip install 'repro[report]'",
            exit_code=EXIT_INCOMPLETE,
        ) from error
    return Environment(
        loader=PackageLoader("repro.audit.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def printable(text: object) -> str:
    """Text with control characters written out: a page shows a model's names, it does not obey them."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in str(text))


_BREAKS = re.compile(r"(?<=[,/_])(?=[^,/_])")


def _breakable(text: object) -> str:
    """Printable text whose lines may break after a comma, a slash or an underscore."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in _BREAKS.split(printable(text)))


def ulp(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"


def _pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ── matrix ──────────────────────────────────────────────────────────────────────────────────────────


def _matrix(view: View) -> Mapping[str, Mapping[str, Cell]]:
    return {row: {column: _cell(view, row, column) for column in view.groups} for row in view.groups}


def _cell(view: View, row: str, column: str) -> Cell:
    title = f"{row} and {column}"
    if row == column:
        return Cell("same", 0, f"{row} with itself")
    pair = view.between(row, column)
    if pair is None:
        return Cell("–", 0, f"{title}: not compared")
    if pair.identical:
        return Cell("same", 0, f"{title}: identical")
    said = f"{title}: {pair.different:,} of {pair.compared:,} values differ"
    if not pair.outputs:
        return Cell("differ", 5, f"{said}, digests alone are known")
    if not any(drift.different for drift in pair.outputs.values()):
        return Cell("inside", 1, f"{said}, no output does")
    worst = _worst(pair.outputs)
    return Cell(
        "NaN" if worst is None else f"{worst:,}" if worst < 1e6 else f"{worst:.1e}".replace("e+0", "e"),
        level(worst),
        said,
    )


def _worst(outputs: Mapping[str, Drift]) -> int | None:
    found = [drift.max_ulp for drift in outputs.values() if drift.max_ulp is not None]
    return max(found, default=None)


def level(ulp: int | None) -> int:
    """How dark a distance is drawn, 1 to 5: up to 4, 64, 4096, 2^18, and beyond (or not comparable)."""
    if ulp is None:
        return 5
    return next((each for each, most in enumerate((4, 64, 4096, 1 << 18), start=1) if ulp <= most), 5)


# ── drawings ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class GroupGrowth:
    group: str
    pair: Pair
    drawing: plots.Growth
    worst: tuple[tuple[str, Drift], ...]


WORST_SHOWN = 12


def _growths(view: View) -> tuple[GroupGrowth, ...]:
    """A drawing for each group that drifts and whose arrays were kept, all on one scale."""
    pairs = {row.group: row.pair for row in reversed(view.executors) if row.pair and row.pair.growth}
    drifting = {group: pair for group, pair in pairs.items() if not pair.identical and group}
    finite = [drift.max_ulp for pair in drifting.values() for _, drift in pair.growth if drift.max_ulp is not None]
    highest = max(finite, default=1)
    made: list[GroupGrowth] = []
    for group in sorted(drifting, key=list(view.groups).index):
        pair = drifting[group]
        origins = frozenset(origin.value for origin in pair.origins)
        worst = sorted(pair.growth, key=lambda item: plots.distance(item[1]), reverse=True)[:WORST_SHOWN]
        made.append(GroupGrowth(group, pair, plots.growth(pair.growth, origins, highest), tuple(worst)))
    return tuple(made)


def _outputs(view: View) -> tuple[tuple[str, str, Drift], ...]:
    """(group, output, drift) of every output that drifts."""
    found: dict[tuple[str, str], Drift] = {}
    for row in view.executors:
        for name, drift in (row.pair.outputs if row.pair else {}).items():
            if drift.different:
                found.setdefault((row.group, name), drift)
    return tuple((group, name, drift) for (group, name), drift in found.items())
