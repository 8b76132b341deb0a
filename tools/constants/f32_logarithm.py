"""The logarithms and the inverse hyperbolic functions in f32: one series of the inverse hyperbolic tangent."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from mpmath import acosh, asinh, atanh, exp, log, log1p, log10, mpf, sqrt, tanh, workprec

from tools.constants.minimax import Function, minimax
from tools.constants.printing import header, polynomial, scalar

PATH = "repro/numerics/elementary/f32/logarithm_constants.py"

EVEN_SPLIT = mpf(1) / 2
"""log2 of the greatest m of a split by comparison with sqrt(1/2)."""
LOOSE_SPLIT = mpf(1) / 2 + mpf("0.0861")
"""The same where the exponent is that of a bit pattern read as a logarithm, which is off by up to 0.0861."""


def series(base: mpf, z: mpf) -> mpf:
    """log((1 + s)/(1 - s)) / s to the base, with z = s^2."""
    s = sqrt(z)
    natural = 2 * atanh(s) / s if z > mpf(2) ** -150 else 2 + 2 * z / 3
    return natural / log(base)


def end(split: mpf) -> mpf:
    """The greatest z: s = (m - 1)/(m + 1) = tanh(log(m)/2)."""
    return tanh(split * log(mpf(2)) / 2) ** 2 * (1 + mpf(2) ** -20)


PATCHES: dict[str, tuple[Function, Sequence[int]]] = {
    "LOG": (log, (0x4C5D65A5, 0x65D890D3, 0x6F31A8EC)),
    "LOG10": (log10, (0x0EFEEE7A,)),
    "LOG1P": (
        log1p,
        (0x35400003, 0x3710001B, 0x65D890D3, 0x6F31A8EC, 0xB53FFFFD, 0xB70FFFE5, 0xBB0EC8C4),
    ),
    "ASINH": (asinh, (0x4BDD65A5, 0x655890D3, 0x6EB1A8EC)),
    "ACOSH": (acosh, (0x655890D3, 0x6EB1A8EC)),
}
"""By their bits, the arguments whose values lie so near to the middle of two f32s that the sequence misrounds them:
found by trying them all."""


def patches(name: str, function: Function, arguments: Sequence[int]) -> Iterator[str]:
    """Arguments and their correctly rounded results; f32s by their bits."""
    yield f"{name}_PATCHES = {{"
    for bits in arguments:
        value = function(mpf(struct.unpack("<f", struct.pack("<I", bits))[0]))
        with workprec(24):
            result = float(+value)
        yield f"    0x{bits:08X}: 0x{struct.unpack('<I', struct.pack('<f', result))[0]:08X},"
    yield "}"


def lines() -> Iterator[str]:
    ln2, e = log(mpf(2)), exp(mpf(1))
    yield header("the f32 logarithms")
    yield from scalar("LN2", ln2)
    yield from scalar("LOG10_2", ln2 / log(mpf(10)))
    what = "((1 + s)/(1 - s)) / s in s^2 for |s| <= 0.1716"
    for name, base, function in (("LOG", e, "log"), ("LOG2", mpf(2), "log2"), ("LOG10", mpf(10), "log10")):
        fit = minimax(lambda z, base=base: series(base, z), 0, end(EVEN_SPLIT), range(8))
        yield from polynomial(name, fit, function + what)
    fit = minimax(lambda z: series(e, z) / 2, 0, end(LOOSE_SPLIT), range(8))
    yield from polynomial("ATANH", fit, "atanh(s) / s in s^2 for |s| <= 0.2004")
    for name, (function, arguments) in PATCHES.items():
        yield from patches(name, function, arguments)
