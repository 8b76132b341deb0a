"""cbrt in f64: a start for the inverse cube root."""

from __future__ import annotations

from collections.abc import Iterator

from mpmath import cbrt, mpf

from tools.constants.minimax import minimax
from tools.constants.printing import header, polynomial, table

PATH = "repro/numerics/elementary/f64/roots_constants.py"


def lines() -> Iterator[str]:
    yield header("the f64 cube root")
    yield from polynomial("INVERSE_CBRT", minimax(lambda m: 1 / cbrt(m), 1, 2, range(5)), "m^(-1/3) on [1, 2]")
    octaves = [1 / cbrt(mpf(2) ** rest) for rest in (0, 1, 2, 2)]
    yield from table("INVERSE_CBRT_OCTAVES", octaves, "2^(-k/3), k = 0..2.")
