"""Every f32 argument of a function against its screen, by residue classes.

Class r holds the bit patterns x with x mod 256 == r, ascending: 2^24 arguments over all binades. In a class every
argument is decided in one of three ways: by a rule (proofs/rules.py), by the screen (the true value lies at least
2^-24 ulp inside the result's rounding interval, where the screen's error is below 2^-60 ulp), or by MPFR.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from proofs import mpfr, rules
from proofs.native import Elementwise, Scalars, elementwise_kernel
from proofs.screens import SCREENS
from proofs.verdict import function_bits, verdict
from repro.errors import InternalError
from repro.ir.expressions import Expr
from repro.ir.types import F32, F64, U32, Array
from repro.machines import Machine
from repro.numerics.elementary import FUNCTIONS
from repro.numerics.elementary.value import Value
from repro.targets import cpu

CLASSES = 256
BLOCK = 1 << 16
BLOCKS = (1 << 32) // (CLASSES * BLOCK)

HARD = 2.0**-24
"""Ulps: a true value nearer to a rounding boundary makes a hard case; it goes to MPFR too. About one argument
in 2^23 of those where the function does anything."""

MOST_WRONG = 1000
"""Arguments of a block that are sent to MPFR; a function with more has no need of a full list."""


def code_digest(name: str) -> str:
    """sha256 (hex) of the function's sequence: of the text of the kernel of one element."""
    return elementwise_kernel(lambda x: [FUNCTIONS[name](x)], [F32], 1).digest


def screen_digest(name: str) -> str:
    """sha256 (hex) of the screen's sequence, f64 operands to the two words."""
    screen = SCREENS[name]

    def words(*operands: Expr) -> Sequence[Expr]:
        pair = screen.function(*map(Value, operands))
        return [pair.high.expr, pair.low.expr]

    return elementwise_kernel(words, [F64] * len(screen.domain), 1).digest


def here() -> Machine:
    """The widest machine that this host runs."""
    machine = cpu.best_machine()
    if machine is None:
        raise InternalError("this host runs none of the CPU machines: a proof needs native code")
    return machine


def results_of(function: Callable[..., Expr]) -> Scalars:
    """The function's result by its bits."""
    return lambda *operands: [function_bits(Value(function(*operands))).expr]


@dataclass(frozen=True)
class Wrong:
    """An argument whose result is not the correctly rounded one; all by their bits."""

    argument: int
    result: int
    wanted: int


@dataclass
class Tally:
    """What a class (or several) showed."""

    rule: int = 0
    screen: int = 0
    mpfr: int = 0
    misroundings: int = 0
    """With those that `wrong` leaves out because a block had too many."""
    hard: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(argument, result), by their bits."""
    wrong: list[Wrong] = field(default_factory=list[Wrong])

    @property
    def inputs(self) -> int:
        return self.rule + self.screen + self.mpfr

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(Tally)))


def class_arguments(residue: int, first: int, count: int) -> Array:
    """`count` bit patterns (u32) of the class, from position `first` on."""
    return (np.arange(first, first + count, dtype=np.uint32) << np.uint32(8)) | np.uint32(residue)


class Prover:
    """One function with its screen, compiled. `function` may stand in for the one of that name."""

    def __init__(
        self, name: str, function: Callable[[Expr], Expr] | None = None, machine: Machine | None = None
    ) -> None:
        rules.check(name)
        self.name = name
        self._spans = rules.spans(name)
        chosen = machine or here()
        self.results = Elementwise(results_of(function or FUNCTIONS[name]), [F32], chosen, BLOCK)
        screen = SCREENS[name]
        self.slacks = Elementwise(lambda y, x: verdict(screen, y, x), [U32, F32], chosen, BLOCK)

    @cached_property
    def key(self) -> str:
        """Digest (hex) of all that a class's outcome depends on: machine code, rules, and the judge's own text."""
        parts = [*self.results.objects, *self.slacks.objects, repr(self._spans).encode()]
        parts += [Path(source).read_bytes() for source in (__file__, mpfr.__file__)]
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

    def run_class(self, residue: int) -> tuple[str, Tally]:
        """(sha256 (hex) of the class's results as little-endian u32, what it showed)."""
        digest, tally = hashlib.sha256(), Tally()
        for number in range(BLOCKS):
            arguments = class_arguments(residue, number * BLOCK, BLOCK)
            (results,) = self.results.block(arguments.view(np.float32))
            digest.update(results.astype("<u4", copy=False).data)
            self.judge(arguments, results, tally)
        return digest.hexdigest(), tally

    def class_digest(self, residue: int) -> str:
        """The digest alone."""
        digest = hashlib.sha256()
        for number in range(BLOCKS):
            arguments = class_arguments(residue, number * BLOCK, BLOCK)
            digest.update(self.results.block(arguments.view(np.float32))[0].astype("<u4", copy=False).data)
        return digest.hexdigest()

    def judge(self, arguments: Array, results: Array, tally: Tally) -> None:
        """Decide a block of ascending arguments and add it to the tally."""
        ruled, failed = self._by_rules(arguments, results)
        slack = np.ones(arguments.size, np.float32)
        screened = int(np.count_nonzero(~ruled))
        if screened:
            np.copyto(slack, self.slacks.block(results, arguments.view(np.float32))[0], where=~ruled)
        slack[failed] = -1.0
        open_ = np.flatnonzero(~(slack >= HARD))
        by_mpfr = int(np.count_nonzero(~ruled[open_]))
        tally.rule += arguments.size - screened
        tally.screen += screened - by_mpfr
        tally.mpfr += by_mpfr
        self._by_mpfr(arguments, results, slack, open_, tally)

    def _by_rules(self, arguments: Array, results: Array) -> tuple[Array, Array]:
        """Which arguments rules decide, and the positions of those whose results break one."""
        ruled = np.zeros(arguments.size, np.bool_)
        failed: list[Array] = []
        for first, last, wanted in self._spans:
            if first > arguments[-1] or last < arguments[0]:
                continue
            start, end = np.searchsorted(arguments, np.array([first, last], np.uint32) + np.array([0, 1], np.uint32))
            end = arguments.size if last == 0xFFFFFFFF else end
            ruled[start:end] = True
            failed.append(start + np.flatnonzero(results[start:end] != wanted))
        return ruled, np.concatenate(failed) if failed else np.zeros(0, np.int64)

    def _by_mpfr(self, arguments: Array, results: Array, slack: Array, positions: Array, tally: Tally) -> None:
        tally.misroundings += max(0, positions.size - MOST_WRONG)  # none of those is shown to be right
        for position in positions[:MOST_WRONG]:
            argument, result = int(arguments[position]), int(results[position])
            wanted = mpfr.rounded(self.name, [mpfr.from_bits(argument, F32)], F32)
            if wanted != result:
                tally.misroundings += 1
                tally.wrong.append(Wrong(argument, result, wanted))
            if abs(slack[position]) < HARD:
                tally.hard.append((argument, wanted))
