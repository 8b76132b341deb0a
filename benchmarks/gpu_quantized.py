"""int8 models on a GPU, beside the float models that they were made of.

    python -m benchmarks.gpu_quantized [NAME...] [--rounds 9] [--results FILE] [--resume] [--minutes N]

Needs a CUDA device, the `torch` extra, whose clock is used, and ONNX Runtime, whose tools quantize the forward models
of `repro bench` as `benchmarks.quantized` does (the format QDQ, `--qdq integer`). Both are built for the CPU and the
GPU and verified on the device, each output's bits against the CPU's, and then run in turn, each as one CUDA graph:
medians of CUDA events. Exit code 0: all was measured and equal; 1: some bits are not; 3: something was not measured.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import repro
from benchmarks import gpu_results, gpu_watched
from benchmarks.gpu import medians
from benchmarks.gpu_device import Cuda, Loaded
from benchmarks.gpu_results import Results
from benchmarks.quantized import MODELS, quantize
from repro import ending
from repro.artifact import tensors
from repro.artifact.sessions import match
from repro.bench.workloads import WORKLOADS
from repro.errors import EXIT_GOOD, EXIT_MISMATCH, ReproError
from repro.frontend.integer_qdq import FLOAT, INTEGER
from repro.ir.types import to_storage
from repro.targets.gpu import driver


def measured(name: str, device: Cuda, rounds: int) -> dict[str, Any]:
    """A model in both kinds: whether their bits are the CPU's, and seconds of a run."""
    with tempfile.TemporaryDirectory() as made, ExitStack() as held:
        folder = Path(made)
        quantize(name, INTEGER, folder)
        kinds = {"quantized": (folder / "model.onnx", INTEGER), "float": (folder / "float.onnx", FLOAT)}
        loaded, codes = dict[str, Loaded](), dict[str, int]()
        for kind, (model, qdq) in kinds.items():
            artifact = repro.build(model, folder / kind, targets=["cpu", "gpu"], qdq=qdq)
            codes[kind] = repro.verify(folder / kind / "artifact.json", targets=["gpu"]).exit_code
            (entry,) = artifact.entries
            state = artifact.initial_state(entry).values()
            values = [to_storage(array, tensors.type_of(array).dtype).reshape(-1) for array in state]
            loaded[kind] = Loaded(device, artifact.compiled(entry, "gpu").program, values)
            held.callback(loaded[kind].close)
            loaded[kind].give(match(WORKLOADS[name].inputs(), artifact.entries[entry].inputs))
        times = medians({kind: each.run for kind, each in loaded.items()}, device, rounds)
    ratio = times["float"] / times["quantized"]
    return {"what": WORKLOADS[name].what, "exit codes": codes, "seconds": times, "ratio": ratio}


def said(found: dict[str, Any]) -> str:
    times = ", ".join(f"{kind} {seconds * 1e6:.1f} us" for kind, seconds in found["seconds"].items())
    return f"{found['case']}: {times}, verified: {found['exit codes']}"


def main(words: list[str]) -> int:
    parser = gpu_results.parser("gpu_quantized", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS[INTEGER])} (default: all)")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(words)
    unknown = sorted(set(options.names) - set(MODELS[INTEGER]))
    try:
        if unknown:
            raise ReproError("there is no such model", found=", ".join(unknown), expected=", ".join(MODELS[INTEGER]))
        device = Cuda()
    except ReproError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    about = {"device": device.name, "torch": str(device.torch.__version__)}
    results = Results(options.results, about, options.resume, options.minutes, options.run, driver.lost)
    names = options.names or MODELS[INTEGER]
    tried = [results.tried(name, partial(measured, name, device, options.rounds), said) for name in names]
    good = all(code == EXIT_GOOD for each in tried if each is not None for code in each["exit codes"].values())
    unfinished = results.finish()
    return unfinished if good else EXIT_MISMATCH


if __name__ == "__main__":
    ending.run(partial(gpu_watched.watched, "benchmarks.gpu_quantized"))
