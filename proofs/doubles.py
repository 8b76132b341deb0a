"""Measure the worst error of f64 functions in ulps, and record it: at most 1 is what the contract asks.

    python -m proofs.doubles [NAME...] [--points 100000000] [--seed 1]      writes golden/elementary/NAME.f64.json

Points are random and structured (proofs/double_points.py). The screens judge them natively where their bound holds;
MPFR then confirms the worst of those and a random part, and judges points outside by itself.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console

from proofs import mpfr, records, ulps
from proofs.double_points import families, outside
from proofs.exhaustive import here, screen_digest
from proofs.native import Elementwise, elementwise_kernel
from proofs.points import Draws
from proofs.screens import SCREENS
from repro import ending
from repro.artifact.canonical import hex64
from repro.ir.expressions import Expr
from repro.ir.types import F64, Array
from repro.numerics.contract import CONTRACT_VERSION
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS
from repro.numerics.numpy_scalars import canonicalize
from repro.tables import console, line

BLOCK = 1 << 16
POINTS, SEED = 100_000_000, 1
"""Of a record, at least; and where their words begin."""
WORST = 1000
"""Points with the greatest errors by the screen, that MPFR confirms."""
CONFIRMED = 100_000
"""Random points that MPFR judges too."""

SCHEMA = "doubles"

EVERY: dict[str, Callable[..., Expr]] = {**FUNCTIONS, **BINARY_FUNCTIONS}

Candidate = tuple[float, tuple[float, ...], float]
"""Error by the screen, arguments, result."""


@dataclass
class Found:
    """What was measured: the worst point by the screen and by MPFR, and how many each judged."""

    screened: int = 0
    confirmed: int = 0
    worst: float = 0.0
    arguments: tuple[float, ...] = ()
    results: str = ""
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    """A heap of the worst by the screen."""


class Measure:
    """One function with its screen, compiled. Points are arrays of (operand, point)."""

    def __init__(self, name: str) -> None:
        self.name, machine, screen = name, here(), SCREENS[name]
        operands = [F64] * len(screen.domain)
        self._results = Elementwise(lambda *x: [EVERY[name](*x)], operands, machine, BLOCK)
        self._errors = Elementwise(lambda y, *x: ulps.screened(screen, y, *x), [F64, *operands], machine, BLOCK)
        self.found, self._digest = Found(), hashlib.sha256()

    def results(self, points: Array) -> Array:
        """The function; counted into the digest."""
        (results,) = self._results(*points)
        results = np.asarray(canonicalize(results, F64))
        self._digest.update(results.astype("<f8", copy=False).tobytes())
        return results

    def screen(self, points: Array) -> None:
        """Judge points by the screen; the worst are kept for MPFR."""
        results = self.results(points)
        (errors,) = self._errors(results, *points)
        self.found.screened += int(np.count_nonzero(errors == errors))
        errors = np.where(errors == errors, errors, np.float32(-1))
        kept = self.found.candidates
        above = np.flatnonzero(errors > (kept[0][0] if len(kept) == WORST else 0.0))
        if above.size > WORST:
            above = above[np.argpartition(errors[above], -WORST)[-WORST:]]
        for position in above:
            arguments = tuple(points[:, position].tolist())
            heapq.heappush(kept, (float(errors[position]), arguments, float(results[position])))
            if len(kept) > WORST:
                heapq.heappop(kept)

    def confirm(self, points: Iterable[tuple[float, ...]], results: Iterable[float]) -> None:
        """Judge points by MPFR."""
        for arguments, result in zip(points, results, strict=True):
            error = ulps.exactly(self.name, arguments, result)
            self.found.confirmed += 1
            if error > self.found.worst:
                self.found.worst, self.found.arguments = error, arguments

    def finish(self) -> Found:
        kept = self.found.candidates
        self.confirm([arguments for _, arguments, _ in kept], [result for _, _, result in kept])
        self.found.results = self._digest.hexdigest()
        return self.found


def measure(name: str, count: int, seed: int) -> Found:
    """About `count` points by the screen; CONFIRMED of them, and others outside its domain, by MPFR."""
    draws, made = Draws(seed), Measure(name)
    mixture = families(name, draws)
    for number in range(max(len(mixture), count // BLOCK)):
        made.screen(mixture[number % len(mixture)](BLOCK))
    each = min(CONFIRMED, count) // len(mixture)
    for points in (*(family(each) for family in mixture), outside(name, draws)):
        made.confirm(zip(*points.tolist(), strict=True), made.results(points).tolist())
    return made.finish()


def code_digest(name: str) -> str:
    """sha256 (hex) of the f64 function's sequence."""
    return elementwise_kernel(lambda *x: [EVERY[name](*x)], [F64] * len(SCREENS[name].domain), 1).digest


def record(name: str, found: Found, count: int, seed: int) -> records.Record:
    return {
        "format": 1,
        "contract": CONTRACT_VERSION,
        "function": name,
        "dtype": "f64",
        "code": code_digest(name),
        "screen": {"code": screen_digest(name), "error_log2": SCREENS[name].error_log2},
        "points": {"asked": count, "seed": seed, "screen": found.screened, "mpfr": found.confirmed},
        "worst": {
            "arguments": [hex64(mpfr.to_bits(each, F64)) for each in found.arguments],
            "ulps": f"{found.worst:.6f}",
        },
        "results": found.results,
    }


def run(name: str, count: int, seed: int, to: Console) -> bool:
    """Measure and, where the error is at most 1 ulp and the points are enough, record."""
    started = time.perf_counter()
    found = measure(name, count, seed)
    good = found.worst <= 1.0
    if good and count >= POINTS:
        records.write(record(name, found, count, seed), f"{name}.f64", SCHEMA)
    where = ", ".join(each.hex() for each in found.arguments)
    line(
        to,
        f"{name}: {found.worst:.4f} ulp at ({where}) ({found.screened:,} points by screen, "
        f"{found.confirmed:,} by MPFR) in {time.perf_counter() - started:.1f} s",
        "green" if good else "bold red",
    )
    return good


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.doubles", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="functions (default: all)")
    parser.add_argument("--points", type=int, default=POINTS, help="(default: 10^8; no record for fewer)")
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args(words)
    unknown = [name for name in chosen.names if name not in EVERY]
    if unknown:
        parser.error(f"no function {', '.join(unknown)}; there are {', '.join(EVERY)}")
    good = [run(name, chosen.points, chosen.seed, console()) for name in chosen.names or EVERY]
    return 0 if all(good) else 1


if __name__ == "__main__":
    ending.run(main)
