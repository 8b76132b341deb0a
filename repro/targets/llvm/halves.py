"""Conversions between f16 and f32 by the machine's instructions, which give the bits of `repro.numerics.narrow_loops`.

Each rounds once, ties to even, and keeps subnormals of f16 in any mode. Which NaN they give differs; a narrow one is
the canonical one.
"""

from __future__ import annotations

from repro.ir.expressions import Apply
from repro.ir.types import BOOL, F16, F32
from repro.numerics.narrow_formats import NARROW
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val, vector


def between(expr: Apply) -> bool:
    """Whether it is such a conversion."""
    return expr.op == "convert" and {expr.dtype, expr.children[0].dtype} == {F16, F32}


def converted(f: Function, value: Val) -> Val:
    """The value in the other type."""
    half = vector("half", value.width)
    if value.dtype is F16:
        raw = f.let(f"bitcast {value.typed} to {half}", F16, value.width)
        return f.let(f"fpext {half} {raw.text} to {vector('float', value.width)}", F32, value.width)
    raw = f.let(f"fptrunc {value.typed} to {half}", F16, value.width)
    rounded = f.let(f"bitcast {half} {raw.text} to {vector('i16', value.width)}", F16, value.width)
    nan = f.let(f"fcmp uno {value.typed}, {value.text}", BOOL, value.width)
    return scalars.select(f, nan, scalars.constant(f, F16, NARROW[F16].nan, value.width), rounded)
