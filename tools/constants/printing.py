"""Constants as Python text: every value a hexadecimal f64, every polynomial with its interval and its error."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from mpmath import floor, log, mpf, nint

from tools.constants.minimax import Fit


def header(subject: str) -> str:
    """The first lines of a constants module."""
    return (
        f'"""Constants of {subject}: printed by `python -m tools.constants`, never edited by hand."""\n\n'
        "from __future__ import annotations\n"
    )


def short(value: mpf, bits: int) -> mpf:
    """`value` cut to a multiple of 2^-bits, so that its product with a small integer is exact."""
    return floor(value * mpf(2) ** bits) / mpf(2) ** bits


def parts(value: mpf, count: int) -> list[float]:
    """`value` as an unevaluated sum of f64s, the greatest first."""
    found: list[float] = []
    for _ in range(count):
        found.append(float(value))
        value -= found[-1]
    return found


def scalar(name: str, value: mpf | float, comment: str = "") -> Iterator[str]:
    """NAME = value, with its docstring."""
    yield f'{name} = float.fromhex("{float(value).hex()}")'
    if comment:
        yield f'"""{comment}"""'


def table(name: str, values: Sequence[mpf | float], comment: str) -> Iterator[str]:
    """NAME = (values), with its docstring."""
    yield f"{name} = ("
    yield from (f'    float.fromhex("{float(value).hex()}"),' for value in values)
    yield ")"
    yield f'"""{comment}"""'


def polynomial(name: str, fit: Fit, what: str) -> Iterator[str]:
    """The coefficients of a fit, the lowest power first."""
    powers = f"powers {', '.join(map(str, fit.exponents))}"
    if fit.exponents == tuple(range(len(fit.exponents))):
        powers = "lowest power first"
    yield from table(name, fit.coefficients, f"{what}; {powers}; error {fit.bits}.")


def patches(name: str, arguments: Sequence[int], function: Callable[[mpf], mpf]) -> Iterator[str]:
    """NAME = {bits of x: bits of f(x)}, f32 both, f(x) rounded once; for results that are normal numbers."""
    yield f"{name} = {{"
    for bits in arguments:
        (x,) = struct.unpack("<f", struct.pack("<I", bits))
        exact = function(mpf(x))
        unit = mpf(2) ** (floor(log(abs(exact), 2)) - 23)
        (result,) = struct.unpack("<I", struct.pack("<f", float(nint(exact / unit) * unit)))
        yield f"    0x{bits:08X}: 0x{result:08X},"
    yield "}"
