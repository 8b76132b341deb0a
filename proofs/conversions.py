"""Show that f32 is rounded to each narrow float as its exact value in f64 is, for every one of the 2^32 inputs, and
that each narrow code becomes its value in f32.

    python -m proofs.conversions [--blocks 65536]     on every CPU machine that runs here

f64 is rounded by integer code that is tried against NumPy's model in the tests. From f32 there are shorter ways: the
same steps on integers of 32 bits, and for f16 the machine's own instructions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from proofs.native import Elementwise
from repro import ending
from repro.errors import ReproError
from repro.ir.expressions import convert
from repro.ir.types import F32, F64, DType
from repro.machines import CPUS, Machine
from repro.numerics.narrow_formats import NARROW
from repro.numerics.numpy_convert import convert as model
from repro.numerics.numpy_scalars import canonicalize
from repro.tables import console, line
from repro.targets import cpu

BLOCK = 1 << 16
BLOCKS = (1 << 32) // BLOCK


def rounded_otherwise(narrow: DType, machine: Machine, blocks: int = BLOCKS) -> int:
    """Inputs of so many blocks, spread over all, that are not rounded as their value in f64 is."""
    both = Elementwise(lambda x: [convert(x, narrow), convert(convert(x, F64), narrow)], [F32], machine, BLOCK)
    block, step, wrong = np.arange(BLOCK, dtype=np.uint32), BLOCKS // blocks, 0
    for number in range(0, step * blocks, step):
        direct, by_f64 = both.block((block + np.uint32(number * BLOCK)).view(np.float32))
        wrong += int(np.count_nonzero(bits(direct, narrow) != bits(by_f64, narrow)))
    return wrong


def widened_otherwise(narrow: DType, machine: Machine) -> int:
    """Codes that do not become their value in f32 (any NaN for NaN)."""
    codes = np.arange(1 << narrow.bits, dtype=f"u{narrow.bytes}").view(narrow.storage)
    (found,) = Elementwise(lambda x: [convert(x, F32)], [narrow], machine, codes.size).block(codes)
    wanted = model(codes, narrow, F32)
    return int(np.count_nonzero(bits(canonicalize(found, F32), F32) != bits(wanted, F32)))


def bits(array: np.ndarray, dtype: DType) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{dtype.bytes}")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m proofs.conversions", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="try only so many blocks of 65,536 inputs")
    chosen, to = parser.parse_args(words), console()
    machines = [machine for machine in CPUS.values() if cpu.runs_here(machine) is None]
    if not machines:
        raise ReproError("this host runs none of the CPU machines: a proof needs native code")
    wrong = 0
    for machine in machines:
        for narrow in NARROW:
            started = time.perf_counter()
            found = rounded_otherwise(narrow, machine, chosen.blocks) + widened_otherwise(narrow, machine)
            wrong += found
            tried = f"{chosen.blocks * BLOCK:,} inputs and {1 << narrow.bits:,} codes"
            said = f"{found:,} of {tried} differ" if found else f"the same bits for {tried}"
            taken = f"in {time.perf_counter() - started:.1f} s"
            line(to, f"{machine.name}, f32 and {narrow}: {said}, {taken}", "bold red" if found else "green")
    return 1 if wrong else 0


if __name__ == "__main__":
    ending.run(main)
