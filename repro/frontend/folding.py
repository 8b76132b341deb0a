"""Constant folding at import: values that depend on nothing are computed by the reference, within limits.

What the reference computes is the contract, so folding floats is as safe as folding shapes. A value is
*closed* when it depends on no argument, no parameter and no random bits.
"""

from __future__ import annotations

import glob
import math
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from repro.frontend.limits import MAX_FOLD_WORK, MAX_FOLDED_ELEMENTS, MAX_STATIC_WORK, MAX_TOTAL_FOLD_WORK
from repro.ir.graph import Graph, Node, Value, constant, constant_array, rewrite
from repro.ir.types import Array
from repro.numerics.numpy_scalars import canonicalize
from repro.ops.record import evaluate, record

_OPEN_LEAVES = ("argument", "parameter", "random_bits")
_FUNCTION_COST = 64
"""Element operations of an elementary function, about."""


def _node_work(node: Node) -> int:
    """Element operations that the reference spends on a node, about."""
    size = sum(kind.elements for kind in node.types) + 16
    operands = sum(value.type.elements for value in node.operands)
    if node.op == "dot":
        left = node.operands[0]
        return size * math.prod(left.shape[axis] for axis in node["left_contract"]) * 4 + operands
    if node.op == "convolution":
        return size * math.prod(node.operands[1].shape[1:]) * 4 + operands
    if node.op == "window_reduce":
        return size * math.prod(node["window"]) * 4 + operands
    if node.op == "while":
        return MAX_TOTAL_FOLD_WORK
    inner = sum(_node_work(each) for region in node.regions for each in region.nodes)
    if node.op == "loop":
        inner *= node["count"]
    cost = _FUNCTION_COST if node.op in ("exp", "log", "pow", "scatter", "sort") or record(node).expensive else 1
    return size * cost + operands + inner


class Folder:
    """Remembers which nodes are closed, how much work folding has done, and which parameters decided something.

    Parameters count as known, by their initial values, but for those whose names are `changing`.
    """

    def __init__(self, parameter_value: Callable[[Node], Array], changing: Collection[str] = ()) -> None:
        self._parameter_value, self.changing = parameter_value, frozenset(changing)
        self.decided: dict[str, None] = {}
        """Names of parameters whose initial values were asked for."""
        self._closed: dict[Node, bool] = {}
        self._spent = 0
        self._seen: dict[Value, Value] = {}

    def is_closed(self, value: Value) -> bool:
        """Whether a value depends on constants only."""
        stack = [value.node]
        while stack:
            node = stack[-1]
            if node in self._closed:
                stack.pop()
                continue
            open_operands = [v.node for v in node.operands if v.node not in self._closed]
            if open_operands:
                stack.extend(open_operands)
                continue
            closed = node.op not in _OPEN_LEAVES and record(node).pure and not _random_inside(node)
            self._closed[node] = closed and all(self._closed[v.node] for v in node.operands)
            stack.pop()
        return self._closed[value.node]

    def fold(self, value: Value) -> Value:
        """The value as a constant, if it is closed and small; else the value itself."""
        if value.node.op == "constant" or value.type.elements > MAX_FOLDED_ELEMENTS or not self.is_closed(value):
            return value
        found = self._seen.get(value)
        if found is None:
            array = self._compute(value, MAX_FOLD_WORK, parameters=False)
            found = self._seen[value] = value if array is None else constant(array, value.dtype)
        return found

    def static(self, value: Value, spend: bool = True) -> Array | None:
        """The storage array of a value that depends on constants and parameters' initial values only, those that change
        left out.

        None where it depends on anything else, or costs more than the limit. What does not `spend` depends on the value
        alone, and not on what was folded before: for what decides about bits.
        """
        if value.node.op == "constant":
            return constant_array(value.node)
        if value.node.op == "parameter" and not self.changes(value.node):
            return self._initial(value.node)
        return self._compute(value, MAX_STATIC_WORK, parameters=True, spend=spend)

    def changes(self, node: Node) -> bool:
        """Whether a parameter's value is not known at build."""
        return node["identity"] in self.changing

    def _initial(self, node: Node) -> Array:
        self.decided.setdefault(str(node["identity"]))
        return self._parameter_value(node)

    def _compute(self, value: Value, limit: int, parameters: bool, spend: bool = True) -> Array | None:
        leaves = self._needed(value, limit, parameters)
        if leaves is None:
            return None
        nodes, work = leaves
        if spend and self._spent + work > MAX_TOTAL_FOLD_WORK:
            return None
        self._spent += work if spend else 0
        if nodes:
            value = _with_values(value, {node: self._initial(node) for node in nodes})
        (array,) = evaluate(Graph((), (value,)), ())
        return canonicalize(array, value.dtype)

    def _needed(self, value: Value, limit: int, parameters: bool) -> tuple[list[Node], int] | None:
        """Parameters that a value depends on, and the work; None if it is not to be computed here."""
        seen: set[Node] = set()
        found: list[Node] = []
        stack, work = [value.node], 0
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.op == "parameter" and parameters:
                if self.changes(node):
                    return None
                found.append(node)
                continue
            if node.op in _OPEN_LEAVES or not record(node).pure or _random_inside(node):
                return None
            work += 0 if node.op == "constant" else _node_work(node)
            if work > limit:
                return None
            stack.extend(operand.node for operand in node.operands)
        return found, work


def _random_inside(node: Node) -> bool:
    return any(each.op == "random_bits" or _random_inside(each) for region in node.regions for each in region.nodes)


def _with_values(value: Value, known: dict[Node, Array]) -> Value:
    def rule(node: Node, _: tuple[Value, ...]) -> tuple[Value, ...] | None:
        return (constant(known[node], node.types[0].dtype),) if node in known else None

    return rewrite(Graph((), (value,)), rule, regions=False).results[0]


@dataclass(frozen=True)
class Sources:
    """What only the run knows of what values depend on: inputs, and parameters that training changes; by name."""

    inputs: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()

    def __add__(self, other: Sources) -> Sources:
        inputs, changing = (*self.inputs, *other.inputs), (*self.changing, *other.changing)
        return Sources(tuple(dict.fromkeys(inputs)), tuple(dict.fromkeys(changing)))

    @property
    def names(self) -> str:
        """For a message; empty where there are none."""
        return ", ".join([*map("'{}'".format, self.inputs), *map("'{}', which is trained".format, self.changing)])

    @property
    def fixed(self) -> str | None:
        """What to do so that the build knows them, if there is anything."""
        given = "  ".join(f"--set {name}=VALUE" for name in self.inputs)
        told = [
            f"fix what decides it at build: {given}" if given else "",
            f"do not train it: {frozen(self.changing)}" if self.changing else "",
        ]
        return "; ".join(filter(None, told)) or None


def frozen(names: Iterable[str]) -> str:
    """The options that keep parameters as they are: patterns of these names alone, as a shell takes them."""
    return "  ".join(f"--frozen {shlex.quote(glob.escape(name))}" for name in names)


def dependencies(values: Iterable[Value]) -> list[Node]:
    """The leaves that values depend on: arguments, parameters, random bits; in order of first visit."""
    seen: set[Node] = set()
    found: list[Node] = []
    stack = [value.node for value in values]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op in _OPEN_LEAVES:
            found.append(node)
        stack.extend(operand.node for operand in reversed(node.operands))
    return found
