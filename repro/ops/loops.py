"""Loops: a counted one, and one whose condition is decided as it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from repro.ir.graph import Graph, Node, Value
from repro.ir.types import BOOL, F32, I64, Array, TensorType
from repro.ops.arithmetic import add, compare, mul
from repro.ops.loop_gradient import loop_gradient
from repro.ops.record import (
    Attributes,
    NotDifferentiable,
    Op,
    RegionGradient,
    Sample,
    Structural,
    evaluate,
    make,
    register,
)
from repro.ops.regions import expect_types, region
from repro.ops.structure import scalar

Types = tuple[TensorType, ...]
Regions = tuple[Graph, ...]


def _loop_type(attributes: Attributes, types: Types, regions: Regions) -> Types:
    count, carried, scanned = attributes["count"], attributes["carried"], attributes["scanned"]
    slices = tuple(TensorType(kind.dtype, kind.shape[1:]) for kind in types[carried : carried + scanned])
    if any(kind.shape[:1] != (count,) for kind in types[carried : carried + scanned]):
        raise TypeError(f"loop: a scanned operand does not have {count} rows")
    body = (TensorType(I64, ()), *types[:carried], *slices, *types[carried + scanned :])
    expect_types("loop", "region arguments", regions[0].arguments, body)
    expect_types("loop", "carried results", regions[0].types[:carried], types[:carried])
    stacked = tuple(TensorType(kind.dtype, (count, *kind.shape)) for kind in regions[0].types[carried:])
    return (*types[:carried], *stacked)


def _loop_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    carried_count, scanned = node["carried"], node["scanned"]
    carried = list(operands[:carried_count])
    sequences, fixed = operands[carried_count : carried_count + scanned], operands[carried_count + scanned :]
    stacks = [np.zeros(kind.shape, kind.dtype.storage) for kind in node.types[carried_count:]]
    for step in range(node["count"]):
        rows = (np.ascontiguousarray(sequence[step]).reshape(sequence.shape[1:]) for sequence in sequences)
        results = evaluate(node.regions[0], (np.asarray(step, np.int64), *carried, *rows, *fixed))
        carried = list(results[:carried_count])
        for stack, row in zip(stacks, results[carried_count:], strict=True):
            stack[step] = row
    return (*carried, *stacks)


def loop(
    count: int,
    carried: Sequence[Value],
    scanned: Sequence[Value],
    fixed: Sequence[Value],
    body: Callable[..., Sequence[Value]],
) -> tuple[Value, ...]:
    """`count` iterations of body(i, *carried, *rows of scanned, *fixed) -> (*carried, *rows to stack).

    Results: the last carried values, then each further result stacked along a new first axis.
    """
    rows = [TensorType(value.dtype, value.shape[1:]) for value in scanned]
    types = [TensorType(I64, ()), *(v.type for v in carried), *rows, *(v.type for v in fixed)]
    node = make(
        "loop",
        *carried,
        *scanned,
        *fixed,
        regions=(region(types, body),),
        count=count,
        carried=len(carried),
        scanned=len(scanned),
    )
    return node.results


register(
    Op(
        "loop",
        infer=_loop_type,
        reference=_loop_reference,
        gradient=RegionGradient(loop_gradient),
        lowering=Structural("a counted loop of the program"),
        samples=lambda: (
            Sample(
                (TensorType(F32, (3,)), TensorType(F32, (5, 3))),
                lambda h, x: loop(5, (h,), (x,), (), lambda i, c, r: (add(mul(c, r), r), mul(c, c)))[1],
            ),
        ),
        expensive=True,
        meaning="a loop whose count is known when it is built",
    )
)

# ── while ───────────────────────────────────────────────────────────────────────────────────────────


def _while_type(attributes: Attributes, types: Types, regions: Regions) -> Types:
    carried = types[: attributes["carried"]]
    if not carried or carried[0] != TensorType(BOOL, ()):
        raise TypeError("while: the first carried value is the condition, bool[]")
    expect_types("while", "region arguments", regions[0].arguments, (TensorType(I64, ()), *types))
    expect_types("while", "carried results", regions[0].types, carried)
    return carried


def _while_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    carried, fixed = list(operands[: node["carried"]]), operands[node["carried"] :]
    step = 0
    while bool(carried[0]) and step < node["limit"]:
        carried = list(evaluate(node.regions[0], (np.asarray(step, np.int64), *carried, *fixed)))
        step += 1
    return tuple(carried)


def while_(
    carried: Sequence[Value], fixed: Sequence[Value], body: Callable[..., Sequence[Value]], limit: int = (1 << 62)
) -> tuple[Value, ...]:
    """Runs body(i, *carried, *fixed) -> carried as long as carried[0] (bool[]) is true, at most `limit` times."""
    types = [TensorType(I64, ()), *(v.type for v in carried), *(v.type for v in fixed)]
    node = make("while", *carried, *fixed, regions=(region(types, body),), carried=len(carried), limit=limit)
    return node.results


def _countdown(start: Value, x: Value) -> Value:
    def body(i: Value, go: Value, left: Value, value: Value) -> Sequence[Value]:
        fewer = add(left, scalar(-1, I64))
        return compare("gt", fewer, scalar(0, I64)), fewer, add(value, value)

    return while_((compare("gt", start, scalar(0, I64)), start, x), (), body)[2]


register(
    Op(
        "while",
        infer=_while_type,
        reference=_while_reference,
        gradient=NotDifferentiable("the iterations to go back through are counted only as the loop runs", unknown=True),
        lowering=Structural("a while of the program"),
        samples=lambda: (Sample((TensorType(I64, ()), TensorType(F32, (4,))), _countdown, ((0, 5), None)),),
        expensive=True,
        meaning="a loop whose condition is decided as it runs",
    )
)
