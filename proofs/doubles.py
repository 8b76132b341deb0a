"""Measure the worst error of f64 functions in ulps, and record it: at most 1 is what the contract asks.

    python -m proofs.doubles [NAME...] [--points 100000000] [--seed 1]      writes golden/elementary/NAME.f64.json

Points are random and structured (proofs/points.py). The screens judge all of them natively where their bound holds;
MPFR then confirms the worst of those and a random part, and judges points outside by itself.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console

from proofs import records, ulps
from proofs.exhaustive import here, screen_digest
from proofs.native import Elementwise, elementwise_kernel
from proofs.points import Draws, Family, centres
from proofs.screens import SCREENS
from repro.artifact.canonical import hex64
from repro.errors import ReproError
from repro.ir.types import F64, Array
from repro.numerics.contract import CONTRACT_VERSION
from repro.numerics.elementary import FUNCTIONS
from repro.numerics.numpy_scalars import canonicalize
from repro.tables import console, line, show_error

BLOCK = 1 << 16
POINTS, SEED = 100_000_000, 1
"""Of a record, at least; and where their words begin."""
WORST = 1000
"""Points with the greatest errors by the screen, that MPFR confirms."""
CONFIRMED = 100_000
"""Random points that MPFR judges too."""
OUTSIDE = 40_000
"""Points where no screen's bound holds, judged by MPFR alone."""

SCHEMA = "doubles"

_USUAL: dict[str, tuple[float, float]] = {
    "exp": (-600.0, 600.0), "exp2": (-860.0, 860.0), "expm1": (-45.0, 600.0), "sinh": (-600.0, 600.0),
    "cosh": (-600.0, 600.0), "tanh": (-20.0, 20.0), "log1p": (-1.0, 8.0), "asinh": (-30.0, 30.0),
    "acosh": (1.0, 30.0), "atanh": (-1.0, 1.0), "sin": (-2000.0, 2000.0), "cos": (-2000.0, 2000.0),
    "tan": (-2000.0, 2000.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atan": (-20.0, 20.0), "erf": (-6.0, 6.0),
    "erfc": (-6.0, 10.5), "cbrt": (-8.0, 8.0),
}  # fmt: skip
"""Where points are uniform in value; else 0 to 8."""

_FAR: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": ((600.0, 710.0), (-746.0, -600.0)), "exp2": ((860.0, 1025.0), (-1076.0, -860.0)),
    "expm1": ((600.0, 710.0),), "sinh": ((600.0, 711.0),), "cosh": ((600.0, 711.0),), "erfc": ((10.5, 27.3),),
    "sin": ((2.0**128, math.inf),), "cos": ((2.0**128, math.inf),), "tan": ((2.0**128, math.inf),),
}  # fmt: skip
"""Intervals outside the screen's domain where the function still does something."""

SPECIAL = np.array(
    [0.0, 1.0, 2.0, 0.5, math.inf, math.nan, 2.0**-1074, 2.0**-1022, np.finfo(np.float64).max, 1 + 2**-52, 1 - 2**-53]
)


@dataclass
class Found:
    """What was measured: the worst point by the screen and by MPFR, and how many each judged."""

    screened: int = 0
    confirmed: int = 0
    worst: float = 0.0
    argument: float = 0.0
    results: str = ""
    candidates: list[tuple[float, float, float]] = field(default_factory=list[tuple[float, float, float]])
    """(error by the screen, argument, result), a heap of the worst."""


def _between(low: float, high: float, bound: float) -> tuple[float, float]:
    """The part of an interval of one sign whose magnitudes lie in 1/bound..bound: where most functions do most."""
    if low > 0.0:
        return max(low, 1 / bound), min(high, bound)
    return max(low, -bound), min(high, -1 / bound)


def families(name: str, draws: Draws) -> list[Family]:
    """The mixture of points inside the screen's domain, each family as often as it stands here."""
    ((low, high),) = SCREENS[name].domain
    least = 2.0**-329
    signed = [(max(low, least), high)] if high > least else []
    signed += [(low, min(high, -least))] if low < -least else []
    whole = [draws.in_bits(*ends) for ends in signed]
    middle = [draws.in_bits(*_between(a, b, 2.0**60)) for a, b in signed]
    short = [draws.short(a, b, bits) for a, b in signed for bits in (4, 12)]
    value = draws.in_value(*_USUAL.get(name, (0.0, 8.0)))
    near = draws.near(centres(name))
    return [*whole, *middle, *middle, *short, value, value, value, near, near, near]


class Measure:
    """One function with its screen, compiled."""

    def __init__(self, name: str) -> None:
        self.name, machine = name, here()
        self._results = Elementwise(lambda x: [FUNCTIONS[name](x)], [F64], machine, BLOCK)
        screen = SCREENS[name]
        self._errors = Elementwise(lambda y, x: ulps.screened(screen, y, x), [F64, F64], machine, BLOCK)
        self.found, self._digest = Found(), hashlib.sha256()

    def results(self, points: Array) -> Array:
        """The function; counted into the digest."""
        (results,) = self._results(points)
        results = np.asarray(canonicalize(results, F64))
        self._digest.update(results.astype("<f8", copy=False).tobytes())
        return results

    def screen(self, points: Array) -> None:
        """Judge points by the screen; the worst are kept for MPFR."""
        results = self.results(points)
        (errors,) = self._errors(results, points)
        self.found.screened += int(np.count_nonzero(errors == errors))
        errors = np.where(errors == errors, errors, np.float32(-1))
        floor = self.found.candidates[0][0] if len(self.found.candidates) == WORST else 0.0
        above = np.flatnonzero(errors > floor)
        if above.size > WORST:
            above = above[np.argpartition(errors[above], -WORST)[-WORST:]]
        for position in above:
            heapq.heappush(
                self.found.candidates, (float(errors[position]), float(points[position]), float(results[position]))
            )
            if len(self.found.candidates) > WORST:
                heapq.heappop(self.found.candidates)

    def confirm(self, points: Array, results: Array) -> None:
        """Judge points by MPFR."""
        for argument, result in zip(points.tolist(), results.tolist(), strict=True):
            error = ulps.exactly(self.name, [argument], result)
            self.found.confirmed += 1
            if error > self.found.worst:
                self.found.worst, self.found.argument = error, argument

    def finish(self) -> Found:
        candidates = np.array(sorted(self.found.candidates)).reshape(-1, 3)
        self.confirm(candidates[:, 1], candidates[:, 2])
        self.found.results = self._digest.hexdigest()
        return self.found


def outside(name: str, draws: Draws) -> Array:
    """Points for MPFR alone: special ones, all bit patterns, and the far intervals."""
    far = [draws.in_bits(*ends) for ends in _FAR.get(name, ())] or [draws.in_bits(-math.inf, math.inf)]
    anywhere = draws.words(OUTSIDE // 2).view(np.float64)
    return np.concatenate([SPECIAL, -SPECIAL, anywhere, *(family(OUTSIDE // 2 // len(far)) for family in far)])


def measure(name: str, count: int, seed: int) -> Found:
    """About `count` points by the screen; CONFIRMED of them, and OUTSIDE others, by MPFR."""
    draws, made = Draws(seed), Measure(name)
    mixture = families(name, draws)
    for number in range(max(len(mixture), count // BLOCK)):
        made.screen(mixture[number % len(mixture)](BLOCK))
    each = min(CONFIRMED, count) // len(mixture)
    for points in (*(family(each) for family in mixture), outside(name, draws)):
        made.confirm(points, made.results(points))
    return made.finish()


def code_digest(name: str) -> str:
    """sha256 (hex) of the f64 function's sequence."""
    return elementwise_kernel(lambda x: [FUNCTIONS[name](x)], [F64], 1).digest


def record(name: str, found: Found, count: int, seed: int) -> records.Record:
    return {
        "format": 1,
        "contract": CONTRACT_VERSION,
        "function": name,
        "dtype": "f64",
        "code": code_digest(name),
        "screen": {"code": screen_digest(name), "error_log2": SCREENS[name].error_log2},
        "points": {"asked": count, "seed": seed, "screen": found.screened, "mpfr": found.confirmed},
        "worst": {"argument": hex64(int(np.float64(found.argument).view(np.uint64))), "ulps": f"{found.worst:.6f}"},
        "results": found.results,
    }


def run(name: str, count: int, seed: int, to: Console) -> bool:
    """Measure and, where the error is at most 1 ulp and the points are enough, record."""
    started = time.perf_counter()
    found = measure(name, count, seed)
    good = found.worst <= 1.0
    if good and count >= POINTS:
        records.write(record(name, found, count, seed), f"{name}.f64", SCHEMA)
    line(
        to,
        f"{name}: {found.worst:.4f} ulp at {found.argument.hex()} ({found.screened:,} points by screen, "
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
    unknown = [name for name in chosen.names if name not in FUNCTIONS]
    if unknown:
        parser.error(f"no function {', '.join(unknown)}; there are {', '.join(FUNCTIONS)}")
    good = [run(name, chosen.points, chosen.seed, console()) for name in chosen.names or FUNCTIONS]
    return 0 if all(good) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ReproError as error:
        show_error(console(stderr=True), error)
        sys.exit(error.exit_code)
