"""A benchmark of a device in a process of its own, watched by this one.

A kernel that fails takes the device from the process that launched it, a fault in the driver takes the process, and one
that never ends takes all the time there is. None of them is to take what comes after: what was begun is written down as
failed, and another process goes on with the rest. It asks for nothing that the same run has found or failed at.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import gpu_results
from benchmarks.gpu_results import BEGUN, ROOT, DeviceLostError
from repro.errors import EXIT_INCOMPLETE

LOST, DONE = 32, 64
"""Exit codes of a watched process: another is to go on; from here on, what `main` gave. Python's own are 1 for an error
that nothing caught, and 2 for words that are no arguments."""
_DYING = 30.0
"""Seconds that a process which was killed is given to end: one that waits for the driver may not."""


def inside(module: str, words: list[str]) -> int:
    """What the watched process does."""
    try:
        return DONE + int(importlib.import_module(module).main(words))
    except DeviceLostError as error:
        sys.stderr.write(f"the device is lost to this process: {error}\n")
        return LOST


def watched(module: str, words: Sequence[str]) -> int:
    """`main` of a module with those words, in one process after another until one comes to the end. Its exit code; 3
    where a process ends before it has begun anything new."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    gpu_results.options(parser)
    given, _ = parser.parse_known_args(words)
    end = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    run = f"{os.getpid()}-{time.time_ns()}"
    with tempfile.TemporaryDirectory() as folder:
        results = given.results or Path(folder) / "results.jsonl"
        more = ["--results", str(results), "--run", run]
        while True:
            before = _written(results, run)
            left = [] if end is None else ["--minutes", str(max(0.0, end - time.monotonic()) / 60)]
            code, begun, why = _once(module, [*words, *more, *left], given.patience)
            if code >= DONE or code in (0, 2):
                return code % DONE
            if begun is not None and begun["case"] not in {line["case"] for line in _lines(results, run)}:
                _add(results, {**begun, "run": run, "error": why})
            sys.stderr.write(f"{why}\n")
            if _written(results, run) == before:
                return EXIT_INCOMPLETE


def _lines(results: Path, run: str) -> list[dict[str, Any]]:
    return [line for line in gpu_results.read(results) if line.get("run") == run]


def _written(results: Path, run: str) -> int:
    return len(_lines(results, run))


def _add(results: Path, line: dict[str, Any]) -> None:
    """Behind a line that was cut short, if there is one."""
    with results.open("a") as file:
        file.write("\n" + json.dumps(line) + "\n")


def _once(module: str, words: list[str], patience: float) -> tuple[int, dict[str, Any] | None, str]:
    """One process: its exit code, the last case that it began, and how it ended."""
    program = "import sys; from benchmarks.gpu_watched import inside; sys.exit(inside(sys.argv[1], sys.argv[2:]))"
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    columns = str(shutil.get_terminal_size((160, 50)).columns)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": columns}
    command = [sys.executable, "-X", "faulthandler", "-c", program, module, *words]
    begun: dict[str, Any] | None = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", env=environment) as process:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert process.stdout is not None
        threading.Thread(target=_passed_on, args=(process.stdout, lines), daemon=True).start()
        try:
            while (line := lines.get(timeout=patience)) is not None:
                begun = json.loads(line)
            code = process.wait(patience)
        except (queue.Empty, subprocess.TimeoutExpired):
            return LOST, begun, _killed(process, patience)
        except BaseException:
            process.kill()
            raise
    if code < 0:
        return code, begun, f"the process was ended by {signal.Signals(-code).name}"
    return code, begun, f"the process ended with exit code {code}"


def _killed(process: subprocess.Popen[str], patience: float) -> str:
    process.kill()
    try:
        process.wait(_DYING)
    except subprocess.TimeoutExpired:
        sys.stderr.write("the process does not end: the driver holds it\n")
        os._exit(EXIT_INCOMPLETE)
    return f"nothing came of it in {patience:.0f} s, and the process was ended"


def _passed_on(output: Any, lines: queue.SimpleQueue[str | None]) -> None:
    """What a process prints, and apart from it what it begins; None at its end."""
    for line in output:
        if line.startswith(BEGUN):
            lines.put(line.removeprefix(BEGUN))
        else:
            sys.stdout.write(line)
    sys.stdout.flush()
    lines.put(None)
