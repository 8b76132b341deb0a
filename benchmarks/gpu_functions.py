"""Every f32 function on a device, for every argument: are its results those that were proven?

    python -m benchmarks.gpu_functions [NAME...] [--target gpu] [--results FILE] [--resume] [--minutes N]

The records of the proofs (golden/elementary) hold digests of the results of all 2^32 arguments, by residue classes:
class r has the bit patterns x with x mod 256 = r. The device computes each class by the code that `build` makes for the
target, and the host compares the digests of what came back. erf(x / sqrt 2), whose quotient that code may leave out, is
compared with the record of CPU code that divides. It needs no PyTorch. Exit code 0: all results are the proven ones; 1:
some are not; 3: there is no device, or something did not run.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gpu_results, gpu_watched
from benchmarks.gpu_results import Results
from proofs.verdict import function_bits
from repro import ending
from repro.artifact.compiling import compile_programs
from repro.errors import EXIT_INCOMPLETE, EXIT_MISMATCH
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, OUTPUT, Buffer, Call, Program
from repro.ir.types import F32, I64, U32, Array
from repro.numerics.elementary import FUNCTIONS, quotients
from repro.numerics.elementary.value import Value
from repro.targets import registry
from repro.targets.gpu import driver
from repro.targets.protocol import Executable, Runner

RECORDS = Path(__file__).resolve().parents[1] / "golden" / "elementary"
CLASSES = 256
AHEAD = 4
"""Classes whose digests are computed while the device goes on."""


@dataclass(frozen=True)
class Proven:
    """A function, the file of its record, and the digests there: of each class's results, where it has them, and of all
    these digests."""

    function: Callable[[Expr], Expr]
    record: str
    classes: tuple[str, ...] | None
    results: str


def _proven(function: Callable[[Expr], Expr], record: str) -> Proven:
    document = json.loads((RECORDS / f"{record}.json").read_text("utf-8"))
    classes = document.get("classes")
    return Proven(function, record, None if classes is None else tuple(classes), document["results"])


def proven() -> Mapping[str, Proven]:
    """By the function's name, and that of erf(x / sqrt 2)."""
    found = {name: _proven(function, name) for name, function in FUNCTIONS.items()}
    for name in sorted(quotients.LEAVING):
        of_quotient = partial(_of_quotient, FUNCTIONS[name])
        found[f"{name} of x / sqrt(2)"] = _proven(of_quotient, f"{name}.tabled32.quotient")
    return found


def _of_quotient(function: Callable[[Expr], Expr], x: Expr) -> Expr:
    return function(quotients.quotient(x))


def program(function: Callable[[Expr], Expr], count: int = (1 << 32) // CLASSES) -> Program:
    """Bits of the results (u32) of a class's first arguments, whose residue is the input; every NaN is the canonical
    one."""
    axis = Axis(I64, (0, count), ())
    residue = Value(load(U32, 0, ix.number(0)))
    x = ((Value(axis).to(U32) << 8) | residue).as_bits(F32)
    bits = function_bits(Value(function(x.expr)))
    given, made = BufferParameter(U32, 1, False), BufferParameter(U32, count, True)
    kernel = Kernel((given, made), (), (axis,), 0, (Store(1, axis, bits.expr),))
    buffers = (Buffer(U32, 1, INPUT, 0), Buffer(U32, count, OUTPUT, 0))
    return Program((kernel,), buffers, (), (Call(0, (0, 1)),), 0)


def opened(made: Program, runner: Runner) -> Executable:
    """The program with the code that a build makes of it for the runner's target."""
    (compiled,) = compile_programs([(runner.code, made)], None, lambda *_: None)
    return runner.open(compiled, (), 1)


def digests(executable: Executable, residues: Iterable[int]) -> Iterator[str]:
    """sha256 (hex) of the results of each class, little-endian."""
    with ThreadPoolExecutor(AHEAD) as pool:
        waiting = list[Any]()
        for residue in residues:
            (results,) = executable.run([np.array([residue], np.uint32)])
            waiting.append(pool.submit(_digest, results))
            if len(waiting) > AHEAD:
                yield waiting.pop(0).result()
        yield from (each.result() for each in waiting)


def _digest(results: Array) -> str:
    return hashlib.sha256(results.astype("<u4", copy=False).data).hexdigest()


def tried(wanted: Proven, runner: Runner) -> dict[str, Any]:
    """All classes of a function: those that differ, where the record has each class's digest, and whether all are the
    proven ones."""
    executable = opened(program(wanted.function), runner)
    try:
        found = list(digests(executable, range(CLASSES)))
    finally:
        executable.close()
    results = hashlib.sha256(b"".join(map(bytes.fromhex, found))).hexdigest()
    pairs = enumerate(zip(found, wanted.classes or found, strict=True))
    differing = [residue for residue, (here, there) in pairs if here != there]
    return {"record": wanted.record, "results": results, "equal": results == wanted.results, "differing": differing}


def said(found: Mapping[str, Any]) -> str:
    if found["equal"]:
        return f"{found['case']}: the proven results for all 2^32 arguments"
    return f"{found['case']}: other results than the proven ones, classes {found['differing'] or 'not told'}"


def main(words: Sequence[str]) -> int:
    parser, known = gpu_results.parser("gpu_functions", __doc__), proven()
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--target", default="gpu", choices=["gpu", "gpu/graphics"])
    options = parser.parse_args(words)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    runner = registry.runner(options.target)
    obstacle = runner.obstacle()
    if obstacle is not None:
        sys.stderr.write(f"target {options.target} does not run here: {obstacle}\n")
        return EXIT_INCOMPLETE
    about = {"target": options.target, "device": None if runner.device is None else runner.device()}
    results = Results(options.results, about, options.resume, options.minutes, options.run, driver.lost)
    names = options.names or list(known)
    found = [results.tried(name, partial(tried, known[name], runner), said) for name in names]
    good = all(each["equal"] for each in found if each is not None)
    unfinished = results.finish()
    return unfinished if good else EXIT_MISMATCH


if __name__ == "__main__":
    ending.run(partial(gpu_watched.watched, "benchmarks.gpu_functions"))
