"""Screens run as compiled kernels or by the reference, and their errors against MPFR."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from proofs.double_double import Pair
from repro.ir import index as ix
from repro.ir.expressions import load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import Schedule
from repro.ir.types import F64, Array
from repro.machines import Machine
from repro.numerics.elementary.value import Value
from repro.numerics.interpret import argument, run_scalars
from tests.targets.native import HERE, run_kernel

gmpy2: Any = import_module("gmpy2")
"""An extension module, whose names the type checker does not see."""

PRECISION = 300
"""Bits of MPFR's results: three times those of a pair."""

VECTOR = 16

Columns = Sequence[Array]
"""An f64 array for each argument of a function."""


def kernel(function: Callable[..., Pair], arguments: int, size: int) -> Kernel:
    """high[i], low[i] <- function(x[i], ...), all f64."""
    i = ix.axis(0, size)
    pair = function(*(Value(load(F64, number, i)) for number in range(arguments)))
    inputs = tuple(BufferParameter(F64, size, False) for _ in range(arguments))
    outputs = (BufferParameter(F64, size, True), BufferParameter(F64, size, True))
    stores = (Store(arguments, i, pair.high.expr), Store(arguments + 1, i, pair.low.expr))
    return Kernel((*inputs, *outputs), (), (i,), 0, stores)


def compiled(function: Callable[..., Pair], columns: Columns, machine: Machine = HERE[-1]) -> tuple[Array, Array]:
    """The pairs' words by native code."""
    size = len(columns[0])
    outputs = [np.zeros(size), np.zeros(size)]
    made = kernel(function, len(columns), size)
    high, low = run_kernel(made, [*columns, *outputs], machine, Schedule(0, VECTOR, size))[-2:]
    return high, low


def interpreted(function: Callable[..., Pair], columns: Columns) -> tuple[Array, Array]:
    """The pairs' words by the NumPy reference."""
    leaves = [argument(F64, position) for position in range(len(columns))]
    pair = function(*map(Value, leaves))
    high, low = run_scalars([pair.high.expr, pair.low.expr], dict(zip(leaves, columns, strict=True)))
    return np.broadcast_to(high, columns[0].shape), np.broadcast_to(low, columns[0].shape)


def truths(function: Callable[..., Any], columns: Columns, precision: int = PRECISION) -> list[Any]:
    """MPFR's values, without overflow or underflow."""
    with gmpy2.context(precision=precision, emin=-(10**6), emax=10**6):
        return [function(*map(gmpy2.mpfr, row)) for row in zip(*(column.tolist() for column in columns), strict=True)]


def error_log2(words: tuple[Array, Array], exact: Sequence[Any]) -> Array:
    """log2 of each pair's relative error: -inf for none, inf where an exact 0 is missed or a pair is not finite."""
    rows = zip(words[0].tolist(), words[1].tolist(), exact, strict=True)
    with gmpy2.context(precision=PRECISION, emin=-(10**6), emax=10**6):
        return np.array([_error_log2(*row) for row in rows])


def _error_log2(high: float, low: float, exact: Any) -> float:
    if not (math.isfinite(high) and math.isfinite(low)) or not gmpy2.is_finite(exact):
        return math.inf
    missed = abs(gmpy2.mpfr(high) + gmpy2.mpfr(low) - exact)
    if missed == 0:
        return -math.inf
    return math.inf if exact == 0 else float(gmpy2.log2(missed / abs(exact)))
