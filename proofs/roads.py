"""Show that a function's other roads give the proven results for every one of the 2^32 inputs, and record it.

    python -m proofs.roads [NAME...] [--workers 2]     writes golden/elementary/NAME.ROAD.json
    python -m proofs.roads [NAME...] --seldom          how many normal samples each road leaves to the first one

The record of a proof holds a digest of the results of each residue class. A road is right where its digests are those.
The road in pairs (`single`) is tried as the sequence that it is. Those by tables are tried as CPUs run them: the first
road's sequence is compiled for a machine that takes them, with what the emitter makes of lanes and of its seldom side.
A road to a function of x / sqrt(2) has no proof of its own: it is right where its digests are those of the division and
the first road, compiled for the same machine without tables.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from rich.console import Console

from proofs import records
from proofs.exhaustive import CLASSES, Prover
from proofs.native import elementwise_kernel
from proofs.report import counted
from repro import ending
from repro.ir.expressions import Expr, Rarely
from repro.ir.types import F32
from repro.machines import CPUS, Machine
from repro.numerics import interpret
from repro.numerics.contract import CONTRACT_VERSION
from repro.numerics.elementary import FUNCTIONS, quotients, single, tabled
from repro.numerics.elementary.value import Value
from repro.tables import console, line
from repro.targets import cpu
from repro.targets.llvm.roads import entries


@dataclass(frozen=True)
class Road:
    """Another way to a function, or to that of x / sqrt(2); `machine` is one that takes it of itself."""

    name: str
    kind: str
    sequence: Callable[[Value], Value]
    machine: Machine | None = None
    of_quotient: bool = False

    @property
    def record(self) -> str:
        return f"{self.name}.{self.kind}" + ".quotient" * self.of_quotient

    @property
    def missing(self) -> str | None:
        """Why it cannot be tried here, or None."""
        return None if self.machine is None else cpu.runs_here(self.machine)

    def first(self, operand: Expr) -> Expr:
        """What it is another way to."""
        return FUNCTIONS[self.name](quotients.quotient(operand) if self.of_quotient else operand)

    def of(self, operand: Expr) -> Expr:
        if self.of_quotient:
            return quotients.road(self.sequence, self.name, quotients.quotient(operand))[1]
        return self.sequence(Value(operand)).expr


def _tabled() -> dict[str, Road]:
    """By the widest table first; a machine for each."""
    found: dict[str, Road] = {}
    for machine in sorted(CPUS.values(), key=lambda each: -each.permute_bits):
        for name, sequence in tabled.ROADS.get(entries(machine), {}).items():
            for of_quotient in sorted({False, name in quotients.LEAVING}):
                road = Road(name, f"tabled{entries(machine)}", sequence, machine, of_quotient)
                found.setdefault(road.record, road)
    return found


ROADS = {road.record: road for road in (Road(n, "single", s) for n, s in single.SEQUENCES.items())} | _tabled()
"""By the name of their record."""


def code_digest(road: Road) -> str:
    """sha256 (hex) of the road's sequence: of the text of the kernel of one element."""
    return elementwise_kernel(lambda x: [road.of(x)], [F32], 1).digest


@lru_cache(maxsize=2)
def _prover(record: str, machine: Machine | None) -> Prover:
    road = ROADS[record]
    return Prover(road.name, road.of if machine is None else road.first, machine)


def class_digest(record: str, residue: int) -> str:
    """sha256 (hex) of a class's results, as a proof's record has it."""
    return _prover(record, ROADS[record].machine).class_digest(residue)


def wanted_digest(record: str, residue: int) -> str:
    """That of the first road's results: of the proof, or of the division and the proven road behind it."""
    road = ROADS[record]
    if not road.of_quotient:
        return records.read(road.name, "every_input")["classes"][residue]
    assert road.machine is not None
    return _prover(record, replace(road.machine, permute_bits=0)).class_digest(residue)


def record_of(road: Road, results: str) -> records.Record:
    """What is recorded where the digests of all classes are the wanted ones, whose digest `results` is."""
    return {
        "format": 1,
        "contract": CONTRACT_VERSION,
        "function": road.name,
        "dtype": "f32",
        "road": road.record.removeprefix(f"{road.name}."),
        "code": code_digest(road),
        "results": results,
    }


def tried(road: Road, workers: int) -> tuple[Sequence[int], str]:
    """Residue classes whose results are not the wanted ones, and the digest of all that are wanted."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        found, wanted = (
            list(pool.map(of, [road.record] * CLASSES, range(CLASSES))) for of in (class_digest, wanted_digest)
        )
    differing = [residue for residue in range(CLASSES) if found[residue] != wanted[residue]]
    return differing, records.digest_of_digests(wanted)


def undecided(road: Road, operand: Expr) -> Expr:
    """Whether the road leaves the operand to the first one: it says so inside of what it seldom does."""
    root = road.of(operand)
    assert isinstance(root, Rarely)
    return root.seldom.condition if isinstance(root.seldom, Rarely) else root.condition


def show_seldom(road: Road, to: Console) -> None:
    """Operations of every argument, and how many of 2^20 normal samples the first road is taken for."""
    samples = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    left = int(np.count_nonzero(interpret.evaluate(partial(undecided, road), [samples], [F32])))
    operand = interpret.argument(F32, 0)
    common, _ = counted(road.of(operand), [operand])
    line(to, f"{road.record}: {common} operations; one of {samples.size // left:,} takes the first road")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.roads", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="functions, or roads as their records are called")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--seldom", action="store_true", help="try nothing; say how seldom the first road is taken")
    chosen, to = parser.parse_args(words), console()
    known = {*ROADS, *(road.name for road in ROADS.values())}
    unknown = [name for name in chosen.names if name not in known]
    if unknown:
        parser.error(f"no other road to {', '.join(unknown)}; there is one to {', '.join(sorted(known))}")
    roads = [road for road in ROADS.values() if not chosen.names or {road.name, road.record} & {*chosen.names}]
    if chosen.seldom:
        for road in roads:
            show_seldom(road, to)
        return 0
    wrong = not_run = 0
    for road in roads:
        if road.missing is not None:
            not_run += 1
            line(to, f"{road.record}: not run: {road.missing}", "yellow")
            continue
        started = time.perf_counter()
        classes, results = tried(road, chosen.workers)
        wrong += len(classes)
        if classes:
            where = ", ".join(map(str, classes))
            line(to, f"{road.record}: other results than the proven ones in classes {where}", "bold red")
            continue
        path = records.write(record_of(road, results), road.record, "road")
        taken = f"{CLASSES << 24:,} inputs, in {time.perf_counter() - started:.1f} s"
        line(to, f"{road.record}: the proven results for {taken}; recorded in {path}", "green")
    return 1 if wrong else 3 if not_run else 0


if __name__ == "__main__":
    ending.run(main)
