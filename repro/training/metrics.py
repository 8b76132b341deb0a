"""Metrics as JSON lines: `{"step", "epoch", "loss"}` per step, `{"step", "validation": {...}}` per evaluation.

Nothing in them depends on time or machine: a resumed run's file is that of an unbroken one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from repro.artifact import files
from repro.errors import ReproError

BEGINS = b'{"step": '
"""Every line of metrics."""


class MetricsWriter:
    """Appends to a file of metrics; a resumed run drops the lines after the step that it starts from."""

    def __init__(self, path: Path, step: int, resumed: bool) -> None:
        """Take the file; `begin` writes it."""
        self._file = files.Appending(path, "the metrics", BEGINS)
        self._kept = _kept(path, step) if resumed else b""

    def begin(self) -> None:
        self._file.begin(self._kept)

    def step(self, step: int, epoch: int, loss: float) -> None:
        self._add({"step": step, "epoch": epoch, "loss": _number(loss)})

    def validation(self, step: int, found: Mapping[str, float | int]) -> None:
        self._add({"step": step, "validation": {name: _number(value) for name, value in found.items()}})

    def _add(self, document: Mapping[str, object]) -> None:
        self._file.write(json.dumps(document, allow_nan=False).encode() + b"\n")

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _number(value: float | int) -> float | int | str:
    """JSON has no infinity and no NaN: they are written as texts."""
    return value if math.isfinite(value) else str(value)


def read(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines of a file of metrics, with what they say; without one at the end that is not whole, which a killed run
    leaves. Raises ReproError."""
    for line in bytes(files.read_file(path, "the metrics")).splitlines(keepends=True):
        try:
            if not line.endswith(b"\n"):
                return
            document = json.loads(line)
            measured = document["validation"].values() if "validation" in document else [document["loss"]]
            _ = range(document["step"]), [float(each) for each in measured]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReproError("not a file of metrics", found=f"{path}: {line[:40]!r}", next="name another") from error
        yield line, document


def _kept(path: Path, step: int) -> bytes:
    return b"".join(line for line, _ in takewhile(lambda each: each[1]["step"] <= step, read(path)))
