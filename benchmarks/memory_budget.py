"""What a memory budget costs: the table of docs/training.md.

    python -m benchmarks.memory_budget [MODEL ...]

The training step of golden models with AdamW, as it is and in loops: its temporaries without a budget, and its scalar
operations under a budget of some percent of them, relative to none. Everything is counted; no target has a say in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from passes import pipeline
from passes.recompute import MemoryBudgetError
from repro import ending
from repro.artifact.build import Request, imported_entries
from repro.frontend import load_model
from repro.frontend.imported import EntryGraph
from repro.ir.program import Program
from repro.ir.work import program_operations
from repro.train_step import training_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
BOUND = {"digits_mlp": {"N": 16}, "digits_cnn": {"N": 16}, "nano_gpt": {}}
"""Dimensions by model."""
LOOPS: dict[str, dict[str, int]] = {
    "none": {},
    "2 microbatches": {"accumulation": 2},
    "2 shards": {"shards": 2},
    "both": {"accumulation": 2, "shards": 2},
}
PERCENT = (90, 75, 60, 50)
HEAD = ("model", "in loops", "bytes", "operations at 90 %", *(f"{each} %" for each in PERCENT[1:]), "least reached")


def step_of(model: str, loops: str) -> EntryGraph:
    training = training_of({"loss": "softmax_cross_entropy", "optimizer": "adamw", **LOOPS[loops]})
    loaded = load_model(GOLDEN / model / "forward.onnx")
    _, entries = imported_entries(Request(loaded, BOUND[model], {}, (), None, 0, 0, training))
    return next(each for each in entries if each.name == "train_step")


def lowered(step: EntryGraph, budget: int | None = None) -> Program:
    return pipeline.run(step.graph, step.locations, step.updates, memory_budget=budget).program


def row(model: str, loops: str) -> str:
    """A line of the table."""
    step = step_of(model, loops)
    program = lowered(step)
    whole, every = program.arena_bytes, program_operations(program)
    cells: list[str] = []
    least = ""
    for percent in PERCENT:
        try:
            cells.append(f"{program_operations(lowered(step, whole * percent // 100)) / every:.2f}")
        except MemoryBudgetError as refused:
            cells.append("no")
            least = f"{100 * int((refused.found or '').split()[0]) / whole:.0f} %"
    return line((model, loops, f"{whole:,}", *cells, least))


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.memory_budget", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(BOUND)} (default: all)")
    chosen = parser.parse_args(words).models or list(BOUND)
    if unknown := [name for name in chosen if name not in BOUND]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(BOUND)}")
    sys.stdout.write(line(HEAD) + line(["---"] * len(HEAD)))
    for model in chosen:
        for loops in LOOPS:
            sys.stdout.write(row(model, loops))
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    ending.run(main)
