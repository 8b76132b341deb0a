"""erf and erfc in f64: erf around 0, and what e^(-x^2) leaves of erfc on eight pieces of 15/16/(1 + 2x)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mpmath import diff, erf, erfc, exp, mpf, pi, sqrt, workprec

from tools.constants.minimax import Fit, minimax
from tools.constants.printing import header, parts, polynomial, scalar, table

PATH = "repro/numerics/elementary/f64/error_function_constants.py"
_NEAR_ZERO = mpf(2) ** -60
_NEAR = mpf(57) / 128
_NUMERATOR = mpf(15) / 16
_PIECES = 8
_LAST = mpf(28)
_TERMS = 13


def erf_rest(z: mpf) -> mpf:
    """(erf(x)/x - 2/sqrt(pi))/x^2 in z = x^2."""
    first = 2 / sqrt(pi)
    if z < _NEAR_ZERO:
        return first * (z / 10 - mpf(1) / 3)
    return (erf(sqrt(z)) / sqrt(z) - first) / z


def smooth(v: mpf) -> mpf:
    """e^(x^2) erfc(x) / v with v = (15/16)/(1 + 2x)."""
    x = (_NUMERATOR / v - 1) / 2
    with workprec(400):
        return exp(x * x) * erfc(x) / v


def slope_from(centre: mpf) -> Callable[[mpf], mpf]:
    """(S(centre + d) - S(centre))/d."""
    value = smooth(centre)

    def slope(d: mpf) -> mpf:
        return diff(smooth, centre) if abs(d) < _NEAR_ZERO else (smooth(centre + d) - value) / d

    return slope


def piece(number: int) -> Fit:
    """The slope on v in [number/16, (number + 1)/16], that part which x <= 28 reaches."""
    centre, half = (mpf(number) + 0.5) / 16, mpf(1) / 32
    low = max(centre - half, _NUMERATOR / (1 + 2 * _LAST)) - centre
    return minimax(slope_from(centre), low, half, range(_TERMS), lambda d: abs(d))


def lines() -> Iterator[str]:
    yield header("the f64 error function")
    for suffix, part in zip(("", "_LOW"), parts(2 / sqrt(pi) - 1, 2), strict=True):
        yield from scalar(f"ERF_SLOPE{suffix}", part)
    fit = minimax(erf_rest, 0, _NEAR**2, range(8), lambda z: max(z, mpf(2) ** -10))
    yield from polynomial("ERF", fit, "(erf(x)/x - 2/sqrt(pi))/x^2 in x^2 for |x| <= 57/128")
    middles = [parts(smooth((mpf(number) + 0.5) / 16), 2) for number in range(_PIECES)]
    what = "e^(x^2) erfc(x) / v with v = (15/16)/(1 + 2x)"
    yield from table("COMPLEMENT", [high for high, _ in middles], f"{what} at 1/32, 3/32, .. 15/32.")
    yield from table("COMPLEMENT_LOW", [low for _, low in middles], "What they leave out.")
    fits = [piece(number) for number in range(_PIECES)]
    worst = max(fits, key=lambda fit: fit.error)
    yield "COMPLEMENT_SLOPES = ("
    for power in range(_TERMS):
        yield "    ("
        yield from (f'        float.fromhex("{fit.coefficients[power].hex()}"),' for fit in fits)
        yield "    ),"
    yield ")"
    yield f'"""The slopes around them, one entry a piece; lowest power first; error times distance {worst.bits}."""'
