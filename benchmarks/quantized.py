"""Models as ONNX Runtime's tools quantize them, beside ONNX Runtime.

    python -m benchmarks.quantized [NAME...] [--threads N] [--rounds 9] [--seconds 20]

Models of `repro bench` (forward), with weights drawn at random: those of matrix products quantized dynamically
(DynamicQuantizeLinear and MatMulInteger), `resnet18` statically in the format QOperator (QLinearConv, QLinearAdd, ...)
with activations in u8 and weights in i8, one scale for each channel. Milliseconds of one run, medians of rounds in
turn, the ratio with its 95 % interval; above 1, repro is faster. `apart` is the largest difference of the first output
from ONNX Runtime's, as a share of its largest value: of a sum that both round once to bytes, one may take the step
above.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from rich.table import Table

import repro
from repro import ending
from repro.bench import measuring, peaks
from repro.bench.measuring import ratio
from repro.bench.sides import SIDES, Job
from repro.bench.workloads import FORWARD, WORKLOADS
from repro.ir.types import Array
from repro.tables import console

DYNAMIC, STATIC = ("mlp", "gpt", "bert", "gpt_token"), ("resnet18",)
SAMPLES = 3
"""Batches that static quantization finds its scales from."""


@dataclass(frozen=True)
class Row:
    name: str
    kind: str
    ours: float
    theirs: float
    ratio: str
    apart: float


class _Samples(quantization.CalibrationDataReader):
    """Batches of normal numbers."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        random = np.random.default_rng(5)
        drawn = ({n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()} for _ in range(SAMPLES))
        self._batches = iter(list(drawn))

    def get_next(self) -> dict[str, Array] | None:  # pyright: ignore[reportIncompatibleMethodOverride] (None ends it)
        return next(self._batches, None)


def quantized(name: str, folder: Path) -> str:
    """Writes a workload's quantized model into a folder, and says how it was made."""
    network, outputs = WORKLOADS[name].network(FORWARD)
    source, target = folder / "float.onnx", folder / "model.onnx"
    source.write_bytes(network.model(*outputs).SerializeToString())
    if name in DYNAMIC:
        quantization.quantize_dynamic(source, target, weight_type=quantization.QuantType.QInt8)
        return "dynamic"
    prepared = folder / "prepared.onnx"
    quant_pre_process(str(source), str(prepared))
    graph = onnx.load(prepared).graph
    known = {each.name for each in graph.initializer}
    shapes = {
        each.name: tuple(dim.dim_value for dim in each.type.tensor_type.shape.dim)
        for each in graph.input
        if each.name not in known
    }
    options: dict[str, Any] = {"activation_type": quantization.QuantType.QUInt8, "per_channel": True}
    options |= {"weight_type": quantization.QuantType.QInt8, "quant_format": quantization.QuantFormat.QOperator}
    quantization.quantize_static(str(prepared), str(target), _Samples(shapes), **options)
    return "QOperator"


def measured(name: str, threads: int, rounds: int, seconds: float, folder: Path) -> Row:
    kind = quantized(name, folder)
    repro.build(folder / "model.onnx", folder / "artifact", targets=peaks.this_machine().name, force=True)
    job = Job(WORKLOADS[name], FORWARD, threads, folder)
    ours, theirs, _ = measuring.rounds(job, ("repro", "onnxruntime"), rounds, seconds, _nothing)
    found = ratio(theirs, ours)
    text = f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
    return Row(name, kind, ours.seconds * 1e3, theirs.seconds * 1e3, text, _apart(job))


def _nothing() -> float:
    return 0.0


def _apart(job: Job) -> float:
    left, right = (np.asarray(SIDES[side].open(job)(), np.float64) for side in ("repro", "onnxruntime"))
    return float(np.abs(left - right).max() / np.abs(right).max())


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[*DYNAMIC, *STATIC])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model, at most about")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in (*DYNAMIC, *STATIC):
            parser.error(f"no such model: {name}; there are {', '.join((*DYNAMIC, *STATIC))}")
    measuring.same_processors(options.threads)
    table = Table("model", "quantized", "threads", "repro, ms", "ONNX Runtime, ms", "ort / repro", "apart")
    for name in options.names:
        with tempfile.TemporaryDirectory(prefix="repro-quantized-") as folder:
            row = measured(name, options.threads, options.rounds, options.seconds, Path(folder))
        cells = (row.name, row.kind, str(options.threads), f"{row.ours:.2f}", f"{row.theirs:.2f}", row.ratio)
        table.add_row(*cells, f"{row.apart:.4f}")
    console().print(table)


if __name__ == "__main__":
    ending.run(main)
