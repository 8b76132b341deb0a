"""Operators over rows beside the elementary function that bounds them: how much of their time is the function's.

    python -m benchmarks.bounds [NAME...] [--rows 64] [--rounds 40]

Nanoseconds an element, one core: the bare function from one array to another, and the operator's program, in turn on
the same normal samples (rows of 1,024), medians. `share` is the first over the second: 1 where the operator takes no
longer than its function. A softmax also divides each element (rule 15), so that its share has a ceiling below 1;
`divided` is the share of function and bare division together. ONNX Runtime runs the same model.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

import repro
from benchmarks.elementary import HERE, Run, bound, executable, ours, seconds
from repro.ir.expressions import apply, const
from repro.ir.types import F32
from repro.runtime.session import CpuExecutable

ROW = 1024
FUNCTIONS_OF = {"Softmax": "exp", "LogSoftmax": "exp", "Sigmoid": "exp", "Gelu": "erf", "Tanh": "tanh"}
DIVIDED = ("Softmax", "Sigmoid")


@dataclass(frozen=True)
class Times:
    """Nanoseconds an element."""

    function: float
    division: float
    operator: float
    peer: float


def model(operator: str, rows: int) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, ROW]) for name in "xy")
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], operator, [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def program(proto: onnx.ModelProto) -> CpuExecutable:
    """The model's program as the last machine that this host runs does it."""
    machine = HERE[-1]
    with tempfile.TemporaryDirectory() as folder:
        artifact = repro.build(proto, out=Path(folder) / "model.repro", targets=machine.name)
        return executable(artifact.compiled("infer", machine.name).program, machine)


def measure(operator: str, rows: int, rounds: int) -> Times:
    x = np.random.default_rng(1).standard_normal((rows, ROW)).astype(np.float32)
    flat, proto, machine = x.reshape(-1), model(operator, rows), HERE[-1]
    third = const(F32, 0x40400000)
    made = [
        ours(FUNCTIONS_OF[operator], flat, machine),
        ours(lambda argument: apply("div", argument, third), flat, machine),
        program(proto),
    ]
    runs: list[Run] = [lambda: made[0].run([]), lambda: made[1].run([]), lambda: made[2].run([flat]), bound(proto, x)]
    taken = [[seconds(run) for run in runs] for _ in range(rounds)]
    for each in made:
        each.close()
    return Times(*(statistics.median(column) / x.size * 1e9 for column in zip(*taken, strict=True)))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[*FUNCTIONS_OF])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(arguments)
    columns = ("operator", "function", "ns", "operator, ns", "share", "divided", "ONNX Runtime, ns")
    table = Table(*columns, title=f"{HERE[-1].name}, {options.rows} rows of {ROW}, one core")
    for name in options.names:
        times = measure(name, options.rows, options.rounds)
        both = (times.function + times.division) / times.operator if name in DIVIDED else None
        cells = [f"{times.function:.3f}", f"{times.operator:.3f}", f"{times.function / times.operator:.2f}"]
        cells += ["-" if both is None else f"{both:.2f}", f"{times.peer:.3f}"]
        table.add_row(name, FUNCTIONS_OF[name], *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
