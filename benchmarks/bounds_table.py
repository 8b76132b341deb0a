"""The table of docs/performance.md of operators beside the function that bounds them, from what `benchmarks.bounds
--record` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.markdown import head, line
from repro.bench.measuring import Ratio, Timing, ratio

RECORD = "bounds.jsonl"
HEAD = (
    "operator", "rows", "function", "ns", "operator, ns", "of the function's speed", "divisions counted",
    "ONNX Runtime / repro",
)  # fmt: skip
ASKED = {"Softmax": "softmax", "SoftmaxCrossEntropyLoss": "cross-entropy", "Gelu": "GELU", "Sigmoid": "sigmoid"}
"""Operators that are to have 0.9 of the function's speed, as pages call them."""


@dataclass(frozen=True)
class Measured:
    """An operator over so many rows: nanoseconds an element, by rounds in which all run in turn. `divided` is the
    function and a division, where the operator divides each element."""

    operator: str
    rows: int
    function: str
    bare: tuple[float, ...]
    divided: tuple[float, ...] | None
    taken: tuple[float, ...]
    onnxruntime: tuple[float, ...]

    @property
    def share(self) -> Ratio:
        """Of the bare function's speed."""
        return self._beside(self.bare)

    @property
    def share_divided(self) -> Ratio | None:
        return None if self.divided is None else self._beside(self.divided)

    @property
    def peer(self) -> Ratio:
        return self._beside(self.onnxruntime)

    def _beside(self, other: tuple[float, ...]) -> Ratio:
        return ratio(self._timing(other), self._timing(self.taken))

    def _timing(self, samples: tuple[float, ...]) -> Timing:
        return Timing(self.operator, samples)

    def json(self) -> dict[str, Any]:
        return asdict(self)


def read(record: Path) -> list[Measured]:
    """The measurements of a record, behind its line of machine and versions."""
    _, *lines = record.read_text(encoding="utf-8").splitlines()
    return [_measured(json.loads(each)) for each in lines]


def _measured(row: dict[str, Any]) -> Measured:
    bare, taken, theirs = (tuple(row[name]) for name in ("bare", "taken", "onnxruntime"))
    divided = None if row["divided"] is None else tuple(row["divided"])
    return Measured(row["operator"], row["rows"], row["function"], bare, divided, taken, theirs)


def cells(each: Measured) -> tuple[str, ...]:
    """Those under `HEAD`."""
    divided = "" if each.share_divided is None else each.share_divided.text
    times = (f"{median(samples):.3f}" for samples in (each.bare, each.taken))
    return each.operator, str(each.rows), each.function, *times, each.share.text, divided, each.peer.text


def aim(machine: Path) -> tuple[str, str, str]:
    """What is asked, and the worst that there is, in caches or from memory, on one thread."""
    found = [each for each in read(machine / RECORD) if each.operator in ASKED]
    worst = min(found, key=lambda each: each.share.value, default=None)
    cell = "" if worst is None else f"{worst.share.value:.2f} ({ASKED[worst.operator]}, {worst.rows} rows)"
    return f"{', '.join(ASKED.values())}, of the bare function", "0.9", cell


def lines(machine: Path) -> Iterator[str]:
    yield from head(*HEAD)
    for each in read(machine / RECORD):
        yield line(*cells(each))
