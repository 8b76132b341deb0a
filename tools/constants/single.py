"""The f32 road of elementary functions: constants as f32, or as sums of two where one would not do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpmath import factorial, floor, log, mpf, nint

from repro.numerics.elementary.f32 import error_function_constants
from tools.constants.printing import header, scalar, table

PATH = "repro/numerics/elementary/single_constants.py"


def rounded(value: mpf) -> mpf:
    """To 24 bits; for normal numbers."""
    if not value:
        return value
    unit = mpf(2) ** (floor(log(abs(value), 2)) - 23)
    return nint(value / unit) * unit


def pair(value: mpf) -> tuple[mpf, mpf]:
    return rounded(value), rounded(value - rounded(value))


def words(values: Sequence[mpf | float]) -> str:
    return ", ".join(f'float.fromhex("{float(value).hex()}")' for value in values)


def series(name: str, values: Sequence[mpf], comment: str) -> Iterator[str]:
    """The values of powers 0, 1, ...: those from 5 on, and the others as sums of two, the highest power first."""
    yield from table(f"{name}_TRAILING", [rounded(value) for value in values[5:]], f"{comment}: powers 5 and up.")
    yield f"{name}_LEADING = ("
    yield from (f"    ({words(pair(value))})," for value in values[4::-1])
    yield ")"
    yield '"""Powers 4 to 0, in sums of two."""'


def lines() -> Iterator[str]:
    ln2 = log(mpf(2))
    yield header("the f32 road of elementary functions")
    yield from scalar("LOG2_E", rounded(1 / ln2))
    high = nint(ln2 * 2**16) / 2**16
    yield from scalar("LN2_HIGH", high)
    middle, low = pair(ln2 - high)
    yield from scalar("LN2_MIDDLE", middle)
    yield from scalar("LN2_LOW", low)
    yield from series("EXP", [1 / factorial(n) for n in range(11)], "e^r")
    yield from series("EXPM1", [1 / factorial(n + 1) for n in range(10)], "(e^r - 1)/r")
    high, low = pair(mpf(error_function_constants.PIECES_A_UNIT))
    yield from scalar("PIECES_A_UNIT", high)
    yield from scalar("PIECES_A_UNIT_LOW", low)
    rows = [[mpf(value) for value in row] for row in error_function_constants.ERF_PIECES]
    yield "ERF_TRAILING = ("
    for row in rows[8:]:
        yield from column([rounded(value) for value in row], "    ")
    yield ")"
    yield '"""The pieces of f32.error_function_constants: powers 8 to 15."""'
    yield "ERF_LEADING = ("
    for row in rows[7::-1]:
        parts = [pair(value) for value in row]
        yield "    ("
        yield from column([first for first, _ in parts], "        ")
        yield from column([rest for _, rest in parts], "        ")
        yield "    ),"
    yield ")"
    yield '"""Powers 7 to 0, in sums of two."""'


def column(values: Sequence[mpf], margin: str) -> Iterator[str]:
    """Values of a row of pieces, one below the other."""
    yield f"{margin}("
    yield from (f'{margin}    float.fromhex("{float(value).hex()}"),' for value in values)
    yield f"{margin}),"
