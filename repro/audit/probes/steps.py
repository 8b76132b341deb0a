"""An order of addition in steps, each of which joins the parts that are left along one axis: a language in which most
orders of most libraries are a line.

The parts stand in a row. A step (count, stride) sees them as an array [blocks, count, stride] and adds along its
middle axis, one by one in ascending order; the last block may be short. So w lanes are a step of stride w, blocks of k
terms a step of count k and stride 1, folding by halves steps of count 2 whose stride is half of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.audit.probes.tree import Builder, Tree


@dataclass(frozen=True)
class Step:
    """`together` parts enter each addition: 1 in ordinary ones, more in those of a matrix unit."""

    count: int
    stride: int
    together: int = 1

    @property
    def span(self) -> int:
        return self.count * self.stride


@dataclass(frozen=True)
class Order:
    """`steps` over all terms but the last `tail`, which are added one by one to their result. `backwards`: terms are
    numbered from the end."""

    steps: tuple[Step, ...]
    tail: int = 0
    backwards: bool = False

    def build(self, terms: int) -> Tree:
        """Its tree over `terms` terms; steps that do not end in one part are followed by one that adds them all."""
        builder = Builder(terms)
        parts: list[int | None] = list(reversed(range(terms))) if self.backwards else list(range(terms))
        body = terms - self.tail
        left, rest = parts[:body], parts[body:]
        for step in self.steps:
            left = apply(builder, left, step)
        total = builder.chain([part for part in [*left, *rest] if part is not None])
        return builder.finish(total)


def groups(parts: Sequence[int | None], step: Step) -> list[list[int]]:
    """The parts that each addition of a step joins, in order; a place whose parts are all absent is empty."""
    made: list[list[int]] = []
    for start in range(0, len(parts), step.span):
        block = parts[start : start + step.span]
        lanes = [block[lane :: step.stride] for lane in range(min(step.stride, len(block)))]
        made += [[part for part in lane if part is not None] for lane in lanes]
    return made


def joined(builder: Builder, parts: Sequence[int], together: int) -> int:
    if together == 1:
        return builder.chain(parts)
    total = builder.join(*parts[:together])
    for start in range(together, len(parts), together):
        total = builder.join(total, *parts[start : start + together])
    return total


def apply(builder: Builder, parts: Sequence[int | None], step: Step) -> list[int | None]:
    return [joined(builder, group, step.together) if group else None for group in groups(parts, step)]


# ── reading steps off a tree ────────────────────────────────────────────────────────────────────────


def read(tree: Tree) -> Order | None:
    """The order that gives exactly this tree; None where it has no such form."""
    for backwards in (False, True):
        order = _Reading(tree, backwards).order()
        if order is not None and order.build(tree.leaves) == tree:
            return order
    return None


class _Reading:
    def __init__(self, tree: Tree, backwards: bool) -> None:
        self._tree = tree
        self._backwards = backwards
        self._parent = {child: tree.leaves + k for k, children in enumerate(tree.nodes) for child in children}

    def order(self) -> Order | None:
        names = list(range(self._tree.leaves))
        parts = names[::-1] if self._backwards else names
        tail = self._tail(parts)
        if tail == len(parts) - 1:
            return Order((Step(len(parts), 1),), 0, self._backwards)
        parts = parts[: len(parts) - tail]
        steps: list[Step] = []
        while len(parts) > 1:
            step = self._step(parts)
            found = self._contracted(parts, step) if step else None
            if step is None or found is None:
                return None
            steps.append(step)
            parts = found
        return Order(tuple(steps), tail, self._backwards)

    def _tail(self, parts: Sequence[int]) -> int:
        """How many of the last terms are added one by one to all before them."""
        part, count = self._tree.root, 0
        while count < len(parts) - 1:
            children = self._tree.children(part)
            last = parts[len(parts) - 1 - count]
            if len(children) != 2 or last not in children:
                break
            part = children[0] if children[1] == last else children[1]
            count += 1
        return count

    def _step(self, parts: Sequence[int]) -> Step | None:
        """The step that the additions of the first part are."""
        place = {part: position for position, part in enumerate(parts)}
        arrivals: list[list[int]] = []
        part = parts[0]
        while part in self._parent:
            parent = self._parent[part]
            others = [place.get(child) for child in self._tree.children(parent) if child != part]
            known = sorted(position for position in others if position is not None)
            if len(known) != len(others) or (arrivals and known[0] != arrivals[-1][-1] + arrivals[0][0]):
                break
            arrivals.append(known)
            part = parent
        if not arrivals:
            return None
        together = 1 if len(arrivals[0]) == 1 else len(arrivals[0]) + 1
        return Step(1 + sum(len(positions) for positions in arrivals), arrivals[0][0], together)

    def _contracted(self, parts: Sequence[int], step: Step) -> list[int] | None:
        """The parts after a step, or None where the tree does not join them so."""
        made = [self._chain(group, step.together) for group in groups(parts, step) if group]
        return [part for part in made if part is not None] if None not in made else None

    def _chain(self, group: Sequence[int], together: int) -> int | None:
        part, at = group[0], 1
        while at < len(group):
            parent = self._parent.get(part)
            take = 1 if together == 1 else together - 1 if at == 1 else together
            expected = {part, *group[at : at + take]}
            if parent is None or set(self._tree.children(parent)) != expected:
                return None
            part, at = parent, at + take
        return part
