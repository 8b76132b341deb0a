"""tan in f32: a quotient of two polynomials on half an octant to either side."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mpmath import cos, log, lu_solve, matrix, mpf, nstr, pi, polyval, sqrt, tan

from tools.constants.printing import header, parts, scalar, table

PATH = "repro/numerics/elementary/f32/tangent_constants.py"
TOP, BOTTOM = 3, 3
"""Degrees of numerator and denominator."""


def tangent_over_argument(z: mpf) -> mpf:
    return tan(sqrt(z)) / sqrt(z) if z > mpf(2) ** -100 else 1 + z / 3


def nodes(count: int, end: mpf) -> list[mpf]:
    """Chebyshev's, on [0, end]."""
    return [end / 2 * (1 - cos(pi * (2 * place + 1) / (2 * count))) for place in range(count)]


def quotient(function: Callable[[mpf], mpf], end: mpf, top: int, bottom: int) -> tuple[list[float], list[float]]:
    """P and Q, Q(0) = 1, with P/Q = f at the nodes; lowest powers first."""
    size = top + bottom + 1
    system, right = matrix(size, size), matrix(size, 1)
    for row, z in enumerate(nodes(size, end)):
        value = function(z)
        for power in range(top + 1):
            system[row, power] = z**power
        for power in range(1, bottom + 1):
            system[row, top + power] = -value * z**power
        right[row] = value
    solution = [float(c) for c in lu_solve(system, right)]
    return solution[: top + 1], [1.0, *solution[top + 1 :]]


def lines() -> Iterator[str]:
    end = (pi / 4 * (1 + mpf(2) ** -20)) ** 2
    yield header("the f32 tangent")
    yield from scalar("TWO_OVER_PI", 2 / pi)
    high, low = parts(pi / 2, 2)
    yield from scalar("HALF_PI", high)
    yield from scalar("HALF_PI_LOW", low)
    p, q = quotient(tangent_over_argument, end, TOP, BOTTOM)
    error = max(abs(polyval(p[::-1], z) / polyval(q[::-1], z) / tangent_over_argument(z) - 1) for z in nodes(400, end))
    yield from table("NUMERATOR", p, "P, lowest power first.")
    bits = nstr(log(error, 2), 4)
    yield from table("DENOMINATOR", q, f"Q: tan(r)/r = P/Q in r^2 for |r| <= pi/4; error 2^{bits}.")
