"""Composites and control flow: nodes with regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from repro.ir.graph import Attribute, Graph, Node, Value, argument, substitute
from repro.ir.types import BOOL, F32, TensorType
from repro.ops.composite_gradients import composite_gradient
from repro.ops.elementwise import add, mul
from repro.ops.movement import fill
from repro.ops.record import (
    Attributes,
    ByExpansion,
    Differentiate,
    Op,
    RegionGradient,
    Sample,
    Structural,
    evaluate,
    make,
    register,
)
from repro.ops.regions import expect_types, region

Types = tuple[TensorType, ...]
Regions = tuple[Graph, ...]


# ── composite ───────────────────────────────────────────────────────────────────────────────────────


def _composite_type(_: Attributes, types: Types, regions: Regions) -> Types:
    expect_types("composite", "operands", types, regions[0].arguments)
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

# ── branch ──────────────────────────────────────────────────────────────────────────────────────────


def _branch_type(_: Attributes, types: Types, regions: Regions) -> Types:
    if types[0] != TensorType(BOOL, ()):
        raise TypeError(f"branch: the condition is {types[0]}, not bool[]")
    for side in regions:
        expect_types("branch", "region arguments", side.arguments, types[1:])
    expect_types("branch", "results of the sides", regions[1].types, regions[0].types)
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


def _branch_gradient(
    node: Node, cotangents: tuple[Value, ...], differentiate: Differentiate
) -> tuple[Value | None, ...]:
    """The side that ran, differentiated, by the same condition; +0.0 for what that side does not use."""
    condition, *operands = node.operands
    slopes = [slope for slope in cotangents if slope.dtype.is_float]
    kinds = tuple(value.type for value in (*operands, *slopes))
    arguments = [argument(index, kind) for index, kind in enumerate(kinds)]
    wanted = [value for value in arguments[: len(operands)] if value.dtype.is_float]
    sides: list[tuple[Value | None, ...]] = []
    for side in node.regions:
        floats = [value for value in side.results if value.dtype.is_float]
        sides.append(differentiate(tuple(zip(floats, arguments[len(operands) :], strict=True)), wanted))
    live = [n for n in range(len(wanted)) if any(side[n] is not None for side in sides)]
    regions = [Graph(kinds, tuple(side[n] or fill(0, wanted[n].type) for n in live)) for side in sides]
    results = make("branch", condition, *operands, *slopes, regions=regions).results if live else ()
    found = dict(zip((wanted[n] for n in live), results, strict=True))
    return None, *(found.get(value) for value in arguments[: len(operands)])


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
        gradient=RegionGradient(_branch_gradient),
        lowering=Structural("a branch of the program"),
        samples=_branch_samples,
        expensive=True,
        meaning="one of two regions, decided as it runs",
    )
)
