"""The f64 elementary functions: within 1 ULP of MPFR's value, their special values, the same bits on each target."""

from __future__ import annotations

import math
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from repro.ir.expressions import Axis, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F64, I64
from repro.numerics import interpret
from repro.numerics.elementary.f64 import SEQUENCES
from repro.numerics.elementary.value import Value
from tests.targets.native import HERE, differences, run_kernel
from tools.constants.__main__ import names, text_of

gmpy2: Any = import_module("gmpy2")
"""An extension module, whose names the type checker does not see."""

inf, nan, pi = math.inf, math.nan, math.pi
BINARY = ("pow", "atan2")
UNARY = [name for name in SEQUENCES if name not in BINARY]
PRECISION = 200

MPFR = {"rsqrt": lambda x: gmpy2.rec_sqrt(x) if x else 1 / x, "pow": lambda x, y: x**y} | {
    name: getattr(gmpy2, name) for name in SEQUENCES if name not in ("rsqrt", "pow")
}
"""MPFR has rec_sqrt(-0) = +inf, the contract -inf."""
ANY = (-inf, inf)
DOMAINS = {
    "exp": (-745.2, 709.8), "exp2": (-1075.0, 1024.0), "expm1": (-45.0, 709.8), "sinh": (-710.5, 710.5),
    "cosh": (-710.5, 710.5), "tanh": (-22.5, 22.5), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atanh": (-1.0, 1.0),
    "erf": (-6.1, 6.1), "erfc": (-6.1, 27.3), "acosh": (1.0, inf), "log1p": (-1.0, inf), "log": (0.0, inf),
    "log2": (0.0, inf), "log10": (0.0, inf), "rsqrt": (0.0, inf),
}  # fmt: skip
"""Where results are neither constant nor NaN; the rest: everywhere."""

TURNING = ("sin", "cos", "tan")
TURNS = [n * pi / 4 * 2.0**k for n in (1, 2, 3, 5, 7) for k in (0, 1, 5, 20, 27, 28, 29, 40, 300, 1000)]
BREAKS = [
    *TURNS,
    *(n / 32 for n in range(1, 66)),  # centres and ends of the logarithms' pieces, quarters of atan
    *(n * math.log(2) / 2 for n in (1, 2, 3, 21, 41, 101, 1023, 2045, 2047)),
    *((16 * 15 / 16 / n - 1) / 2 for n in range(1, 8)),  # ends of erfc's pieces
    *(57 / 128, 0.75, 2.0**28, 2.0**-28, 2.0**-27, 2.0**30, 2.0**60, 22.0, 26.55, 708.4, 709.78, 1022.0),
    *(2.0**k for k in range(-1074, 1024, 61)),
]


def nearest_turns(exponent, count=2):
    """Whole q below 2^53 for which q 2^exponent lies nearest to multiples of pi/2: denominators of the convergents
    of 2^exponent 2/pi (Muller, Elementary Functions, 11.3)."""
    with gmpy2.context(precision=1400):
        rest = Fraction(*map(int, (2 / gmpy2.const_pi()).as_integer_ratio())) * Fraction(2) ** exponent
    found, previous, current = [], 0, 1
    while current < 1 << 53:
        found.append(current)
        rest = 1 / (rest - math.floor(rest))
        previous, current = current, math.floor(rest) * current + previous
    return [math.ldexp(q, exponent) for q in found[-count:]]


def reference(name, arrays):
    def built(*operands):
        return SEQUENCES[name](*map(Value, operands)).expr

    return interpret.evaluate(built, arrays, [F64] * len(arrays))


def inside(name, x):
    low, high = DOMAINS.get(name, ANY)
    return x[(x >= low) & (x <= high) & np.isfinite(x)]


def neighbours(points):
    """Each point, and those one and a few hundred thousand steps to its sides."""
    bits = np.array(points, np.float64).view(np.int64)[:, None] + np.array([0, -1, 1, -400_000, 400_000])
    return bits.view(np.float64).reshape(-1)


def unary_arguments(name, count):
    """Breakpoints with both signs; then evenly spread values, values of everyday size, and any bits."""
    rng = np.random.default_rng(sum(map(ord, name)))
    low, high = np.clip(DOMAINS.get(name, (-40.0, 40.0)), -745.2, 1024.0)
    spread = rng.uniform(low, high, count)
    usual = rng.choice([-1, 1], count) * 2.0 ** rng.uniform(-30, 5, count)
    any_bits = rng.integers(0, 2**64, count, np.uint64).view(np.float64)
    hard = [x for exponent in range(-50, 970, 12) for x in nearest_turns(exponent)] if name in TURNING else []
    near = neighbours([*BREAKS, *hard, *(end for end in DOMAINS.get(name, ()) if abs(end) < inf)])
    found = np.unique(np.concatenate([near, -near, spread, usual, any_bits]))  # keeps either zero, by how it sorts
    return [inside(name, np.concatenate([found[found != 0], [0.0, -0.0]]))]


def pow_arguments(count):
    """Results of any size from bases of any size, near 1 too; small whole and quarter exponents."""
    rng = np.random.default_rng(7)
    log2_x = np.concatenate([
        rng.uniform(-1074, 1024, count),
        rng.choice([-1, 1], count) * 2.0 ** rng.uniform(-52, 3, count),
    ])  # fmt: skip
    x = np.exp2(log2_x)
    exact = np.log2(x)
    keep = exact != 0
    x, y = x[keep], rng.uniform(-1075, 1024, 2 * count)[keep] / exact[keep]
    simple = rng.integers(1, 3000, count) / 2.0 ** rng.integers(0, 12, count)
    return [np.concatenate([x, simple]), np.concatenate([y, rng.integers(-80, 80, count) / 4])]


def atan2_arguments(count):
    """All angles at all sizes, quotients near the quarters, quotients of all sizes."""
    rng = np.random.default_rng(8)
    size = 2.0 ** rng.uniform(-1000, 1000, 3 * count)
    quotient = np.concatenate([
        rng.uniform(0, 2, count),
        rng.integers(0, 17, count) / 8 * (1 + rng.uniform(-1, 1, count) * 2.0 ** rng.uniform(-52, -8, count)),
        2.0 ** rng.uniform(-70, 70, count),
    ])  # fmt: skip
    with np.errstate(over="ignore"):
        other = size * quotient
    swap = rng.integers(0, 2, 3 * count) == 1
    y, x = np.where(swap, size, other), np.where(swap, other, size)
    signs = rng.choice([-1, 1], (2, 3 * count))
    keep = np.isfinite(other)
    tiny = 2.0 ** rng.uniform(-1074, -1000, count)
    return [np.append((y * signs[0])[keep], tiny), np.append((x * signs[1])[keep], 2.0 ** rng.uniform(-3, 40, count))]


def arguments(name, count):
    pairs = {"pow": pow_arguments, "atan2": atan2_arguments}
    return pairs[name](count) if name in pairs else unary_arguments(name, count)


def errors_in_ulps(name, arrays, got):
    """|got - true| in units in the last place of the true value's binade; an overflow counts where it is none."""
    errors = []
    with gmpy2.context(precision=PRECISION, emin=-(10**6), emax=10**6):
        for *operands, value in zip(*(array.tolist() for array in arrays), got.tolist(), strict=True):
            exact = MPFR[name](*map(gmpy2.mpfr, operands))
            if exact == 0 or not gmpy2.is_finite(exact):
                errors.append(0.0 if value == exact else inf)
                continue
            exponent = gmpy2.get_exp(exact)
            if math.isinf(value) and abs(exact) >= gmpy2.mpfr(2) ** 1024 * (1 - gmpy2.mpfr(2) ** -54):
                errors.append(0.0)
                continue
            unit = gmpy2.mpfr(2) ** max(exponent - 53, -1074)
            errors.append(float(abs(gmpy2.mpfr(value) - exact) / unit))
    return np.array(errors)


@pytest.mark.parametrize("name", SEQUENCES)
def test_error_is_at_most_one_ulp(name):
    arrays = arguments(name, 700)
    errors = errors_in_ulps(name, arrays, reference(name, arrays))
    assert errors.size > 800
    worst = int(np.argmax(errors))
    assert errors[worst] <= 1, [array[worst].hex() for array in arrays]


def test_an_error_above_one_ulp_would_be_noticed():
    arrays = arguments("exp", 700)
    got = reference("exp", arrays)
    off = np.nextafter(np.nextafter(got, inf), inf)
    assert errors_in_ulps("exp", arrays, off).max() > 1


def kernel(names_of, count, width):
    """y_f[i] = f(a[i]) or f(a[i], b[i]) for each of the functions."""
    axis = Axis(I64, (0, count), ())
    operands = [Value(load(F64, position, axis)) for position in range(width)]
    values = [SEQUENCES[name](*operands).expr for name in names_of]
    buffers = [BufferParameter(F64, count, position >= width) for position in range(width + len(values))]
    stores = [Store(width + position, axis, value) for position, value in enumerate(values)]
    return Kernel(tuple(buffers), (), (axis,), 0, tuple(stores))


@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
@pytest.mark.parametrize("group", [UNARY, BINARY], ids=["one operand", "two operands"])
def test_machines_agree_with_the_reference(machine, group):
    width = 2 if group is BINARY else 1
    ends = np.array([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 5e-324, 1e308])
    parts = [arguments(name, 150) for name in (group if width == 2 else ("exp", "sin", "erfc", "atanh"))]
    grids = np.meshgrid(*[ends] * width)
    columns = [np.concatenate([grid.reshape(-1), *column]) for grid, *column in zip(grids, *parts, strict=True)]
    outputs = [np.zeros(columns[0].size) for _ in group]
    after = run_kernel(kernel(group, columns[0].size, width), [*columns, *outputs], machine)
    for name, found in zip(group, after[width:], strict=True):
        assert not differences(F64, found, reference(name, columns)), name


def same(got, expected):
    return bool(np.isnan(got) and np.isnan(expected)) or got.tobytes() == np.float64(expected).tobytes()


SMALLEST, LEAST_NORMAL, GREATEST = 5e-324, 2.0**-1022, 1.7976931348623157e308
ODD = ("expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh")
"""Functions with f(x) = x to the last bit for every tiny x."""


@pytest.mark.parametrize("name", ODD)
def test_tiny_arguments_are_their_own_values(name):
    x = np.array([0.0, -0.0, SMALLEST, -SMALLEST, LEAST_NORMAL, -LEAST_NORMAL, 2.0**-60, -(2.0**-60)])
    assert reference(name, [x]).tobytes() == x.tobytes()


ENDS = {
    "exp": [(710.0, inf), (-746.0, 0.0), (-745.0, SMALLEST)],
    "exp2": [(1024.0, inf), (1023.0, 2.0**1023), (-1074.0, SMALLEST), (-1075.0, 0.0), (-1022.0, LEAST_NORMAL)],
    "expm1": [(710.0, inf), (-40.0, -1.0), (-inf, -1.0)],
    "log": [(1.0, 0.0), (0.0, -inf), (inf, inf), (-SMALLEST, nan)],
    "log2": [(SMALLEST, -1074.0), (2.0**-1022, -1022.0), (2.0**1023, 1023.0), (1.0, 0.0)],
    "log1p": [(-1.0, -inf), (-1 - 2.0**-52, nan), (inf, inf)],
    "sin": [(inf, nan)], "cos": [(inf, nan), (0.0, 1.0), (2.0**-30, 1.0)], "tan": [(-inf, nan)],
    "sinh": [(-711.0, -inf), (711.0, inf)],
    "cosh": [(-711.0, inf), (0.0, 1.0)],
    "tanh": [(20.0, 1.0), (-20.0, -1.0)],
    "acosh": [(1.0, 0.0), (1 - 2.0**-53, nan), (inf, inf)],
    "atanh": [(1.0, inf), (-1.0, -inf), (1 + 2.0**-52, nan)],
    "asin": [(1.0, pi / 2), (-1.0, -pi / 2), (1 + 2.0**-52, nan)],
    "acos": [(1.0, 0.0), (-1.0, pi), (0.0, pi / 2), (-1 - 2.0**-52, nan)],
    "atan": [(GREATEST, pi / 2), (-inf, -pi / 2), (1.0, pi / 4)],
    "asinh": [(inf, inf), (-inf, -inf)],
    "erf": [(6.0, 1.0), (-inf, -1.0), (SMALLEST, SMALLEST), (-0.0, -0.0)],
    "erfc": [(-6.0, 2.0), (27.3, 0.0), (GREATEST, 0.0), (-GREATEST, 2.0), (0.0, 1.0)],
    "cbrt": [(8 * SMALLEST, 2.0**-357), (-(2.0**1023), -(2.0**341)), (inf, inf), (-0.0, -0.0)],
    "rsqrt": [(2.0**-1074, 2.0**537), (2.0**1022, 2.0**-511), (inf, 0.0), (-0.0, -inf), (-SMALLEST, nan)],
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_ends_of_the_domain(name):
    got = reference(name, [np.array([x for x, _ in ENDS[name]])])
    for (x, expected), value in zip(ENDS[name], got, strict=True):
        assert same(value, expected), (x, expected, value)


def test_exact_results():
    whole = np.arange(1.0, 200.0)
    powers = np.arange(-300.0, 300.0)
    assert (reference("cbrt", [whole**3]) == whole).all()
    assert (reference("rsqrt", [4.0**powers]) == 2.0**-powers).all()
    assert (reference("exp2", [powers]) == 2.0**powers).all()
    assert (reference("log2", [2.0**powers]) == powers).all()
    tens = np.array([float(10**n) for n in range(23)])
    assert (reference("log10", [tens]) == np.arange(23.0)).all()
    assert (reference("pow", [whole, np.full(199, 2.0)]) == whole**2).all()
    assert (reference("pow", [whole**2, np.full(199, 0.5)]) == whole).all()


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, inf, -inf, nan, 2.0**60, GREATEST, SMALLEST]


def special_pairs():
    return [column.reshape(-1) for column in np.meshgrid(SPECIAL, SPECIAL)]


def mpfr_pow(x, y):
    """MPFR's pow has C99's special cases; rounded once to f64, subnormal results too."""
    with gmpy2.context(precision=53, emin=-1073, emax=1024, subnormalize=True):
        return float(gmpy2.mpfr(x) ** gmpy2.mpfr(y))


def test_pow_of_special_values():
    x, y = special_pairs()
    for a, b, value in zip(x.tolist(), y.tolist(), reference("pow", [x, y]), strict=True):
        assert same(value, mpfr_pow(a, b)), (a, b, value)


def test_atan2_of_special_values():
    y, x = special_pairs()
    for a, b, value in zip(y.tolist(), x.tolist(), reference("atan2", [y, x]), strict=True):
        with gmpy2.context(precision=53, emin=-1073, emax=1024, subnormalize=True):
            assert same(value, float(gmpy2.atan2(gmpy2.mpfr(a), gmpy2.mpfr(b)))), (a, b, value)


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("f64_")])
def test_constants_are_what_the_generator_prints(name):
    path, text = text_of(name)
    assert path.read_text() == text
