"""Probes of many executors, each in a process of its own with its environment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from repro.audit.capture import executor_json
from repro.audit.peers import PEERS, peer
from repro.audit.probes.probing import LENGTHS
from repro.audit.records import Executor, Outcome, Probe

Progress = Callable[[str, int, int], None]

_START = (
    "import json,sys; sys.path[:]=json.loads(sys.argv[1]); "
    "from repro.audit.probes.worker import main; main(sys.argv[2])"
)
SECONDS = 120.0
NOT_RUN = "not run"
REFERENCE = "reference"
"""repro's target that is left out: it would take minutes over a tree, and compiled targets have its bits."""


def usual(table: Mapping[str, str] = PEERS) -> tuple[Executor, ...]:
    """The executors whose sums may differ: of a runtime's optimization levels only the highest, since one operator
    alone leaves little to optimize but its layout."""
    every = (executor for family in table for executor in peer(family, table).variants())
    return tuple(executor for executor in every if executor.option("level") in ("", "all"))


def probe_executors(
    executors: Sequence[Executor],
    lengths: Sequence[int] = LENGTHS,
    seconds: float = SECONDS,
    progress: Progress = lambda *_: None,
    table: Mapping[str, str] = PEERS,
) -> tuple[Probe, ...]:
    """Each executor's sums and dots at each length. One that cannot run, or not to the end, has a probe that says why,
    under the operation "not run"."""
    found: list[Probe] = []
    executors = [executor for executor in executors if executor.option("target") != REFERENCE]
    for number, executor in enumerate(executors):
        progress("probes", number, len(executors))
        found += _probed(executor, lengths, seconds, table)
    progress("probes", len(executors), len(executors))
    return tuple(found)


def _probed(executor: Executor, lengths: Sequence[int], seconds: float, table: Mapping[str, str]) -> list[Probe]:
    job = json.dumps({"executor": executor_json(executor), "lengths": list(lengths), "peers": dict(table)})
    variables = [f"{name}={value}" for name, value in executor.environment]
    python = [sys.executable, "-c", _START, json.dumps(sys.path), job]
    command = [*(["env", *variables] if variables else []), *executor.emulator, *python]
    with tempfile.TemporaryDirectory(prefix="repro-probe-") as folder:
        out = Path(folder) / "out"
        ended = _run(command, out, seconds)
        lines = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")]
    probes = [Probe(**line["probe"]) for line in lines if "probe" in line]
    reasons = [f"{line['outcome']}: {line['reason']}" for line in lines if "outcome" in line]
    return probes + [_not_run(executor, reason) for reason in [*reasons, *([ended] if ended else [])]]


def _not_run(executor: Executor, reason: str) -> Probe:
    return Probe(executor.name, NOT_RUN, 0, NOT_RUN, reason, None)


def _run(command: Sequence[str], out: Path, seconds: float) -> str | None:
    """Run to the end or the limit; how it ended, where not well."""
    with out.open("wb") as stdout:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            return f"{Outcome.MISSING.value}: cannot be started: {command[0]}: {error.strerror}"
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"{Outcome.TIMEOUT.value}: more than {seconds:g} s"
        finally:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if code == 0 else f"{Outcome.CRASHED.value}: exit status {code}"
