"""Elements taken along one axis, at places of their own."""

from __future__ import annotations

from repro.ir.graph import Value
from repro.ops.indexing import gather
from repro.ops.movement import reshape
from repro.ops.slicing import concatenate
from repro.ops.structure import iota


def take_along_axis(value: Value, indices: Value, axis: int, inside: bool = False) -> Value:
    """NumPy's take_along_axis for i64 indices of the value's rank; `inside`: none can be out of range."""
    return gather(value, whole_points(indices, axis), range(indices.rank), inside)


def whole_points(indices: Value, axis: int) -> Value:
    """Points i64 [..., rank] on all axes, of indices along one."""
    shape = indices.shape
    columns = [indices if a == axis else iota(shape, a) for a in range(len(shape))]
    return concatenate([reshape(column, (*shape, 1)) for column in columns], len(shape))
