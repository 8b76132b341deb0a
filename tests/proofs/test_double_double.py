"""Double-double operations keep the bounds that their texts state, cancellation included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofs import double_double as dd
from proofs.double_double import Pair
from repro.ir.types import I64, Array
from repro.numerics.elementary.value import Value, f64
from tests.proofs.measured import compiled, error_log2, gmpy2, truths

COUNT = 20000
UNIT = -53


def pairs(rng: np.random.Generator) -> tuple[Array, Array]:
    """Normalized pairs of either sign; some low words are 0, some half an ulp, some far below."""
    high = rng.uniform(1, 2, COUNT) * np.exp2(rng.integers(-40, 40, COUNT)) * rng.choice([-1.0, 1.0], COUNT)
    share = rng.choice([0.0, 1.0, 1.0, 2.0**-30], COUNT) * rng.uniform(-1, 1, COUNT)
    low = share * np.spacing(high) / 2
    return high, np.where(high + low == high, low, 0.0)


def operands(seed: int) -> tuple[Array, Array, Array, Array]:
    """Two columns of pairs; every fifth time the second is near to minus the first."""
    rng = np.random.default_rng(seed)
    (ah, al), (bh, bl) = pairs(rng), pairs(rng)
    near = np.arange(COUNT) % 5 == 0
    beside = -ah * (1 + np.rint(rng.uniform(-4, 4, COUNT)) * np.exp2(rng.integers(-52, -2, COUNT)))
    bh, bl = np.where(near, beside, bh), np.where(near, 0.0, bl)
    smaller = np.where(near & (bl == 0), rng.uniform(-0.5, 0.5, COUNT) * np.spacing(bh) * 0.9, bl)
    return ah, al, bh, np.where(bh + smaller == bh, smaller, 0.0)


def check(function: Callable[..., Pair], exact: Callable[..., Any], columns: Any, ulps: float) -> None:
    """`ulps`: the bound in u^2."""
    errors = error_log2(compiled(function, columns), truths(exact, columns, precision=2000))
    assert np.isfinite(errors).sum() > COUNT // 4
    worst = int(np.argmax(errors))
    assert errors[worst] <= math.log2(ulps) + 2 * UNIT, [float(column[worst]).hex() for column in columns]


BINARY: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "add": (lambda a, b: a + b, 3.01),
    "sub": (lambda a, b: a - b, 3.01),
    "mul": (lambda a, b: a * b, 4.0),
    "div": (lambda a, b: a / b, 15.01),
}


@pytest.mark.parametrize("name", BINARY)
def test_pair_with_pair(name: str) -> None:
    operation, bound = BINARY[name]
    check(
        lambda ah, al, bh, bl: operation(Pair(ah, al), Pair(bh, bl)),
        lambda ah, al, bh, bl: operation(ah + al, bh + bl),
        operands(1),
        bound,
    )


@pytest.mark.parametrize(("name", "bound"), [("add", 2.0), ("sub", 2.0), ("mul", 2.0), ("div", 3.01)])
def test_pair_with_f64(name: str, bound: float) -> None:
    operation, _ = BINARY[name]
    ah, al, bh, _ = operands(2)
    check(lambda h, t, b: operation(Pair(h, t), b), lambda h, t, b: operation(h + t, b), (ah, al, bh), bound)


def test_add_smaller() -> None:
    ah, al, bh, bl = operands(3)
    scale = np.exp2(np.floor(np.log2(abs(ah / bh))) - np.arange(COUNT) % 90)
    columns = (ah, al, bh * scale * 0.5, bl * scale * 0.5)
    check(
        lambda ah, al, bh, bl: dd.add_smaller(Pair(ah, al), Pair(bh, bl)),
        lambda ah, al, bh, bl: ah + al + bh + bl,
        columns,
        7.01,
    )
    check(lambda h, t, b: dd.add_smaller(Pair(h, t), b), lambda h, t, b: h + t + b, columns[:3], 7.01)


@pytest.mark.parametrize(
    ("function", "exact", "bound"),
    [
        (lambda x: dd.sqrt(abs(x)), lambda x: gmpy2.sqrt(abs(x)), 25 / 8),
        (dd.square, lambda x: x * x, 5.0),
        (lambda x: 3.0 - x, lambda x: 3 - x, 2.0),
        (lambda x: 3.0 * x, lambda x: 3 * x, 2.0),
        (lambda x: 3.0 + x, lambda x: 3 + x, 2.0),
        (lambda x: abs(-x).scaled(8.0), lambda x: abs(x) * 8, 0.0),
    ],
    ids=["sqrt", "square", "rsub", "rmul", "radd", "exact"],
)
def test_one_pair(function: Callable[[Pair], Pair], exact: Callable[[Any], Any], bound: float) -> None:
    columns = pairs(np.random.default_rng(4))
    errors = error_log2(
        compiled(lambda h, t: function(Pair(h, t)), columns), truths(lambda h, t: exact(h + t), columns, precision=2000)
    )
    assert np.max(errors) <= (math.log2(bound) + 2 * UNIT if bound else -math.inf)


def test_exact_product_and_sum() -> None:
    ah, _, bh, _ = operands(5)
    for function, exact in (
        (lambda a, b: Pair(*dd.exact_product(a, b)), lambda a, b: a * b),
        (dd.exact_sum, lambda a, b: a + b),
    ):
        assert np.max(error_log2(compiled(function, (ah, bh)), truths(exact, (ah, bh), precision=2000))) == -math.inf


def test_square_root_of_zero() -> None:
    high, low = compiled(lambda x: dd.sqrt(dd.exactly(x)), [np.zeros(16)])
    assert not high.any() and not low.any()


def test_comparison_looks_at_the_low_word() -> None:
    one, tiny = f64(1.0), 2.0**-60
    cases = [(1.0, 0.0, False), (1.0, tiny, True), (1.0, -tiny, False), (2.0, -tiny, True), (0.5, tiny, False)]
    high, low = (np.array([case[word] for case in cases]) for word in (0, 1))

    def below(h: Value, t: Value) -> Pair:
        return dd.select(Pair(one, f64(0.0)) < Pair(h, t), dd.exactly(one), dd.exactly(f64(0.0)))

    assert compiled(below, [high, low])[0].astype(bool).tolist() == [case[2] for case in cases]


@pytest.mark.parametrize("size", [1, 2, 3, 11, 14, 16, 17])
def test_lookup(size: int) -> None:
    table = [(float(entry), entry / 1024) for entry in range(size)]
    columns = [np.arange(size, dtype=np.float64)]
    high, low = compiled(lambda x: dd.lookup_pair(table, x.to(I64)), columns)
    assert list(zip(high.tolist(), low.tolist(), strict=True)) == table
