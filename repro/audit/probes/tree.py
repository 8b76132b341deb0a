"""The order of a sum as a tree: leaves are its terms, a node adds its children and rounds.

A node with two children is an addition; one with more adds several terms at once under their common exponent, as
matrix units do. Addition commutes, so children are not ordered: they stand by their first leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Tree:
    """`nodes[k]` are the children of node k: a number below `leaves` is a leaf, leaves + k is an earlier node k.

    Canonical: the last node is the root, children stand by their first leaf, and nodes in the order in which a walk
    from the root, children in order, leaves them. So equal orders are equal values.
    """

    leaves: int
    nodes: tuple[tuple[int, ...], ...]

    @property
    def root(self) -> int:
        return self.leaves + len(self.nodes) - 1

    @property
    def binary(self) -> bool:
        return all(len(children) == 2 for children in self.nodes)

    def children(self, part: int) -> tuple[int, ...]:
        """Empty for a leaf."""
        return self.nodes[part - self.leaves] if part >= self.leaves else ()

    def fold(self, leaf: Callable[[int], T], add: Callable[[Sequence[T]], T]) -> list[T]:
        """A value of every part, from the leaves up: leaves first, then nodes in order."""
        values = [leaf(position) for position in range(self.leaves)]
        for children in self.nodes:
            values.append(add([values[child] for child in children]))
        return values

    def renumbered(self, terms: Sequence[int]) -> Tree:
        """The same additions of terms in another order: what was terms[k] is leaf k."""
        builder = Builder(self.leaves)
        number = {leaf: position for position, leaf in enumerate(terms)}
        for node, children in enumerate(self.nodes, self.leaves):
            number[node] = builder.join(*(number[child] for child in children))
        return builder.finish(number[self.root]) if self.nodes else self

    def below(self, root: int) -> Tree:
        """The subtree below a part, its leaves numbered anew in their order."""
        leaves = sorted(self.leaves_below(root))
        builder = Builder(len(leaves))
        number = {leaf: position for position, leaf in enumerate(leaves)}
        for part in self._parts_below(root):
            number[part] = builder.join(*(number[child] for child in self.children(part)))
        return builder.finish(number[root])

    def leaves_below(self, root: int) -> list[int]:
        stack, found = [root], list[int]()
        while stack:
            part = stack.pop()
            stack.extend(self.children(part))
            if part < self.leaves:
                found.append(part)
        return found

    def _parts_below(self, root: int) -> list[int]:
        """The nodes of a subtree, each after its children: those of one walk stand together."""
        stack, found = [root], list[int]()
        while stack:
            part = stack.pop()
            stack.extend(self.children(part))
            if part >= self.leaves:
                found.append(part)
        return sorted(found)


class Builder:
    """Joins parts to a tree. A part is a number: a leaf's, or what `join` gave."""

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves
        self._children: list[tuple[int, ...]] = []
        self._first = list(range(leaves))

    def join(self, *parts: int) -> int:
        """One addition of all `parts`; a single part is itself."""
        if len(parts) == 1:
            return parts[0]
        ordered = tuple(sorted(parts, key=self._first.__getitem__))
        self._children.append(ordered)
        self._first.append(self._first[ordered[0]])
        return self.leaves + len(self._children) - 1

    def chain(self, parts: Sequence[int]) -> int:
        """Added one by one, in order."""
        total = parts[0]
        for part in parts[1:]:
            total = self.join(total, part)
        return total

    def finish(self, root: int) -> Tree:
        """The tree below `root`, which must hold every leaf."""
        nodes: list[tuple[int, ...]] = []
        number: dict[int, int] = {}
        stack = [(root, False)]
        while stack:
            part, seen = stack.pop()
            if part < self.leaves:
                number[part] = part
            elif seen:
                nodes.append(tuple(number[child] for child in self._children[part - self.leaves]))
                number[part] = self.leaves + len(nodes) - 1
            else:
                stack.append((part, True))
                stack.extend((child, False) for child in reversed(self._children[part - self.leaves]))
        return Tree(self.leaves, tuple(nodes))
