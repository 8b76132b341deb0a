"""Square f32 dots on one thread, through `session.run` of a built MatMul, beside NumPy's own BLAS in one run.

    python -m benchmarks.dot [--sizes 512 768 1024 1536 2048] [--rounds 15]

The two run in turn, A B A B; the ratio is NumPy's time over ours, by medians, with the spread of its quarters.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

import repro


def model(size: int) -> onnx.ModelProto:
    """One MatMul of two square inputs."""
    a, b, c = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in "abc")
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "dot", [a, b], [c])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def measure(size: int, rounds: int, folder: Path) -> tuple[list[float], list[float]]:
    """Seconds of each run: ours, NumPy's."""
    generator = np.random.default_rng(size)
    a, b = (generator.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    artifact = repro.build(model(size), folder / str(size), inputs={"a": a, "b": b})
    ours, theirs = list[float](), list[float]()
    with artifact.session(threads=1) as session:
        inputs = {"a": a, "b": b}
        np.testing.assert_allclose(session.run(inputs)["c"], a @ b, rtol=1e-3, atol=1e-2)
        for _ in range(rounds):
            start = time.perf_counter()
            session.run(inputs)
            middle = time.perf_counter()
            _ = a @ b
            ours.append(middle - start)
            theirs.append(time.perf_counter() - middle)
    return ours, theirs


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 768, 1024, 1536, 2048])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    table = Table("size", "repro GFLOP/s", "NumPy GFLOP/s", "ratio", "quarters", title="f32 dot, one thread")
    with tempfile.TemporaryDirectory() as folder:
        for size in options.sizes:
            ours, theirs = measure(size, options.rounds, Path(folder))
            work = 2e-9 * size**3
            ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
            low, _, high = statistics.quantiles(ratios, n=4)
            mine, peer = statistics.median(ours), statistics.median(theirs)
            row = (f"{work / mine:.1f}", f"{work / peer:.1f}", f"{peer / mine:.3f}", f"{low:.3f} to {high:.3f}")
            table.add_row(str(size), *row)
    Console(width=100).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
