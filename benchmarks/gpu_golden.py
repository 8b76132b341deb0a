"""Bits on a device: every golden model verified there and recorded, and training steps beside the CPU's.

    python -m benchmarks.gpu_golden [--record golden/devices/NAME.json] [--steps 100] [--only CASE ...]
                                    [--results FILE] [--resume] [--minutes N]

Each golden case is built with code for the GPU in a folder that is removed, and verified on it: that adds its runs to
the record. Then a CNN and a GPT train for as many steps on the device and on this host's CPU; after each step the loss
and the whole state are compared, bit by bit, and the first that differs is named. Results are written as they are
there (benchmarks.gpu_results), by a process that is watched (benchmarks.gpu_watched). Exit code 0: all bits are equal;
1: some are not; 3: there is no device, or something did not run. It needs neither PyTorch nor a toolkit. With `--target
gpu/interpreter` and few steps the same runs where no device is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import repro
from benchmarks import gpu_results, gpu_watched
from benchmarks.gpu_results import Results
from golden import bless
from repro import ending
from repro.artifact.checks import Status
from repro.errors import EXIT_GOOD, EXIT_INCOMPLETE, EXIT_MISMATCH, ReproError
from repro.ir.types import Array
from repro.targets import registry
from repro.targets.gpu import driver

ROOT = Path(__file__).resolve().parents[1]
BATCH = 16
TRAINED: dict[str, dict[str, Any]] = {
    "digits_cnn": {"bind": {"N": BATCH}, "optimizer": "nesterov", "learning_rate": 0.01},
    "nano_gpt": {"optimizer": "adam", "learning_rate": 0.01},
}


def verified(name: str, folder: Path, target: str, record: Path | None) -> dict[str, Any]:
    """A golden case, built and verified on the target."""
    start = time.monotonic()
    artifact = bless.build(bless.cases()[name], folder / name, ["cpu", target.partition("/")[0]])
    report = repro.verify(artifact.folder / "artifact.json", targets=[target], record=record)
    if report.exit_code not in (EXIT_GOOD, EXIT_MISMATCH):
        raise ReproError(f"{name} was not compared on {target}", found=report.summary)
    found = {"artifact": artifact.id, "exit code": report.exit_code, "seconds": time.monotonic() - start}
    wrong = {check.name: check.detail for check in report.checks if check.status is Status.MISMATCH}
    return found | ({"differing": wrong} if wrong else {})


def batches(name: str, steps: int) -> Iterator[dict[str, Array]]:
    """The inputs of each step: digits in their order, or drawn lines of text."""
    if name == "digits_cnn":
        with np.load(ROOT / "examples" / "data" / "digits.npz") as data:
            x, y = data["x"].reshape(-1, 1, 8, 8).astype(np.float32), data["y"]
        for step in range(steps):
            taken = (np.arange(BATCH) + step * BATCH) % len(x)
            yield {"input": x[taken], "labels": y[taken]}
        return
    for step in range(steps):
        lines = np.random.default_rng(step).integers(0, 96, (8, 33))
        yield {"ids": lines[:, :-1].copy(), "labels": lines[:, 1:].reshape(-1)}


def differing(left: Mapping[str, Array], right: Mapping[str, Array]) -> list[str]:
    """Names of the tensors whose bits are not the same."""
    return [name for name in left if left[name].tobytes() != right[name].tobytes()]


def trained(name: str, folder: Path, target: str, steps: int) -> dict[str, Any]:
    """Steps on the target and on the CPU."""
    artifact = repro.build(
        ROOT / "golden" / name / "forward.onnx", folder / f"{name}_steps", loss="softmax_cross_entropy",
        targets=["cpu", target.partition("/")[0]], **TRAINED[name],
    )  # fmt: skip
    with artifact.session("train_step", "cpu") as here, artifact.session("train_step", target) as there:
        return compared({"cpu": here, target: there}, batches(name, steps))


def compared(sessions: Mapping[str, Any], inputs: Iterable[dict[str, Array]]) -> dict[str, Any]:
    """Two sides, step by step; names of what differs after the first step where anything does."""
    seconds, steps, found = dict.fromkeys(sessions, 0.0), 0, list[str]()
    for given in inputs:
        results: list[dict[str, Array]] = []
        for side, session in sessions.items():
            start = time.monotonic()
            loss = session.run(given)["loss"]
            seconds[side] += time.monotonic() - start
            results.append({"loss": loss, **session.state})
        steps, found = steps + 1, differing(*results)
        if found:
            break
    return {"steps": steps, "differing": found, "seconds": seconds}


def main(words: list[str]) -> int:
    parser = gpu_results.parser("gpu_golden", __doc__)
    parser.add_argument("--target", default="gpu", help="gpu, gpu/graphics, or the interpreter of either")
    parser.add_argument("--record", type=Path, metavar="FILE", help="of the device, to which the runs are added")
    parser.add_argument("--steps", type=int, default=100)
    names = [*bless.cases(), *(f"{name}_steps" for name in TRAINED)]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CASE", help=f"of {', '.join(names)}")
    options = parser.parse_args(words)
    obstacle = registry.runner(options.target).obstacle()
    if obstacle is not None:
        sys.stderr.write(f"target {options.target} does not run here: {obstacle}\n")
        return EXIT_INCOMPLETE
    device = registry.runner(options.target).device
    about = {"target": options.target, "device": device() if device is not None else None, "steps": options.steps}
    results = Results(options.results, about, options.resume, options.minutes, options.run, driver.lost)
    good = True
    with tempfile.TemporaryDirectory() as made:
        for name in options.only or names:
            found = results.tried(name, _run_of(name, Path(made), options), _said)
            good &= found is None or _equal(found)
    unfinished = results.finish()
    return unfinished if good else EXIT_MISMATCH


def _run_of(name: str, folder: Path, options: argparse.Namespace) -> Callable[[], dict[str, Any]]:
    if name in bless.cases():
        return lambda: verified(name, folder, options.target, options.record)
    return lambda: trained(name.removesuffix("_steps"), folder, options.target, options.steps)


def _equal(found: Mapping[str, Any]) -> bool:
    return found["exit code"] == EXIT_GOOD if "exit code" in found else found["differing"] == []


def _said(found: Mapping[str, Any]) -> str:
    if "exit code" in found:
        return f"{found['case']}: exit code {found['exit code']}"
    return f"{found['case']}: {found['steps']} steps, differing: {found['differing'] or 'none'}"


if __name__ == "__main__":
    ending.run(partial(gpu_watched.watched, "benchmarks.gpu_golden"))
