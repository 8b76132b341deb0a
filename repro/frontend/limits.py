"""Stated limits, and the checks that refuse a hostile model before it costs time or memory.

The counts here are exact and found without expanding anything: a function's size is the sum of its nodes'
sizes, each function counted once, so a few kilobytes of doubling functions are refused at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx

from repro.errors import ReproError

MAX_MODEL_BYTES = (1 << 31) - 1
"""Of the model file itself, as protobuf has it; larger models keep their weights in external data."""

MAX_TENSOR_BYTES = 1 << 35
"""Of any one value (32 GiB)."""

MAX_RANK = 24
"""Axes of any one value; NumPy's own limit is 64 and the reference pairs axes up."""

MAX_NODES = 100_000
"""ONNX nodes after every function call is expanded."""

MAX_DEPTH = 40
"""Subgraphs and function calls inside one another."""

MAX_UNROLLED_NODES = 10_000
"""ONNX nodes that unrolled loops may add."""

BODY_NODES = 8
"""What one iteration of an unrolled loop counts as, beside its nodes."""

MAX_SEQUENCE = 4096
"""Values in one sequence."""

MAX_FOLDED_ELEMENTS = 1 << 16
"""Of a result that is computed at import as soon as it can be."""

MAX_FOLD_WORK = 1 << 22
"""Element operations of one such computation."""

MAX_STATIC_WORK = 1 << 24
"""Element operations to find a value that an operator needs at build."""

MAX_TOTAL_FOLD_WORK = 1 << 27
"""Element operations of all folding in one import."""

FunctionKey = tuple[str, str, str]
"""Domain ('' for ai.onnx), name, overload."""


def domain_of(domain: str) -> str:
    """The default domain has two spellings."""
    return "" if domain == "ai.onnx" else domain


def function_key(item: onnx.FunctionProto) -> FunctionKey:
    return domain_of(item.domain), item.name, item.overload


def call_key(node: onnx.NodeProto) -> FunctionKey:
    return domain_of(node.domain), node.op_type, node.overload


def check_tensor_size(shape: Iterable[int], element_bytes: int, op: str | None = None, node: str | None = None) -> None:
    """Refuses a value whose rank or size in bytes is above the limits."""
    extents = list(shape)
    if len(extents) > MAX_RANK:
        raise ReproError("a tensor has too many axes", op, node, str(len(extents)), f"at most {MAX_RANK} axes")
    size = math.prod(extents) * element_bytes
    if size > MAX_TENSOR_BYTES:
        raise ReproError(
            "a tensor is over the size limit",
            op,
            node,
            found=f"{size} bytes",
            expected=f"at most {MAX_TENSOR_BYTES} bytes ({MAX_TENSOR_BYTES >> 30} GiB) for one value",
            next="bind smaller dimensions, or check the shape the model computes here",
        )


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


@dataclass(frozen=True)
class _Size:
    """What is inside one body: its own nodes (subgraphs included), calls with counts, nesting of graphs."""

    nodes: int
    depth: int
    calls: dict[FunctionKey, int]
    deepest_call: dict[FunctionKey, int]


def _measure(roots: Iterable[onnx.NodeProto], functions: Mapping[FunctionKey, onnx.FunctionProto]) -> _Size:
    nodes, depth = 0, 0
    calls: dict[FunctionKey, int] = {}
    deepest: dict[FunctionKey, int] = {}
    stack = [(iter(roots), 0)]
    while stack:
        walk, level = stack[-1]
        node = next(walk, None)
        if node is None:
            stack.pop()
            continue
        nodes += 1
        key = call_key(node)
        if key in functions:
            calls[key] = calls.get(key, 0) + 1
            deepest[key] = max(deepest.get(key, 0), level)
        for graph in subgraphs(node):
            depth = max(depth, level + 1)
            if level + 1 > MAX_DEPTH:
                raise _too_deep(node.op_type, node.name)
            stack.append((iter(graph.node), level + 1))
    return _Size(nodes, depth, calls, deepest)


def _too_deep(op: str | None = None, node: str | None = None) -> ReproError:
    return ReproError(
        "subgraphs and functions are nested too deep",
        op,
        node,
        found=f"more than {MAX_DEPTH} levels",
        expected=f"at most {MAX_DEPTH}",
        next="inline the functions, or export the model anew",
    )


def _callees_first(sizes: Mapping[FunctionKey, _Size]) -> list[FunctionKey]:
    """Functions so that each stands after those it calls; refuses recursion."""
    done: dict[FunctionKey, None] = {}
    open_calls: dict[FunctionKey, None] = {}
    for root in sizes:
        stack: list[tuple[FunctionKey, Iterator[FunctionKey]]] = []
        if root not in done:
            open_calls[root] = None
            stack.append((root, iter(sizes[root].calls)))
        while stack:
            key, callees = stack[-1]
            callee = next((found for found in callees if found not in done), None)
            if callee is None:
                stack.pop()
                del open_calls[key]
                done[key] = None
            elif callee in open_calls:
                raise ReproError(
                    "a local function calls itself",
                    op=callee[1],
                    node=key[1],
                    found=f"{key[1]} calls {callee[1]}, which leads back to {key[1]}",
                    expected="functions without recursion, as ONNX demands",
                )
            else:
                open_calls[callee] = None
                stack.append((callee, iter(sizes[callee].calls)))
    return list(done)


def check_nesting(model: onnx.ModelProto) -> int:
    """The number of ONNX nodes after expanding every function call; refuses bombs and recursion."""
    functions = {function_key(item): item for item in model.functions}
    sizes = {key: _measure(item.node, functions) for key, item in functions.items()}
    total: dict[FunctionKey, int] = {}
    depth: dict[FunctionKey, int] = {}
    for key in _callees_first(sizes):
        total[key], depth[key] = _expanded(sizes[key], total, depth)
    nodes, deepest = _expanded(_measure(model.graph.node, functions), total, depth)
    if deepest > MAX_DEPTH:
        raise _too_deep()
    if nodes > MAX_NODES:
        raise ReproError(
            "the model is too large once its functions are expanded",
            found=f"{nodes if nodes < 10**12 else 'over 10^12'} nodes",
            expected=f"at most {MAX_NODES}",
        )
    return nodes


def _expanded(size: _Size, total: Mapping[FunctionKey, int], depth: Mapping[FunctionKey, int]) -> tuple[int, int]:
    nodes = size.nodes + sum(count * total[key] for key, count in size.calls.items())
    deepest = max((size.deepest_call[key] + 1 + depth[key] for key in size.calls), default=0)
    return min(nodes, 10**15), max(size.depth, deepest)
