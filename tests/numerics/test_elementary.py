"""Elementary functions against mpmath, their special values, and their independence of the CPU."""

from __future__ import annotations

import hashlib
import importlib
import math
import os
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest

from repro.ir.expressions import Expr, Rarely, Reduce, topological
from repro.ir.types import F32, F64
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS, evaluate
from repro.numerics.interpret import argument

inf, nan = math.inf, math.nan
ALL = [*FUNCTIONS, *BINARY_FUNCTIONS]
ROOT = Path(__file__).resolve().parents[2]

MP = {
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "log10": lambda x: mpmath.log(x) / mpmath.log(10),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "pow": mpmath.power,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
}
DOMAINS = {
    "exp": (-100, 88), "exp2": (-148, 127.9), "expm1": (-40, 88), "sinh": (-89, 89), "cosh": (-89, 89),
    "tanh": (-11, 11), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "erf": (-4, 4), "erfc": (-4, 10),
    "acosh": (1, 40), "log1p": (-0.999, 30),
}  # fmt: skip
POSITIVE = ("log", "log2", "log10", "rsqrt")


def samples(name, dtype, count):
    """Fixed arguments over the whole domain, small ones and far ones."""
    rng = np.random.default_rng(sum(map(ord, name)))
    greatest = 127 if dtype is F32 else 1000
    if name == "pow":
        x = (1 + rng.random(count)) * 2.0 ** rng.uniform(-20, 20, count)
        return [v.astype(dtype.storage) for v in (x, rng.standard_normal(count) * 3)]
    if name == "atan2":
        y = rng.standard_normal(count) * 2.0 ** rng.uniform(-20, 20, count)
        return [v.astype(dtype.storage) for v in (y, rng.standard_normal(count))]
    if name in DOMAINS:
        low, high = DOMAINS[name]
        x = rng.uniform(low, high, count)
        if low <= 0:
            x[: count // 3] *= 2.0 ** rng.uniform(-60, 0, count // 3)
    else:
        x = rng.choice([-1, 1], count) * (1 + rng.random(count)) * 2.0 ** rng.uniform(-greatest, greatest, count)
        x[: count // 2] = rng.standard_normal(count // 2) * 10
        if name in POSITIVE:
            x = np.abs(x)
    return [x.astype(dtype.storage)]


def error_in_ulps(name, dtype, arrays, got) -> list[float]:
    errors = []
    precision, least = (24, -149) if dtype is F32 else (53, -1074)
    with mpmath.workprec(1400 if name in ("sin", "cos", "tan") else 200):
        function = MP.get(name) or getattr(mpmath, name)
        for values in zip(*(array.tolist() for array in arrays), got.tolist(), strict=True):
            exact = function(*map(mpmath.mpf, values[:-1]))
            if exact == 0:
                assert values[-1] == 0
                continue
            exponent = int(mpmath.floor(mpmath.log(abs(exact), 2)))
            unit = mpmath.mpf(2) ** max(exponent - precision + 1, least)
            errors.append(float(abs(values[-1] - exact) / unit))
    return errors


@pytest.mark.parametrize("name", ALL)
def test_f32_is_correctly_rounded_on_samples(name):
    arrays = samples(name, F32, 150)
    errors = error_in_ulps(name, F32, arrays, evaluate(name, arrays, F32))
    assert len(errors) > 100
    assert max(errors) <= 0.5


@pytest.mark.parametrize("name", ALL)
def test_f64_error_is_within_an_ulp(name):
    arrays = samples(name, F64, 150)
    errors = error_in_ulps(name, F64, arrays, evaluate(name, arrays, F64))
    assert len(errors) > 100
    assert max(errors) <= 1


SPECIALS = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0), (nan, nan), (1e4, inf), (-1e4, 0.0)],
    "exp2": [(0.0, 1.0), (10.0, 1024.0), (inf, inf), (-inf, 0.0), (nan, nan), (1e5, inf), (-1e5, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -1.0), (nan, nan), (1e4, inf), (-1e4, -1.0), (1e-40, 1e-40)],
    "log": [(1.0, 0.0), (0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, nan), (-inf, nan), (nan, nan)],
    "log2": [(1.0, 0.0), (8.0, 3.0), (0.25, -2.0), (0.0, -inf), (inf, inf), (-1.0, nan), (nan, nan)],
    "log10": [(1.0, 0.0), (1000.0, 3.0), (0.0, -inf), (inf, inf), (-1.0, nan), (nan, nan)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -inf), (inf, inf), (-2.0, nan), (nan, nan), (-inf, nan), (1e-40, 1e-40)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan), (1e-40, 1e-40)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (inf, nan), (-inf, nan), (nan, nan)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.0, math.pi / 2), (-1.0, -math.pi / 2), (1.5, nan), (-inf, nan), (nan, nan)],
    "acos": [(1.0, 0.0), (-1.0, math.pi), (0.0, math.pi / 2), (1.5, nan), (-inf, nan), (inf, nan), (nan, nan)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (inf, math.pi / 2), (-inf, -math.pi / 2), (1.0, math.pi / 4), (nan, nan)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf), (nan, nan), (1e4, inf), (1e-40, 1e-40)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, inf), (nan, nan), (-1e4, inf)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan), (100.0, 1.0), (-1e-40, -1e-40)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf), (nan, nan)],
    "acosh": [(1.0, 0.0), (inf, inf), (0.5, nan), (-1.0, nan), (-1e9, nan), (-inf, nan), (nan, nan)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, inf), (-1.0, -inf), (1.5, nan), (inf, nan), (nan, nan)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan), (7.0, 1.0)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (inf, 0.0), (-inf, 2.0), (nan, nan), (30.0, 0.0)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (27.0, 3.0), (-8.0, -2.0), (inf, inf), (-inf, -inf), (nan, nan)],
    "rsqrt": [(0.0, inf), (-0.0, -inf), (4.0, 0.5), (inf, 0.0), (-1.0, nan), (nan, nan)],
}


def same(got, expected, dtype) -> bool:
    rounded = dtype.storage.type(expected)
    return bool(np.isnan(got) and np.isnan(rounded)) or got.tobytes() == rounded.tobytes()


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", list(SPECIALS))
def test_special_values(name, dtype):
    arguments = np.array([x for x, _ in SPECIALS[name]], dtype.storage)
    got = evaluate(name, [arguments], dtype)
    for (x, expected), value in zip(SPECIALS[name], got, strict=True):
        assert same(value, expected, dtype), (x, expected, value)


def test_every_function_has_special_values():
    assert set(SPECIALS) == set(FUNCTIONS)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_pow_of_special_values_is_ieee(dtype):
    values = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, inf, -inf, nan, 2.0**60, -1e30, 1e-30]
    x, y = (np.array(v, dtype.storage) for v in zip(*((a, b) for a in values for b in values), strict=True))
    got = evaluate("pow", [x, y], dtype)
    for a, b, value in zip(x.tolist(), y.tolist(), got, strict=True):
        expected = python_pow(a, b)
        near = dtype is F64 and math.isfinite(expected) and abs(value - expected) <= math.ulp(expected)
        with np.errstate(over="ignore"):
            assert same(value, expected, dtype) or (near and abs(expected) not in (1, 2, 4, 8, 9, 27)), (a, b, value)


def python_pow(a: float, b: float) -> float:
    """math.pow follows C99 Annex F but raises where C sets a flag."""
    odd = math.isfinite(b) and b == math.floor(b) and math.fmod(b, 2) != 0
    if a == 0 and b < 0:
        return math.copysign(inf, a) if odd else inf
    try:
        return math.pow(a, b)
    except ValueError:
        return nan
    except OverflowError:
        return -inf if a < 0 and odd else inf


def test_pow_decides_midpoints_exactly():
    """Squares of 13-bit numbers lie on midpoints of f32; ties go to even."""
    x = np.arange(4097, 5700, 2, dtype=np.float32)
    got = evaluate("pow", [x, np.full_like(x, 2)], F32)
    assert (got == (x.astype(np.float64) ** 2).astype(np.float32)).all()
    roots = evaluate("pow", [x * x, np.full_like(x, 0.5)], F32)
    assert (roots == np.sqrt(x * x)).all()


def test_subnormal_results_are_rounded_once():
    x = np.linspace(-103.9, -87.4, 200, dtype=np.float32)
    errors = error_in_ulps("exp", F32, [x], evaluate("exp", [x], F32))
    assert len(errors) == 200 and max(errors) <= 0.5


def operations(expr: Expr) -> int:
    """The distinct expressions that every element computes: not those of seldom sides alone."""
    seen, stack = set[Expr](), [expr]
    while stack:
        found = stack.pop()
        if found not in seen:
            seen.add(found)
            stack.extend((found.condition, found.common) if isinstance(found, Rarely) else found.children)
    return len(seen)


def test_sequences_hold_no_reduction_and_a_bounded_number_of_operations():
    common, whole = {}, {}
    for name, function in (*FUNCTIONS.items(), *BINARY_FUNCTIONS.items()):
        operands = [argument(F32, position) for position in range(2 if name in BINARY_FUNCTIONS else 1)]
        result = function(*operands)
        assert not any(isinstance(expr, Reduce) for expr in topological([result])), name
        common[name], whole[name] = operations(result), sum(1 for _ in topological([result]))
    assert max(common.values()) < 400, common
    assert max(whole.values()) < 1000, whole


DIGEST = """
import hashlib, numpy as np
from repro.ir.loops import Exact
from repro.ir.types import F32, F64
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS, evaluate
from repro.numerics.contract import LANES_ORDER, chain
from repro.numerics.sums import reduce_reference
digest = hashlib.sha256()
rng = np.random.Generator(np.random.Philox(5))
words = rng.integers(0, 2**64, 4000, dtype=np.uint64)
for dtype, x in ((F32, words.astype(np.uint32).view(np.float32)), (F64, words.view(np.float64))):
    for name in (*FUNCTIONS, *BINARY_FUNCTIONS):
        result = evaluate(name, [x] if name in FUNCTIONS else [np.abs(x), x[::-1]], dtype)
        digest.update(np.where(np.isnan(result), dtype.storage.type(0), result).tobytes())
    y = ((words >> np.uint64(40)).astype(np.float64) * 2.0**-24 - 0.5).astype(dtype.storage)
    digest.update(reduce_reference("add", LANES_ORDER, [y.reshape(2, -1)]).tobytes())
    digest.update(reduce_reference("fma", chain(), [y.reshape(10, 1, -1), y.reshape(1, 10, -1)]).tobytes())
    digest.update(reduce_reference("max", Exact(), [x]).tobytes())
print(digest.hexdigest())
"""


def test_bits_do_not_depend_on_cpu_features():
    umath = importlib.import_module("numpy._core._multiarray_umath")
    dispatched = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]
    extra = [name for name in dispatched if name not in umath.__cpu_baseline__]
    digests = []
    for disabled in ("", ",".join(extra)):
        environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": disabled, "PYTHONPATH": str(ROOT)}
        run = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True, timeout=240
        )
        digests.append(run.stdout.strip())
    assert len(digests[0]) == len(hashlib.sha256().hexdigest())
    assert digests[0] == digests[1]


@pytest.mark.full
def test_constants_are_what_the_scripts_print():
    """For every change a class of each function's results is compared with the proof's (tests/proofs), and the code of
    golden models, constants and all, with their manifests."""
    run = subprocess.run(
        [sys.executable, "-m", "tools.constants", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
