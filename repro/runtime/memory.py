"""Aligned arrays: what native code may assume of every buffer."""

from __future__ import annotations

import numpy as np

from repro.ir.types import Array, DType
from repro.targets.llvm.context import ALIGNMENT


def aligned_bytes(size: int) -> Array:
    """Zeroed bytes at an aligned address; never of size 0, so that the address is real."""
    raw = np.zeros(max(size, 1) + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + max(size, 1)]


def aligned_array(dtype: DType, elements: int) -> Array:
    """A flat storage array of `elements` at an aligned address."""
    return aligned_bytes(elements * dtype.bytes)[: elements * dtype.bytes].view(dtype.storage)


def aligned(array: Array) -> Array:
    """The same elements, flat, at an aligned address; no copy where they already lie so."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.size and flat.ctypes.data % ALIGNMENT == 0:
        return flat
    copy = aligned_bytes(flat.nbytes)[: flat.nbytes].view(flat.dtype)
    copy[...] = flat
    return copy
