"""Compute repro/numerics/elementary/constants.py with mpmath and print it: `python tools/elementary_constants.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from mpmath import atan, chebyfit, erf, erfc, exp, floor, log, mp, mpf, nstr, pi, sqrt, workprec

mp.prec = 400

HEADER = '''"""Constants of the elementary functions: printed by tools/elementary_constants.py, never edited by hand."""

from __future__ import annotations
'''


def short(value: mpf, bits: int) -> mpf:
    """`value` cut to a multiple of 2^-bits, so that its product with a small integer is exact."""
    return floor(value * mpf(2) ** bits) / mpf(2) ** bits


def parts(value: mpf) -> tuple[mpf, mpf]:
    """`value` as an unevaluated sum of two doubles."""
    high = mpf(float(value))
    return high, value - high


def scalar(name: str, value: mpf) -> str:
    return f'{name} = float.fromhex("{float(value).hex()}")'


def pair(name: str, value: mpf) -> Iterator[str]:
    high, low = parts(value)
    yield scalar(f"{name}_HIGH", high)
    yield scalar(f"{name}_LOW", low)


def table(name: str, comment: str, values: list[mpf]) -> Iterator[str]:
    yield ""
    yield f"{name} = ("
    yield from (f'    float.fromhex("{float(value).hex()}"),' for value in values)
    yield ")"
    yield f'"""{comment}"""'


def fitted(name: str, what: str, function: Callable[[mpf], mpf], ends: list[mpf], terms: int) -> Iterator[str]:
    coefficients, error = chebyfit(function, ends, terms, error=True)
    comment = f"{what}; lowest power first; fitted within {nstr(error, 2)}."
    yield from table(name, comment, list(reversed(coefficients)))


ERFC_CENTRE = mpf(5) / 2
ERFC_END = mpf(28)


def scaled_erfc(t: mpf) -> mpf:
    """(1 + 2x) exp(x^2) erfc(x), smooth and of order 1, where t = (x - c) / (x + c)."""
    x = ERFC_CENTRE * (1 + t) / (1 - t)
    return (1 + 2 * x) * exp(x * x) * erfc(x)


def erf_over_x(z: mpf) -> mpf:
    x = sqrt(z)
    return erf(x) / x if x > mpf(2) ** -60 else 2 / sqrt(pi)


def two_over_pi() -> Iterator[str]:
    with workprec(1400):
        digits = hex(int(floor(2 / pi * mpf(2) ** 1280)))[2:]
    yield ""
    yield "TWO_OVER_PI = int("
    lines = [f'    "{digits[start : start + 100]}"' for start in range(0, len(digits), 100)]
    yield "\n".join(lines) + ","
    yield "    16,"
    yield ")"
    yield '"""floor(2/pi * 2^1280)."""'


def module() -> Iterator[str]:
    yield HEADER
    yield scalar("LOG2_E", 1 / log(2))
    ln2_short = short(log(mpf(2)), 32)
    yield scalar("LN2_SHORT", ln2_short)
    yield '"""The first 32 bits of ln 2: its product with any exponent is exact."""'
    yield from pair("LN2_REST", log(mpf(2)) - ln2_short)
    yield scalar("LN2", log(mpf(2)))
    yield scalar("LOG10_E", 1 / log(mpf(10)))
    log10_2_short = short(log(mpf(2)) / log(mpf(10)), 32)
    yield scalar("LOG10_2_SHORT", log10_2_short)
    yield scalar("LOG10_2_REST", log(mpf(2)) / log(mpf(10)) - log10_2_short)
    yield scalar("SQRT_HALF", sqrt(mpf(1) / 2))
    yield from pair("HALF_PI", pi / 2)
    yield from two_over_pi()
    quarters = [atan(mpf(k) / 4) for k in range(5)]
    yield from table("ATAN_QUARTERS_HIGH", "atan(k/4), k = 0..4.", [parts(v)[0] for v in quarters])
    yield from table("ATAN_QUARTERS_LOW", "What the doubles above leave out.", [parts(v)[1] for v in quarters])
    yield from fitted("ERF_SMALL", "erf(x)/x in z = x^2 on [0, 1]", erf_over_x, [mpf(0), mpf(1)], 13)
    low, high = ((x - ERFC_CENTRE) / (x + ERFC_CENTRE) for x in (mpf(1) * 15 / 16, ERFC_END))
    what = "(1 + 2x) exp(x^2) erfc(x) in t = (x - 5/2)/(x + 5/2), x on [15/16, 28]"
    yield from fitted("ERFC_SCALED", what, scaled_erfc, [low, high], 22)
    yield from fitted(
        "CBRT_START", "x^(1/3) on [0.7, 5.7]", lambda x: x ** (mpf(1) / 3), [mpf(7) / 10, mpf(57) / 10], 5
    )


def text() -> str:
    return "\n".join(module()) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
