"""The table of ONNX operators: one function each, for a domain and a range of opset versions.

    @onnx_op("Softmax", since=13)
    def softmax(ctx: NodeContext, x: Value) -> Value:
        ...

A function takes a NodeContext and the node's inputs in order (None for one left out; give optional inputs a
default of None, variadic ones `*`), and returns the outputs in order: one Value (or Items, a sequence), or
a tuple, in which None stands for an output that the node does not ask for. Errors are
`raise ctx.error(...)`; a TypeError of an op constructor becomes an error that names the node.

f16 and bf16 (contract, rule 3): unless `moves=True`, narrow inputs arrive as f32, and f32 results are rounded
once to the type that ONNX's schema gives the output. `moves=True` is for functions that only move elements, or
see to types themselves (Cast).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from repro.errors import InternalError
from repro.frontend.limits import domain_of

Function = Callable[..., Any]
"""(ctx, *inputs) -> Value | Items | tuple of them or None; typed by each function itself."""


@dataclass(frozen=True)
class OnnxOp:
    """One registered meaning of an operator."""

    domain: str
    name: str
    since: int
    until: int | None
    function: Function
    moves: bool

    def covers(self, opset: int) -> bool:
        return self.since <= opset and (self.until is None or opset <= self.until)

    @cached_property
    def _inputs(self) -> list[inspect.Parameter]:
        return [*inspect.signature(self.function).parameters.values()][1:]

    @cached_property
    def required(self) -> int:
        """How many inputs have to be there."""
        ordinary = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return sum(item.kind is ordinary and item.default is inspect.Parameter.empty for item in self._inputs)

    @cached_property
    def most(self) -> int | None:
        """How many inputs there can be; None for any number."""
        variadic = any(item.kind is inspect.Parameter.VAR_POSITIONAL for item in self._inputs)
        return None if variadic else len(self._inputs)


_TABLE: dict[tuple[str, str], list[OnnxOp]] = {}


def onnx_op(
    name: str, since: int = 1, until: int | None = None, domain: str = "", moves: bool = False
) -> Callable[[Function], Function]:
    """Register a function for opsets `since` to `until` (inclusive). May be stacked for several names or ranges."""

    def register(function: Function) -> Function:
        made = OnnxOp(domain_of(domain), name, since, until, function, moves)
        others = _TABLE.setdefault((made.domain, name), [])
        for other in others:
            if other.covers(since) or made.covers(other.since):
                raise InternalError(f"{name} of domain '{made.domain}' is registered twice for one opset")
        others.append(made)
        return function

    return register


def find_op(domain: str, name: str, opset: int) -> OnnxOp | None:
    """The meaning of an operator at an opset version, if it has one here."""
    return next((op for op in _TABLE.get((domain, name), ()) if op.covers(opset)), None)


def known_versions(domain: str, name: str) -> str:
    """The ranges of opsets for which an operator is known, in words; empty if it is not."""
    ranges = sorted(_TABLE.get((domain, name), ()), key=lambda op: op.since)
    return ", ".join(f"{op.since} and up" if op.until is None else f"{op.since} to {op.until}" for op in ranges)


def registered_ops() -> tuple[OnnxOp, ...]:
    """Everything in the table, in order of name and version."""
    return tuple(op for key in sorted(_TABLE) for op in sorted(_TABLE[key], key=lambda op: op.since))
