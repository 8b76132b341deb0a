"""The simulated TPU: dots beside what their arrays and their bytes allow, other kernels beside their bytes, a GPT's
step on several chips.

    python -m benchmarks.tpu_sim [dots] [chips] [bandwidth]

Everything here is counted, not measured: it is the same on every host.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from benchmarks.tpu_kernels import FURTHER, KERNELS, BoundKernel
from benchmarks.words import one_of
from golden import bless
from passes import pipeline
from repro import ending
from repro.errors import ReproError
from repro.ir.graph import Graph, argument
from repro.ir.program import Program
from repro.ir.types import F32, TensorType
from repro.ops import dot
from repro.targets.tpu_sim import links
from repro.targets.tpu_sim.chips import Chip, chip, names
from repro.targets.tpu_sim.data_parallel import DataParallel
from repro.targets.tpu_sim.estimate import estimate

SIZES = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (256, 4096, 4096),
    (4096, 64, 4096),
)
SHARDS = 8


def dots(at: Chip) -> None:
    """Cycles of a generated product, over the least that its matrix units or its HBM traffic would take."""
    for m, k, n in SIZES:
        kinds = (TensorType(F32, (m, k)), TensorType(F32, (k, n)))
        left, right = (argument(number, kind) for number, kind in enumerate(kinds))
        profile = estimate(pipeline.run(Graph(kinds, (dot(left, right, ((1,), (0,))),))).program, at)
        array = m * k * n / (at.matrix_units * at.array**2)
        moved = 4 * (m * k + k * n + m * n) / at.hbm_bytes_per_cycle
        line = f"{at.name:4} {m}x{k}x{n}: {profile.cycles:,} cycles, array {array:,.0f}, HBM {moved:,.0f}"
        sys.stdout.write(f"{line}, {profile.cycles / max(array, moved):.2f} of the larger\n")


def chips(at: Chip) -> None:
    """The GPT example's training step with 8 virtual shards on 1, 2, 4 and 8 chips."""
    case = dict(bless.cases()["nano_gpt_trained"])
    case["training"] = {**case["training"], "shards": SHARDS}
    entry = next(each for each in bless.entries(case) if each.name == "train_step")
    rng = np.random.default_rng(0)
    inputs = [rng.integers(0, 9, port.type.shape).astype(port.type.dtype.storage) for port in entry.inputs]
    alone = 0
    for count in (1, 2, 4, 8):
        together = DataParallel(entry.graph, entry.updates, SHARDS, links.of(count, at), at)
        together.run(inputs, [[slot.initial.reshape(-1).copy() for slot in entry.parameters] for _ in range(count)])
        time = together.time()
        whole = time.computing + time.communicating
        alone = alone or whole
        line = f"{at.name:4} {count} chips: {time.computing:,} + {time.communicating:,} cycles over links"
        sys.stdout.write(f"{line}, {time.link_bytes:,} bytes; {alone / whole / count:.0%} of {count} times one\n")


def bandwidth() -> None:
    """Cycles of generated kernels over bytes / bandwidth, on every chip. In brackets, where the vector unit's passes
    alone take longer than the bytes: cycles over those."""
    sys.stdout.write(f"| kernel | kernels | {' | '.join(names())} |\n|{'---|' * (2 + len(names()))}\n")
    for each in (*KERNELS, *FURTHER):
        program = each.program()
        cells = (_beside_bytes(each, program, chip(name)) for name in names())
        sys.stdout.write(f"| {each.name}: {each.what} | {len(program.kernels)} | {' | '.join(cells)} |\n")
        sys.stdout.flush()


def _beside_bytes(kernel: BoundKernel, program: Program, at: Chip) -> str:
    try:
        profile = estimate(program, at)
    except ReproError:
        return "too large for VMEM"
    least = kernel.nbytes / at.hbm_bytes_per_cycle
    passes = profile.counts["passes"] / at.alu_slots
    return f"{profile.cycles / least:.2f}" + (f" ({profile.cycles / passes:.2f})" if passes > least else "")


def main(words: list[str]) -> None:
    parser, tables = argparse.ArgumentParser(description=__doc__), ["dots", "chips", "bandwidth"]
    parser.add_argument("tables", nargs="*", type=one_of("table", tables), metavar="TABLE", default=tables)
    wanted = parser.parse_args(words).tables
    if "bandwidth" in wanted:
        bandwidth()
    for name in ("v5e", "v6e"):
        for what in (dots, chips):
            if what.__name__ in wanted:
                what(chip(name))


if __name__ == "__main__":
    ending.run(main)
