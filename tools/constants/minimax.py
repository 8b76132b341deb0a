"""Minimax polynomials with f64 coefficients: Remez's exchange in mpmath, then rounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mpmath import cos, log, matrix, mp, mpf, nstr, pi

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """sum(coefficient * x^exponent) on [low, high], every coefficient an f64."""

    exponents: tuple[int, ...]
    coefficients: tuple[float, ...]
    error: mpf
    """Greatest weighted error of the rounded polynomial."""

    @property
    def bits(self) -> str:
        """The error as a power of two, for a comment."""
        return f"2^{nstr(log(self.error, 2), 4)}"


def minimax(
    function: Function, low: float | mpf, high: float | mpf, exponents: Sequence[int], weight: Function | None = None
) -> Fit:
    """The polynomial over `exponents` that keeps weight(x) |function(x) - p(x)| least on [low, high].

    Without a weight the error is relative to the function. The powers must form a Chebyshev system there: powers
    without 1 only on one side of 0. The rounded coefficients are not fitted again; `error` is that of the rounded
    polynomial in exact arithmetic.
    """
    weigh = weight or (lambda x: 1 / abs(function(x)))
    grid = [_stretch(t, mpf(low), mpf(high)) for t in _chebyshev(32 * (len(exponents) + 2))]
    target = [function(x) for x in grid]
    weights = [weigh(x) for x in grid]
    ordered = tuple(sorted(exponents))
    found = _exchange(grid, target, weights, ordered)
    rounded = {exponent: mpf(float(found[exponent])) for exponent in ordered}
    error = max(abs(e) for e in _errors(grid, target, weights, rounded))
    return Fit(ordered, tuple(float(rounded[e]) for e in ordered), error)


def _chebyshev(count: int) -> list[mpf]:
    return [-cos(pi * k / (count - 1)) for k in range(count)]


def _stretch(t: mpf, low: mpf, high: mpf) -> mpf:
    return (low + high) / 2 + t * (high - low) / 2


def _errors(
    grid: Sequence[mpf], target: Sequence[mpf], weights: Sequence[mpf], coefficients: Mapping[int, mpf]
) -> list[mpf]:
    return [
        w * (f - sum((c * x**e for e, c in coefficients.items()), mpf(0)))
        for x, f, w in zip(grid, target, weights, strict=True)
    ]


def _exchange(
    grid: Sequence[mpf], target: Sequence[mpf], weights: Sequence[mpf], exponents: Sequence[int]
) -> dict[int, mpf]:
    """Remez's exchange on the grid: the coefficients of the best polynomial."""
    count = len(exponents) + 1
    usable = [place for place, w in enumerate(weights) if w > 0]
    places = [usable[round(k * (len(usable) - 1) / (count - 1))] for k in range(count)]
    for _ in range(60):
        found, level = _solve(grid, target, weights, exponents, places)
        errors = _errors(grid, target, weights, found)
        if max(abs(e) for e in errors) <= abs(level) * (1 + mpf(2) ** -10):
            return found
        places = _alternating(errors, count)
        if len(places) < count:
            break
    raise ArithmeticError(f"no best polynomial over the powers {exponents}")


def _solve(
    grid: Sequence[mpf], target: Sequence[mpf], weights: Sequence[mpf], exponents: Sequence[int], places: Sequence[int]
) -> tuple[dict[int, mpf], mpf]:
    """Coefficients whose weighted error at the places alternates between +level and -level."""
    size = len(places)
    system, right = matrix(size, size), matrix(size, 1)
    for row, place in enumerate(places):
        for column, exponent in enumerate(exponents):
            system[row, column] = grid[place] ** exponent
        system[row, size - 1] = (-1) ** row / weights[place]
        right[row] = target[place]
    solution = mp.lu_solve(system, right)
    return dict(zip(exponents, list(solution)[:-1], strict=True)), solution[size - 1]


def _alternating(errors: Sequence[mpf], count: int) -> list[int]:
    """The greatest error of every run of one sign, cut to the `count` neighbours that hold the greatest ones."""
    runs: list[int] = []
    for place, error in enumerate(errors):
        if error == 0:
            continue
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = place
        else:
            runs.append(place)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs
