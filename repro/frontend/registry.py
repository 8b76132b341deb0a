"""The table of ONNX operators: one function each, for a domain and a range of opset versions.

    @onnx_op("Softmax", since=13)
    def softmax(ctx: NodeContext, x: Value) -> Value:
        ...

A function takes a NodeContext and the node's inputs in order (None for one left out) and returns its outputs
in order: one Value (or Items, a sequence), or a tuple, in which None stands for an output that the node does not ask for. It may
return fewer than the operator has. It is only called with values whose types are known, and raises nothing
but `ctx.error(...)`; a TypeError of an op constructor becomes an error that names the node.

f16 and bf16 (contract, rule 3): unless `moves=True`, narrow inputs arrive as f32 and float results are
rounded once to the type of the input that `like` names for each (default: the first float input for all;
-1: the result stays f32). `moves=True` is for functions that only move elements or see to types themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repro.errors import InternalError
from repro.frontend.scope import Item, Items
from repro.ir.graph import Value

if TYPE_CHECKING:
    from repro.frontend.context import NodeContext

Function = Callable[..., Any]
"""(ctx, *inputs) -> Value | Items | Sequence[Item]; typed by each function itself."""

STAYS_WIDE = -1
"""In `like`: the result is f32 whatever the inputs are."""


@dataclass(frozen=True)
class OnnxOp:
    """One registered meaning of an operator."""

    domain: str
    name: str
    since: int
    until: int | None
    function: Function
    moves: bool
    like: tuple[int, ...]

    def covers(self, opset: int) -> bool:
        return self.since <= opset and (self.until is None or opset <= self.until)


_TABLE: dict[tuple[str, str], list[OnnxOp]] = {}


def onnx_op(
    name: str,
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    moves: bool = False,
    like: Sequence[int] = (),
) -> Callable[[Function], Function]:
    """Register a function for opsets `since` to `until` (inclusive). May be stacked for several names or ranges."""

    def register(function: Function) -> Function:
        made = OnnxOp(domain, name, since, until, function, moves, tuple(like))
        others = _TABLE.setdefault((domain, name), [])
        for other in others:
            if other.covers(since) or made.covers(other.since):
                raise InternalError(f"{domain}:{name} is registered twice for one opset")
        others.append(made)
        return function

    return register


def find(domain: str, name: str, opset: int) -> OnnxOp | None:
    """The meaning of an operator at an opset version, if it has one here."""
    return next((op for op in _TABLE.get((domain, name), ()) if op.covers(opset)), None)


def versions(domain: str, name: str) -> str:
    """The ranges of opsets for which an operator is known, in words; empty if it is not."""
    ranges = sorted(_TABLE.get((domain, name), ()), key=lambda op: op.since)
    return ", ".join(f"{op.since} and up" if op.until is None else f"{op.since} to {op.until}" for op in ranges)


def registered() -> tuple[OnnxOp, ...]:
    """Everything in the table, in name order."""
    return tuple(op for key in sorted(_TABLE) for op in sorted(_TABLE[key], key=lambda op: op.since))


def _arguments(results: Any) -> tuple[Item, ...]:
    return (results,) if isinstance(results, Value | Items) else tuple(results)


def apply(op: OnnxOp, ctx: NodeContext, inputs: Sequence[Item]) -> tuple[Item, ...]:
    """Call a function under rule 3."""
    from repro.frontend.narrow import round_results, widen

    if op.moves:
        return _arguments(op.function(ctx, *inputs))
    return round_results(inputs, _arguments(op.function(ctx, *widen(inputs))), op.like)
