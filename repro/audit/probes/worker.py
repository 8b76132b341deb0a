"""One executor's probes, in a process of its own: reads its job as JSON, writes a line of JSON for each probe."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from repro.audit.capture import executor_of
from repro.audit.peers import peer
from repro.audit.peers.peer import PeerError
from repro.audit.probes.probing import probe
from repro.audit.records import Outcome


def main(path: str) -> None:
    """Each probe's line is written when it is known, so that a process that is stopped leaves those before."""
    job = json.loads(path)
    executor = executor_of(job["executor"])
    try:
        adders = peer(executor.family, job["peers"]).adders(executor)
    except PeerError as error:
        _write({"outcome": error.outcome.value, "reason": error.reason})
        return
    for operation, adder in adders.items():
        for length in job["lengths"]:
            try:
                _write({"probe": asdict(probe(executor.name, operation, adder, length))})
            except Exception as error:  # a peer may raise anything: the other operations still count
                first = (str(error).strip() or "no message").splitlines()[0]
                _write({"outcome": Outcome.FAILED.value, "reason": f"{operation}: {type(error).__name__}: {first}"})
    if not adders:
        _write({"outcome": Outcome.SKIPPED.value, "reason": "it has no sums to ask for"})


def _write(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
