"""Composites and control flow: nodes with regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from repro.ir.graph import Attribute, Graph, Node, Value, argument, substitute
from repro.ir.types import BOOL, F32, I64, Array, TensorType
from repro.ops.composite_gradients import composite_gradient
from repro.ops.elementwise import add, compare, mul
from repro.ops.record import (
    PENDING,
    Attributes,
    ByExpansion,
    Op,
    RegionGradient,
    Sample,
    Structural,
    evaluate,
    make,
    register,
)
from repro.ops.structure import scalar

Types = tuple[TensorType, ...]
Regions = tuple[Graph, ...]


def region(types: Sequence[TensorType], body: Callable[..., Value | Sequence[Value]]) -> Graph:
    """The graph of a Python function over the region's arguments."""
    results = body(*(argument(index, kind) for index, kind in enumerate(types)))
    return Graph(tuple(types), (results,) if isinstance(results, Value) else tuple(results))


def _expect(name: str, what: str, found: Types, expected: Types) -> None:
    if found != expected:
        raise TypeError(f"{name}: {what} are {list(map(str, found))}, expected {list(map(str, expected))}")


# ── composite ───────────────────────────────────────────────────────────────────────────────────────


def _composite_type(_: Attributes, types: Types, regions: Regions) -> Types:
    _expect("composite", "operands", types, regions[0].arguments)
    return regions[0].types


def composite(
    name: str, operands: Sequence[Value], body: Callable[..., Value | Sequence[Value]], **attributes: Attribute
) -> Node:
    """One node whose bits are those of `body`, a region of core ops over the operands.

    `name` and `attributes` say what it is, for passes that know a better kernel or gradient.
    """
    graph = region([value.type for value in operands], body)
    return make("composite", *operands, regions=(graph,), name=name, **attributes)


register(
    Op(
        "composite",
        infer=_composite_type,
        reference=lambda node, operands: evaluate(node.regions[0], operands),
        gradient=RegionGradient(composite_gradient),
        lowering=ByExpansion(lambda node: substitute(node.regions[0], node.operands)),
        samples=lambda: (
            Sample(
                (TensorType(F32, (4,)),) * 2,
                lambda a, b: composite("Fused", (a, b), lambda x, y: add(mul(x, y), y)).value,
            ),
        ),
        expensive=True,
        meaning="a named region of core ops",
    )
)

# ── counted loop ────────────────────────────────────────────────────────────────────────────────────


def _loop_type(attributes: Attributes, types: Types, regions: Regions) -> Types:
    count, carried, scanned = attributes["count"], attributes["carried"], attributes["scanned"]
    slices = tuple(TensorType(kind.dtype, kind.shape[1:]) for kind in types[carried : carried + scanned])
    if any(kind.shape[:1] != (count,) for kind in types[carried : carried + scanned]):
        raise TypeError(f"loop: a scanned operand does not have {count} rows")
    body = (TensorType(I64, ()), *types[:carried], *slices, *types[carried + scanned :])
    _expect("loop", "region arguments", regions[0].arguments, body)
    _expect("loop", "carried results", regions[0].types[:carried], types[:carried])
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
        gradient=PENDING,
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
    _expect("while", "region arguments", regions[0].arguments, (TensorType(I64, ()), *types))
    _expect("while", "carried results", regions[0].types, carried)
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
        gradient=PENDING,
        lowering=Structural("a while of the program"),
        samples=lambda: (Sample((TensorType(I64, ()), TensorType(F32, (4,))), _countdown, ((0, 5), None)),),
        expensive=True,
        meaning="a loop whose condition is decided as it runs",
    )
)

# ── branch ──────────────────────────────────────────────────────────────────────────────────────────


def _branch_type(_: Attributes, types: Types, regions: Regions) -> Types:
    if types[0] != TensorType(BOOL, ()):
        raise TypeError(f"branch: the condition is {types[0]}, not bool[]")
    for side in regions:
        _expect("branch", "region arguments", side.arguments, types[1:])
    _expect("branch", "results of the sides", regions[1].types, regions[0].types)
    return regions[0].types


def branch(
    condition: Value,
    operands: Sequence[Value],
    then: Callable[..., Sequence[Value]],
    otherwise: Callable[..., Sequence[Value]],
) -> tuple[Value, ...]:
    """One of two regions over the same operands, by a bool[] decided as it runs."""
    types = [value.type for value in operands]
    return make("branch", condition, *operands, regions=(region(types, then), region(types, otherwise))).results


def _branch_samples() -> Iterable[Sample]:
    x = TensorType(F32, (4,))
    yield Sample(
        (TensorType(BOOL, ()), x), lambda c, v: branch(c, (v,), lambda a: (add(a, a),), lambda a: (mul(a, a),))[0]
    )


register(
    Op(
        "branch",
        infer=_branch_type,
        reference=lambda node, operands: evaluate(node.regions[0 if bool(operands[0]) else 1], operands[1:]),
        gradient=PENDING,
        lowering=Structural("a branch of the program"),
        samples=_branch_samples,
        expensive=True,
        meaning="one of two regions, decided as it runs",
    )
)
