"""ONNX nodes and the names they read: canonical order, renaming through subgraphs, a branch put in place of its If."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import GraphProto, NodeProto, TensorProto, helper

from repro.frontend.limits import subgraphs
from repro.frontend.scope import reads as named_reads


def reads(node: NodeProto) -> tuple[str, ...]:
    """The values that a node reads: its inputs, then what its subgraphs read from outside; absent ones left out."""
    found = dict.fromkeys(name for name in named_reads(node) if name)
    for graph in subgraphs(node):
        found.update(dict.fromkeys(free(graph)))
    return tuple(found)


def free(graph: GraphProto) -> tuple[str, ...]:
    """The values that a graph reads from outside, in the order in which its nodes, ordered, read them.

    Nodes that no output needs come last: runtimes want their operands to be there all the same.
    """
    own, outputs = defined(graph), [item.name for item in graph.output]
    read = dict.fromkeys(name for node in ordered(graph.node, outputs) for name in reads(node))
    read.update(dict.fromkeys(outputs))
    read.update(dict.fromkeys(name for node in graph.node for name in reads(node)))
    return tuple(name for name in read if name and name not in own)


def defined(graph: GraphProto) -> set[str]:
    """The names that a graph gives a meaning to."""
    made = {name for node in graph.node for name in node.output}
    return made | {item.name for item in graph.input} | {tensor.name for tensor in graph.initializer}


def definitions(nodes: Iterable[NodeProto]) -> Counter[str]:
    """How often each name is given a meaning by nodes, their subgraphs included."""
    found: Counter[str] = Counter()
    for node in nodes:
        found.update(name for name in node.output if name)
        for graph in subgraphs(node):
            found.update(item.name for item in graph.input)
            found.update(tensor.name for tensor in graph.initializer)
            found += definitions(graph.node)
    return found


def ordered(nodes: Iterable[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """The nodes that the outputs need: depth first from the outputs, operands in order, each after what it reads."""
    every = tuple(nodes)
    producer = {name: index for index, node in enumerate(every) for name in node.output if name}
    entered: set[int] = set()
    found: list[NodeProto] = []
    stack: list[tuple[int, Iterator[str]]] = [(-1, iter(tuple(outputs)))]
    while stack:
        index, operands = stack[-1]
        name = next(operands, None)
        if name is None:
            stack.pop()
            if index >= 0:
                found.append(every[index])
        elif (operand := producer.get(name)) is not None and operand not in entered:
            entered.add(operand)
            stack.append((operand, iter(reads(every[operand]))))
    return found


def rename_reads(node: NodeProto, names: Mapping[str, str]) -> None:
    """Make a node, its subgraphs included, read other names; in place."""
    for position, name in enumerate(node.input):
        node.input[position] = names.get(name, name)
    for graph in subgraphs(node):
        own = defined(graph)
        inner = {old: new for old, new in names.items() if old not in own}
        for each in graph.node:
            rename_reads(each, inner)
        for item in graph.output:
            item.name = inner.get(item.name, item.name)


# ── a branch in place of its If ─────────────────────────────────────────────────────────────────────


@dataclass
class Spliced:
    """What takes the place of an If."""

    nodes: list[NodeProto] = field(default_factory=list[NodeProto])
    initializers: list[TensorProto] = field(default_factory=list[TensorProto])


def splice(node: NodeProto, branch: GraphProto, prefix: str, taken: Callable[[str], bool]) -> Spliced:
    """The nodes of the branch that an If takes, its results under the If's names.

    The branch's own names stay as they are, so that people find them again; one that is taken gets the prefix.
    """
    names = {name: prefix + name if taken(name) else name for name in defined(branch) if name}
    made = {name for each in branch.node for name in each.output}
    results: set[str] = set()
    result, copies = Spliced(), list[NodeProto]()
    for output, item in zip(node.output, branch.output, strict=False):
        if output and item.name in made and item.name not in results:
            names[item.name] = output
            results.add(item.name)
        elif output:
            copies.append(helper.make_node("Identity", [names.get(item.name, item.name)], [output]))
    for each in branch.node:
        copy = NodeProto()
        copy.CopyFrom(each)
        rename_reads(copy, names)
        copy.output[:] = [names.get(name, name) for name in each.output]
        result.nodes.append(copy)
    for tensor in branch.initializer:
        renamed = TensorProto()
        renamed.CopyFrom(tensor)
        renamed.name = names[tensor.name]
        result.initializers.append(renamed)
    result.nodes += copies
    return result


# ── names of nodes ──────────────────────────────────────────────────────────────────────────────────


def name_nodes(nodes: Sequence[NodeProto]) -> None:
    """Give every node a name of its own, in place: its own, or its operator's with that of its first result."""
    taken: set[str] = set()
    for node in nodes:
        first = next((name for name in node.output if name), "")
        wanted = name = node.name or f"{node.op_type}_{first}"
        number = 1
        while name in taken:
            number += 1
            name = f"{wanted}#{number}"
        node.name = name
        taken.add(name)
