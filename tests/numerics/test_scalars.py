"""Every scalar operation against an independent meaning: Python integers, fractions and struct."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.ir.scalars import SCALARS
from repro.ir.types import (
    BF16,
    BOOL,
    CANONICAL_NAN,
    DTYPES,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
)
from repro.numerics.host_mode import exact_arithmetic
from repro.numerics.narrow_formats import NARROW
from repro.numerics.numpy_scalars import canonical_nan, canonicalize, evaluate

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
F32_SPECIALS = [0.0, -0.0, 1.0, -1.0, 2.0**-149, -(2.0**-149), 2.0**-126, 3.4028234663852886e38, math.inf, -math.inf,
                math.nan, 0.5, 1.5, 2.5, -2.5, 16777217.0]  # fmt: skip
f64s = st.floats(allow_nan=True, width=64)
f32s = st.floats(allow_nan=True, width=32)


def run(op, dtype, *values, result=None):
    arrays = [np.array(value, dtype.storage) for value in values]
    with exact_arithmetic():
        return evaluate(op, result or dtype, [dtype] * len(arrays), arrays)


def bits(array):
    array = np.asarray(array)
    return array.view(np.dtype(f"u{array.dtype.itemsize}")).tolist()


def round_fraction(exact: Fraction, dtype) -> float:
    """To nearest even, from the definition of the format, with integers only."""
    precision, least, greatest = (24, -149, 2**128) if dtype is F32 else (53, -1074, 2**1024)
    if exact == 0:
        return 0.0
    magnitude = abs(exact)
    exponent = math.floor(math.log2(magnitude.numerator) - math.log2(magnitude.denominator))
    while Fraction(2) ** exponent > magnitude:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    unit = Fraction(2) ** max(exponent - precision + 1, least)
    rounded = round(magnitude / unit) * unit  # Python rounds a half to even
    value = math.inf if rounded >= greatest else float(rounded)
    return value if exact > 0 else -value


def fma_by_fractions(a, b, c, dtype):
    if math.isfinite(a) and math.isfinite(b) and not math.isfinite(c):
        return c
    if not all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c if a * b == 0 or c == 0 else 0.0
    return round_fraction(exact, dtype)


def same(left, right) -> bool:
    return (left != left and right != right) or struct.pack("<d", left) == struct.pack("<d", right)


def test_the_table_is_complete():
    assert len(SCALARS) == 30


def test_fma_f32_midpoint_met_by_a_naive_double():
    a, b, c = 411849 * 2.0**-30, 20857 * 2.0**-27, 1.0
    assert np.float32(a * b + c) == 1.0  # what rounding twice gives
    assert run("fma", F32, a, b, c) == np.float32(1 + 2.0**-23)


@given(f32s, f32s, f32s)
@settings(max_examples=400)
def test_fma_f32(a, b, c):
    assert same(float(run("fma", F32, a, b, c)), fma_by_fractions(a, b, c, F32))


@given(
    st.integers(-(2**24), 2**24), st.integers(-(2**24), 2**24), st.integers(0, 90), st.booleans(), st.integers(-2, 2)
)
@settings(max_examples=400)
def test_fma_f32_near_midpoints(m, n, shift, down, nudge):
    a, b = float(m), float(n)
    product = Fraction(m * n)
    near = round_fraction(-product, F32) if down else round_fraction(product, F32)
    c = float(np.float32(near * 2.0 ** (shift - 45)) + np.float32(nudge))
    scaled = float(np.float32(b * 2.0**-60))
    for x, y, z in ((a, b, c), (a, scaled, c), (a * 2.0**-70, scaled, c * 2.0**-126)):
        x, y, z = (float(np.float32(v)) for v in (x, y, z))
        assert same(float(run("fma", F32, x, y, z)), fma_by_fractions(x, y, z, F32))


@given(f64s, f64s, f64s)
@settings(max_examples=300)
def test_fma_f64(a, b, c):
    assert same(float(run("fma", F64, a, b, c)), fma_by_fractions(a, b, c, F64))


@pytest.mark.parametrize("dtype", [F32, F64])
def test_fma_of_an_overflowing_product_and_an_infinity(dtype):
    large = 2.0**100 if dtype is F32 else 2.0**1000
    assert float(run("fma", dtype, large, large, -np.inf)) == -np.inf
    assert float(run("fma", dtype, large, -large, np.inf)) == np.inf


@given(st.integers(1, 2**53), st.integers(1, 2**53), st.integers(-60, 120), st.integers(-3, 3), st.booleans())
@settings(max_examples=400)
def test_fma_f64_cancelling(m, n, shift, nudge, negative):
    a, b = float(m), float(n)
    c = round_fraction(-Fraction(m * n), F64) * (1 + nudge * 2.0**-52)
    for z in (c, c * 2.0**shift, -c * 2.0**-shift):
        assert same(float(run("fma", F64, a, b, z)), fma_by_fractions(a, b, z, F64))
    x, y, z = a * 2.0**-560, b * 2.0**-560, (-c if negative else c) * 2.0**-1040 * 2.0**-80
    assert same(float(run("fma", F64, x, y, z)), fma_by_fractions(x, y, z, F64))


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "sqrt"])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_arithmetic_is_correctly_rounded(op, dtype):
    rng = np.random.default_rng(7)
    raw = rng.integers(0, 2**63, (2, 400), dtype=np.uint64)
    x, y = (raw >> np.uint64(64 - dtype.bits)).astype(f"u{dtype.bytes}").view(dtype.storage)
    got = run(op, dtype, *((x,) if op == "sqrt" else (x, y)))
    checked = 0
    for a, b, r in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        if not (math.isfinite(a) and math.isfinite(b)) or b == 0 or (op == "sqrt" and a < 0):
            continue
        fa, fb = Fraction(a), Fraction(b)
        if op == "sqrt":
            fraction = Fraction(a)
            scale = 2**2400
            root = Fraction(math.isqrt(fraction.numerator * scale * scale // fraction.denominator), scale)
            assert r == round_fraction(root, dtype)
        else:
            exact = {"add": fa + fb, "sub": fa - fb, "mul": fa * fb, "div": fa / fb}[op]
            assert r == round_fraction(exact, dtype)
        checked += 1
    assert checked > 300


@pytest.mark.parametrize("dtype", [F32, F64])
def test_min_max(dtype):
    values = F32_SPECIALS
    a, b = (np.array(v) for v in zip(*((x, y) for x in values for y in values), strict=True))
    low, high = run("min", dtype, a, b), run("max", dtype, a, b)
    nan = CANONICAL_NAN[dtype]
    for x, y, lo, hi in zip(a.tolist(), b.tolist(), low, high, strict=True):
        if math.isnan(x) or math.isnan(y):
            assert bits(lo) == bits(hi) == nan
            continue
        key = lambda v: (v, math.copysign(1, v))  # noqa: E731
        assert same(float(lo), float(dtype.storage.type(min(x, y, key=key))))
        assert same(float(hi), float(dtype.storage.type(max(x, y, key=key))))


def test_comparisons_with_nan_and_zeros():
    a, b = [0.0, math.nan, 1.0], [-0.0, math.nan, math.nan]
    assert run("eq", F32, a, b).tolist() == [True, False, False]
    assert run("ne", F32, a, b).tolist() == [False, True, True]
    for op in ("lt", "gt"):
        assert run(op, F32, a, b).tolist() == [False, False, False]
    for op in ("le", "ge"):
        assert run(op, F32, a, b).tolist() == [True, False, False]


def test_float_remainder_is_exact():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 0x7FEFFFFFFFFFFFFF, 300).view(np.float64)
    y = rng.integers(0, 0x7FEFFFFFFFFFFFFF, 300).view(np.float64)
    got = run("rem", F64, x, y)
    for a, b, r in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        assert Fraction(r) == Fraction(a) % Fraction(b)
    specials = run(
        "rem", F64, [math.inf, 1.0, 1.0, math.nan, -0.0, -6.0, 5.5], [1.0, math.inf, 0.0, 1.0, 3.0, 3.0, -2.0]
    )
    assert bits(canonicalize(specials, F64)) == bits(
        np.where([1, 0, 1, 1, 0, 0, 0], canonical_nan(F64), [0, 1.0, 0, 0, -0.0, -0.0, 1.5])
    )


def test_rounding_to_integers_keeps_signs():
    x = [-0.0, 0.5, -0.5, 1.5, 2.5, -2.5, -0.2, 0.2, math.inf, 8388609.0, -3.5]
    expected = {
        "floor": [-0.0, 0.0, -1.0, 1.0, 2.0, -3.0, -1.0, 0.0, math.inf, 8388609.0, -4.0],
        "ceil": [-0.0, 1.0, -0.0, 2.0, 3.0, -2.0, -0.0, 1.0, math.inf, 8388609.0, -3.0],
        "trunc": [-0.0, 0.0, -0.0, 1.0, 2.0, -2.0, -0.0, 0.0, math.inf, 8388609.0, -3.0],
        "round": [-0.0, 0.0, -0.0, 2.0, 2.0, -2.0, -0.0, 0.0, math.inf, 8388609.0, -4.0],
    }
    for dtype in (F32, F64):
        for op, values in expected.items():
            for padding in (1, 7):  # other lanes of other vector code
                assert bits(run(op, dtype, x * padding)) == bits(np.array(values * padding, dtype.storage)), op


def wrap(value: int, dtype) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def integer_meaning(op, a, b, dtype):
    if op in ("div", "rem"):
        if b == 0:
            return 0
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return wrap(quotient if op == "div" else a - quotient * b, dtype)
    if op in ("shl", "shr"):
        amount = b & ((1 << dtype.bits) - 1)
        if amount >= dtype.bits:
            return 0
        return wrap(a << amount if op == "shl" else a >> amount, dtype)
    table = {
        "add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b), "and": a & b, "or": a | b,
        "xor": a ^ b, "neg": -a, "abs": abs(a), "not": ~a,
        "eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b,
    }  # fmt: skip
    return table[op] if isinstance(table[op], bool) else wrap(table[op], dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_operations(dtype):
    info = np.iinfo(dtype.storage)
    rng = np.random.default_rng(5)
    ends = [0, 1, 2, 3, info.max, info.max - 1, info.min, info.min + 1, dtype.bits, dtype.bits - 1, 7]
    if dtype.is_signed:
        ends += [-1, -2, -7]
    ends += rng.integers(info.min, info.max, 6, dtype=dtype.storage).tolist()
    a, b = (list(v) for v in zip(*((x, y) for x in ends for y in ends), strict=True))
    ops = [
        name for name, op in SCALARS.items() if dtype.kind in op.kinds and name not in ("select", "convert", "bitcast")
    ]
    assert len(ops) == 21
    for op in ops:
        boolean = op in ("eq", "ne", "lt", "le", "gt", "ge")
        got = run(op, dtype, *((a, b) if SCALARS[op].arity == 2 else (a,)), result=BOOL if boolean else dtype)
        assert got.dtype == (np.bool_ if boolean else dtype.storage)
        assert got.tolist() == [integer_meaning(op, x, y, dtype) for x, y in zip(a, b, strict=True)], op


def test_booleans():
    a, b = [False, False, True, True], [False, True, False, True]
    for op, expected in {"and": [0, 0, 0, 1], "or": [0, 1, 1, 1], "xor": [0, 1, 1, 0], "eq": [1, 0, 0, 1],
                         "lt": [0, 1, 0, 0], "ge": [1, 0, 1, 1]}.items():  # fmt: skip
        assert run(op, BOOL, a, b).tolist() == list(map(bool, expected))
    assert run("not", BOOL, a).tolist() == [True, True, False, False]
    assert run("bitcast", U8, [0, 1], result=BOOL).tolist() == [False, True]


def narrow_by_search(value: float, fmt) -> int:
    """Nearest code by trying them all; ties to even; from the stated saturation."""
    if math.isnan(value):
        return fmt.nan
    sign = (1 << (fmt.width - 1)) if math.copysign(1, value) < 0 else 0
    step = Fraction(fmt.value(fmt.greatest)) - Fraction(fmt.value(fmt.greatest - 1))
    if math.isinf(value) or abs(Fraction(value)) >= Fraction(fmt.value(fmt.greatest)) + step / 2:
        return sign | fmt.overflow
    low, high = 0, fmt.greatest
    magnitude = abs(Fraction(value))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if Fraction(fmt.value(middle)) <= magnitude else (low, middle)
    below, above = magnitude - Fraction(fmt.value(low)), Fraction(fmt.value(high)) - magnitude
    code = low if below < above or (below == above and low % 2 == 0) else high
    if code == 0 and not fmt.negative_zero:
        return 0
    return sign | code


NARROW_NUMPY = {
    F16: np.float16, BF16: ml_dtypes.bfloat16, F8E4M3FN: ml_dtypes.float8_e4m3fn, F8E5M2: ml_dtypes.float8_e5m2,
    F8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz, F8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip


@pytest.mark.parametrize("narrow", list(NARROW))
def test_widening_is_exact(narrow):
    codes = np.arange(1 << narrow.bits).astype(narrow.storage)
    with np.errstate(invalid="ignore"):
        expected = codes.view(NARROW_NUMPY[narrow]).astype(np.float64)
    for wide in (F32, F64):
        got = run("convert", narrow, codes, result=wide)
        np.testing.assert_array_equal(got.astype(np.float64), expected)
        assert bits(np.signbit(got[~np.isnan(got)])) == bits(np.signbit(expected[~np.isnan(got)]))
        assert set(bits(got[np.isnan(got)])) <= {CANONICAL_NAN[wide]}
    back = run("convert", F32, run("convert", narrow, codes, result=F32), result=narrow)
    finite = np.isfinite(expected)
    assert (back == codes)[finite].all()


@pytest.mark.parametrize("narrow", list(NARROW))
@pytest.mark.parametrize("source", [F32, F64, I64, U64, I32])
def test_narrowing_rounds_once(narrow, source):
    fmt = NARROW[narrow]
    rng = np.random.default_rng(11)
    if source.is_float:
        codes = rng.integers(0, fmt.greatest, 60)
        middles = [(Fraction(fmt.value(int(c))) + Fraction(fmt.value(int(c) + 1))) / 2 for c in codes]
        exact = [float(m) for m in middles]
        nudge = 2.0**-23 if source is F32 else 2.0**-52
        values = [*exact, *(m * (1 + nudge) for m in exact), *(-m * (1 - nudge) for m in exact), *F32_SPECIALS]
        top = fmt.value(fmt.greatest)
        values += [top * f for f in (1.0, 1.001, 1.03125, 1.0625, 1.07, 1.125, 1.2, -2.0)]
        values += (rng.standard_normal(100) * 2.0 ** rng.integers(-30, 20, 100)).tolist()
    else:
        info = np.iinfo(source.storage)
        values = [0, 1, 255, 256, 257, 2049, 65504, 65519, 65520, info.max, info.min, info.max - 1]
        values += (
            [(1 << 53) + 1, (257 << 45) + 1, (513 << 44), (513 << 44) + 1, (257 << 54) + 1] if source.bits == 64 else []
        )
        values += rng.integers(info.min, info.max, 100, dtype=source.storage).tolist()
        values += [int(v) >> int(s) for v, s in zip(rng.integers(0, 2**31, 100), rng.integers(0, 30, 100), strict=True)]
    with np.errstate(over="ignore"):
        array = np.array(values, source.storage)
    got = run("convert", source, array, result=narrow)
    assert got.dtype == narrow.storage
    if source.is_float:
        expected = [narrow_by_search(float(v), fmt) for v in array]
    else:
        expected = [integer_narrow(int(v), fmt) for v in array]
    assert got.tolist() == expected


def integer_narrow(value: int, fmt) -> int:
    """Through an integer halved with a sticky bit, which keeps every tie a tie."""
    magnitude, shift = abs(value), 0
    while magnitude >= 2**40:
        magnitude, shift = (magnitude >> 1) | (magnitude & 1), shift + 1
    return narrow_by_search(math.copysign(float(magnitude) * 2.0**shift, value), fmt)


def test_narrow_agrees_with_ml_dtypes_on_random_floats():
    raw = np.random.default_rng(2).integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    x = raw.view(np.float32)
    for narrow in (F16, BF16):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = x.astype(NARROW_NUMPY[narrow]).view(np.uint16)
        got = run("convert", F32, x, result=narrow)
        keep = ~np.isnan(x)
        assert (got == expected)[keep].all()
        assert set(got[~keep].tolist()) == {CANONICAL_NAN[narrow]}


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", [F32, F64, F16])
def test_float_to_integer(source, target):
    info = np.iinfo(target.storage)
    values = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, math.nan, math.inf, -math.inf, 1e30, -1e30, 127.9, 255.9, 256.0, -128.9,
              2.0**31, 2.0**31 - 128, -(2.0**31),
              2.0**63, 2.0**63 - 1024, -(2.0**63), 2.0**64, 2.0**63 + 2048]  # fmt: skip
    wide = F64 if source is F64 else F32
    with np.errstate(over="ignore"):
        array = np.array(values, wide.storage)
    stored = run("convert", F32, array, result=F16) if source is F16 else array
    exact = run("convert", F16, stored, result=F32) if source is F16 else array
    got = run("convert", source, stored, result=target)
    expected = []
    for value in exact.tolist():
        if math.isnan(value):
            expected.append(0)
        elif math.isinf(value):
            expected.append(info.max if value > 0 else info.min)
        else:
            expected.append(max(info.min, min(info.max, int(value))))
    assert got.tolist() == expected


@pytest.mark.parametrize("source", [I64, U64])
@pytest.mark.parametrize("target", [F32, F64])
def test_integer_to_float_rounds_once(source, target):
    rng = np.random.default_rng(1)
    info = np.iinfo(source.storage)
    values = rng.integers(info.min, info.max, 300, dtype=source.storage).tolist()
    values += [
        (1 << 54) + 1,
        (1 << 54) + 2,
        (1 << 54) + 3,
        (1 << 60) + (1 << 36),
        (1 << 60) + (1 << 36) + 1,
        info.max,
        info.min,
    ]
    got = run("convert", source, values, result=target)
    assert [float(v) for v in got] == [round_fraction(Fraction(v), target) for v in values]


def test_conversion_to_bool():
    assert run("convert", F32, [0.0, -0.0, math.nan, 1e-45, math.inf], result=BOOL).tolist() == [0, 0, 1, 1, 1]
    assert run("convert", I8, [0, -128, 1], result=BOOL).tolist() == [False, True, True]
    assert run("convert", F16, [0, 0x8000, 1, 0x7E00], result=BOOL).tolist() == [False, False, True, True]
    assert run("convert", BOOL, [False, True], result=BF16).tolist() == [0, 0x3F80]


def test_integers_wrap_on_conversion():
    assert run("convert", I32, [300, -1, 128, -129], result=I8).tolist() == [44, -1, -128, 127]
    assert run("convert", I8, [-1], result=U64).tolist() == [2**64 - 1]


def test_select_and_bitcast_keep_bits():
    payload = np.array([0x7FC12345, 0xFF812345], np.uint32).view(np.float32)
    with exact_arithmetic():
        chosen = evaluate("select", F32, (BOOL, F32, F32), (np.array([True, False]), payload, payload))
        assert bits(evaluate("bitcast", U32, (F32,), (chosen,))) == [0x7FC12345, 0xFF812345]


def test_every_pair_of_types_converts():
    count = 0
    for source in DTYPES:
        for target in DTYPES:
            got = run("convert", source, np.array([0, 1], source.storage), result=target)
            assert got.dtype == target.storage and got.shape == (2,)
            count += 1
    assert count == len(DTYPES) ** 2


@pytest.mark.parametrize("dtype", list(CANONICAL_NAN))
def test_canonicalize(dtype):
    quiet = CANONICAL_NAN[dtype] | 1 << (dtype.bits - 1) | 3
    raw = np.array([quiet, 0, 1], np.dtype(f"u{dtype.bytes}")).view(dtype.storage)
    assert bits(canonicalize(raw, dtype)) == [CANONICAL_NAN[dtype], 0, 1]
