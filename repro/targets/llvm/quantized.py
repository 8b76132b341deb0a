"""Vectors of f32 as QuantizeLinear stores them, convert(round(y) + z) with z of the result's type, in fewer steps.

With integers as bounds, rounding and bounding may change places, and the zero point moves to the bounds: y between
least - z and most - z, rounded to an i32, plus z. That is the same integer: up to 2^22 the sum of floats is exact, and
beyond it both are at the same bound. NaN gives 0, the least of an unsigned type: some machines' bounds give that too.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir.expressions import Apply, Const, Expr
from repro.ir.types import F32, I32, DType
from repro.machines import Machine
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val, integer

_WIDEST = 16
"""Bits of a type that is bounded so: i32's bounds are no f32s."""


@dataclass(frozen=True)
class Quantized:
    """What is rounded, the zero point (None: there is none), and the type of the result."""

    value: Expr
    zero: Expr | None
    dtype: DType

    def emit(self, f: Function, value: Val, zero: Val | None, machine: Machine) -> Val:
        """The integers of lanes; the zero point is one number or as many."""
        bits, signed = self.dtype.bits, self.dtype.is_signed
        ends = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        shift = None if zero is None else scalars.convert(f, zero, I32)
        least, most = (f.splat(_moved(f, end, shift), value.width) for end in ends)
        inside = scalars.select(f, scalars.compare(f, "gt", value, least), value, least)
        inside = scalars.select(f, scalars.compare(f, "lt", inside, most), inside, most)
        found = scalars.nearest(f, inside, machine)
        if shift is not None:
            found = scalars.binary(f, "add", found, f.splat(shift, value.width))
        if signed or not machine.bounds_drop_nans:
            number = scalars.compare(f, "eq", value, value)
            found = scalars.select(f, number, found, scalars.constant(f, I32, 0, value.width))
        return scalars.convert(f, found, self.dtype)


def quantized(expr: Apply) -> Quantized | None:
    """The expression as such a conversion."""
    dtype = expr.dtype
    if expr.op != "convert" or not dtype.is_integer or dtype.bits > _WIDEST or expr.children[0].dtype is not F32:
        return None
    total, zero = expr.children[0], None
    if isinstance(total, Apply) and total.op == "add":
        total, shift = total.children
        if not isinstance(shift, Apply) or shift.op != "convert" or shift.children[0].dtype is not dtype:
            return None
        zero = shift.children[0]
    if not isinstance(total, Apply) or total.op != "round":
        return None
    return Quantized(total.children[0], None if isinstance(zero, Const) and not zero.bits else zero, dtype)


def _moved(f: Function, end: int, by: Val | None) -> Val:
    """A bound less the zero point, as a float."""
    least = integer(end, I32)
    return scalars.convert(f, least if by is None else scalars.binary(f, "sub", f.splat(least, by.width), by), F32)
