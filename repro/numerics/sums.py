"""The orders of reduction on NumPy storage arrays, in the plainest way: rules 5, 7, 10 and 11.

The reduced axis is the last one, already flattened row-major; everything is vectorised over the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from repro.ir.expressions import Chain, Exact, Lanes, Order, Sequential
from repro.ir.types import BOOL, DTYPES, F64, I64, Array, DType
from repro.numerics.chains import chain_sum
from repro.numerics.host_mode import exact_arithmetic
from repro.numerics.numpy_scalars import canonical_nan, evaluate

_OF_STORAGE: dict[np.dtype[Any], DType] = {dtype.storage: dtype for dtype in DTYPES if dtype.computes}


def reduce_reference(combiner: str, order: Order, terms: Sequence[Array], present: Array | None = None) -> Array:
    """The reduction of `terms` (storage arrays of one type, shape [..., K], broadcasting) over the last axis.

    `present` (bool, broadcasting with them) says which terms exist. `fma` takes two terms, the others one;
    `argmax` and `argmin` give i64 positions. Raises ValueError where the order does not fit the combiner.
    """
    dtype = _OF_STORAGE[terms[0].dtype]
    with exact_arithmetic():
        if combiner == "fma":
            return _contraction(order, dtype, terms, present)
        values = terms[0]
        if combiner in ("argmax", "argmin"):
            return _position_of_extreme(combiner, dtype, values, present)
        if present is not None:
            values = np.where(present, values, identity(combiner, dtype))
        match order:
            case Lanes():
                return _lane_sum(combiner, order, dtype, values)
            case Sequential():
                return _sequential(combiner, dtype, values)
            case Exact():
                return _any_order(combiner, dtype, values)
            case Chain():
                raise ValueError(f"{combiner} has no chain order")


def identity(combiner: str, dtype: DType) -> Array:
    """What an absent term contributes: x combined with it is x, bit for bit (0-d storage array)."""
    storage = dtype.storage
    match combiner:
        case "add":
            return np.array(-0.0 if dtype.is_float else 0, storage)
        case "mul":
            return np.array(1, storage)
        case "min" | "max" if dtype.is_float:
            return np.array(np.inf if combiner == "min" else -np.inf, storage)
        case "min" | "max" if dtype is BOOL:
            return np.array(combiner == "min", storage)
        case "min" | "max":
            info = np.iinfo(storage)
            return np.array(info.max if combiner == "min" else info.min, storage)
        case "and":
            return ~np.array(0, storage)
        case "or":
            return np.array(0, storage)
        case _:
            raise ValueError(f"{combiner} has no identity")


def empty_result(combiner: str, dtype: DType) -> Array:
    """The reduction of no positions at all: an empty sum is +0.0 (rule 10), else the identity."""
    return np.array(0, dtype.storage) if combiner == "add" else identity(combiner, dtype)


def _contraction(order: Order, dtype: DType, terms: Sequence[Array], present: Array | None) -> Array:
    left, right = terms
    match order:
        case Chain() if dtype.is_float:
            return chain_sum(order, left, right, present)
        case Exact() if dtype.is_integer:
            products = left * right
            kept = products if present is None else np.where(present, products, dtype.storage.type(0))
            return np.add.reduce(kept, axis=-1, dtype=dtype.storage)
        case _:
            raise ValueError(f"fma on {dtype} has no order {order}")


def _lane_sum(combiner: str, order: Lanes, dtype: DType, values: Array) -> Array:
    """Rule 10; a position that is missing at the end of the last leaf is the identity, as an absent one is."""
    count = values.shape[-1]
    if count == 0:
        return np.broadcast_to(empty_result(combiner, dtype), values.shape[:-1]).copy()
    leaves = -(-count // order.leaf)
    padded_count = leaves * order.leaf if leaves > 1 else -(-count // order.lanes) * order.lanes
    padded = np.empty((*values.shape[:-1], padded_count), dtype.storage)
    padded[..., :count] = values
    padded[..., count:] = identity(combiner, dtype)
    rows = padded.reshape(*values.shape[:-1], leaves, -1, order.lanes)
    lanes = rows[..., 0, :]
    for row in range(1, rows.shape[-2]):
        lanes = _combine(combiner, dtype, lanes, rows[..., row, :])
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = _combine(combiner, dtype, lanes[..., :half], lanes[..., half:])
    sums = lanes[..., 0]
    return sums[..., 0] if leaves == 1 else _lane_sum(combiner, order, dtype, sums)


def _sequential(combiner: str, dtype: DType, values: Array) -> Array:
    if values.shape[-1] == 0:
        return np.broadcast_to(empty_result(combiner, dtype), values.shape[:-1]).copy()
    total = values[..., 0].copy()
    for position in range(1, values.shape[-1]):
        total = _combine(combiner, dtype, total, values[..., position])
    return total


def _combine(combiner: str, dtype: DType, left: Array, right: Array) -> Array:
    return evaluate(combiner, dtype, (dtype, dtype), (left, right))


def _any_order(combiner: str, dtype: DType, values: Array) -> Array:
    if values.shape[-1] == 0:
        return np.broadcast_to(empty_result(combiner, dtype), values.shape[:-1]).copy()
    match combiner:
        case "min" | "max":
            return _extreme(combiner, dtype, values)
        case "and":
            return np.bitwise_and.reduce(values, axis=-1)
        case "or":
            return np.bitwise_or.reduce(values, axis=-1)
        case "add" | "mul" if dtype.is_integer:
            function = np.add if combiner == "add" else np.multiply
            return function.reduce(values, axis=-1, dtype=dtype.storage)
        case _:
            raise ValueError(f"{combiner} on {dtype} depends on its order")


def ordering_key(dtype: DType, values: Array) -> Array:
    """Integers that are ordered as the values are: -0 below +0; a NaN has no stated place yet."""
    if not dtype.is_float:
        return values.view(np.uint8) if dtype is BOOL else values
    signed = np.int64 if dtype is F64 else np.int32
    bits = np.ascontiguousarray(values).view(signed)
    return bits ^ ((bits >> signed(dtype.bits - 1)) & np.iinfo(signed).max)


def _extreme(combiner: str, dtype: DType, values: Array) -> Array:
    """min or max as values: NaN wins, -0 < +0. Found on integers, whose order is total."""
    key = ordering_key(dtype, values)
    function = np.minimum if combiner == "min" else np.maximum
    best = function.reduce(key, axis=-1)
    if not dtype.is_float:
        return best.view(np.bool_) if dtype is BOOL else best
    best = np.asarray(best)
    bits = best ^ ((best >> best.dtype.type(dtype.bits - 1)) & np.iinfo(best.dtype).max)
    with_nan = np.logical_or.reduce(values != values, axis=-1)
    return np.where(with_nan, canonical_nan(dtype), bits.view(dtype.storage))


def _position_of_extreme(combiner: str, dtype: DType, values: Array, present: Array | None) -> Array:
    """First position of the greatest or least: -0 equals +0, NaN is greatest, for both (rule 5).

    Where no term is present the position is 0.
    """
    if dtype.is_float:
        key = ordering_key(dtype, np.where(values == 0, dtype.storage.type(0), values))
        key = np.where(values != values, np.iinfo(key.dtype).max, key)
    else:
        key = ordering_key(dtype, values)
    info = np.iinfo(key.dtype)
    exists = np.broadcast_to(np.array(True) if present is None else present, key.shape)
    if combiner == "argmax":
        best = np.maximum.reduce(np.where(exists, key, info.min), axis=-1, keepdims=True)
    else:
        best = np.minimum.reduce(np.where(exists, key, info.max), axis=-1, keepdims=True)
    return np.argmax(exists & (key == best), axis=-1).astype(I64.storage)
