"""The tables of docs/zoo.md, from records that `benchmarks.zoo --record` wrote: one line for each model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.markdown import head, line

Row = dict[str, Any]

_PEERS = ("ONNX Runtime / repro", "PyTorch / repro")
_ERRORS = ("error / ONNX Runtime's", "gradients' / PyTorch's")
HEAD = ("model", "exporters", "ONNX nodes", *_ERRORS, "ms", *_PEERS, "also")
STEP_HEAD = (
    "model", "ONNX nodes", "step, ms", "PyTorch / repro", "memory, MiB", "PyTorch / repro", "losses within",
    "forward, ms", *_PEERS,
)  # fmt: skip


def lines(records: Path) -> Iterator[str]:
    """Markdown: the models that were built or ought to have been; then those of which only the import was tried, and
    those that no exporter writes. Nothing where there is no record."""
    models: dict[str, list[Row]] = {}
    for row in read(records):
        models.setdefault(row["model"], []).append(row)
    furthest = {name: max(rows, key=lambda each: len(each["seconds"])) for name, rows in models.items()}
    yield from head(*HEAD)
    imported: list[str] = []
    unwritten: list[str] = []
    for name, row in furthest.items():
        failed = row.get("failed", {}).get("stage", "")
        if "build" in row["seconds"] or failed not in ("", "export"):
            yield line(name, _exporters(models[name]), *_cells(row, failed))
        else:
            (unwritten if failed else imported).append(name)
    yield from ("", f"Imported, and no more was tried: {', '.join(imported) or 'none'}.", "")
    yield f"Written by neither exporter: {', '.join(unwritten) or 'none'}."


def steps(records: Path) -> Iterator[str]:
    """Markdown: the models whose training step was timed."""
    yield from head(*STEP_HEAD)
    for row in read(records):
        if "step" in row:
            yield line(row["model"], *_step_cells(row))


def _step_cells(row: Row) -> Iterator[str]:
    step, memory, times = row["step"], row.get("memory", {}), row.get("time", {})
    yield str(row.get("nodes", ""))
    yield f"{step['repro'] * 1e3:.1f}"
    yield _ratio(step["torch"], step["repro"])
    yield f"{memory['repro']:.0f}" if memory else ""
    yield _ratio(memory.get("torch"), memory.get("repro"))
    yield f"{row['train']['difference']:.0e}"
    yield f"{times['repro'] * 1e3:.2f}" if times else ""
    yield from (_ratio(times.get(side), times.get("repro")) for side in ("onnxruntime", "torch"))


def read(records: Path) -> list[Row]:
    """The rows, less the line of machine and versions before them."""
    if not records.exists():
        return []
    return [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()[1:]]


def _exporters(rows: list[Row]) -> str:
    """Those whose file is imported."""
    found = [row["exporter"] for row in rows if "import" in row["seconds"]]
    return {0: "none", 1: "".join(found)}.get(len(found), "both")


def _cells(row: Row, failed: str) -> Iterator[str]:
    error, slopes, times = row.get("error", {}), row.get("gradients", {}), row.get("time", {})
    yield str(row.get("nodes", ""))
    yield _ratio(error.get("repro"), error.get("onnxruntime"))
    yield _ratio(slopes.get("repro"), slopes.get("torch"))
    yield f"{times['repro'] * 1e3:.3f}" if times else ""
    yield from (_ratio(times.get(side), times.get("repro")) for side in ("onnxruntime", "torch"))
    verified = "verified" if "verify" in row["seconds"] else ""
    trained = f"losses within {row['train']['difference']:.0e}" if "train" in row else ""
    yield ", ".join(filter(None, (verified, trained, f"{failed} fails" if failed else "")))


def _ratio(over: float | None, under: float | None) -> str:
    return f"{over / under:.2f}" if over is not None and under else ""
