"""The narrow float formats as numbers: field widths, ends and special codes (rules 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir.types import BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, DType


@dataclass(frozen=True)
class NarrowFormat:
    """A sign-magnitude float format of 8 or 16 bits.

    `greatest` is the code of the greatest finite value; `overflow` the code that a greater one (infinity
    too) becomes: infinity for f16 and bf16, the greatest finite value for f8 (ONNX Cast, saturate=1).
    `infinity` is the code of infinity where there is one; every greater code is a NaN.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    greatest: int
    overflow: int
    nan: int
    infinity: int | None
    negative_zero: bool

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    def value(self, code: int) -> float:
        """The finite value of a code without its sign bit, exactly."""
        exponent, mantissa = code >> self.mantissa_bits, code & ((1 << self.mantissa_bits) - 1)
        if exponent == 0:
            return mantissa * 2.0 ** (1 - self.bias - self.mantissa_bits)
        return ((1 << self.mantissa_bits) + mantissa) * 2.0 ** (exponent - self.bias - self.mantissa_bits)


NARROW: dict[DType, NarrowFormat] = {
    F16: NarrowFormat(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00, 0x7C00, True),
    BF16: NarrowFormat(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, 0x7F80, True),
    F8E4M3FN: NarrowFormat(4, 3, 7, 0x7E, 0x7E, 0x7F, None, True),
    F8E4M3FNUZ: NarrowFormat(4, 3, 8, 0x7F, 0x7F, 0x80, None, False),
    F8E5M2: NarrowFormat(5, 2, 15, 0x7B, 0x7B, 0x7E, 0x7C, True),
    F8E5M2FNUZ: NarrowFormat(5, 2, 16, 0x7F, 0x7F, 0x80, None, False),
}
"""The formats without a negative zero have one NaN, where -0 would be."""
