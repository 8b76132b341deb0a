"""The text form of graphs: prints canonically, parses back to the same digest.

    graph {
      argument 0 f32[2,3]
      %0 = argument index=0 : f32[2,3]
      %1 = neg %0 : f32[2,3]
      %2 = sort %1 axis=1 descending=true : f32[2,3] i64[2,3]
      return %1 %2.1
    }

Nodes stand in canonical order, operands before users. Regions follow their node, indented.
"""

from __future__ import annotations

from collections.abc import Iterator

from repro.ir.graph import Attribute, Graph, Node, Value
from repro.ir.types import parse_type


def print_graph(graph: Graph) -> str:
    """The canonical text of a graph."""
    return "\n".join(_print(graph, "")) + "\n"


def _print(graph: Graph, indent: str) -> Iterator[str]:
    yield indent + "graph {"
    for index, kind in enumerate(graph.arguments):
        yield f"{indent}  argument {index} {kind}"
    numbers: dict[Node, int] = {}
    for node in graph.nodes:
        numbers[node] = len(numbers)
        operands = "".join(" " + _reference(value, numbers) for value in node.operands)
        attributes = "".join(f" {name}={_print_attribute(value)}" for name, value in node.attributes.items())
        kinds = " ".join(map(str, node.types))
        yield f"{indent}  %{numbers[node]} = {node.op}{operands}{attributes} : {kinds}"
        for region in node.regions:
            yield from _print(region, indent + "    ")
    results = "".join(" " + _reference(value, numbers) for value in graph.results)
    yield f"{indent}  return{results}"
    yield indent + "}"


def _reference(value: Value, numbers: dict[Node, int]) -> str:
    return f"%{numbers[value.node]}" + (f".{value.index}" if value.index else "")


def _print_attribute(value: Attribute) -> str:
    """One word: true, 12, "text" (escaped), 0x bytes, (tuple,of,these)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(c if c.isalnum() or c in "._-" else f"\\{ord(c):x};" for c in value) + '"'
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return "(" + ",".join(_print_attribute(item) for item in value) + ")"


def parse_graph(text: str) -> Graph:
    """The graph of a text; raises ValueError naming the line that does not parse."""
    lines = [line.strip() for line in text.splitlines()]
    graph, end = _parse(lines, 0)
    if any(lines[end:]):
        raise ValueError(f"line {end + 1}: text after the graph")
    return graph


def _parse(lines: list[str], start: int) -> tuple[Graph, int]:
    if start >= len(lines) or lines[start] != "graph {":
        raise ValueError(f"line {start + 1}: expected 'graph {{'")
    arguments, nodes, position = [], list[Node](), start + 1
    results: tuple[Value, ...] = ()
    while position < len(lines) and lines[position] != "}":
        words = lines[position].split(" ")
        try:
            if words[0] == "argument":
                arguments.append(parse_type(words[2]))
                position += 1
            elif words[0] == "return":
                results = tuple(_value(word, nodes) for word in words[1:])
                position += 1
            else:
                node, position = _node(words, lines, position, nodes)
                nodes.append(node)
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"line {position + 1}: {lines[position]!r}: {error}") from error
    if position >= len(lines):
        raise ValueError(f"line {position}: the graph does not end")
    return Graph(tuple(arguments), results), position + 1


def _node(words: list[str], lines: list[str], position: int, nodes: list[Node]) -> tuple[Node, int]:
    if words[0] != f"%{len(nodes)}" or words[1] != "=":
        raise ValueError("expected the next node")
    colon = words.index(":")
    operands: list[Value] = []
    attributes: dict[str, Attribute] = {}
    for word in words[3:colon]:
        if word.startswith("%"):
            operands.append(_value(word, nodes))
        else:
            name, _, value = word.partition("=")
            attributes[name] = _AttributeReader(value).whole()
    regions: list[Graph] = []
    position += 1
    while position < len(lines) and lines[position] == "graph {":
        region, position = _parse(lines, position)
        regions.append(region)
    types = tuple(parse_type(word) for word in words[colon + 1 :])
    return Node(words[2], operands, attributes, types, regions), position


def _value(word: str, nodes: list[Node]) -> Value:
    number, _, index = word[1:].partition(".")
    node = nodes[int(number)]
    value = Value(node, int(index or 0))
    if value.index >= len(node.types):
        raise ValueError(f"{word}: no such result")
    return value


class _AttributeReader:
    """Reads what `_print_attribute` writes."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def whole(self) -> Attribute:
        value = self.read()
        if self.at != len(self.text):
            raise ValueError(f"attribute {self.text!r}")
        return value

    def read(self) -> Attribute:
        rest = self.text[self.at :]
        if rest.startswith("("):
            return self._tuple()
        if rest.startswith('"'):
            return self._string()
        stop = next((i for i, c in enumerate(rest) if c in ",)"), len(rest))
        word = rest[:stop]
        self.at += stop
        if word in ("true", "false"):
            return word == "true"
        return bytes.fromhex(word[2:]) if word.startswith("0x") else int(word)

    def _tuple(self) -> tuple[Attribute, ...]:
        self.at += 1
        items: list[Attribute] = []
        while self.text[self.at] != ")":
            items.append(self.read())
            if self.text[self.at] == ",":
                self.at += 1
        self.at += 1
        return tuple(items)

    def _string(self) -> str:
        end = self.text.index('"', self.at + 1)
        raw, self.at = self.text[self.at + 1 : end], end + 1
        parts, position = list[str](), 0
        while position < len(raw):
            if raw[position] == "\\":
                stop = raw.index(";", position)
                parts.append(chr(int(raw[position + 1 : stop], 16)))
                position = stop + 1
            else:
                parts.append(raw[position])
                position += 1
        return "".join(parts)
