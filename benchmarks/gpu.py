"""GPU: our kernels beside cuBLAS FP32 (TF32 off) and PyTorch, in one run, on one stream, by one clock.

    python -m benchmarks.gpu [--rounds 9] [--only NAME ...] [--no-step] [--step-only] [--layers 12]
                             [--results FILE] [--resume] [--minutes N]

Needs a CUDA device and the `torch` extra. Each case runs in turn, ours, PyTorch's as a CUDA graph like ours, PyTorch's
eager, forward and backward; times are medians of CUDA events, ratios are the faster of PyTorch's times over ours. A
device copy of as many bytes stands beside them. For each dot it is said whether cuBLAS's bits are those of the
contract's chains, and for every case how far apart the two results are. exp, tanh and GELU stand apart: ours are
correctly rounded, through f64. Then come the training steps of a GPT (12 layers, width 768, 12 heads, 1024 tokens,
batch 8, AdamW) and of ResNet-18 (32 images of 32 x 32, momentum), ours as one CUDA graph, PyTorch's as one and eager,
and the time of each of their kernels. What is measured is written to the results at once, and what fails does not keep
the rest from running (benchmarks.gpu_results, benchmarks.gpu_watched). Exit code 0: all was measured; 3: something was
not.
"""

# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import hashlib
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks import gpu_results, gpu_watched
from benchmarks.gpu_cases import CASES, GPT, Case, Training, trainings
from benchmarks.gpu_device import Cuda, Loaded
from benchmarks.gpu_results import Results
from repro import ending
from repro.errors import ReproError
from repro.ir.types import Array
from repro.machines.devices import DEVICES
from repro.tables import console
from repro.targets.gpu import driver
from repro.targets.gpu.floor import work, work_of_blocks
from repro.targets.gpu.steps import shapes

APART = ("exp", "tanh", "gelu")


def drawn(case: Case) -> list[Array]:
    generator = np.random.default_rng(1)
    return [generator.standard_normal(shape, np.float32) for shape in case.shapes.values()]


def medians(sides: Mapping[str, Callable[[], object]], device: Cuda, rounds: int) -> dict[str, float]:
    """Seconds of each side, run in turn; each first warms up, twice, and is repeated to some 20 ms."""
    for run in (*sides.values(), *sides.values()):  # ours is a graph from its second run on
        run()
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


def graph_of(run: Callable[[], object], device: Cuda) -> Callable[[], object]:
    """PyTorch's call as a graph; eager where it will not be captured."""
    try:
        return device.graph(run)
    except RuntimeError as error:
        sys.stderr.write(f"PyTorch's call is not captured: {error}\n")
        return run


def measure(case: Case, device: Cuda, rounds: int) -> dict[str, Any]:
    """One case: times, rates, bits."""
    inputs = drawn(case)
    program = case.program()
    with closing(Loaded(device, program)) as loaded:
        loaded.give(inputs)
        for _ in range(2):  # the second run is a graph
            loaded.run()
        (found,) = loaded.outputs()
        tensors = [device.tensor(array) for array in inputs]
        theirs = case.torch(*tensors)
        ours = device.tensor(found)
        apart = (ours - theirs.reshape(-1)).abs().max() / theirs.abs().max()
        needed = [work(kernel) for kernel in program.kernels]
        operations, moved = sum(each.f32 for each in needed), sum(each.bytes for each in needed)
        source, target = device.empty(moved // 2), device.empty(moved // 2)
        sides: dict[str, Callable[[], object]] = {
            "ours": loaded.run,
            "torch": graph_of(lambda: case.torch(*tensors), device),
            "eager": lambda: case.torch(*tensors),
            "copy": lambda: target.copy_(source),
        }
        times = medians(sides, device, rounds)
        return {
            "what": case.what,
            "seconds": times,
            "ratio": min(times["torch"], times["eager"]) / times["ours"],
            "copy_ratio": times["copy"] / times["ours"],
            "tflops": operations / times["ours"] / 1e12,
            "gigabytes_per_second": moved / times["ours"] / 1e9,
            "bits": same_bits(ours.view(device.torch.int32), theirs) if case.dot else "",
            "largest difference of the largest": float(apart),
            "digest": hashlib.sha256(found.tobytes()).hexdigest(),
            "floors": {name: sum(each.seconds(chip) for each in needed) for name, chip in DEVICES.items()},
        }


class StepRun:
    """A training step on the device: ours with its state there, one launch, and PyTorch's. What is found of it comes in
    parts, so that each is there if a later one fails."""

    def __init__(self, device: Cuda, training: Training, rounds: int) -> None:
        self.device, self.training, self.rounds = device, training, rounds
        self.weights: dict[str, Array] = {}
        self.loaded: Loaded | None = None

    def ours(self) -> dict[str, Any]:
        """Our time alone, and the loss of the first step."""
        made = self.training.step()
        self.weights = made.weights
        loaded = Loaded(self.device, made.program, [value.reshape(-1) for value in made.initial])
        try:
            loaded.give(self.training.inputs)
            loaded.run()
            loss = float(loaded.outputs()[0][0])
        except BaseException:
            loaded.close()
            raise
        self.loaded = loaded
        return {
            "seconds": medians({"ours": loaded.run}, self.device, self.rounds),
            "first loss": loss,
            "kernels": len(loaded.codes),
            "launches of distinct kernels": sum(len(code.launches) for code in loaded.codes),
        }

    def kernels(self) -> dict[str, Any]:
        assert self.loaded is not None, "our step does not run"
        return {"seconds by kernel": kernel_times(self.loaded, self.training.inputs)}

    def beside(self) -> dict[str, Any]:
        """All sides' times, run in turn: ours, PyTorch's step as a graph and as it is written."""
        assert self.loaded is not None, "our step does not run"
        theirs, first = torch_step(self.device, self.training, self.weights)
        captured = graph_of(torch_step(self.device, self.training, self.weights)[0], self.device)
        sides = {"ours": self.loaded.run, "torch": captured, "eager": theirs}
        times = medians(sides, self.device, self.rounds)
        ratio = min(times["torch"], times["eager"]) / times["ours"]
        return {"seconds": times, "ratio": ratio, "PyTorch's first loss": first}

    def close(self) -> None:
        if self.loaded is not None:
            self.loaded.close()


def kernel_times(loaded: Loaded, inputs: Sequence[Array]) -> list[dict[str, Any]]:
    """Of each kernel of a program, and each step over blocks of rows, its calls, the time of all, and its floors by
    device; the longest first."""
    known = [*loaded.program.kernels, *shapes(loaded.program)]
    needed = [*map(work, loaded.program.kernels), *map(work_of_blocks, shapes(loaded.program))]
    seconds, found = loaded.seconds(inputs), list[dict[str, Any]]()
    for number, calls in loaded.calls().items():
        row = {
            "kernel": "k_" + known[number].digest[:8],
            "road": loaded.codes[number].schedule,
            "calls": calls,
            "seconds": seconds[known[number].digest],
        }
        floors = {name: needed[number].seconds(chip) for name, chip in DEVICES.items()}
        found.append({**row, "floors of a call": floors})
    return sorted(found, key=lambda row: -row["seconds"])


def torch_step(device: Cuda, training: Training, weights: Mapping[str, Array]) -> tuple[Callable[[], object], float]:
    """PyTorch's step as a call that a graph may capture, and the loss of a first one."""
    torch = device.torch
    kept = {name: device.tensor(np.array(array)) for name, array in weights.items()}
    trained = [value.requires_grad_() for name, value in kept.items() if training.trains(name, weights[name])]
    optimizer = training.optimizer(trained)
    given, wanted = (device.tensor(each) for each in training.inputs)

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(training.torch(kept, given), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return step, float(device.aside(step).detach())


COLUMNS = ("case", "ours", "PyTorch", "eager", "ratio", "Tflop/s", "GB/s", "of a copy", "apart", "bits of cuBLAS")


def cells(each: Mapping[str, Any]) -> list[str]:
    return [
        f"{each['case']}: {each['what']}",
        *(f"{each['seconds'][side] * 1e6:.1f} us" for side in ("ours", "torch", "eager")),
        f"{each['ratio']:.2f}", f"{each['tflops']:.1f}", f"{each['gigabytes_per_second']:.0f}",
        f"{each['copy_ratio']:.2f}", f"{each['largest difference of the largest']:.1e}", each["bits"],
    ]  # fmt: skip


def show(found: Sequence[Mapping[str, Any]], device: str) -> None:
    for title, apart in (("cases", False), ("correctly rounded functions", True)):
        table = Table(*COLUMNS, title=f"{title}, {device}")
        for each in found:
            if (each["case"] in APART) == apart:
                table.add_row(*cells(each))
        console().print(table)


def _milliseconds(part: Mapping[str, Any]) -> str:
    return ", ".join(f"{side} {seconds * 1e3:.2f} ms" for side, seconds in part["seconds"].items())


def said_of(part: Mapping[str, Any]) -> str:
    """A part of the step in a line."""
    if "seconds by kernel" in part and "seconds" not in part:
        return f"{part['case']}: {len(part['seconds by kernel'])} kernels"
    return f"{part['case']}: {_milliseconds(part)}"


def show_kernels(part: Mapping[str, Any]) -> None:
    table = Table("kernel", "road", "calls", "all calls", title="the step's kernels, one by one")
    for row in part["seconds by kernel"][:16]:
        table.add_row(row["kernel"], row["road"], str(row["calls"]), f"{row['seconds'] * 1e3:.2f} ms")
    console().print(table)


def run_step(results: Results, device: Cuda, training: Training, rounds: int) -> None:
    """Each part of the step that is not known yet; those after the first rest on it."""
    run = StepRun(device, training, rounds)
    name = training.name
    parts = {name: run.ours, f"{name}: kernels": run.kernels, f"{name}: beside PyTorch": run.beside}
    if all(part in results.known for part in parts):
        return
    results.known.pop(name, None)
    try:
        for part, find in parts.items():
            if part != name and run.loaded is None:
                results.left.append(part)
                continue
            found = results.tried(part, find, said_of)
            if found is not None and "seconds by kernel" in found:
                show_kernels(found)
    finally:
        run.close()


def main(words: list[str]) -> int:
    parser = gpu_results.parser("gpu", __doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], metavar="NAME", help="cases")
    parser.add_argument("--no-step", action="store_true", help="leave the training step out")
    parser.add_argument("--step-only", action="store_true", help="leave the cases out")
    parser.add_argument("--layers", type=int, default=GPT["layers"])
    options = parser.parse_args(words)
    try:
        device = Cuda()
    except ReproError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    results = Results(
        options.results,
        {"device": device.name, "torch": str(device.torch.__version__)},
        options.resume,
        options.minutes,
        options.run,
        driver.lost,
    )
    cases = [case for case in CASES if not options.step_only and (not options.only or case.name in options.only)]
    tried = [
        results.tried(case.name, lambda case=case: measure(case, device, options.rounds), lambda d: "  ".join(cells(d)))
        for case in cases
    ]
    show([each for each in tried if each is not None], device.name)
    if not options.no_step:
        for training in trainings(options.layers):
            run_step(results, device, training, options.rounds)
    return results.finish()


if __name__ == "__main__":
    ending.run(partial(gpu_watched.watched, "benchmarks.gpu"))
