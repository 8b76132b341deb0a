"""One straight-line function per command; the public Python API. Only this file and cli.py read the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.artifact import comparison, layout, reading, tensors
from repro.artifact.cache import DEFAULT_LIMIT, Cache, Usage
from repro.artifact.canonical import Json
from repro.artifact.comparison import Difference
from repro.errors import ReproError
from repro.ir.types import Array
from repro.version import VERSION

Progress = Callable[[str, int, int], None]
"""Told (stage, done, total) as a long command goes on."""

read_npz = tensors.read_npz
write_npz = tensors.write_npz
describe = tensors.describe


def write_text(path: Path, text: str) -> None:
    """Write a file that the user named."""
    tensors.write_output(path, text.encode())


# ── cache ───────────────────────────────────────────────────────────────────────────────────────────


def default_cache() -> Cache | None:
    """The build cache that the environment names; None if REPRO_CACHE is `off`."""
    named = os.environ.get("REPRO_CACHE", "")
    if named == "off":
        return None
    if named:
        return Cache(Path(named))
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # no home folder: nowhere to keep anything
        return None
    return Cache(folder / "repro")


def cache(action: str = "info") -> Usage:
    """The build cache's usage; with `clear`, its usage before everything was removed."""
    if action not in ("info", "clear"):
        raise ReproError("unknown action on the cache", found=action, expected="info or clear")
    found = default_cache()
    if found is None:
        return Usage(Path(), 0, 0, 0)
    return found.clear() if action == "clear" else found.usage()


# ── inspect, diff ───────────────────────────────────────────────────────────────────────────────────


def inspect(path: str | Path) -> dict[str, Json]:
    """What an artifact holds, as one document."""
    return comparison.content(reading.open_artifact(Path(path)))


def diff(left: str | Path, right: str | Path) -> tuple[Difference, ...]:
    """Every place where two artifacts differ; empty if they are one."""
    return comparison.differences(reading.open_artifact(Path(left)), reading.open_artifact(Path(right)))


def version() -> str:
    """The version of this package."""
    return VERSION
