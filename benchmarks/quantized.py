"""Models as ONNX Runtime's tools quantize them, beside ONNX Runtime.

    python -m benchmarks.quantized [NAME...] [--kinds KIND,...] [--threads N] [--rounds 9] [--seconds 20]

Models of `repro bench` (forward), with weights drawn at random. Kinds: `dynamic` (matrix products as
DynamicQuantizeLinear and MatMulInteger); the others statically, with activations in u8 and weights in i8, one scale for
each channel: `QOperator` (QLinearConv, QLinearAdd, ...), and the format QDQ as `integer` and as `float`, which are
repro's two ways to compute it (`--qdq`). Milliseconds of one run, medians of rounds in turn, the ratio with its 95 %
interval; above 1, repro is faster. `apart` is the largest difference of the first output from ONNX Runtime's, as a
share of its largest value, and 0 where all are equal: of a sum that both round once to bytes, one may take the step
above.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from rich.table import Table

import repro
from benchmarks.words import one_of
from repro import ending
from repro.bench import measuring, peaks
from repro.bench.measuring import ratio
from repro.bench.sides import SIDES, Job
from repro.bench.workloads import FORWARD, WORKLOADS
from repro.frontend.integer_qdq import FLOAT, INTEGER, QDQ
from repro.ir.types import Array
from repro.tables import console

MODELS = {
    "dynamic": ("mlp", "gpt", "bert", "gpt_token"),
    "QOperator": ("resnet18",),
    INTEGER: ("mlp", "gpt", "bert", "resnet18"),
    FLOAT: ("resnet18",),
}
"""By kind."""
SAMPLES = 3
"""Batches that static quantization finds its scales from."""


@dataclass(frozen=True)
class Row:
    ours: float
    theirs: float
    ratio: str
    apart: float


class _Samples(quantization.CalibrationDataReader):
    """Inputs as the workload draws them, and then others of the same kind."""

    def __init__(self, inputs: dict[str, Array]) -> None:
        random = np.random.default_rng(5)
        self._batches = iter([{name: _another(x, random) for name, x in inputs.items()} for _ in range(SAMPLES)])

    def get_next(self) -> dict[str, Array] | None:  # pyright: ignore[reportIncompatibleMethodOverride] (None ends it)
        return next(self._batches, None)


def _another(like: Array, random: np.random.Generator) -> Array:
    """Normal numbers, or integers among those of an input."""
    if like.dtype.kind == "f":
        return random.standard_normal(like.shape).astype(like.dtype)
    return random.integers(like.min(), like.max(), like.shape, like.dtype, endpoint=True)


def quantize(name: str, kind: str, folder: Path) -> None:
    """Writes a workload's quantized model into a folder."""
    workload = WORKLOADS[name]
    network, outputs = workload.network(FORWARD)
    source, target = folder / "float.onnx", folder / "model.onnx"
    source.write_bytes(network.model(*outputs).SerializeToString())
    if kind == "dynamic":
        quantization.quantize_dynamic(source, target, weight_type=quantization.QuantType.QInt8)
        return
    prepared = folder / "prepared.onnx"
    quant_pre_process(str(source), str(prepared))
    form = quantization.QuantFormat.QOperator if kind == "QOperator" else quantization.QuantFormat.QDQ
    options: dict[str, Any] = {"activation_type": quantization.QuantType.QUInt8, "per_channel": True}
    options |= {"weight_type": quantization.QuantType.QInt8, "quant_format": form}
    quantization.quantize_static(str(prepared), str(target), _Samples(workload.inputs()), **options)


def measured(name: str, kind: str, threads: int, rounds: int, seconds: float, folder: Path) -> Row:
    quantize(name, kind, folder)
    target, qdq = peaks.this_machine().name, kind if kind in QDQ else FLOAT
    repro.build(folder / "model.onnx", folder / "artifact", targets=target, force=True, qdq=qdq)
    job = Job(WORKLOADS[name], FORWARD, threads, folder)
    ours, theirs, _ = measuring.rounds(job, ("repro", "onnxruntime"), rounds, seconds, _nothing)
    found = ratio(theirs, ours)
    text = found.text
    return Row(ours.seconds * 1e3, theirs.seconds * 1e3, text, _apart(job))


def _nothing() -> float:
    return 0.0


def _apart(job: Job) -> float:
    left, right = (np.asarray(SIDES[side].open(job)(), np.float64) for side in ("repro", "onnxruntime"))
    return float(np.abs(left - right).max() / np.abs(right).max())


def _kinds(text: str) -> list[str]:
    return [one_of("kind", MODELS)(word) for word in text.split(",")]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = list(dict.fromkeys(sum(MODELS.values(), ())))
    parser.add_argument("names", nargs="*", type=one_of("model", models), metavar="NAME", help="models (default: all)")
    parser.add_argument("--kinds", type=_kinds, default=",".join(MODELS), help="with commas (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model, at most about")
    options = parser.parse_args(arguments)
    measuring.same_processors(options.threads)
    table = Table("model", "quantized", "threads", "repro, ms", "ONNX Runtime, ms", "ort / repro", "apart")
    every = [(name, kind) for kind in options.kinds for name in MODELS[kind]]
    for name, kind in (each for each in every if not options.names or each[0] in options.names):
        with tempfile.TemporaryDirectory(prefix="repro-quantized-") as folder:
            row = measured(name, kind, options.threads, options.rounds, options.seconds, Path(folder))
        how = f"QDQ, {kind}" if kind in QDQ else kind
        cells = (name, how, str(options.threads), f"{row.ours:.2f}", f"{row.theirs:.2f}", row.ratio)
        table.add_row(*cells, f"{row.apart:.4f}" if row.apart else "0")
    console().print(table)


if __name__ == "__main__":
    ending.run(main)
