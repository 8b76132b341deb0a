"""Sums of many columns at once, in the orders that libraries use: terms are [terms, units], one sum for each unit.

Only additions, multiplications and exact fused ones of whole arrays: NumPy's own sums change with the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from repro.audit.probes.steps import Order, Step
from repro.ir.types import Array
from repro.numerics.contract import LANES, LEAF
from repro.numerics.numpy_fma import fma_f32

PAIRWISE = "pairwise (NumPy's)"
PAIRWISE_BLOCK = 128
RUNS = ((320, 8), (320, 1), (384, 8), (384, 1))
"""Terms that OpenBLAS takes at a time, by the CPU, and what halves of the rest are a multiple of: 1 on threads."""
DOT_LANES = 32
DOT_FOLD = (Step(2, 4), Step(2, 4), Step(2, 4), Step(2, 1), Step(2, 1))
BLOCKS = (256, 4, 8, 16, 32, 64, 128, 192, 320, 384, 512, 768, 1024, 2048)
WIDTHS = (8, 16, 32, 4, 2, 64)


@dataclass(frozen=True)
class KnownOrder:
    """`make` gives the steps for a number of terms, None where they are those of a simpler order."""

    name: str
    make: Callable[[int], Order | None]


def _blocks(size: int) -> KnownOrder:
    return KnownOrder(f"blocks of {size} in a row", lambda terms: Order((Step(size, 1),)) if terms > size else None)


def _lanes(width: int, name: str, fold: tuple[Step, ...]) -> tuple[KnownOrder, KnownOrder]:
    """All terms in lanes, or those that do not fill them one by one afterwards."""

    def inside(terms: int) -> Order | None:
        return Order((Step(-(-terms // width), width), *fold)) if terms > width else None

    def outside(terms: int) -> Order | None:
        tail = terms % width
        return Order((Step(terms // width, width), *fold), tail) if tail and terms > width else None

    after = f"lanes({width}), {name}, the rest one by one"
    return KnownOrder(f"lanes({width}), {name}", inside), KnownOrder(after, outside)


def _halves(width: int) -> tuple[Step, ...]:
    return tuple(Step(2, width >> power) for power in range(1, width.bit_length()))


def _neighbours(width: int) -> tuple[Step, ...]:
    return tuple(Step(2, 1) for _ in range(width.bit_length() - 1))


def _contract(terms: int) -> Order | None:
    return Order((Step(LEAF // LANES, LANES), *_halves(LANES))) if terms > LEAF else None


ORDERS: tuple[KnownOrder, ...] = (
    KnownOrder("sequential", lambda terms: Order((Step(terms, 1),))),
    KnownOrder("sequential, backwards", lambda terms: Order((Step(terms, 1),), backwards=True) if terms > 2 else None),
    *map(_blocks, BLOCKS),
    *(order for width in WIDTHS for order in _lanes(width, "fold halves", _halves(width))),
    *(order for width in WIDTHS if width > 2 for order in _lanes(width, "fold neighbours", _neighbours(width))),
    *(order for width in WIDTHS if width > 2 for order in _lanes(width, "in a row", (Step(width, 1),))),
    *_lanes(32, "fold by 4 8 16 1 2", DOT_FOLD),
    *_lanes(8, "fold by 1 (4 in a row) 4", (Step(4, 1), Step(2, 1))),
    *_lanes(16, "fold by 4 (4 in a row) 2 1", (Step(4, 4), Step(2, 2), Step(2, 1))),
    *_lanes(32, "fold by 8 (4 in a row) 1 (8 in a row)", (Step(4, 8), Step(8, 1))),
    KnownOrder("lanes(32), fold halves, in blocks of 4096", _contract),
)


def total(order: Order, terms: Array, factors: Array | None, fused: bool) -> Array:
    """Sums of terms (times factors) in the type of the terms: [terms, units] -> [units]. `fused`: a product that
    meets a partial sum is not rounded before."""
    if order.backwards:
        terms, factors = terms[::-1], None if factors is None else factors[::-1]
    body = len(terms) - order.tail
    first, *rest = order.steps
    parts = _join_products(terms[:body], None if factors is None else factors[:body], first, fused)
    for step in rest:
        parts = _join(parts, step)
    parts = _join(parts, Step(len(parts), 1))[0]
    for position in range(body, len(terms)):
        factor = None if factors is None else factors[position]
        parts = _grown(parts, terms[position], factor, fused)
    return parts


def _join(parts: Array, step: Step) -> Array:
    return _join_products(parts, None, step, False)


def _join_products(terms: Array, factors: Array | None, step: Step, fused: bool) -> Array:
    """One step: whole blocks together, then what is left."""
    whole = len(terms) // step.span * step.span
    units = terms.shape[1:]
    made: list[Array] = []
    if whole:
        shape = (whole // step.span, step.count, step.stride, *units)
        a = terms[:whole].reshape(shape)
        b = None if factors is None else factors[:whole].reshape(shape)
        sums = a[:, 0] if b is None else a[:, 0] * b[:, 0]
        for k in range(1, step.count):
            sums = _grown(sums, a[:, k], None if b is None else b[:, k], fused)
        made.append(sums.reshape(-1, *units))
    if whole < len(terms):
        made.append(_short(terms[whole:], None if factors is None else factors[whole:], step.stride, fused))
    return made[0] if len(made) == 1 else np.concatenate(made)


def _short(terms: Array, factors: Array | None, stride: int, fused: bool) -> Array:
    """The lanes of a block that is not whole."""
    sums = (terms[:stride] if factors is None else terms[:stride] * factors[:stride]).copy()
    for start in range(stride, len(terms), stride):
        a = terms[start : start + stride]
        b = None if factors is None else factors[start : start + stride]
        sums[: len(a)] = _grown(sums[: len(a)], a, b, fused)
    return sums


def _grown(sums: Array, terms: Array, factors: Array | None, fused: bool) -> Array:
    if factors is None:
        return sums + terms
    return fma_f32(terms, factors, sums) if fused else sums + terms * factors


def pairwise(terms: Array) -> Array:
    """NumPy's pairwise sum: [terms, units] -> [units]."""
    count = len(terms)
    if count > PAIRWISE_BLOCK:
        half = count // 2 - count // 2 % 8
        return pairwise(terms[:half]) + pairwise(terms[half:])
    if count < 8:
        return total(Order((Step(count, 1),)), terms, None, False)
    order = Order((Step(count // 8, 8), *_neighbours(8)), tail=count % 8)
    return total(order, terms, None, False)


@lru_cache(maxsize=64)
def orders_for(terms: int) -> tuple[tuple[str, Order], ...]:
    """Every order that is one of its own for so many terms, simplest first."""
    made = ((known.name, known.make(terms)) for known in ORDERS)
    distinct: dict[Order, str] = {}
    for name, order in made:
        if order is not None:
            distinct.setdefault(order, name)
    return tuple((name, order) for order, name in distinct.items())


def sums(terms: Array) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Known sums of f32 terms [terms, units], by name: each as [units] when called."""
    count = len(terms)
    for name, order in orders_for(count):
        yield name, lambda order=order: total(order, terms, None, False)
    if count > PAIRWISE_BLOCK:
        yield PAIRWISE, lambda: pairwise(terms)
    yield "f64 accumulator", lambda: _wide(terms, None)


def dots(terms: Array, factors: Array) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Known sums of f32 products [terms, units]: with fused products and with rounded ones, and in f64."""
    for name, order in orders_for(len(terms)):
        for fused in (True, False):
            words = f"{name}, {'fma' if fused else 'products rounded'}"
            yield words, lambda order=order, fused=fused: total(order, terms, factors, fused)
    yield TWO_LANES, lambda: two_lanes(terms, factors)
    for size, unit in RUNS:
        if len(terms) > size:
            words = f"runs of {size} in a row, the last two halves{' (of whole eights)' if unit == 8 else ''}"
            for name, inner in (("sequential, fma", one_lane), (TWO_LANES, two_lanes)):
                runs = run_lengths(len(terms), size, unit)
                yield f"{words}, {name}", lambda runs=runs, inner=inner: in_runs(runs, inner, terms, factors)
    if len(terms) > DOT_LANES:
        yield OPENBLAS_DOT, lambda: openblas_dot(terms, factors)
    yield "f64 accumulator, exact products", lambda: _wide(terms, factors)
    yield "f64 accumulator, products rounded", lambda: _wide(terms * factors, None)


TWO_LANES = "lanes(2) over multiples of 8, the rest in the first, fma"


OPENBLAS_DOT = "lanes(32), fold by 4 8 16 1 2, fma, the rest apart in f64"


def openblas_dot(terms: Array, factors: Array) -> Array:
    """Whole vectors in 32 lanes, fused; products of what is left are rounded and added in f64, as is their sum."""
    body = len(terms) // DOT_LANES * DOT_LANES
    lanes = total(Order((Step(body // DOT_LANES, DOT_LANES), *DOT_FOLD)), terms[:body], factors[:body], True)
    if body == len(terms):
        return lanes
    rest = (terms[body:] * factors[body:]).astype(np.float64)
    apart = total(Order((Step(len(rest), 1),)), rest, None, False)
    return (lanes.astype(np.float64) + apart).astype(np.float32)


def one_lane(terms: Array, factors: Array) -> Array:
    return total(Order((Step(len(terms), 1),)), terms, factors, True)


def two_lanes(terms: Array, factors: Array) -> Array:
    """Fused products in two lanes, what is left over a multiple of 8 in the first."""
    body = len(terms) // 8 * 8
    if not body:
        return one_lane(terms, factors)
    even = [*range(0, body, 2), *range(body, len(terms))]
    return one_lane(terms[even], factors[even]) + one_lane(terms[1:body:2], factors[1:body:2])


def run_lengths(terms: int, size: int, unit: int) -> list[int]:
    """Runs of `size`; where less than two are left, halves of them, the first a multiple of `unit`."""
    runs: list[int] = []
    while terms:
        half = -(-(terms // 2 + terms % 2) // unit) * unit
        runs.append(size if terms >= 2 * size else half if terms > size else terms)
        terms -= runs[-1]
    return runs


def in_runs(runs: Sequence[int], inner: Callable[[Array, Array], Array], terms: Array, factors: Array) -> Array:
    """Consecutive runs, each added by `inner`, their sums in a row."""
    ends = np.cumsum(runs).tolist()
    parts = [inner(terms[end - run : end], factors[end - run : end]) for run, end in zip(runs, ends, strict=True)]
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return result


def _wide(terms: Array, factors: Array | None) -> Array:
    wide = terms.astype(np.float64) if factors is None else terms.astype(np.float64) * factors.astype(np.float64)
    return total(Order((Step(len(terms), 1),)), wide, None, False).astype(np.float32)


def mean_f64(terms: Array) -> Array:
    """Means of f32 terms in f64, rounded once: [terms, units] -> [units]."""
    wide = total(Order((Step(len(terms), 1),)), terms.astype(np.float64), None, False)
    return (wide / len(terms)).astype(np.float32)
