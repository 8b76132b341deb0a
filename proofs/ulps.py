"""The error of an f64 result in units in the last place of the true value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from proofs import mpfr
from proofs.double_double import Pair
from proofs.mpfr import gmpy2
from proofs.screens import Screen
from repro.ir.expressions import Expr
from repro.ir.types import F32, F64, U64
from repro.numerics.elementary.value import Value, select

LEAST_ARGUMENT = 2.0**-330
"""Smaller ones but zero are outside every screen's bound."""

_FIELDS = {"pow": (173, 1873)}
_FIELD = (64, 2000)
"""Exponent fields of results between which a screen's bound holds; pow's from e^-600 to e^600."""

_PRECISION = 300


def ulps(result: Value, truth: Pair, fields: tuple[int, int]) -> Value:
    """|result - truth| / ulp(truth); NaN where truth is zero or its exponent field not between those."""
    field = (truth.high.as_bits(U64) >> 52) & 0x7FF
    ulp = ((field - 52) << 52).as_bits(F64)
    error = abs((result - truth.high) - truth.low) / ulp
    return select((field > fields[0]) & (field < fields[1]), error, math.nan)


def screened(screen: Screen, result: Expr, *operands: Expr) -> Sequence[Expr]:
    """The error as f32; NaN for operands where the screen's bound does not hold."""
    arguments = [Value(operand) for operand in operands]
    found = ulps(Value(result), screen.function(*arguments), _FIELDS.get(screen.name, _FIELD))
    for argument, (low, high) in zip(arguments, screen.domain, strict=True):
        inside = (argument > low) & (argument < high) & (abs(argument) > LEAST_ARGUMENT)
        found = select(inside, found, math.nan)
    return [found.to(F32).expr]


def exactly(name: str, arguments: Sequence[float], result: float) -> float:
    """The error by MPFR; infinity for a wrong NaN, infinity or zero. An infinite result counts as 2^1024."""
    wanted = mpfr.from_bits(mpfr.rounded(name, arguments, F64), F64)
    if math.isnan(wanted) or math.isnan(result):
        return 0.0 if math.isnan(wanted) and math.isnan(result) else math.inf
    truth = mpfr.value(name, arguments, _PRECISION)
    if gmpy2.is_infinite(truth) or gmpy2.is_zero(truth):
        same = mpfr.to_bits(result, F64) == mpfr.to_bits(wanted, F64)
        return 0.0 if same else math.inf
    if math.isinf(wanted) and result == wanted:
        return 0.0
    context = gmpy2.context(precision=_PRECISION, emax=gmpy2.get_emax_max(), emin=gmpy2.get_emin_min())
    finite = math.copysign(1.0, result) * gmpy2.mpfr(2) ** 1024 if math.isinf(result) else gmpy2.mpfr(result)
    mantissa, low_exponent = mpfr.parts(truth)
    exponent = max(low_exponent + mantissa.bit_length() - 53, -1074)
    return float(context.mul(abs(context.sub(finite, truth)), context.exp2(-exponent)))
