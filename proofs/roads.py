"""Show that a function's f32 road gives the proven results for every one of the 2^32 inputs, and record it.

    python -m proofs.roads [NAME...] [--workers 2]     writes golden/elementary/NAME.single.json

The record of a proof holds a digest of the results of each residue class. A road is right where its digests are those.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache

from proofs import records
from proofs.exhaustive import CLASSES, Prover
from proofs.native import elementwise_kernel
from repro.errors import ReproError
from repro.ir.loops import Expr
from repro.ir.types import F32
from repro.numerics.contract import CONTRACT_VERSION
from repro.numerics.elementary import single
from repro.numerics.elementary.value import Value
from repro.tables import console, line, show_error

ROADS = tuple(single.SEQUENCES)
"""Functions that have a second road."""


def road(name: str, operand: Expr) -> Expr:
    return single.SEQUENCES[name](Value(operand)).expr


def code_digest(name: str) -> str:
    """sha256 (hex) of the road's sequence: of the text of the kernel of one element."""
    return elementwise_kernel(lambda x: [road(name, x)], [F32], 1).digest


@lru_cache(maxsize=1)
def _prover(name: str) -> Prover:
    return Prover(name, lambda x: road(name, x))


def class_digest(name: str, residue: int) -> str:
    """sha256 (hex) of a class's results, as a proof's record has it."""
    return _prover(name).class_digest(residue)


def record_of(name: str) -> records.Record:
    """What is recorded where the digests of all classes are those of the proof."""
    proof = records.read(name, "every_input")
    return {
        "format": 1,
        "contract": CONTRACT_VERSION,
        "function": name,
        "dtype": "f32",
        "road": "single",
        "code": code_digest(name),
        "results": proof["results"],
    }


def differing(name: str, workers: int) -> list[int]:
    """Residue classes whose results are not the proven ones."""
    wanted = records.read(name, "every_input")["classes"]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        found = pool.map(class_digest, [name] * CLASSES, range(CLASSES))
        return [residue for residue, digest in enumerate(found) if digest != wanted[residue]]


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.roads", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="functions (default: all that have a second road)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    chosen, to = parser.parse_args(words), console()
    unknown = [name for name in chosen.names if name not in ROADS]
    if unknown:
        parser.error(f"no second road to {', '.join(unknown)}; there is one to {', '.join(ROADS)}")
    wrong = 0
    for name in chosen.names or ROADS:
        started = time.perf_counter()
        classes = differing(name, chosen.workers)
        wrong += len(classes)
        if classes:
            line(
                to, f"{name}: other results than the proven ones in classes {', '.join(map(str, classes))}", "bold red"
            )
            continue
        path = records.write(record_of(name), f"{name}.single", "road")
        taken = time.perf_counter() - started
        line(
            to,
            f"{name}: the proven results for {CLASSES << 24:,} inputs, in {taken:.1f} s; recorded in {path}",
            "green",
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ReproError as error:
        show_error(console(stderr=True), error)
        sys.exit(error.exit_code)
