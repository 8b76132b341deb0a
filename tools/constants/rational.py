"""Quotients of polynomials with f64 coefficients, by interpolation at Chebyshev nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mpmath import cos, log, lu_solve, matrix, mpf, nstr, pi, polyval

from tools.constants.printing import table

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Quotient:
    """P/Q, lowest powers first, every coefficient an f64, Q(0) = 1."""

    top: tuple[float, ...]
    bottom: tuple[float, ...]

    def __call__(self, x: mpf) -> mpf:
        return polyval(self.top[::-1], x) / polyval(self.bottom[::-1], x)

    def error(self, function: Function, places: Sequence[mpf]) -> str:
        """The greatest relative error at the places, as a power of two, in exact arithmetic."""
        worst = max(abs(self(x) / function(x) - 1) for x in places)
        return f"2^{nstr(log(worst, 2), 4)}"


def nodes(count: int, low: float | mpf, high: float | mpf) -> list[mpf]:
    """Chebyshev's."""
    return [low + (high - low) / 2 * (1 - cos(pi * (2 * place + 1) / (2 * count))) for place in range(count)]


def interpolate(function: Function, places: Sequence[mpf], top: int, bottom: int) -> Quotient:
    """P of degree `top` over Q of degree `bottom` that take the function's values at top + bottom + 1 places."""
    size = top + bottom + 1
    system, right = matrix(size, size), matrix(size, 1)
    for row, x in enumerate(places):
        value = function(x)
        for power in range(top + 1):
            system[row, power] = x**power
        for power in range(1, bottom + 1):
            system[row, top + power] = -value * x**power
        right[row] = value
    solution = tuple(float(c) for c in lu_solve(system, right))
    return Quotient(solution[: top + 1], (1.0, *solution[top + 1 :]))


def lines_of(name: str, quotient: Quotient, what: str, error: str) -> Iterator[str]:
    """NAME_TOP and NAME_BOTTOM."""
    yield from table(f"{name}_TOP", quotient.top, "Lowest power first.")
    yield from table(f"{name}_BOTTOM", quotient.bottom, f"The quotient is {what}; error {error}.")
