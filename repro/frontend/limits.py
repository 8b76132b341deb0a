"""What the frontend takes: stated limits, checked before memory or time is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx

from repro.errors import ReproError

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

MAX_SEQUENCE = 65_536
"""Values of one ONNX sequence."""

MAX_FOLDED_ELEMENTS = 4096
"""A closed value becomes a constant if it has no more elements than this."""

MAX_FOLD_WORK = 1 << 22
"""Element operations that the folding of one value may cost."""

MAX_STATIC_WORK = 1 << 26
"""Element operations for a value that an operator must know at build."""

MAX_TOTAL_FOLD_WORK = 1 << 30
"""Element operations of all folding in one import."""

UNROLL_STEPS = 4
"""A loop of at most this many iterations is unrolled, even where a loop node would do."""

MAX_UNROLLED_STEPS = 4096
"""A loop that has to be unrolled (shapes change from step to step) may have this many iterations."""


MAX_UNROLLED_NODES = 100_000
"""ONNX nodes that the unrolling of loops may add."""


def domain_of(domain: str) -> str:
    """The domain of an operator; `ai.onnx` is another name of the default one."""
    return "" if domain == "ai.onnx" else domain


def call_key(node: onnx.NodeProto) -> tuple[str, str, str]:
    """What a node calls, if that is a local function."""
    return domain_of(node.domain), node.op_type, node.overload


def check_tensor_size(shape: Sequence[int], width: int, op: str | None = None, node: str | None = None) -> None:
    """Refuse a tensor of `width` bytes an element over the limit, before memory is taken."""
    size = math.prod(shape) * width
    if size > TENSOR_BYTES:
        raise ReproError(
            "a tensor is over the size limit",
            op,
            node,
            found=f"shape {list(shape)}, {size} bytes",
            expected=f"at most {TENSOR_BYTES} bytes",
        )


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs in a node's attributes, in order."""
    graphs: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            graphs.append(attribute.g)
        graphs.extend(attribute.graphs)
    return graphs
