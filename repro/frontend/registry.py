"""The table of ONNX operators: one function per operator and opset range, found by name and version.

    @onnx_op("Softmax", since=1, until=12)
    def softmax_flat(ctx: NodeContext, x: Value) -> Value: ...

A function takes a NodeContext and the node's inputs by position: parameters without a default are required (one
annotated `Value | None` may be empty), those with `= None` may be left out, `*inputs` takes any number. It returns
the outputs by position: one Value (or Items, a sequence), or a tuple of them; more than the node asks for is fine.
`ctx.error(...)` says what is wrong; a TypeError or ValueError of a core op's constructor becomes 'shape or dtype
conflicts' at the node.

f16 and bf16 (contract, rule 3): by default the function sees them as f32 and its f32 results are rounded once, to
the type that ONNX's schema gives the output (for operators without a schema: the first narrow input's).
`moves=True` hands the values through as they are, for operators that only move, choose or convert elements.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from repro.errors import InternalError
from repro.frontend.limits import domain_of

Handler = TypeVar("Handler", bound=Callable[..., object])
Function = Callable[..., object]
NEWEST = 1 << 30
"""`until` of an operator whose meaning still stands."""


@dataclass(frozen=True)
class OnnxOp:
    """An operator from opset `since` to `until` (both included) of its domain.

    `required` is how many inputs the node must list and `most` how many it may list (None: any number).
    `annotations` are those of the function's parameters, which say what an input may be; the last repeats.
    """

    domain: str
    name: str
    since: int
    until: int
    function: Function
    moves: bool
    required: int
    most: int | None
    annotations: tuple[str, ...]

    def knows(self, version: int) -> bool:
        return self.since <= version <= self.until

    def takes_sequence(self, index: int) -> bool:
        """Whether input `index` may be something else than a tensor: its parameter is an Item."""
        return "Item" in self.annotations[min(index, len(self.annotations) - 1)]

    def takes_nothing(self, index: int) -> bool:
        """Whether input `index` may be left empty."""
        words = self.annotations[min(index, len(self.annotations) - 1)]
        return "None" in words or "Item" in words


_TABLE: dict[tuple[str, str], list[OnnxOp]] = {}


def onnx_op(
    name: str, since: int = 1, until: int | None = None, domain: str = "", moves: bool = False
) -> Callable[[Handler], Handler]:
    """Registers the decorated function for an operator; several decorators on one function stack."""

    def add(function: Handler) -> Handler:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        required = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        last = NEWEST if until is None else until
        most = None if variadic else len(parameters)
        annotations = tuple(str(p.annotation) for p in parameters) or ("None",)
        entry = OnnxOp(domain_of(domain), name, since, last, function, moves, required, most, annotations)
        entries = _TABLE.setdefault((entry.domain, name), [])
        if any(other.since <= last and since <= other.until for other in entries):
            raise InternalError(f"operator {name} of domain '{domain}' is registered twice for some opset")
        entries.append(entry)
        return function

    return add


def find_op(domain: str, name: str, version: int) -> OnnxOp | None:
    """The entry for an operator at a version of its domain."""
    return next((entry for entry in _TABLE.get((domain, name), ()) if entry.knows(version)), None)


def known_versions(domain: str, name: str) -> list[tuple[int, int]]:
    """The opset ranges for which an operator is registered, ascending."""
    return sorted((entry.since, entry.until) for entry in _TABLE.get((domain, name), ()))


def registered_ops() -> list[OnnxOp]:
    """Every entry, in order of domain, name and opset."""
    return [entry for key in sorted(_TABLE) for entry in sorted(_TABLE[key], key=lambda e: e.since)]
