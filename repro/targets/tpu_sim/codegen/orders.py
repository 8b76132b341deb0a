"""Reductions written in smaller ones, so that code is needed for short ones alone.

A chain over several panels becomes sequential sums of chains of one panel; a sum of several leaves becomes a sum, by
the same rule, of sums of one leaf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from passes.rename import rebuilt, settled
from repro.ir import index as ix
from repro.ir.expressions import (
    TRUE,
    Axis,
    Chain,
    Expr,
    Lanes,
    Load,
    Reduce,
    Sequential,
    apply,
    const,
    load,
    reduce,
    topological,
)


def fresh_number(roots: Sequence[Expr]) -> int:
    """A number above that of every axis."""
    return max((expr.number for expr in topological(roots) if isinstance(expr, Axis)), default=-1) + 1


def terms_of(expr: Reduce) -> int:
    return math.prod(axis.extent for axis in expr.axes)


def shorten(roots: Sequence[Expr]) -> list[Expr]:
    """The same values by reductions of at most a panel or a leaf."""
    fresh = fresh_number(roots)
    memo: dict[Expr, Expr] = {}
    for expr in topological(roots):
        made = rebuilt(expr, tuple(memo[child] for child in expr.children))
        if isinstance(made, Reduce):
            match made.order:
                case Chain(panel, _) if made.combiner == "fma" and terms_of(made) > panel:
                    made = _panels(made, made.order, fresh)
                    fresh += 3
                case Lanes(_, leaf) if terms_of(made) > leaf:
                    made, fresh = _leaves(made, made.order, fresh)
                case _:
                    pass
        memo[expr] = made
    return [memo[root] for root in roots]


def _at(expr: Reduce, flat: Expr) -> tuple[Expr, ...]:
    """The reduction's terms (and presence) at a flattened index."""
    places = ix.delinear(flat, [axis.extent for axis in expr.axes])
    return tuple(settled(expr.children, dict(zip(expr.axes, places, strict=True))))


def _panels(expr: Reduce, order: Chain, fresh: int) -> Expr:
    """Whole panels by loops, and what is left after them apart: rule 7's order, term for term."""
    count, panel = terms_of(expr), order.panel
    per_block = panel * order.panels_per_block
    block, number, term = (ix.axis(fresh + n, count) for n in range(3))

    def chain(start: Expr, size: int) -> Expr:
        along = ix.axis(term.number, size)
        children = _at(expr, ix.add(start, along))
        return Reduce(expr.dtype, ("fma", order, (along,), expr.has_present), children)

    def run(start: Expr, terms: int) -> Expr:
        """The sum of the panels of one block."""
        parts = list[Expr]()
        if whole := terms // panel:
            along = ix.axis(number.number, whole)
            parts.append(_sum(along, chain(ix.add(start, ix.scale(along, panel)), panel)))
        if rest := terms % panel:
            parts.append(chain(ix.add(start, ix.number(whole * panel)), rest))
        return parts[0] if len(parts) == 1 else apply("add", *parts)

    parts = list[Expr]()
    if whole := count // per_block:
        along = ix.axis(block.number, whole)
        parts.append(_sum(along, run(ix.scale(along, per_block), per_block)))
    if rest := count % per_block:
        parts.append(run(ix.number(whole * per_block), rest))
    total = parts[0] if len(parts) == 1 else apply("add", *parts)
    return apply("add", total, const(expr.dtype, 0))


def _sum(axis: Axis, value: Expr) -> Expr:
    """Ascending, from the first."""
    if axis.extent == 1:
        return settled([value], {axis: ix.number(0)})[0]
    return reduce("add", Sequential(), [axis], [value])


def _leaves(expr: Reduce, order: Lanes, fresh: int) -> tuple[Expr, int]:
    count = terms_of(expr)
    leaves = -(-count // order.leaf)
    leaf, term = ix.axis(fresh, leaves), ix.axis(fresh + 1, order.leaf)
    flat = ix.add(ix.scale(leaf, order.leaf), term)
    children = _at(expr, flat)
    there = ix.compare("lt", flat, count)
    terms, present = (children[:-1], children[-1]) if expr.has_present else (children, TRUE)
    if there is not TRUE:
        present = ix.both(present, there)
        terms = tuple(guarded(terms, there, frozenset((leaf, term))))
    inner = reduce(expr.combiner, order, [term], terms, None if present is TRUE else present)
    outer = reduce(expr.combiner, order, [leaf], [inner])
    if leaves <= order.leaf:
        return outer, fresh + 2
    assert isinstance(outer, Reduce)
    return _leaves(outer, order, fresh + 2)


def guarded(roots: Sequence[Expr], condition: Expr, axes: frozenset[Axis]) -> list[Expr]:
    """The expressions with no access, where the condition does not hold, by loads that depend on the axes."""
    memo: dict[Expr, Expr] = {}
    for expr in topological(roots):
        made = rebuilt(expr, tuple(memo[child] for child in expr.children))
        if isinstance(made, Load) and made.offset.free & axes:
            made = load(made.dtype, made.buffer, made.offset, ix.both(made.when, condition))
        memo[expr] = made
    return [memo[root] for root in roots]
