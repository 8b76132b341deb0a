"""Operators over rows beside the elementary function that bounds them: how much of their time is the function's.

    python -m benchmarks.bounds [NAME...] [--rows 64 4096] [--rounds 40] [--record FILE]

Nanoseconds an element, one core: the code of the bare function from one array to another, and that of the operator's
program, in turn on the same normal samples (rows of 1,024), medians. Either is run so often in one call that 2^22
elements are computed, on the caller's thread: what surrounds a call in Python takes less than 1 % of it. 64 rows and
their results lie in the second-level cache, 4,096 (32 MiB) come from memory. *Of the function's speed* is the first
over the second: 1 where the operator takes no longer than its function. A softmax, a sigmoid and a GELU also divide
each element (rule 15), so that their share has a ceiling below 1; *divisions counted* is that of function and division
in one loop, `function(x) / sqrt(2)`, or of `function(x / sqrt(2))` where the division comes first. The cross-entropy
has a loss for each row, and its labels are constants. ONNX Runtime runs the same model, its own calls' overhead
included. Ratios are of medians, with the 95 % interval. A record has every sample (benchmarks/bounds_table.py).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.table import Table

import repro
from benchmarks import bounds_table
from benchmarks.bounds_table import Measured
from benchmarks.elementary import HERE, Run, bound, repeated, seconds, single
from benchmarks.words import one_of
from repro import ending
from repro.audit.environment import host
from repro.ir.expressions import Expr, apply, const
from repro.ir.program import Program
from repro.ir.types import F32
from repro.numerics.elementary import FUNCTIONS
from repro.tables import console

ROW = 1024
ELEMENTS, MOST_RUNS = 1 << 22, 64
"""Computed in one call, in as few runs as come to so many elements, or in so many."""
LOSS = "SoftmaxCrossEntropyLoss"
FUNCTIONS_OF = {
    "Softmax": "exp", "LogSoftmax": "exp", LOSS: "exp", "Sigmoid": "exp", "Gelu": "erf", "Tanh": "tanh",
}  # fmt: skip
DIVIDED, DIVIDED_FIRST = ("Softmax", "Sigmoid", "Gelu"), ("Gelu",)
ROOT_OF_TWO = 0x3FB504F3


def model(operator: str, rows: int) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, ROW])
    if operator == LOSS:
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows])
        labels = helper.make_tensor("labels", TensorProto.INT64, [rows], [row % ROW for row in range(rows)])
        node = helper.make_node(operator, ["x", "labels"], ["y"], reduction="none")
        graph = helper.make_graph([node], operator, [x], [y], [labels])
    else:
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, ROW])
        graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], operator, [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def program(proto: onnx.ModelProto) -> Program:
    """The model's program for the last machine that this host runs."""
    machine = HERE[-1]
    with tempfile.TemporaryDirectory() as folder:
        artifact = repro.build(proto, out=Path(folder) / "model.repro", targets=machine.name)
        return artifact.compiled("infer", machine.name).program


def measure(operator: str, rows: int, rounds: int) -> Measured:
    x = np.random.default_rng(1).standard_normal((rows, ROW)).astype(np.float32)
    flat, proto, function = x.reshape(-1), model(operator, rows), FUNCTIONS[FUNCTIONS_OF[operator]]

    def divided(argument: Expr) -> Expr:
        if operator in DIVIDED_FIRST:
            return function(apply("div", argument, const(F32, ROOT_OF_TWO)))
        return apply("div", function(argument), const(F32, ROOT_OF_TWO))

    programs = (single(function, x.size), single(divided, x.size), program(proto))
    times = max(1, min(MOST_RUNS, ELEMENTS // x.size))
    made = [repeated(once, flat, HERE[-1], times) for once in programs]
    runs: list[Run] = [lambda each=each: each.run([]) for each in made]
    peer = bound(proto, x)
    taken = [[*(seconds(run, 1) / times for run in runs), seconds(peer)] for _ in range(rounds)]
    for each in made:
        each.close()
    bare, divided_too, ours, theirs = (tuple(t / x.size * 1e9 for t in column) for column in zip(*taken, strict=True))
    divides = divided_too if operator in DIVIDED else None
    return Measured(operator, rows, FUNCTIONS_OF[operator], bare, divides, ours, theirs)


def record(found: Sequence[Measured]) -> str:
    """One line for the machine and the versions, then one for each measurement."""
    first = {
        "host": {**host(), "target": HERE[-1].name},
        "versions": {name: version(name) for name in ("numpy", "onnxruntime")},
    }
    return "".join(json.dumps(each) + "\n" for each in (first, *(each.json() for each in found)))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*FUNCTIONS_OF]
    parser.add_argument("names", nargs="*", type=one_of("operator", known), metavar="NAME", default=known)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 4096])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--record", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    found = [measure(name, rows, options.rounds) for rows in options.rows for name in options.names]
    table = Table(*bounds_table.HEAD, title=f"{HERE[-1].name}, rows of {ROW}, one core")
    for each in found:
        table.add_row(*bounds_table.cells(each))
    console().print(table)
    if options.record is not None:
        options.record.write_text(record(found), encoding="utf-8")


if __name__ == "__main__":
    ending.run(main)
