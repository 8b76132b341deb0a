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
    factorial,
    floor,
    log,
    mp,
    mpf,
    pi,
    sin,
    sinh,
    tan,
    tanh,
    taylor,
)

mp.prec = 500

Real = Any
"""An mpf: mpmath carries no types."""

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
    comment = "sin(j/16) and cos(j/16), j = 0..13."
    yield from table("SINES", comment, [words(sin(x)) + words(cos(x)) for x in nodes])
    signs = [(-1) ** k for k in range(9)]
    yield from coefficients("SIN", "-1/3!, 1/5!, ...", [signs[k] / factorial(2 * k + 1) for k in range(1, 8)], 3)
    yield from coefficients("VERSINE", "1/2!, -1/4!, ...", [-signs[k] / factorial(2 * k) for k in range(1, 9)], 4)
    yield from table("ARC_TANGENTS", "atan(j/16), j = 0..16.", [words(atan(mpf(j) / 16)) for j in range(17)])
    yield from coefficients("ATAN", "-1/3, 1/5, ...", [mpf((-1) ** k) / (2 * k + 1) for k in range(1, 12)], 4)


def roots() -> Iterator[str]:
    start = list(reversed(chebyfit(cbrt, [mpf(1) / 2, 4], 4)))
    comment = "A cubic near the cube root on [1/2, 4], lowest power first."
    yield from constant("CUBE_ROOT", comment, [float(value) for value in start])


def tiny_arguments() -> Iterator[str]:
    functions = {"TAN": tan, "ASIN": asin, "SINH": sinh, "TANH": tanh, "ASINH": asinh, "ATANH": atanh}
    for name, function in functions.items():
        comment = f"Coefficients of x^3, x^5, ... of {name.lower()}."
        yield from coefficients(f"{name}_TINY", comment, odd_terms(function, 5), 2)


def main() -> None:
    sys.stdout.write(HEADER)
    for section in (exponentials, logarithms, trigonometry, tiny_arguments, roots):
        sys.stdout.write("\n" + "\n".join(section()) + "\n")


if __name__ == "__main__":
    main()
