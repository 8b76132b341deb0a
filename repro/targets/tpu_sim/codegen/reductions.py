"""Reductions across lanes: every lane runs the whole order for an output of its own (rules 5, 7, 10, 11).

`orders.shorten` has cut them to one panel or one leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from passes.rename import settled
from repro.ir import index as ix
from repro.ir.expressions import Chain, Expr, Lanes, Reduce, const
from repro.ir.types import BOOL, I64, DType
from repro.targets.llvm.terms import identity_bits
from repro.targets.tpu_sim.codegen.orders import terms_of
from repro.targets.tpu_sim.codegen.writer import Val

if TYPE_CHECKING:
    from repro.targets.tpu_sim.codegen.values import Values


def emit(values: Values, expr: Reduce) -> Val:
    """The reduction's value in every lane, computed in the block that is open."""
    if terms_of(expr) == 0:
        return values.writer.constant(expr.dtype, _empty(expr))
    if expr.combiner.startswith("arg"):
        return _position(values, expr)
    if isinstance(expr.order, Lanes):
        return _lanes(values, expr, expr.order)
    return _ascending(values, expr)


def _empty(expr: Reduce) -> int:
    """An empty sum is +0.0 (rule 10), any other reduction the identity."""
    if expr.combiner in ("add", "fma") or expr.combiner.startswith("arg"):
        return 0
    return identity_bits(expr.combiner, expr.dtype)


def _ascending(values: Values, expr: Reduce) -> Val:
    """One accumulator."""
    put, chain = values.writer.alu, isinstance(expr.order, Chain)
    start = 0 if expr.combiner == "fma" else identity_bits(expr.combiner, expr.dtype)
    total = values.writer.constant(expr.dtype, start)
    with values.loops(expr.axes):
        terms = [values.value(term) for term in expr.terms]
        present = None if expr.present is None else values.value(expr.present)
        into = total if present is None else None
        if chain:
            longer = put("fma", expr.dtype, *terms, total, into=into)
        elif expr.combiner == "fma":
            longer = put("add", expr.dtype, total, put("mul", expr.dtype, *terms), into=into)
        else:
            longer = put(expr.combiner, expr.dtype, total, *terms, into=into)
        if present is not None:
            values.writer.select(present, longer, total, into=total)
    return put("add", expr.dtype, total, values.value(const(expr.dtype, 0))) if chain else total


def _at(expr: Reduce, flat: Expr) -> list[Expr]:
    """The only term, and where there is one the presence, at a flattened index."""
    places = ix.delinear(flat, [axis.extent for axis in expr.axes])
    return settled(expr.children, dict(zip(expr.axes, places, strict=True)))


def term_or_identity(values: Values, expr: Reduce, children: Sequence[Expr]) -> Val:
    """A term, or the identity in lanes where it is absent."""
    value = values.value(children[0])
    if len(children) == 1:
        return value
    nothing = values.value(const(expr.dtype, identity_bits(expr.combiner, expr.dtype)))
    return values.writer.select(values.value(children[1]), value, nothing)


def _lanes(values: Values, expr: Reduce, order: Lanes) -> Val:
    """A register for each lane of the order, folded by halves."""
    put, count = values.writer.alu, terms_of(expr)
    rows, rest = divmod(count, order.lanes)
    sums: list[Val | None] = [None] * order.lanes
    if rows:
        for lane in range(order.lanes):
            sums[lane] = values.writer.constant(expr.dtype, identity_bits(expr.combiner, expr.dtype))
        row = values.axis(rows)
        with values.loops([row]):
            for lane, total in enumerate(sums):
                term = term_or_identity(values, expr, _at(expr, ix.add(ix.scale(row, order.lanes), ix.number(lane))))
                assert total is not None
                put(expr.combiner, expr.dtype, total, term, into=total)
    for lane in range(rest):
        term = term_or_identity(values, expr, _at(expr, ix.number(rows * order.lanes + lane)))
        total = sums[lane]
        sums[lane] = term if total is None else put(expr.combiner, expr.dtype, total, term, into=total)
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [_joined(values, expr, a, b) for a, b in zip(sums[:half], sums[half:], strict=True)]
    assert sums[0] is not None
    return sums[0]


def _joined(values: Values, expr: Reduce, a: Val | None, b: Val | None) -> Val | None:
    """An absent lane is the identity: combining with it changes no bit."""
    if a is None or b is None:
        return a or b
    return values.writer.alu(expr.combiner, expr.dtype, a, b)


def _position(values: Values, expr: Reduce) -> Val:
    """The first index of the extreme: NaN greatest for both, -0 equal to +0 (rule 5)."""
    writer, put, dtype = values.writer, values.writer.alu, expr.terms[0].dtype
    best, where = writer.constant(dtype, 0), writer.constant(I64, (1 << 64) - 1)
    zero = writer.constant(I64, 0)
    with values.loops(expr.axes):
        value = values.value(expr.terms[0])
        here = values.value(ix.linear(expr.axes, [axis.extent for axis in expr.axes]))
        take = put("or", BOOL, _better(values, expr.combiner, dtype, value, best), put("lt", BOOL, where, zero))
        if expr.present is not None:
            take = put("and", BOOL, take, values.value(expr.present))
        writer.select(take, value, best, into=best)
        writer.select(take, here, where, into=where)
    if expr.present is None:  # the first term was taken
        return where
    return writer.select(put("lt", BOOL, where, zero), zero, where)


def _better(values: Values, combiner: str, dtype: DType, value: Val, best: Val) -> Val:
    put, compare = values.writer.alu, "gt" if combiner == "argmax" else "lt"
    better = put(compare, BOOL, value, best)
    if not dtype.is_float:
        return better
    first, second = (value, best) if combiner == "argmax" else (best, value)
    alone = put("and", BOOL, put("ne", BOOL, first, first), put("eq", BOOL, second, second))
    return put("or", BOOL, better, alone)
