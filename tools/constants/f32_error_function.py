"""erf in f32: four polynomials, picked by lookups of their coefficients."""

from __future__ import annotations

from collections.abc import Iterator

from mpmath import erf, mpf, pi, sqrt

from tools.constants.minimax import Fit, minimax
from tools.constants.printing import header, scalar

PATH = "repro/numerics/elementary/f32/error_function_constants.py"
PIECES = 4
WIDTH = mpf(63) / 64
"""Four pieces reach 3.9375; from 3.9193 on erf rounds to 1."""
DEGREE = 15


def erf_over_argument(x: mpf) -> mpf:
    return erf(x) / x if x > mpf(2) ** -80 else 2 / sqrt(pi)


def piece(number: int) -> Fit:
    centre, half = number + mpf(1) / 2, mpf(1) / 2
    return minimax(lambda t: erf_over_argument((centre + t) * WIDTH), -half, half, range(DEGREE + 1))


def lines() -> Iterator[str]:
    fits = [piece(number) for number in range(PIECES)]
    yield header("the f32 error function")
    yield from scalar("PIECES_A_UNIT", 1 / WIDTH)
    yield "ERF_PIECES = ("
    for power in range(DEGREE + 1):
        yield "    ("
        yield from (f'        float.fromhex("{fit.coefficients[power].hex()}"),' for fit in fits)
        yield "    ),"
    yield ")"
    errors = ", ".join(fit.bits for fit in fits)
    yield '"""erf(x)/x in t, |t| <= 1/2, where x PIECES_A_UNIT = j + 1/2 + t: rows by power,'
    yield "the lowest first, columns by j;"
    yield f'errors {errors}."""'
