"""Compute proofs/constants.py with mpmath and print it: `python -m proofs.generate > proofs/constants.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mpmath import (
    asin,
    asinh,
    atan,
    atanh,
    cbrt,
    chebyfit,
    cos,
    erfc,
    exp,
    factorial,
    floor,
    log,
    mpf,
    pi,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    taylor,
    workprec,
)

from repro import ending

Real = Any
"""An mpf: mpmath carries no types."""

PRECISION = 500
"""Bits."""

HEADER = '''"""Constants of the screens: printed by proofs/generate.py, never edited by hand."""

from __future__ import annotations


def _words(text: str) -> tuple[float, ...]:
    """The doubles of a line, whose unevaluated sum is the constant."""
    return tuple(map(float.fromhex, text.split()))

'''


def words(value: Real, count: int = 2) -> list[float]:
    """`value` as an unevaluated sum of doubles, each the nearest to what is left."""
    found: list[float] = []
    for _ in range(count):
        found.append(float(value))
        value = value - found[-1]
    return found


def text(parts: Sequence[float]) -> str:
    return " ".join(part.hex() for part in parts)


def constant(name: str, comment: str, parts: Sequence[float]) -> Iterator[str]:
    line = f'{name} = _words("{text(parts)}")'
    if len(line) <= 120:
        yield line
    else:
        yield f"{name} = _words("
        yield from _wrapped(parts)
        yield ")"
    yield f'"""{comment}"""'


def _wrapped(parts: Sequence[float]) -> list[str]:
    """The words as literals that stand beneath each other, or as one where that fits."""
    whole = f'    "{text(parts)}"'
    return [whole] if len(whole) <= 120 else [f'    "{part.hex()} "' for part in parts]


def table(name: str, comment: str, rows: Iterable[Sequence[float]]) -> Iterator[str]:
    yield f"{name} = ("
    yield from (f'    _words("{text(row)}"),' for row in rows)
    yield ")"
    yield f'"""{comment}"""'


def coefficients(name: str, comment: str, values: Sequence[Real], leading: int) -> Iterator[str]:
    """A series for `double_double.series`: pairs for the leading terms, doubles for the rest."""
    yield from table(name, comment, [words(value) for value in values[:leading]])
    yield from constant(f"{name}_TRAILING", "Its later terms.", [float(value) for value in values[leading:]])


def ln2_words() -> list[float]:
    """40 bits, so that the product with any exponent is exact, and two words more."""
    short = floor(log(2) * mpf(2) ** 40) / mpf(2) ** 40
    return [float(short), *words(log(2) - short)]


def odd_terms(function: Callable[[Real], Real], count: int) -> list[Real]:
    """Taylor coefficients of x^3, x^5, ... of an odd function that begins with x."""
    return list(taylor(function, 0, 2 * count + 1)[3::2])


def exponentials() -> Iterator[str]:
    yield from constant("LN2", "ln 2; the first word has 40 bits.", ln2_words())
    yield from constant("LN2_PAIR", "ln 2.", words(log(2)))
    yield from constant("LOG2_E", "1 / ln 2.", words(1 / log(2)))
    yield from constant("LOG10_E", "1 / ln 10.", words(1 / log(10)))
    terms = [1 / factorial(k) for k in range(2, 13)]
    yield from coefficients("EXP", "1/2!, 1/3!, ...", terms, 6)


def logarithms() -> Iterator[str]:
    yield from table("LOG_RECIPROCALS", "-ln(j/16), j = 11..21.", [words(-log(mpf(j) / 16)) for j in range(11, 22)])
    yield from coefficients("LOG", "1/3, 1/5, ...", [1 / mpf(2 * k + 1) for k in range(1, 11)], 4)


def trigonometry() -> Iterator[str]:
    yield from constant("HALF_PI", "pi / 2.", words(pi / 2))
    yield from constant("PI", "pi.", words(pi))
    yield from constant("TWO_OVER_PI", "2 / pi, to 2^-318.", words(2 / pi, 6))
    nodes = [mpf(j) / 16 for j in range(14)]
    yield from table("SINES", "sin(j/16), j = 0..13.", [words(sin(x)) for x in nodes])
    yield from table("COSINES", "cos(j/16), j = 0..13.", [words(cos(x)) for x in nodes])
    signs = [(-1) ** k for k in range(9)]
    yield from coefficients("SIN", "-1/3!, 1/5!, ...", [signs[k] / factorial(2 * k + 1) for k in range(1, 8)], 3)
    yield from coefficients("VERSINE", "1/2!, -1/4!, ...", [-signs[k] / factorial(2 * k) for k in range(1, 9)], 4)
    yield from table("ARC_TANGENTS", "atan(j/16), j = 0..16.", [words(atan(mpf(j) / 16)) for j in range(17)])
    yield from coefficients("ATAN", "-1/3, 1/5, ...", [mpf((-1) ** k) / (2 * k + 1) for k in range(1, 12)], 4)


def roots() -> Iterator[str]:
    start = list(reversed(chebyfit(cbrt, [mpf(1) / 2, 4], 4)))
    comment = "A cubic near the cube root on [1/2, 4], lowest power first."
    yield from constant("CUBE_ROOT", comment, [float(value) for value in start])


ERFC_FIRST, ERFC_WIDTH, ERFC_PIECES = mpf(-3) / 4, mpf(21) / 64, 4


def scaled_erfc(t: Real) -> Real:
    """(1 + 2x) e^(x^2) erfc(x), smooth and near 1, where t = (x - 3) / (x + 3)."""
    x = 3 * (1 + t) / (1 - t)
    return (1 + 2 * x) * exp(x * x) * erfc(x)


def erfc_piece(number: int) -> list[Real]:
    """Coefficients in t less the middle of the piece, lowest power first, within 2^-108."""
    middle = ERFC_FIRST + (number + mpf(1) / 2) * ERFC_WIDTH
    ends = [-ERFC_WIDTH / 2, ERFC_WIDTH / 2]
    found, error = chebyfit(lambda u: scaled_erfc(middle + u), ends, 24, error=True)
    assert error < mpf(2) ** -108
    return list(reversed(found))


def error_function() -> Iterator[str]:
    terms = [(-1) ** k * 2 / sqrt(pi) / (factorial(k) * (2 * k + 1)) for k in range(22)]
    yield from coefficients("ERF", "2/sqrt(pi) (-1)^k / (k! (2k + 1)).", terms, 12)
    yield from constant("ERFC_FIRST", "Where the first piece begins.", [float(ERFC_FIRST)])
    yield from constant("ERFC_WIDTH", "The width of a piece.", [float(ERFC_WIDTH)])
    rows = [[words(c) for c in row] for row in zip(*map(erfc_piece, range(ERFC_PIECES)), strict=True)]
    high, low = ([[parts[which] for parts in row] for row in rows] for which in (0, 1))
    yield from table("ERFC_HIGH", "By power, then by piece: (1 + 2x) e^(x^2) erfc(x), high words.", high)
    yield from table("ERFC_LOW", "Their low words, where they are needed.", low[:15])


def tiny_arguments() -> Iterator[str]:
    functions = {"TAN": tan, "ASIN": asin, "SINH": sinh, "TANH": tanh, "ASINH": asinh, "ATANH": atanh}
    for name, function in functions.items():
        comment = f"Coefficients of x^3, x^5, ... of {name.lower()}."
        yield from coefficients(f"{name}_TINY", comment, odd_terms(function, 5), 2)


SECTIONS = (exponentials, logarithms, trigonometry, tiny_arguments, roots, error_function)


def module_text() -> str:
    """The whole of constants.py."""
    with workprec(PRECISION):
        return HEADER + "".join("\n" + "\n".join(section()) + "\n" for section in SECTIONS)


def main(_: list[str]) -> None:
    sys.stdout.write(module_text())


if __name__ == "__main__":
    ending.run(main)
