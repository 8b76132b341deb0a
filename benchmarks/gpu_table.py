"""The tables of docs/gpu.md, from records that the benchmarks of GPUs wrote (`--results`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_results import read
from benchmarks.markdown import head, line

SPEED, BITS, QUANTIZED, FUNCTIONS = "gpu.jsonl", "golden.jsonl", "quantized.jsonl", "functions.jsonl"
HEAD = ("case", "repro, us", "PyTorch, us", "PyTorch / repro", "Tflop/s", "of a copy", "bits of cuBLAS")
STEP_HEAD = ("training step", "repro, ms", "PyTorch, ms", "PyTorch / repro")
QUANTIZED_HEAD = ("model, forward", "int8, us", "float, us", "float / int8", "bits of the CPU")
BITS_HEAD = ("on the device", "result")
FUNCTIONS_HEAD = ("code for", "of all 2^32 arguments", "functions")
COMPUTED = 10
"""Tflop/s from which on a case is said by them, and below by the share of a copy's speed."""

Row = dict[str, Any]


def cases(machine: Path) -> Iterator[str]:
    """Each operation beside PyTorch's: the faster of its graph and its eager call."""
    yield from head(*HEAD)
    for row in _measured(machine):
        if "what" in row:
            yield line(f"{row['case']}: {row['what']}", *_speeds(row), row["bits"])


def steps(machine: Path) -> Iterator[str]:
    """Training steps; those beside PyTorch in turn with it."""
    yield from head(*STEP_HEAD)
    rows = {row["case"]: row for row in _measured(machine) if "seconds" in row and "what" not in row}
    for name, row in rows.items():
        beside = f"{name}: beside PyTorch"
        if beside not in rows and not name.endswith(": beside PyTorch"):
            yield line(name, f"{row['seconds']['ours'] * 1e3:.2f}", "", "")
        elif name.endswith(": beside PyTorch"):
            theirs = min(seconds for side, seconds in row["seconds"].items() if side != "ours")
            times = (f"{seconds * 1e3:.2f}" for seconds in (row["seconds"]["ours"], theirs))
            yield line(name.removesuffix(": beside PyTorch"), *times, f"{row['ratio']:.2f}")


def bits(machine: Path) -> Iterator[str]:
    """What was compared on the device, byte by byte."""
    yield from head(*BITS_HEAD)
    for row in read(machine / BITS):
        if "exit code" in row:
            found = "all entries verify" if row["exit code"] == 0 else f"exit code {row['exit code']}"
        else:
            found = f"{row['steps']} training steps, the CPU's bits after each" if not row["differing"] else "differs"
        yield line(row["case"], found)


def functions(machine: Path) -> Iterator[str]:
    """Functions whose results for every argument were compared with the proven ones, by target and result."""
    yield from head(*FUNCTIONS_HEAD)
    found = dict[tuple[str, bool], list[str]]()
    for row in _measured(machine, FUNCTIONS):
        found.setdefault((row["target"], row["equal"]), []).append(row["case"])
    for (target, equal), names in found.items():
        yield line(target, "the proven results" if equal else "other results", ", ".join(names))


def quantized(machine: Path) -> Iterator[str]:
    """int8 models beside the float ones."""
    yield from head(*QUANTIZED_HEAD)
    for row in _measured(machine, QUANTIZED):
        times = (f"{row['seconds'][kind] * 1e6:.1f}" for kind in ("quantized", "float"))
        equal = "equal" if not any(row["exit codes"].values()) else "differ"
        yield line(f"{row['case']}: {row['what']}", *times, f"{row['ratio']:.2f}", equal)


def _measured(machine: Path, name: str = SPEED) -> list[Row]:
    return [row for row in read(machine / name) if "error" not in row]


def _speeds(row: Row) -> Iterator[str]:
    theirs = min(row["seconds"]["torch"], row["seconds"]["eager"])
    yield f"{row['seconds']['ours'] * 1e6:.1f}"
    yield f"{theirs * 1e6:.1f}"
    yield f"{row['ratio']:.2f}"
    yield f"{row['tflops']:.1f}" if row["tflops"] >= COMPUTED else ""
    yield f"{row['copy_ratio']:.2f}" if row["tflops"] < COMPUTED else ""
