"""One record per core op: type rule, reference, gradient, lowering, sample inputs.

A missing field fails at import. Passes ask the record, never a list of names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr
from repro.ir.graph import Attribute, Graph, Node, Value
from repro.ir.types import Array, TensorType
from repro.numerics.host_mode import exact_arithmetic

# ── the fields of a record ──────────────────────────────────────────────────────────────────────────

Attributes = Mapping[str, Any]
TypeRule = Callable[[Attributes, tuple[TensorType, ...], tuple[Graph, ...]], tuple[TensorType, ...]]
"""Result types from attributes, operand types and regions; raises TypeError where they do not fit."""

Reference = Callable[[Node, tuple[Array, ...]], tuple[Array, ...]]
"""The op by the contract, in the plainest way, on storage arrays."""


@dataclass(frozen=True)
class NotDifferentiable:
    """No gradient exists, and why. `unknown`: not because it is zero wherever it is defined, but because there is no
    rule for it, so that a sum of paths without this one would be wrong."""

    reason: str
    unknown: bool = False


GradientRule = Callable[[Node, tuple[Value, ...]], tuple[Value | None, ...]]
"""From the cotangents of the results: one cotangent for each operand (None: no path), of the operand's type.

A rule is called if at least one result has a cotangent; the others are given zeros, `fill(0, type)`.
"""


@dataclass(frozen=True)
class Step:
    """A stretch of a graph with a gradient of its own (a custom VJP): from `result` straight to `sources`.

    `rule` takes the cotangent of `result` to one for each source; nothing passes into the node of `result`.
    """

    result: Value
    sources: tuple[Value, ...]
    rule: Callable[[Value], tuple[Value | None, ...]]


class Differentiate(Protocol):
    """Reverse mode, `repro.autodiff.cotangents`: from pairs (value, its cotangent), those of other values."""

    def __call__(
        self, results: Sequence[tuple[Value, Value]], wrt: Sequence[Value], steps: Sequence[Step] = ()
    ) -> tuple[Value | None, ...]: ...


@dataclass(frozen=True)
class RegionGradient:
    """The gradient of an op with regions: a rule that is given reverse mode, to differentiate them."""

    rule: Callable[[Node, tuple[Value, ...], Differentiate], tuple[Value | None, ...]]


Gradient = GradientRule | RegionGradient | NotDifferentiable

Access = Callable[[tuple[Expr, ...]], Expr]
"""A value as a function of its index: gives the scalar expression of that element."""


class Axes:
    """Hands out fresh axis numbers for the reductions of one kernel."""

    def __init__(self, first: int) -> None:
        self.next = first

    def fresh(self, extent: int) -> Axis:
        made = ix.axis(self.next, extent)
        self.next += 1
        return made


Element = Callable[[Node, int, tuple[Expr, ...], tuple[Access, ...], Axes], Expr]
"""Element of result number i at an index, from the operands as functions of theirs."""


@dataclass(frozen=True)
class Nest:
    """A loop nest that writes a result: axes (the first `serial` run ascending), offset, value, condition."""

    axes: tuple[Axis, ...]
    serial: int
    offset: Expr
    value: Expr
    when: Expr | None = None


Nests = Callable[[Node, tuple[Access, ...], Callable[[Expr], Expr], Axes], Sequence[Nest]]
"""Loop nests, run one after another, that write the only result; the function given loads from it."""


@dataclass(frozen=True)
class ByElement:
    """Each element is an expression over the operands' elements, so the op can be fused into its users.

    `reduces`: the expression holds an ordered reduction, or reads several elements, as a step of a sort does, so it
    should be evaluated once per element.
    `moves`: it only renames indices (free to repeat). `forward`, where the map is a bijection, gives the
    result's index of an operand's index. `overlaps` says whether an operand's element is a term of several of a
    row's reductions, as those of overlapping windows are; `repeats` whether it is computed for each of them anew, where
    no form of code keeps it meanwhile. `settles`: the value is the operand, of which it settles the
    bits alone, so that it may be taken at any step on the way to it. `cheaper` gives the same bits in other
    nodes, where these take less work. `together`: several elements are computed by one iteration, vectors of them as
    they lie, so that what reorders them is a step of its own.
    """

    element: Element
    reduces: bool = False
    moves: bool = False
    forward: Callable[[Node, tuple[Expr, ...]], tuple[Expr, ...]] | None = None
    overlaps: Callable[[Node], bool] | None = None
    repeats: Callable[[Node], bool] | None = None
    settles: bool = False
    cheaper: Callable[[Node], tuple[Value, ...] | None] | None = None
    together: bool = False


@dataclass(frozen=True)
class ByNests:
    """The op needs loop nests of its own (an order over writes). `running`: each element waits for the one before."""

    nests: Nests
    running: bool = False


@dataclass(frozen=True)
class ByExpansion:
    """The op is written in other core ops, just before lowering."""

    expand: Callable[[Node], tuple[Value, ...]]


@dataclass(frozen=True)
class Structural:
    """The lowering of programs itself knows it: leaves and control flow."""

    reason: str


Lowering = ByElement | ByNests | ByExpansion | Structural


@dataclass(frozen=True)
class Sample:
    """Sample operands for tests: a type each, and for integers the range to draw from."""

    operands: tuple[TensorType, ...]
    build: Callable[..., Value]
    ranges: tuple[tuple[int, int] | None, ...] = ()


@dataclass(frozen=True)
class Op:
    """A core op. `pure` nodes may be folded, merged and dropped; `expensive` ones are not worth repeating."""

    name: str
    infer: TypeRule
    reference: Reference
    gradient: Gradient
    lowering: Lowering
    samples: Callable[[], Iterable[Sample]]
    pure: bool = True
    commutative: bool = False
    expensive: bool = False
    meaning: str = field(default="", kw_only=True)


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    if op.name in OPS:
        raise InternalError(f"op {op.name} is recorded twice")
    OPS[op.name] = op
    return op


def record(node: Node) -> Op:
    try:
        return OPS[node.op]
    except KeyError:
        raise InternalError(f"no record for op {node.op}") from None


def make(op: str, *operands: Value, regions: Sequence[Graph] = (), **attributes: Attribute) -> Node:
    """A node of a core op with inferred result types. Raises TypeError where the types do not fit."""
    types = OPS[op].infer(attributes, tuple(value.type for value in operands), tuple(regions))
    return Node(op, operands, attributes, types, regions)


def evaluate(graph: Graph, arguments: Sequence[Array], parameters: Sequence[Array] = ()) -> tuple[Array, ...]:
    """The reference: every node of a graph by its record, on storage arrays."""
    known: dict[Value, Array] = {}
    with exact_arithmetic():
        for node in graph.nodes:
            known.update(zip(node.results, _evaluate(node, known, arguments, parameters), strict=True))
    return tuple(known[value] for value in graph.results)


def _evaluate(
    node: Node, known: Mapping[Value, Array], arguments: Sequence[Array], parameters: Sequence[Array]
) -> tuple[Array, ...]:
    if node.op == "argument":
        return (arguments[node["index"]],)
    if node.op == "parameter":
        return (parameters[node["identity"]],)
    results = record(node).reference(node, tuple(known[value] for value in node.operands))
    for kind, array in zip(node.types, results, strict=True):
        if array.shape != kind.shape or array.dtype != kind.dtype.storage:
            raise InternalError(f"{node}: reference gave {array.dtype}{array.shape}, type is {kind}")
    return results
