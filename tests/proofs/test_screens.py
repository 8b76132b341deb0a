"""The screens keep the bounds that they state, by native code and by the reference alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofs import constants, generate
from proofs.screens import SCREENS
from repro.ir.types import F64, Array
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS
from tests.proofs.arguments import arguments
from tests.proofs.measured import compiled, error_log2, gmpy2, interpreted, truths
from tests.targets.native import HERE, differences, same

COUNT = 12000
SOME = 1500
FEW = 300

_OTHER_NAMES: dict[str, Callable[..., Any]] = {"rsqrt": gmpy2.rec_sqrt, "pow": lambda x, y: x**y}
NAMES = list(SCREENS)


def reference(name: str) -> Callable[..., Any]:
    """The function in MPFR."""
    return _OTHER_NAMES.get(name) or getattr(gmpy2, name)


@cache
def truths_of(name: str, count: int) -> list[Any]:
    return truths(reference(name), arguments(name, count))


def test_every_elementary_function_has_a_screen() -> None:
    assert set(SCREENS) >= {*FUNCTIONS, *BINARY_FUNCTIONS, "atan2"}
    assert len(SCREENS) == 25


@pytest.mark.parametrize("name", NAMES)
def test_error_against_mpfr(name: str) -> None:
    columns = arguments(name, COUNT)
    errors = error_log2(compiled(SCREENS[name].function, columns), truths_of(name, COUNT))
    assert len(errors) == COUNT and np.isfinite(errors).sum() > COUNT // 4
    worst = int(np.argmax(errors))
    assert errors[worst] <= SCREENS[name].error_log2, [column[worst].hex() for column in columns]


@pytest.mark.parametrize("name", NAMES)
def test_native_code_gives_the_bits_of_the_reference(name: str) -> None:
    columns = arguments(name, FEW)
    wanted = interpreted(SCREENS[name].function, columns)
    for machine in HERE:
        found = compiled(SCREENS[name].function, columns, machine)
        for left, right in zip(found, wanted, strict=True):
            assert same(F64, left, right), (machine.name, differences(F64, left, right))


# ── the check finds faults ──────────────────────────────────────────────────────────────────────────

FAULT = 2.0**-80


@pytest.mark.parametrize("name", NAMES)
def test_a_result_off_by_a_little_is_found(name: str) -> None:
    high, low = compiled(SCREENS[name].function, arguments(name, FEW))
    errors = error_log2((high, low + high * FAULT), truths_of(name, FEW))
    assert SCREENS[name].error_log2 < np.max(errors) < -79


CONSTANTS = [
    *((name, "LN2") for name in ("exp", "expm1", "sinh", "cosh", "tanh", "erfc", "pow")),
    *(("exp", "EXP", row) for row in range(2)),
    ("exp2", "LN2_PAIR"),
    *((name, "LN2_PAIR") for name in ("log", "log10", "log1p", "asinh", "acosh", "atanh")),
    ("log2", "LOG2_E"),
    ("log10", "LOG10_E"),
    ("log", "LOG_RECIPROCALS", 0),
    ("log2", "LOG_RECIPROCALS", 10),
    ("log", "LOG", 0),
    *((name, "TWO_OVER_PI") for name in ("sin", "cos", "tan")),
    ("sin", "HALF_PI"),
    ("sin", "SINES", 3),
    ("tan", "COSINES", 9),
    ("cos", "SIN", 0),
    ("sin", "VERSINE", 0),
    *((name, "HALF_PI") for name in ("atan", "atan2", "acos", "asin")),
    *((name, "PI") for name in ("atan2", "acos")),
    ("atan", "ARC_TANGENTS", 16),
    ("atan", "ATAN", 0),
    ("erf", "ERF", 1),
    *((name, "ERFC_LOW", 0) for name in ("erf", "erfc")),
]
"""A function, a constant that it rests on, and the row where that is a table."""


def _faulty(words: tuple[float, ...], name: str) -> tuple[float, ...]:
    """A number's second word changed by 2^-80 of the first; of low words alone, the first."""
    if name == "ERFC_LOW":
        return (words[0] + FAULT, *words[1:])
    return (words[0], words[1] + words[0] * FAULT, *words[2:])


@pytest.mark.parametrize("case", CONSTANTS, ids=lambda case: "-".join(map(str, case)))
def test_a_faulty_constant_is_found(case: tuple[str, str, int] | tuple[str, str], monkeypatch: Any) -> None:
    name, constant, *row = case
    whole = getattr(constants, constant)
    changed = [*whole[: row[0]], _faulty(whole[row[0]], constant), *whole[row[0] + 1 :]] if row else None
    monkeypatch.setattr(constants, constant, tuple(changed) if changed else _faulty(whole, constant))
    errors = error_log2(compiled(SCREENS[name].function, arguments(name, SOME)), truths_of(name, SOME))
    assert np.max(errors) > SCREENS[name].error_log2


def test_constants_are_those_printed() -> None:
    assert Path(constants.__file__).read_text() == generate.module_text()


# ── what rounding to f32 rests on ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "expm1", "log1p"])
def test_low_part_of_a_tiny_argument(name: str) -> None:
    """Where f(x) is near x the low part is f(x) - x, with the sign and the size that this has."""
    x = np.exp2(-np.arange(60.0, 150.0))
    x = np.concatenate([x, -x])
    high, low = compiled(SCREENS[name].function, [x])
    assert np.array_equal(high, x)
    exact = truths(lambda value: reference(name)(value) - value, [x], precision=1000)
    assert np.max(error_log2((low, np.zeros(len(x))), exact)) < -40


def value(words: tuple[Array, Array]) -> list[Any]:
    with gmpy2.context(precision=2000):
        return [gmpy2.mpfr(high) + gmpy2.mpfr(low) for high, low in zip(*words, strict=True)]


@pytest.mark.parametrize(
    ("name", "x", "limit", "side"),
    [
        ("tanh", 1e9, 1, -1), ("tanh", -1e9, -1, 1), ("erf", 20.0, 1, -1), ("erf", -1e30, -1, 1),
        ("erfc", -30.0, 2, -1), ("expm1", -1e4, -1, 1), ("cosh", 2.0**-100, 1, 1), ("cos", 2.0**-100, 1, -1),
        ("exp", 2.0**-100, 1, 1), ("exp", -(2.0**-149), 1, -1), ("exp2", 2.0**-149, 1, 1),
    ],
)  # fmt: skip
def test_a_saturated_result_is_beside_its_limit(name: str, x: float, limit: int, side: int) -> None:
    found = value(compiled(SCREENS[name].function, [np.array([x] * 16)]))[0]
    with gmpy2.context(precision=2000):
        assert 0 < (found - limit) * side < 2.0**-80


@pytest.mark.parametrize(
    ("name", "x"),
    [("exp", 1e30), ("exp2", 1e30), ("expm1", 1e30), ("sinh", 1e30), ("cosh", 1e30), ("cosh", -1e30)],
)
def test_overflow_is_beyond_f32(name: str, x: float) -> None:
    assert 2.0**129 < value(compiled(SCREENS[name].function, [np.array([x] * 16)]))[0] < math.inf


@pytest.mark.parametrize(("name", "x"), [("exp", -1e30), ("exp2", -1e30), ("erfc", 1e30)])
def test_underflow_is_beyond_f32(name: str, x: float) -> None:
    assert 0 < value(compiled(SCREENS[name].function, [np.array([x] * 16)]))[0] < 2.0**-151


def test_pow_beyond_f32() -> None:
    x, y = np.array([2.0, 2.0, 0.5, 0.5] * 4), np.array([1e30, -1e30, 1e30, -1e30] * 4)
    found = value(compiled(SCREENS["pow"].function, [x, y]))
    assert all(2.0**129 < number < math.inf for number in (found[0], found[3]))
    assert all(0 < number < 2.0**-151 for number in found[1:3])


@pytest.mark.parametrize(
    ("name", "x", "exact"),
    [("exp", 0, 1), ("exp2", 3, 8), ("exp2", -149, 2.0**-149), ("log", 1, 0), ("log2", 8, 3),
     ("log2", 2.0**-149, -149), ("sin", 0, 0), ("cos", 0, 1), ("acos", 1, 0), ("acosh", 1, 0), ("cbrt", -27, -3),
     ("cbrt", 0, 0), ("rsqrt", 4, 0.5), ("erf", 0, 0), ("erfc", 0, 1), ("tanh", 0, 0)],
)  # fmt: skip
def test_exact_results(name: str, x: float, exact: float) -> None:
    assert value(compiled(SCREENS[name].function, [np.array([float(x)] * 16)]))[0] == exact
