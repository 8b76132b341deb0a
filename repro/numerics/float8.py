"""Conversion to f8 without saturation: ONNX Cast's second table (`convert` itself is the first, saturating one)."""

from __future__ import annotations

from repro.ir.expressions import Expr, apply, const, convert
from repro.ir.types import F64, DType
from repro.numerics.elementary.value import literal
from repro.numerics.narrow_formats import NARROW


def convert_unsaturated(operand: Expr, target: DType) -> Expr:
    """`operand` (any element type) as f8: what rounds above the greatest value is infinity, or NaN without one."""
    fmt = NARROW[target]
    greatest = fmt.value(fmt.greatest)
    half_step = (greatest - fmt.value(fmt.greatest - 1)) / 2
    size = apply("abs", convert(operand, F64))  # integers are exact here as far as they matter
    # a tie goes to the even neighbour, which is the greatest value itself where its code is even
    beyond = apply("gt" if fmt.greatest % 2 == 0 else "ge", size, literal(greatest + half_step, F64))
    over = const(target, fmt.nan)
    if fmt.infinity is not None:
        negative = apply("lt", convert(operand, F64), literal(0.0, F64))
        sign = 1 << (fmt.width - 1)
        over = apply("select", negative, const(target, sign | fmt.infinity), const(target, fmt.infinity))
    return apply("select", beyond, over, convert(operand, target))
