"""What a watched process of the tests runs: cases that end well, and cases that end the process or its device."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from benchmarks import gpu_results


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+")
    gpu_results.options(parser)
    options = parser.parse_args(words)
    dead: list[str] = []

    def lost() -> str | None:
        return dead[0] if dead else None

    def loses() -> dict[str, Any]:
        dead.append("CUDA_ERROR_ILLEGAL_ADDRESS")
        return {"value": 0}

    def sleeps() -> dict[str, Any]:
        time.sleep(60)
        return {}

    def killed() -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return {}

    runs: dict[str, Callable[[], dict[str, Any]]] = {"loses": loses, "sleeps": sleeps, "killed": killed}
    results = gpu_results.Results(
        options.results, {"device": "none"}, options.resume, options.minutes, options.run, lost
    )
    print("a table")
    if "no start" in options.cases:
        raise ValueError("before any case")
    for case in options.cases:
        results.tried(case, runs.get(case, lambda: {"value": os.getpid()}), lambda found: found["case"])
    return results.finish()
