"""Elementary functions on one core, arrays in L2, beside NumPy, PyTorch and ONNX Runtime in one run.

    python -m benchmarks.elementary [NAME...] [--elements 65536] [--rounds 40] [--json FILE]

Nanoseconds an element: the median over rounds in which everybody runs in turn on the same f32 array, writing into an
array of its own that exists before. Ours are compiled kernels, called as a session calls them; a peer that is not
installed, or has no such function, has a dash. `x exp` is our time over our exp's. Peers round correctly in no mode.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from rich.table import Table

from benchmarks.words import one_of
from passes.schedule import schedule
from repro import ending
from repro.ir.expressions import Axis, Expr, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, OUTPUT, PARAMETER, Buffer, Call, Program
from repro.ir.types import F32, I64, Array
from repro.machines import CPUS, Machine
from repro.numerics.elementary import FUNCTIONS
from repro.numerics.elementary.value import Value
from repro.runtime.session import CpuExecutable
from repro.tables import console
from repro.targets import cpu

Run = Callable[[], object]
HERE = [machine for machine in CPUS.values() if cpu.runs_here(machine) is None]
ONNX_NAMES = {
    "exp": "Exp", "log": "Log", "tanh": "Tanh", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "sigmoid": "Sigmoid",
}  # fmt: skip
NUMPY_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip
RANGES = {
    "log": (0.0, 100.0), "log2": (0.0, 100.0), "log10": (0.0, 100.0), "log1p": (-1.0, 100.0), "asin": (-1.0, 1.0),
    "acos": (-1.0, 1.0), "atanh": (-1.0, 1.0), "acosh": (1.0, 100.0), "rsqrt": (0.0, 100.0), "sin": (-65536.0, 65536.0),
    "cos": (-65536.0, 65536.0), "erf": (-4.0, 4.0), "erfc": (-4.0, 10.0), "tanh": (-10.0, 10.0),
}  # fmt: skip
"""Arguments are uniform in these; elsewhere in (-20, 20)."""


def sigmoid(x: Value) -> Value:
    """The composite's formula: 1 / (1 + exp(-x)) in f32."""
    return 1.0 / (1.0 + Value(FUNCTIONS["exp"]((-x).expr)))


@dataclass(frozen=True)
class Row:
    name: str
    times: dict[str, float]
    """Nanoseconds an element, by who ran."""


def single(what: str | Callable[[Expr], Expr], elements: int) -> Program:
    """A program that computes a function of its input, by name or as an expression, into its output."""
    axis = Axis(I64, (0, elements), ())
    argument = load(F32, 0, axis)
    value = _named(what, argument) if isinstance(what, str) else what(argument)
    parameters = (BufferParameter(F32, elements, False), BufferParameter(F32, elements, True))
    kernel = Kernel(parameters, (), (axis,), 0, (Store(1, axis, value),))
    buffers = (Buffer(F32, elements, INPUT, 0), Buffer(F32, elements, OUTPUT, 0))
    return Program((kernel,), buffers, (), (Call(0, (0, 1)),), 0)


def ours(what: str | Callable[[Expr], Expr], x: Array, machine: Machine) -> CpuExecutable:
    """An executable that computes a function of x into an array of its own, again and again."""
    return repeated(single(what, x.size), x, machine, 1)


def repeated(once: Program, x: Array, machine: Machine, times: int) -> CpuExecutable:
    """A program of one input and one output that a run makes so many times, on arrays that are bound before."""
    place = {INPUT: 0, OUTPUT: 1}
    buffers = tuple(
        replace(each, role=PARAMETER, position=place[each.role]) if each.role in place else each
        for each in once.buffers
    )
    made = executable(replace(once, buffers=buffers, steps=once.steps * times), machine)
    made.set_parameter(0, x)
    made.set_parameter(1, np.zeros(next(each.elements for each in once.buffers if each.role == OUTPUT), np.float32))
    return made


def _named(name: str, argument: Expr) -> Expr:
    return sigmoid(Value(argument)).expr if name == "sigmoid" else FUNCTIONS[name](argument)


def executable(program: Program, machine: Machine) -> CpuExecutable:
    """The program for one thread, the caller's own, by the cost model's schedules."""
    chosen = [schedule(kernel, machine) for kernel in program.kernels]
    objects = [cpu.compile_kernel(k.text, each, machine) for k, each in zip(program.kernels, chosen, strict=True)]
    objects.append(cpu.compile_program(program, chosen, machine))
    return CpuExecutable(program, cpu.Code(objects), 1, instructions=0)


def numpy_call(name: str, x: Array) -> Run | None:
    function = getattr(np, NUMPY_NAMES.get(name, name), None)
    if function is None:
        return None
    out = np.empty_like(x)
    return lambda: function(x, out=out)


def torch_call(name: str, x: Array) -> Run | None:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    function = getattr(torch, name, None)
    if function is None:
        return None
    given, out = torch.from_numpy(x), torch.empty(x.size)
    return lambda: function(given, out=out)


def onnxruntime_call(name: str, x: Array) -> Run | None:
    if name not in ONNX_NAMES:
        return None
    a, b = (helper.make_tensor_value_info(v, TensorProto.FLOAT, [x.size]) for v in "ab")
    graph = helper.make_graph([helper.make_node(ONNX_NAMES[name], ["a"], ["b"])], name, [a], [b])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return bound(model, x)


def bound(model: onnx.ModelProto, x: Array) -> Run:
    """ONNX Runtime on one thread, the model's input and its one output bound to arrays."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding, graph = session.io_binding(), model.graph
    binding.bind_ortvalue_input(graph.input[0].name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
    y = np.empty([axis.dim_value for axis in graph.output[0].type.tensor_type.shape.dim], np.float32)
    binding.bind_ortvalue_output(graph.output[0].name, onnxruntime.OrtValue.ortvalue_from_numpy(y))
    return lambda: session.run_with_iobinding(binding)


def measure(name: str, elements: int, rounds: int) -> Row:
    low, high = RANGES.get(name, (-20.0, 20.0))
    x = np.random.default_rng(1).uniform(low, high, elements).astype(np.float32)
    executables = [ours(name, x, machine) for machine in HERE]
    calls: dict[str, Run | None] = {
        machine.name.removeprefix("cpu/"): (lambda run=made.run: run([]))
        for machine, made in zip(HERE, executables, strict=True)
    }
    calls |= {"NumPy": numpy_call(name, x), "PyTorch": torch_call(name, x), "ONNX Runtime": onnxruntime_call(name, x)}
    times: dict[str, list[float]] = {who: [] for who, call in calls.items() if call is not None}
    with np.errstate(all="ignore"):
        for _ in range(rounds):
            for who in times:
                times[who].append(seconds(calls[who]))
    for made in executables:
        made.close()
    return Row(name, {who: statistics.median(each) / elements * 1e9 for who, each in times.items()})


def seconds(call: Run | None, repeats: int = 5) -> float:
    """Of one call, on average."""
    assert call is not None
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def show(rows: list[Row], elements: int) -> None:
    own = [machine.name.removeprefix("cpu/") for machine in HERE]
    peers = ["NumPy", "PyTorch", "ONNX Runtime"]
    columns = ["function"]
    for who in own:
        columns += [who, "x exp"]
    table = Table(*columns, *peers, title=f"ns an element, f32, {elements} elements, one core")
    base = next((row for row in rows if row.name == "exp"), None)
    for row in rows:
        cells = [row.name]
        for who in own:
            cells += [f"{row.times[who]:.3f}", "-" if base is None else f"{row.times[who] / base.times[who]:.2f}"]
        cells += [f"{row.times[who]:.3f}" if who in row.times else "-" for who in peers]
        table.add_row(*cells)
    console().print(table)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [*FUNCTIONS, "sigmoid"]
    parser.add_argument("names", nargs="*", type=one_of("function", known), metavar="NAME", default=known)
    parser.add_argument("--elements", type=int, default=65536)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    rows = [measure(name, options.elements, options.rounds) for name in options.names]
    show(rows, options.elements)
    if options.json is not None:
        options.json.write_text(json.dumps({row.name: row.times for row in rows}, indent=1) + "\n")


if __name__ == "__main__":
    ending.run(main)
