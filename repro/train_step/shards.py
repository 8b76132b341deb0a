"""Virtual shards: how a batch is cut into them, and the tree that adds what they give (rule 17).

A step takes k microbatches of V shards of n rows: its batch is k * V equal runs of rows, and run j * V + s is shard s
of microbatch j.
"""

from __future__ import annotations

from repro.ir.graph import Value
from repro.ops import add, reshape, slice_, transpose


def cut(value: Value, microbatches: int, shards: int) -> Value:
    """[k * V * n, ...] as [V, k * n, ...]: the rows of each shard, those of its first microbatch first."""
    rows, rest = value.shape[0] // (microbatches * shards), value.shape[1:]
    parts = reshape(value, (microbatches, shards, rows, *rest))
    if microbatches > 1:
        parts = transpose(parts, (1, 0, *range(2, parts.rank)))
    return reshape(parts, (shards, microbatches * rows, *rest))


def tree_sum(stacked: Value) -> Value:
    """[V, ...] added along the first axis: (0, 1), (2, 3) ..., then pairs of pairs; V is a power of two."""
    rest = stacked.shape[1:]
    while stacked.shape[0] > 1:
        half = stacked.shape[0] // 2
        pairs = reshape(stacked, (half, 2, *rest))
        left, right = (slice_(pairs, (0, side, *(0,) * len(rest)), (half, side + 1, *rest)) for side in (0, 1))
        stacked = reshape(add(left, right), (half, *rest))
    return reshape(stacked, rest)
