"""GPU: our kernels beside cuBLAS FP32 (TF32 off) and PyTorch eager, in one run, on one stream, by one clock.

    python -m benchmarks.gpu [--rounds 9] [--only NAME ...] [--no-step] [--step-only] [--layers 12] [--results FILE]

Needs a CUDA device and the `torch` extra. Each case runs in turn, ours and PyTorch's, A B A B; times are medians of
CUDA events, ratios are PyTorch's time over ours. A device copy of as many bytes stands beside them. For each dot it is
said whether cuBLAS's bits are those of the contract's chains, and for every case how far apart the two results are.
exp, tanh and GELU stand apart: ours are correctly rounded, through f64. Last comes a training step of a GPT (12 layers,
width 768, 12 heads, 1024 tokens, batch 8, AdamW), ours as one CUDA graph, PyTorch's eager, and the time of each of its
kernels. What is measured is written to the results at once, a line of JSON each: a run that is cut short keeps what it
has, and the cases and the step fit into runs of their own.
"""

# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.gpu_cases import CASES, GPT, Case, gpt_step
from benchmarks.gpu_device import Cuda, Loaded
from repro.bench.workloads.models import gpt_torch
from repro.errors import ReproError
from repro.ir.types import Array
from repro.machines.devices import DEVICES
from repro.targets.gpu.floor import work

APART = ("exp", "tanh", "gelu")


def drawn(case: Case) -> list[Array]:
    generator = np.random.default_rng(1)
    return [generator.standard_normal(shape, np.float32) for shape in case.shapes.values()]


def medians(sides: Mapping[str, Callable[[], object]], device: Cuda, rounds: int) -> dict[str, float]:
    """Seconds of each side, run in turn; each first warms up, and is repeated to some 20 ms."""
    repeats = {name: max(1, int(0.02 / max(device.seconds(run, 2), 1e-7))) for name, run in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 == 0 else -1]:
            times[name].append(device.seconds(sides[name], repeats[name]))
    return {name: statistics.median(each) for name, each in times.items()}


def same_bits(ours: Any, theirs: Any) -> str:
    """How many elements of two f32 results differ in bits."""
    different = int((ours != theirs.contiguous().reshape(-1).view(ours.dtype)).sum())
    return "equal" if different == 0 else f"{different} of {ours.numel()} differ"


def measure(case: Case, device: Cuda, rounds: int) -> dict[str, Any]:
    """One case: times, rates, bits."""
    torch = device.torch
    inputs = drawn(case)
    program = case.program()
    loaded = Loaded(device, program)
    loaded.give(inputs)
    tensors = [torch.from_numpy(array).cuda() for array in inputs]
    loaded.run()
    theirs = case.torch(*tensors)
    ours = loaded.output().view(torch.float32)
    apart = (ours - theirs.reshape(-1)).abs().max() / theirs.abs().max()
    needed = [work(kernel) for kernel in program.kernels]
    operations, moved = sum(each.f32 for each in needed), sum(each.bytes for each in needed)
    source = torch.empty(max(moved // 2, 16), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    sides = {"ours": loaded.run, "torch": lambda: case.torch(*tensors), "copy": lambda: target.copy_(source)}
    times = medians(sides, device, rounds)
    return {
        "case": case.name,
        "what": case.what,
        "seconds": times,
        "ratio": times["torch"] / times["ours"],
        "copy_ratio": times["copy"] / times["ours"],
        "tflops": operations / times["ours"] / 1e12,
        "gigabytes_per_second": moved / times["ours"] / 1e9,
        "bits": same_bits(ours.view(torch.int32), theirs) if case.dot else "",
        "largest difference of the largest": float(apart),
        "digest": hashlib.sha256(ours.cpu().numpy().tobytes()).hexdigest(),
        "floors": {name: sum(each.seconds(chip) for each in needed) for name, chip in DEVICES.items()},
    }


def measure_step(device: Cuda, sizes: dict[str, int], rounds: int) -> dict[str, Any]:
    """A training step: ours with its state on the device, captured once; PyTorch's as it is written."""
    torch = device.torch
    generator = np.random.default_rng(1)
    ids = generator.integers(0, sizes["vocabulary"], (sizes["batch"], sizes["tokens"]))
    labels = generator.integers(0, sizes["vocabulary"], ids.size)
    made = gpt_step(sizes)
    loaded = Loaded(device, made.program, made.initial)
    loaded.give([ids, labels])
    loaded.run()
    loss = float(loaded.output().view(torch.float32)[0])
    theirs, first = torch_step(torch, sizes, made.weights, ids, labels)
    sides = {"ours": device.graph(loaded.run), "torch": theirs}
    times = medians(sides, device, rounds)
    launches = sum(len(code.launches) for code in loaded.codes)
    return {
        "seconds": times,
        "ratio": times["torch"] / times["ours"],
        "first loss": {"ours": loss, "torch": first},
        "kernels": len(loaded.codes),
        "launches of distinct kernels": launches,
        "seconds by kernel": kernel_times(loaded, device),
    }


def kernel_times(loaded: Loaded, device: Cuda) -> list[dict[str, Any]]:
    """Of each kernel of a program its calls, the time of all, and its floors by device; the longest first."""
    found: list[dict[str, Any]] = []
    for number, seconds in loaded.seconds(device).items():
        kernel, code, each = loaded.program.kernels[number], loaded.codes[number], work(loaded.program.kernels[number])
        floors = {name: each.seconds(chip) for name, chip in DEVICES.items()}
        row = {
            "kernel": "k_" + kernel.digest[:8],
            "road": code.schedule,
            "calls": len(seconds),
            "seconds": sum(seconds),
        }
        found.append({**row, "floors of a call": floors})
    return sorted(found, key=lambda row: -row["seconds"])


def torch_step(
    torch: Any, sizes: dict[str, int], weights: dict[str, Array], ids: Array, labels: Array
) -> tuple[Callable[[], object], float]:
    """PyTorch's step as a call, and the loss of a first one."""
    kept = {name: torch.from_numpy(np.array(array)).cuda() for name, array in weights.items()}
    trained = [value.requires_grad_() for value in kept.values() if value.is_floating_point() and value.dim()]
    optimizer = torch.optim.AdamW(trained, 1e-3)
    network, rows, wanted = gpt_torch(sizes), torch.from_numpy(ids).cuda(), torch.from_numpy(labels).cuda()

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(kept, {"ids": rows}, "step"), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return step, float(step().detach())


COLUMNS = ("case", "ours", "PyTorch", "ratio", "Tflop/s", "GB/s", "of a copy", "apart", "bits of cuBLAS")


def cells(each: dict[str, Any]) -> list[str]:
    return [
        f"{each['case']}: {each['what']}",
        *(f"{each['seconds'][side] * 1e6:.1f} us" for side in ("ours", "torch")),
        f"{each['ratio']:.2f}", f"{each['tflops']:.1f}", f"{each['gigabytes_per_second']:.0f}",
        f"{each['copy_ratio']:.2f}", f"{each['largest difference of the largest']:.1e}", each["bits"],
    ]  # fmt: skip


def show(found: Sequence[dict[str, Any]], device: str) -> None:
    for title, apart in (("cases", False), ("correctly rounded functions", True)):
        table = Table(*COLUMNS, title=f"{title}, {device}")
        for each in found:
            if (each["case"] in APART) == apart:
                table.add_row(*cells(each))
        Console().print(table)


def show_step(step: dict[str, Any], layers: int) -> None:
    times = step["seconds"]
    sys.stdout.write(
        f"GPT step, {layers} layers: ours {times['ours'] * 1e3:.1f} ms, PyTorch eager {times['torch'] * 1e3:.1f} ms, "
        f"ratio {step['ratio']:.2f}; first losses {step['first loss']}\n"
    )
    table = Table("kernel", "road", "calls", "all calls", title="its kernels, one by one")
    for row in step["seconds by kernel"][:16]:
        table.add_row(row["kernel"], row["road"], str(row["calls"]), f"{row['seconds'] * 1e3:.2f} ms")
    Console().print(table)


class Results:
    """A file that takes each result when it is there, and a line of progress; None: progress alone."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def add(self, what: str, document: dict[str, Any]) -> None:
        sys.stderr.write(f"{what}\n")
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(document) + "\n")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", help="cases by name")
    parser.add_argument("--no-step", action="store_true", help="leave the training step out")
    parser.add_argument("--step-only", action="store_true", help="leave the cases out")
    parser.add_argument("--layers", type=int, default=GPT["layers"])
    parser.add_argument("--results", type=Path, metavar="FILE", help="add what was measured, as it is")
    options = parser.parse_args(words)
    try:
        device = Cuda()
    except ReproError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    results = Results(options.results)
    cases = [case for case in CASES if not options.step_only and (not options.only or case.name in options.only)]
    found: list[dict[str, Any]] = []
    for case in cases:
        found.append({"device": device.name, **measure(case, device, options.rounds)})
        results.add("  ".join(cells(found[-1])), found[-1])
    show(found, device.name)
    if not options.no_step:
        step = measure_step(device, {**GPT, "layers": options.layers}, options.rounds)
        results.add("GPT step", {"device": device.name, "layers": options.layers, "step": step})
        show_step(step, options.layers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
