"""A training step of a GPT beside PyTorch eager: the same model, weights, batch, optimizer and threads, in turn.

    python -m benchmarks.train_step [--layers 6] [--width 384] [--heads 6] [--tokens 256] [--batch 8] [--threads 1]
                                    [--rounds 5]

Needs the `torch` extra. The ratio is PyTorch's time over ours by medians; memory is what the process holds resident at
its greatest, less what it held before the first step, each side in a process of its own. A traced step is a step of
ours and its line in a trace with the digest of the whole state, as `repro train --trace` writes it.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import repro
from repro import ending
from repro.bench.measuring import peak_resident
from repro.cli.arguments import size
from repro.tables import console
from repro.training.trace import Detail, TraceWriter

RATE = 1e-3
TRACED = "repro, traced"
ORDERS = (("repro", TRACED, "PyTorch"), (TRACED, "repro", "PyTorch"))
SETTLE = 0.3
"""Seconds after a step of PyTorch, whose threads spin on for a while: they would cost whoever comes next."""


def network(options: argparse.Namespace):
    """The model in PyTorch: pre-norm blocks, causal attention, nothing tied."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(self.ln1(x)).split(d, 2)
            q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in (q, k, v))
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
            return x + self.down(functional.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok = nn.Embedding(options.vocabulary, options.width)
            self.pos = nn.Parameter(torch.zeros(options.tokens, options.width))
            self.blocks = nn.Sequential(*(Block(options.width, options.heads) for _ in range(options.layers)))
            self.ln = nn.LayerNorm(options.width)
            self.head = nn.Linear(options.width, options.vocabulary, bias=False)
            for name, parameter in self.named_parameters():
                nn.init.normal_(parameter, 1.0 if "ln" in name and name.endswith("weight") else 0.0, 0.02)

        def forward(self, ids):
            return self.head(self.ln(self.blocks(self.tok(ids) + self.pos))).reshape(-1, options.vocabulary)

    torch.manual_seed(0)
    return GPT().train()


def data(options: argparse.Namespace):
    rng = np.random.default_rng(0)
    shape = (options.batch, options.tokens)
    return rng.integers(0, options.vocabulary, shape), rng.integers(0, options.vocabulary, shape[0] * shape[1])


class Torch:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        import torch

        torch.set_num_threads(options.threads)
        self.model = network(options)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), RATE)
        self.loss = torch.nn.CrossEntropyLoss()
        self.ids, self.labels = (torch.from_numpy(array) for array in data(options))

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(self.model(self.ids), self.labels)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


class Repro:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.session = repro.load(folder / "gpt.repro").session("train_step", threads=options.threads)
        ids, labels = data(options)
        self.inputs = {"ids": ids, "labels": labels}

        header = {"tensors": len(self.session.state_views())}
        self.writer = TraceWriter(folder / "gpt.trace", header, 0, False, Detail(), options.threads)
        self.steps = 0

    def step(self) -> float:
        return float(self.session.run(self.inputs)["loss"])

    def traced(self) -> float:
        loss = self.session.run(self.inputs)["loss"]
        self.steps += 1
        self.writer.add(self.steps, loss, self.inputs, self.session.state_views())
        return float(loss)


SIDES = {"repro": Repro, "PyTorch": Torch}


def prepare(options: argparse.Namespace, folder: Path) -> float:
    """Export and build; seconds of the build."""
    import torch

    ids = torch.from_numpy(data(options)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network(options), (ids,), str(folder / "gpt.onnx"), dynamo=False, opset_version=17, input_names=["ids"],
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
        )  # fmt: skip
    start = time.perf_counter()
    repro.build(
        folder / "gpt.onnx",
        folder / "gpt.repro",
        loss="softmax_cross_entropy",
        optimizer="adamw",
        learning_rate=RATE,
        memory_budget=options.memory_budget,
    )
    return time.perf_counter() - start


def resident() -> float:
    """MiB now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def alone(options: argparse.Namespace, folder: Path) -> None:
    """One side in this process: memory and the losses of three steps, as JSON."""
    side = SIDES[options.side](options, folder)
    before = resident()
    losses = [side.step() for _ in range(3)]
    greatest = peak_resident() / 2**20
    sys.stdout.write(json.dumps({"memory": greatest - before, "losses": losses}) + "\n")


def measured(options: argparse.Namespace, folder: Path, words: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in SIDES:
        command = [sys.executable, "-m", "benchmarks.train_step", *words, "--side", name, "--folder", str(folder)]
        found[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        found[name]["times"] = []
    ours, theirs = Repro(options, folder), Torch(options, folder)
    steps = {"repro": ours.step, TRACED: ours.traced, "PyTorch": theirs.step}
    found[TRACED] = {"times": []}
    for step in steps.values():
        step()
    for number in range(options.rounds):
        for name in ORDERS[number % 2]:
            start = time.perf_counter()
            steps[name]()
            found[name]["times"].append(time.perf_counter() - start)
        time.sleep(SETTLE)
    return found


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {
        "layers": 6,
        "width": 384,
        "heads": 6,
        "tokens": 256,
        "batch": 8,
        "vocabulary": 96,
        "threads": 1,
        "rounds": 5,
    }
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--memory-budget", type=size, metavar="SIZE", help="as of repro build, such as 400MiB")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.side is not None:
        alone(options, options.folder)
        return
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as name:
        built = prepare(options, Path(name))
        found = measured(options, Path(name), words)
    times = {name: statistics.median(side["times"]) for name, side in found.items()}
    ours, theirs = found["repro"], found["PyTorch"]
    table = Table("", "s a step", "MiB", "loss of steps 1 to 3", title=f"GPT training step, {options.threads} threads")
    for name in SIDES:
        losses = " ".join(f"{loss:.6f}" for loss in found[name]["losses"])
        table.add_row(name, f"{times[name]:.3f}", f"{found[name]['memory']:.0f}", losses)
    table.add_row(TRACED, f"{times[TRACED]:.3f}", "", "")
    memory = f"{theirs['memory'] / ours['memory']:.2f}"
    table.add_row("PyTorch / repro", f"{times['PyTorch'] / times['repro']:.3f}", memory, f"built in {built:.1f} s")
    table.add_row("traced / repro", f"{times[TRACED] / times['repro']:.3f}", "", "")
    console().print(table)


if __name__ == "__main__":
    ending.run(main)
