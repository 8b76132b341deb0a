"""Run a DAG of scalar expressions on NumPy arrays: how the reference computes elementary functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from repro.ir.expressions import Affine, Apply, Const, Expr, IndexOp, Lookup, Rarely, load
from repro.ir.index import number
from repro.ir.types import Array, DType
from repro.numerics.host_mode import exact_arithmetic
from repro.numerics.numpy_scalars import evaluate as evaluate_scalar
from repro.numerics.numpy_scalars import lookup

BLOCK = 16384
"""Elements at a time, so that intermediate arrays stay in the cache."""


def argument(dtype: DType, position: int) -> Expr:
    """A leaf that stands for an operand array until it is bound."""
    return load(dtype, position, number(0))


def constant_array(expr: Const) -> Array:
    """A constant's bits as a 0-d storage array."""
    raw = np.array(expr.bits, np.dtype(f"u{expr.dtype.bytes}"))
    return raw != 0 if expr.dtype.storage == np.bool_ else raw.view(expr.dtype.storage)


def run_scalars(roots: Sequence[Expr], bindings: Mapping[Expr, Array]) -> list[Array]:
    """The value of each root, every expression computed once.

    `bindings` gives storage arrays, that broadcast together, for the leaves; it may bind inner expressions
    as well. Loads and reductions have a value only where they are bound.
    """
    with exact_arithmetic():
        values: dict[Expr, Array] = dict(bindings)
        for expr, finished in _plan(tuple(roots), frozenset(bindings)):
            values[expr] = _value(expr, [values[child] for child in _operands(expr)], bindings)
            for done in finished:
                del values[done]
        return [values[root] for root in roots]


@lru_cache(maxsize=1024)
def _plan(roots: tuple[Expr, ...], bound: frozenset[Expr]) -> list[tuple[Expr, list[Expr]]]:
    """What must be computed, in order, each with the values that nothing needs afterwards."""
    order = _needed(roots, bound)
    last = {child: position for position, expr in enumerate(order) for child in _operands(expr)}
    finished: list[list[Expr]] = [[] for _ in order]
    for expr in order:
        if expr in last and expr not in roots:
            finished[last[expr]].append(expr)
    return list(zip(order, finished, strict=True))


def _needed(roots: Sequence[Expr], bound: frozenset[Expr]) -> list[Expr]:
    """The expressions to compute, operands first; nothing below a bound one."""
    order: list[Expr] = []
    seen: set[Expr] = set(bound)
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            order.append(expr)
        elif expr not in seen:
            seen.add(expr)
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(_operands(expr)))
    return order


def _operands(expr: Expr) -> Sequence[Expr]:
    """What is computed for every element; the seldom side of a `rarely` is not."""
    return (expr.condition, expr.common) if isinstance(expr, Rarely) else expr.children


def _value(expr: Expr, operands: Sequence[Array], bindings: Mapping[Expr, Array]) -> Array:
    match expr:
        case Rarely():
            return _rarely(expr.seldom, operands[0], operands[1], bindings)
        case Lookup():
            return lookup(expr.table, expr.dtype, operands[0])
        case Const():
            return constant_array(expr)
        case Apply():
            return evaluate_scalar(expr.op, expr.dtype, [child.dtype for child in expr.children], operands)
        case Affine():
            total = np.array(expr.constant, np.int64)
            for coefficient, operand in zip(expr.coefficients, operands, strict=True):
                total = total + np.int64(coefficient) * operand
            return total
        case IndexOp(op="floordiv"):
            return operands[0] // np.int64(expr.divisor)
        case IndexOp():
            return operands[0] % np.int64(expr.divisor)
        case _:
            raise KeyError(f"no value is bound to {expr!r}")


def _rarely(seldom: Expr, condition: Array, common: Array, bindings: Mapping[Expr, Array]) -> Array:
    """The seldom side is computed for the elements that take it."""
    if not condition.any():
        return common
    shape = np.broadcast_shapes(condition.shape, common.shape, *(array.shape for array in bindings.values()))
    taken = np.broadcast_to(condition, shape)
    result = np.broadcast_to(common, shape).copy()
    chosen = {leaf: np.broadcast_to(array, shape)[taken] for leaf, array in bindings.items()}
    result[taken] = run_scalars([seldom], chosen)[0]
    return result


def evaluate(function: Callable[..., Expr], arrays: Sequence[Array], dtypes: Sequence[DType]) -> Array:
    """A scalar expression function, such as those of `elementary.FUNCTIONS`, on storage arrays."""
    arguments = [argument(dtype, position) for position, dtype in enumerate(dtypes)]
    root = _built(function, tuple(dtypes))
    spread = np.broadcast_arrays(*arrays)
    flat = [array.reshape(-1) for array in spread]
    result = np.empty(flat[0].shape, root.dtype.storage)
    for start in range(0, result.size, BLOCK):
        block = slice(start, start + BLOCK)
        bindings = {leaf: array[block] for leaf, array in zip(arguments, flat, strict=True)}
        result[block] = run_scalars([root], bindings)[0]
    return result.reshape(spread[0].shape)


@lru_cache(maxsize=256)
def _built(function: Callable[..., Expr], dtypes: tuple[DType, ...]) -> Expr:
    return function(*(argument(dtype, position) for position, dtype in enumerate(dtypes)))
