"""What the frontend takes: stated limits, checked before memory or time is spent."""

from __future__ import annotations

OLDEST_OPSET = 7
NEWEST_OPSET = 28
"""Versions of the default operator set that are understood; the newest is that of the pinned onnx."""

MODEL_BYTES = (1 << 31) - 1
"""Size of a model file; protobuf itself ends here. Larger models keep their weights as external data."""

TENSOR_BYTES = 1 << 34
"""Size of any one tensor: 16 GiB."""

TOTAL_NODES = 100_000
"""ONNX nodes after local functions are inlined and loops unrolled."""

NESTING = 64
"""Local functions within functions, and graphs within graphs."""

RANK = 64
"""Axes of a tensor."""

FOLD_BYTES = 1 << 14
"""A node over constants becomes a constant if its results take no more than this."""

STATIC_BYTES = 1 << 20
"""Operands and results of a node that is evaluated while a model is imported."""

UNROLL_STEPS = 4
"""A loop of at most this many iterations is unrolled, even where a loop node would do."""
