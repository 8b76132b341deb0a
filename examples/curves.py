"""Draw the metrics of runs: `python -m examples.curves CHECKPOINTS/metrics.jsonl... -o curves.html`.

Takes the `report` extra (plotly); the page needs no network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from repro import ending
from repro.training import metrics


def read(path: Path) -> dict[str, tuple[list[int], list[float]]]:
    """(steps, values) by name: `loss`, and `validation …` for each metric measured."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    for _, document in metrics.read(path):
        measured = {f"validation {name}": value for name, value in document.get("validation", {}).items()}
        for name, value in (measured or {"loss": document["loss"]}).items():
            if name != "validation samples":
                steps, values = found.setdefault(name, ([], []))
                steps.append(document["step"])
                values.append(float(value))
    return found


def draw(paths: list[Path], out: Path) -> None:
    """One page: losses above, accuracies below."""
    try:
        from plotly import graph_objects
        from plotly.subplots import make_subplots
    except ImportError:
        sys.exit("curves are drawn by plotly, which is not installed: pip install -e '.[report]'")

    figure: Any = make_subplots(rows=2, cols=1, shared_xaxes=True, subplot_titles=("loss", "accuracy"))
    for path in paths:
        for name, (steps, values) in read(path).items():
            row = 2 if name.endswith("accuracy") else 1
            title = f"{path.parent.name}: {name}"
            figure.add_trace(graph_objects.Scatter(x=steps, y=values, name=title), row=row, col=1)
    figure.update_yaxes(type="log", row=1, col=1)
    figure.write_html(str(out), include_plotlyjs=True)


def main(words: list[str]) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("metrics", nargs="+", type=Path)
    options.add_argument("-o", "--out", type=Path, required=True)
    chosen = options.parse_args(words)
    draw(chosen.metrics, chosen.out)
    print(f"written to {chosen.out}")
    return 0


if __name__ == "__main__":
    ending.run(main)
