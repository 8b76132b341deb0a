"""The table of docs/zoo.md, from records that `benchmarks.zoo --record` wrote: one line for each model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HEAD = (
    "model", "exporters", "ONNX nodes", "verified", "error, of ONNX Runtime's", "ms", "ONNX Runtime / repro",
    "PyTorch / repro", "training",
)  # fmt: skip


def lines(records: Path) -> Iterator[str]:
    """Markdown. An empty cell was not measured; a stage that failed stands where its result would."""
    models: dict[str, list[Row]] = {}
    for row in read(records):
        models.setdefault(row["model"], []).append(row)
    yield _line(*HEAD)
    yield f"|{'---|' * len(HEAD)}"
    for name, rows in models.items():
        yield _line(name, *_cells(rows))


def read(records: Path) -> list[Row]:
    """The rows, less the line of machine and versions before them."""
    return [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()[1:]]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(rows: list[Row]) -> Iterator[str]:
    exporters = [row["exporter"] for row in rows if "import" in row["seconds"]]
    row = max(rows, key=lambda each: len(each["seconds"]))  # that of the exporter whose model was built
    error, times = row.get("error", {}), row.get("time", {})
    yield {0: "none", 1: "".join(exporters)}.get(len(exporters), "both")
    yield str(row.get("nodes", ""))
    yield "yes" if "verify" in row["seconds"] else _fails(row, "build", "verify")
    yield _ratio(error.get("repro"), error.get("onnxruntime")) or _fails(row, "error")
    yield f"{times['repro'] * 1e3:.2f}" if times else ""
    yield from (_ratio(times.get(side), times.get("repro")) for side in ("onnxruntime", "torch"))
    yield f"{row['train']['difference']:.0e}" if "train" in row else _fails(row, "train")


def _fails(row: Row, *stages: str) -> str:
    return "fails" if row.get("failed", {}).get("stage") in stages else ""


def _ratio(over: float | None, under: float | None) -> str:
    return f"{over / under:.2f}" if over is not None and under else ""
