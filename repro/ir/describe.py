"""A kernel in a few words, for people."""

from __future__ import annotations

import math

from repro.ir.byte_dot import BYTES
from repro.ir.contraction import find
from repro.ir.expressions import Reduce
from repro.ir.loops import Kernel


def describe(kernel: Kernel) -> str:
    """A kernel in a few words: `dot 2048x1152x384`, `add of 384 over 2048`, `elements 786432`."""
    contraction = find(kernel)
    if contraction is not None:
        batch, rows, columns, terms = contraction.extents
        integers = "" if contraction.reduce.dtype.is_float else f" {contraction.reduce.dtype.name}"
        if contraction.unsigned is not None:
            terms, integers = BYTES * terms, " bytes"
        text = f"{rows}x{columns}x{terms}{integers}"
        return f"dot {batch} of {text}" if batch > 1 else f"dot {text}"
    outer = math.prod(axis.extent for axis in kernel.axes)
    reduces = [expr for expr in kernel.expressions if isinstance(expr, Reduce)]
    if not reduces:
        return f"{'serial ' if kernel.serial else ''}elements {outer}"
    terms = max(math.prod(axis.extent for axis in expr.axes) for expr in reduces)
    names = "+".join(dict.fromkeys(expr.combiner for expr in reduces))
    return f"{names} of {terms} over {outer}"
