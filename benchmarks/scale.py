"""Cost of build and run against the size of a model: what is linear in nodes and in operations stays so.

    python -m benchmarks.scale [--layers 2,6,12,24,48] [--width 128,256,512,1024] [--narrow 128] [--shallow 2]

The training step of a GPT (AdamW): every number of layers at the `narrow` width, every width at the `shallow` number of
layers, each in a process of its own. Times are seconds of processor time on all threads of one process and its workers,
which other users of a machine move less than seconds on the clock; a step runs on one thread, the best of three.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import numpy as np
from rich.table import Table

from repro import ending
from repro.artifact.build import Request, imported_entries
from repro.artifact.compiling import compile_programs
from repro.bench.workloads.transformers import gpt
from repro.frontend import load_model
from repro.ir.program import Program
from repro.ir.types import Array
from repro.ir.work import program_operations
from repro.tables import console
from repro.targets import registry
from repro.train_step import training_of

SIZES = {"heads": 4, "tokens": 64, "batch": 2, "vocabulary": 96}
TRAINING = {"loss": "softmax_cross_entropy", "optimizer": "adamw", "learning_rate": 1e-3}
STEPS = 3


@dataclass(frozen=True)
class Row:
    """One size. Seconds of import (with the gradients), passes, compiling without a cache, and one step."""

    layers: int
    width: int
    nodes: int
    calls: int
    kernels: int
    operations: int
    imported: float
    passes: float
    compiled: float
    step: float


def seconds() -> float:
    """Of this process and of the workers that it waited for."""
    children = getrusage(RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = seconds()
    return work(), seconds() - start


def measure(layers: int, width: int) -> Row:
    """Build and run one size in this process."""
    from passes import pipeline

    network, outputs = gpt({**SIZES, "layers": layers, "width": width})
    runner = registry.runner("cpu")
    model = load_model(network.model(*outputs))
    request = Request(model, {}, {}, (runner.code.name,), None, 0, 0, training_of(TRAINING))
    (_, entries), imported = timed(lambda: imported_entries(request))
    entry = next(each for each in entries if each.name == "train_step")
    lowered, passes = timed(lambda: pipeline.run(entry.graph, entry.locations, entry.updates))
    program: Program = lowered.program
    (made,), compiled = timed(lambda: compile_programs([(runner.code, program)], None, lambda *_: None))
    executable = runner.open(made, [slot.initial.reshape(-1) for slot in entry.parameters], 1)
    inputs = _inputs([port.type.shape for port in entry.inputs])
    step = min(timed(lambda: executable.run(inputs))[1] for _ in range(STEPS))
    executable.close()
    counts = (len(entry.graph.nodes), len(program.steps), len(program.kernels), program_operations(program))
    return Row(layers, width, *counts, imported, passes, compiled, step)


def _inputs(shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Tokens and labels."""
    random = np.random.default_rng(1)
    return [random.integers(0, SIZES["vocabulary"], shape) for shape in shapes]


def apart(layers: int, width: int) -> Row:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--one", f"{layers},{width}"]
    return Row(**json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def table(rows: Sequence[Row]) -> Table:
    sizes, times = ("layers", "width", "nodes", "calls", "kernels"), ("import", "passes", "µs/node", "compile", "step")
    made = Table(*sizes, *times, "GFLOP/s", title="a GPT's training step, seconds of processor time")
    for row in rows:
        per_node = (row.imported + row.passes) / row.nodes * 1e6
        spent = (f"{t:.2f}" for t in (row.imported, row.passes))
        last = (f"{per_node:.0f}", f"{row.compiled:.1f}", f"{row.step:.3f}", f"{row.operations / row.step / 1e9:.0f}")
        made.add_row(*map(str, (row.layers, row.width, row.nodes, row.calls, row.kernels)), *spent, *last)
    return made


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", default="2,6,12,24,48")
    parser.add_argument("--width", default="128,256,512,1024")
    parser.add_argument("--narrow", type=int, default=128)
    parser.add_argument("--shallow", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.one:
        layers, width = map(int, options.one.split(","))
        print(json.dumps(asdict(measure(layers, width))))
        return
    sizes = [(int(layers), options.narrow) for layers in options.layers.split(",")]
    sizes += [(options.shallow, int(width)) for width in options.width.split(",")]
    rows = [apart(*size) for size in dict.fromkeys(sizes)]
    console().print(table(rows))


if __name__ == "__main__":
    ending.run(main)
