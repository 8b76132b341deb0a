"""The sequences that loops read and write row by row: which way, and which of them are one.

A gradient's loop runs backwards: its graph gives it reversed sequences, and reverses what it stacks. No such copy is
made: the rows are read, and written, from the last on.
"""

from __future__ import annotations

from collections.abc import Mapping

from repro.ir import index as ix
from repro.ir.graph import Graph, Node, Value
from repro.ops.record import ByElement, record


def reverses(node: Node) -> bool:
    """Whether it gives its operand's rows from the last to the first, each as it is."""
    lowering = record(node).lowering
    if not isinstance(lowering, ByElement) or not lowering.moves or lowering.forward is None:
        return False
    (kind,), shape = node.types, node.operands[0].shape
    if len(node.operands) != 1 or kind.shape != shape or not shape or not kind.elements:
        return False
    first, *others = (ix.axis(position, extent) for position, extent in enumerate(shape))
    return lowering.forward(node, (first, *others)) == (ix.add(ix.number(shape[0] - 1), ix.scale(first, -1)), *others)


def reversed_results(graph: Graph) -> dict[Value, Value]:
    """The stacked results of loops of which only the reverse is read, and that."""
    found: dict[Value, Value] = {}
    for node in graph.nodes:
        for value in node.results[node["carried"] :] if node.op == "loop" else ():
            behind = graph.users.get(value, ())
            if len(behind) == 1 and value not in graph.results and reverses(behind[0]):
                found[value] = behind[0].value
    return found


def same_rows(node: Node, turned: Mapping[Value, Value]) -> dict[Value, Value]:
    """Of a loop's stacked results those that hold what an earlier one holds, in the same order, and that one."""
    first: dict[tuple[Value, bool], Value] = {}
    found: dict[Value, Value] = {}
    for value in node.results[node["carried"] :] if node.op == "loop" else ():
        known = first.setdefault((node.regions[0].results[value.index], value in turned), value)
        if known is not value:
            found[value] = known
    return found
