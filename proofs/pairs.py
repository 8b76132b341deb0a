"""Show on many operand pairs that f32 pow and atan2 are correctly rounded, and record it.

    python -m proofs.pairs [pow] [atan2] [--pairs 2^30] [--seed 1] [--workers 2]

writes golden/elementary/NAME.json (for fewer pairs, nothing).

Pairs come in parts of 2^22, random and structured (proofs/pair_points.py), and one part is listed: special pairs, and
every exact power. As for functions of one operand, the screen decides natively and MPFR what it leaves open.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
from rich.console import Console

from proofs import mpfr, records
from proofs.exhaustive import BLOCK, HARD, here, results_of, screen_digest
from proofs.native import Elementwise, elementwise_kernel
from proofs.pair_points import CASES, FAMILIES, Pairs
from proofs.points import Draws
from proofs.screens import SCREENS
from proofs.verdict import verdict
from repro import ending
from repro.errors import ReproError
from repro.ir.expressions import Expr
from repro.ir.types import CANONICAL_NAN, F32, F64, U32, Array
from repro.numerics.contract import CONTRACT_VERSION
from repro.numerics.elementary import BINARY_FUNCTIONS
from repro.numerics.elementary.value import Value, select, trunc
from repro.tables import console, line

PART = 1 << 22
PAIRS, SEED = 1 << 30, 1
"""Random pairs of a proof, and where their words begin."""

SCHEMA = "pairs"
MOST_WRONG = 1000

Words = tuple[int, int, int]


@dataclass(frozen=True)
class Wrong:
    """A pair whose result is not the correctly rounded one; all by their bits."""

    operands: tuple[int, int]
    result: int
    wanted: int


@dataclass
class Part:
    """What one part showed."""

    code: tuple[str, str] = ("", "")
    """Digests of the function and the screen that ran, as the process that ran them has them."""
    digest: str = ""
    pairs: int = 0
    mpfr: int = 0
    misroundings: int = 0
    hard: list[Words] = field(default_factory=list[Words])
    """(operands, result), by their bits."""
    wrong: list[Wrong] = field(default_factory=list[Wrong])


def code_digest(name: str) -> str:
    """sha256 (hex) of the function's sequence of two f32 operands."""
    return elementwise_kernel(lambda *operands: [BINARY_FUNCTIONS[name](*operands)], [F32, F32], 1).digest


def pow_verdict(result: Expr, x: Expr, y: Expr) -> Sequence[Expr]:
    """The slack for any base: (-x)^y is x^y, negative for odd y, for whole y alone.

    The screen takes |x|; the result's sign is turned where y is odd. A negative finite base with a finite y that is
    not whole has no power: only a NaN is right, at a distance that nothing can narrow.
    """
    base, power, bits = Value(x), Value(y), Value(result)
    wide = power.to(F64)
    whole = trunc(wide).equals(wide)
    odd = whole & trunc(wide * 0.5).differs(wide * 0.5)
    turned = select((base < 0.0) & odd, bits ^ (1 << 31), bits)
    (found,) = verdict(SCREENS["pow"], turned.expr, abs(base).expr, y)
    undefined = (base < 0.0) & (abs(base) < float("inf")) & ~whole & (abs(power) < float("inf"))
    nothing = select(bits.equals(CANONICAL_NAN[F32]), Value(found).same(1.0), -1.0)
    return [select(undefined, nothing, Value(found)).expr]


VERDICTS: dict[str, Callable[..., Sequence[Expr]]] = {
    "pow": pow_verdict,
    "atan2": partial(verdict, SCREENS["atan2"]),
}


class PairProver:
    """One function with its screen, compiled. `function` may stand in for the one of that name."""

    def __init__(self, name: str, function: Callable[..., Expr] | None = None) -> None:
        self.name, machine = name, here()
        self.results = Elementwise(results_of(function or BINARY_FUNCTIONS[name]), [F32, F32], machine, BLOCK)
        self.slacks = Elementwise(VERDICTS[name], [U32, F32, F32], machine, BLOCK)

    def run(self, blocks: Iterator[Pairs]) -> Part:
        """Judge blocks of pairs, in their order."""
        part, digest = Part(), hashlib.sha256()
        for first, second in blocks:
            operands = first.view(np.float32), second.view(np.float32)
            (results,) = self.results(*operands)
            digest.update(results.astype("<u4", copy=False).tobytes())
            (slack,) = self.slacks(results, *operands)
            self._judge(first, second, results, slack, part)
        part.digest = digest.hexdigest()
        return part

    def _judge(self, first: Array, second: Array, results: Array, slack: Array, part: Part) -> None:
        positions = np.flatnonzero(~(slack >= HARD))
        part.pairs += first.size
        part.mpfr += positions.size
        for position in positions:
            operands, result = (int(first[position]), int(second[position])), int(results[position])
            wanted = mpfr.rounded(self.name, [mpfr.from_bits(bits, F32) for bits in operands], F32)
            if wanted != result:
                part.misroundings += 1
                part.wrong.append(Wrong(operands, result, wanted))
                if part.misroundings >= MOST_WRONG:
                    return
            if abs(slack[position]) < HARD:
                part.hard.append((*operands, wanted))


def blocks(name: str, seed: int, number: int) -> Iterator[Pairs]:
    """The random pairs of a part; part -1 is the listed ones."""
    if number < 0:
        yield CASES[name]()
        return
    draws, families = Draws(seed << 32 | number), FAMILIES[name]
    for block in range(PART // BLOCK):
        yield families[block % len(families)](draws, BLOCK)


@lru_cache(maxsize=2)
def _prover(name: str) -> PairProver:
    return PairProver(name)


@lru_cache(maxsize=2)
def _code(name: str) -> tuple[str, str]:
    return code_digest(name), screen_digest(name)


def run_part(name: str, seed: int, number: int) -> Part:
    part = _prover(name).run(blocks(name, seed, number))
    part.code = _code(name)
    return part


def run_parts(name: str, seed: int, count: int, workers: int) -> tuple[Part, list[Part]]:
    """The listed part, and `count` random ones in order."""
    task = partial(run_part, name, seed)
    if workers == 1:
        return task(-1), [task(number) for number in range(count)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        listed, *others = pool.map(task, range(-1, count))
    return listed, others


def record(name: str, seed: int, listed: Part, parts: Sequence[Part]) -> records.Record:
    """Hard cases are those of the random parts: listed pairs are hard by the thousand, being midpoints."""
    hard = sorted({case for part in parts for case in part.hard})
    everything = [listed, *parts]
    return {
        "format": 1,
        "contract": CONTRACT_VERSION,
        "function": name,
        "dtype": "f32",
        "code": code_digest(name),
        "screen": {"code": screen_digest(name), "error_log2": SCREENS[name].error_log2},
        "seed": seed,
        "counts": {
            "pairs": sum(part.pairs for part in everything),
            "listed": listed.pairs,
            "mpfr": sum(part.mpfr for part in everything),
            "hard": len(hard),
            "misroundings": sum(part.misroundings for part in everything),
        },
        "listed": listed.digest,
        "parts": [part.digest for part in parts],
        "results": records.digest_of_digests([part.digest for part in everything]),
        "hard": [[records.word(bits) for bits in case] for case in hard],
    }


def prove(name: str, pairs: int, seed: int, workers: int, to: Console) -> bool:
    """Run all parts; a record if every result was right and they are as many as a record needs."""
    started = time.perf_counter()
    listed, parts = run_parts(name, seed, max(1, pairs // PART), workers)
    wrong = [each for part in (listed, *parts) for each in part.wrong]
    for each in wrong[:100]:
        x, y = (records.word(bits) for bits in each.operands)
        line(to, f"  ({x}, {y}): {records.word(each.wanted)},  # found {records.word(each.result)}")
    made = record(name, seed, listed, parts)
    counts = made["counts"]
    if {part.code for part in (listed, *parts)} != {(made["code"], made["screen"]["code"])}:
        raise ReproError(f"{name} or its screen changed while it was proved", next="run the proof again")
    if not wrong and pairs >= PAIRS:
        line(to, f"{name}: recorded in {records.write(made, name, SCHEMA)}")
    line(
        to,
        f"{name}: {counts['misroundings']} misrounded of {counts['pairs']:,} pairs ({counts['mpfr']:,} by MPFR; "
        f"{counts['hard']} hard) in {time.perf_counter() - started:.1f} s",
        "bold red" if wrong else "green",
    )
    return not wrong


def count_of(text: str) -> int:
    """`1000000` or `2^30`."""
    base, _, exponent = text.partition("^")
    return int(base) ** int(exponent or 1)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.pairs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="functions (default: all)")
    parser.add_argument(
        "--pairs", type=count_of, default=PAIRS, help="random ones (default: 2^30; no record for fewer)"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args(words)
    unknown = [name for name in chosen.names if name not in BINARY_FUNCTIONS]
    if unknown:
        parser.error(f"no function {', '.join(unknown)}; there are {', '.join(BINARY_FUNCTIONS)}")
    names = chosen.names or list(BINARY_FUNCTIONS)
    right = [prove(name, chosen.pairs, chosen.seed, chosen.workers, console()) for name in names]
    return 0 if all(right) else 1


if __name__ == "__main__":
    ending.run(main)
