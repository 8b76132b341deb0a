"""Orders that are known by a name, each as the tree that it is for any number of terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repro.audit.probes.steps import Step, apply
from repro.audit.probes.tree import Builder, Tree
from repro.numerics.contract import LANES, LEAF, PANEL, PANELS_PER_BLOCK


@dataclass(frozen=True)
class Known:
    """`source` says where the order is stated or what uses it; from `least` terms on it is no simpler order."""

    name: str
    source: str
    build: Callable[[int], Tree]
    least: int = 1


def sequential(terms: int) -> Tree:
    builder = Builder(terms)
    return builder.finish(builder.chain(range(terms)))


def backwards(terms: int) -> Tree:
    builder = Builder(terms)
    return builder.finish(builder.chain(range(terms)[::-1]))


def halves(terms: int) -> Tree:
    """Each run of terms is its first half, the shorter one, and its second."""
    builder = Builder(terms)

    def part(start: int, stop: int) -> int:
        middle = (start + stop) // 2
        return start if stop - start == 1 else builder.join(part(start, middle), part(middle, stop))

    return builder.finish(part(0, terms))


NUMPY_LANES = 8
NUMPY_BLOCK = 128


def numpy_pairwise(terms: int) -> Tree:
    """Up to 128 terms in 8 lanes that fold by neighbours, the odd ones after; more terms as two halves, the first a
    multiple of 8. Fewer than 8 terms one by one."""
    builder = Builder(terms)

    def block(parts: Sequence[int]) -> int:
        body = len(parts) - len(parts) % NUMPY_LANES
        if not body:
            return builder.chain(parts)
        left: list[int | None] = list(parts[:body])
        for step in (Step(body // NUMPY_LANES, NUMPY_LANES), Step(2, 1), Step(2, 1), Step(2, 1)):
            left = apply(builder, left, step)
        return builder.chain([part for part in [*left, *parts[body:]] if part is not None])

    def part(start: int, stop: int) -> int:
        count = stop - start
        if count <= NUMPY_BLOCK:
            return block(range(start, stop))
        half = count // 2
        half -= half % NUMPY_LANES
        return builder.join(part(start, start + half), part(start + half, stop))

    return builder.finish(part(0, terms))


def contract_sum(terms: int) -> Tree:
    """Rule 10: 32 lanes that fold by halves, in leaves of 4096; the leaves' results by the same rule."""
    builder = Builder(terms)
    parts = list(range(terms))
    while len(parts) > 1:
        parts = [_contract_leaf(builder, parts[start : start + LEAF]) for start in range(0, len(parts), LEAF)]
    return builder.finish(parts[0])


def _contract_leaf(builder: Builder, parts: Sequence[int]) -> int:
    lanes: list[int | None] = [builder.chain(parts[lane::LANES]) for lane in range(min(LANES, len(parts)))]
    lanes += [None] * (LANES - len(lanes))
    width = LANES // 2
    while width:
        lanes = apply(builder, lanes, Step(2, width))
        width //= 2
    assert lanes[0] is not None
    return lanes[0]


def contract_dot(terms: int) -> Tree:
    """Rule 7: panels of 512, one by one within a block of 8; blocks one by one."""
    builder = Builder(terms)
    panels = [builder.chain(range(terms)[start : start + PANEL]) for start in range(0, terms, PANEL)]
    blocks = [
        builder.chain(panels[start : start + PANELS_PER_BLOCK]) for start in range(0, len(panels), PANELS_PER_BLOCK)
    ]
    return builder.finish(builder.chain(blocks))


KNOWN: tuple[Known, ...] = (
    Known("sequential", "one accumulator", sequential),
    Known("sequential, backwards", "one accumulator, from the end", backwards),
    Known("pairwise (NumPy's: 8 lanes up to 128, then halves)", "pairwise_sum in NumPy's loops", numpy_pairwise, 129),
    Known("repro's sum (32 lanes, leaves of 4096)", "numerics contract, rule 10", contract_sum, LANES + 1),
    Known("repro's dot (panels of 512)", "numerics contract, rule 7", contract_dot, PANEL + 1),
    Known("pairwise by halves", "recursive halving", halves, 4),
)
"""The first that fits gives the name."""


def named(tree: Tree) -> str | None:
    for known in KNOWN:
        if tree.leaves >= known.least and known.build(tree.leaves) == tree:
            return known.name
    return None
