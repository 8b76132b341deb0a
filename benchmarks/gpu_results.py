"""What the GPU's benchmarks find, kept as it is found: a device may be there for minutes alone.

Each result is a line of JSON in a file, written when it is there. A run that is cut short keeps what it has; with
`--resume` the next one leaves out what the file holds of the same device and the same code, and `--minutes` lets
nothing new begin after that time. What fails is a line too, and does not keep what follows from running: where the
device is lost to the process with it, or the process itself, another goes on (benchmarks.gpu_watched).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from repro.errors import EXIT_GOOD, EXIT_INCOMPLETE

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("repro", "passes", "benchmarks")
"""Folders that decide what is measured."""


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Of a benchmark of GPUs, with the options that all of them have. It names the module: the process that parses is
    one that another has started."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options(made)
    return made


def options(parser: argparse.ArgumentParser) -> None:
    """Those of every benchmark here."""
    parser.add_argument("--results", type=Path, metavar="FILE", help="add what is found, a line each, as it is found")
    parser.add_argument(
        "--resume", action="store_true", help="leave out what FILE holds already, of this device and this code"
    )
    parser.add_argument("--minutes", type=float, metavar="N", help="begin nothing new after so many minutes")
    parser.add_argument("--patience", type=float, default=300, metavar="S", help="seconds after which a case is ended")
    parser.add_argument("--run", default="", help=argparse.SUPPRESS)


def code_digest() -> str:
    """sha256 (hex) of the sources that are measured."""
    found = hashlib.sha256()
    for path in sorted(path for part in PARTS for path in (ROOT / part).rglob("*.py")):
        found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


BEGUN = "begun: "
"""Before a case on the standard output of a process that is watched."""


class DeviceLostError(Exception):
    """After a kernel that failed no call of a process succeeds any more (CUDA Driver API, "CUresult": an illegal
    address leaves the process in an inconsistent state)."""


def read(path: Path | None) -> list[dict[str, Any]]:
    """The lines of a file; one that was cut short, as the last may be, is left out."""
    if path is None or not path.exists():
        return []
    found: list[dict[str, Any]] = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            each = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(each, dict) and "case" in each:
            found.append(each)
    return found


class Results:
    """`add` and `tried` say a line of progress each; `about` is what every line of the file holds besides. `run` names
    the run that several processes are, one after another: what it found or failed at is not tried again. `lost` says
    after each case whether this process can still use the device."""

    def __init__(
        self,
        path: Path | None = None,
        about: Mapping[str, Any] | None = None,
        resume: bool = False,
        minutes: float | None = None,
        run: str = "",
        lost: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.path, self.about, self.run, self.lost = path, {"code": code_digest(), **(about or {})}, run, lost
        self.end = None if minutes is None else time.monotonic() + 60 * minutes
        self.left: list[str] = []
        mine = [line for line in read(path) if all(line.get(key) == value for key, value in self.about.items())]
        here = [line for line in mine if run and line.get("run") == run]
        self.known = {line["case"]: line for line in (mine if resume else here) if "error" not in line}
        self.failed = list(dict.fromkeys(line["case"] for line in here if "error" in line))

    def add(self, what: str, document: Mapping[str, Any]) -> None:
        sys.stderr.write(f"{what}\n")
        if self.path is not None:
            begun = self.path.exists() and not self.path.read_bytes().endswith(b"\n") and self.path.stat().st_size
            with self.path.open("a") as file:
                named = {"run": self.run} if self.run else {}
                file.write(("\n" if begun else "") + json.dumps({**self.about, **named, **document}) + "\n")

    def tried(
        self, name: str, run: Callable[[], dict[str, Any]], said: Callable[[dict[str, Any]], str]
    ) -> dict[str, Any] | None:
        """What a run finds, or what was found before; None where it failed, or there is no time left to begin it.
        Raises DeviceLostError behind a case that took the device from this process."""
        if name in self.failed:
            return None
        if name in self.known:
            sys.stderr.write(f"{name}: found before\n")
            return self.known[name]
        if self.end is not None and time.monotonic() > self.end:
            self.left.append(name)
            return None
        if self.run:
            sys.stdout.write(f"{BEGUN}{json.dumps({**self.about, 'case': name})}\n")
            sys.stdout.flush()
        start = time.monotonic()
        try:
            found = {"case": name, **run(), "wall seconds": time.monotonic() - start}
        except Exception as error:  # whatever it is, what comes after it is worth having
            found, failed = None, error
        else:
            failed = None
        reason = self.lost()
        if reason is not None:
            failed = DeviceLostError(reason if failed is None else f"{reason}, after {failed}")
        if failed is None:
            assert found is not None
            self.add(said(found), found)
            return found
        self.failed.append(name)
        self.add(f"{name}: {type(failed).__name__}: {failed}", _failure(name, failed))
        if isinstance(failed, DeviceLostError):
            raise failed
        return None

    def finish(self) -> int:
        """Says what failed and what is left; the exit code so far."""
        if self.failed:
            sys.stderr.write(f"failed: {', '.join(self.failed)}\n")
        if self.left:
            sys.stderr.write(f"no time for: {', '.join(self.left)}; again with --resume\n")
        return EXIT_INCOMPLETE if self.failed or self.left else EXIT_GOOD


def _failure(name: str, error: Exception) -> dict[str, Any]:
    return {"case": name, "error": f"{type(error).__name__}: {error}", "at": traceback.format_exception(error)[-12:]}
