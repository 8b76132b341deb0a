"""The logarithms in f64: sixteen breakpoints, their reciprocals and logarithms, and log(1 + f) beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mpmath import log, log1p, mpf

from tools.constants.minimax import minimax
from tools.constants.printing import header, parts, polynomial, scalar, short, table

PATH = "repro/numerics/elementary/f64/logarithm_constants.py"
_BITS = 32
_GREATEST = mpf(2) ** -5
_NEAR_ZERO = mpf(2) ** -40


def centres() -> list[mpf]:
    """The middle of each piece of [45/64, 45/32): 23/32 to 31/32, then 1 to 11/8."""
    return [mpf(k) / 32 for k in range(23, 32)] + [mpf(k) / 16 for k in range(16, 23)]


def log1p_rest(terms: int) -> Callable[[mpf], mpf]:
    """log(1 + f) without its first `terms` terms, divided by the power of the next one."""

    def rest(f: mpf) -> mpf:
        if abs(f) < _NEAR_ZERO:
            return sum(((-1) ** (n - 1) * f ** (n - terms - 1) / n for n in range(terms + 1, terms + 5)), mpf(0))
        known = sum(((-1) ** (n - 1) * f**n / n for n in range(1, terms + 1)), mpf(0))
        return (log1p(f) - known) / f ** (terms + 1)

    return rest


def logarithms(name: str, factor: mpf) -> Iterator[str]:
    """factor * log of the centres and of 2, each as a short part, whose sums are exact, and the rest."""
    values = [-factor * log(mpf(float(1 / c))) for c in centres()]
    heads = [short(v, _BITS) for v in values]
    rests = [v - head for v, head in zip(values, heads, strict=True)]
    yield from table(f"{name}_CENTRES", heads, f"The logarithms of the centres cut to {_BITS} bits after the point.")
    yield from table(f"{name}_CENTRES_REST", rests, "What they leave out.")
    octave = factor * log(mpf(2))
    yield from scalar(f"{name}_OCTAVE", short(octave, _BITS), "The logarithm of 2, cut likewise.")
    yield from scalar(f"{name}_OCTAVE_REST", octave - short(octave, _BITS))
    for suffix, part in zip(("", "_LOW"), parts(factor, 2), strict=True):
        yield from scalar(f"{name}_UNIT{suffix}", part)


def lines() -> Iterator[str]:
    yield header("the f64 logarithms")
    yield from table(
        "RECIPROCALS",
        [1 / c for c in centres()],
        "1/c of the centres 23/32 to 31/32, 1 to 22/16, rounded: this defines c.",
    )
    yield from logarithms("LOG", mpf(1))
    yield from logarithms("LOG2", 1 / log(mpf(2)))
    yield from logarithms("LOG10", 1 / log(mpf(10)))
    low, high = -_GREATEST * (1 + mpf(2) ** -20), _GREATEST * (1 + mpf(2) ** -20)
    fit = minimax(log1p_rest(1), low, high, range(9), lambda f: abs(f))
    yield from polynomial("LOG1P", fit, "(log(1 + f) - f)/f^2 for |f| <= 1/32")
    fit = minimax(log1p_rest(3), low, high, range(9), lambda f: abs(f) ** 3)
    yield from polynomial("LOG1P_FOURTH", fit, "(log(1 + f) - f + f^2/2 - f^3/3)/f^4 for |f| <= 1/32")
