"""What happens at the nodes of a tree: whether products enter unrounded (fma), how many bits an accumulator keeps,
and the bits that tree and rounding give, to hold against the executor's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from repro.audit.probes.reveal import Prober
from repro.audit.probes.tree import Tree
from repro.ir.types import Array
from repro.numerics.numpy_fma import fma_f32

F32_BITS = 24
F64_BITS = 53
MOST_BITS = 75
CHECKED_VECTORS = 4
FEW = 64
T = TypeVar("T")

FACTOR = np.float32(1 + 2.0**-12)
"""Its square is 1 + 2^-11 + 2^-24, whose last term is lost in f32."""


@dataclass(frozen=True)
class Rounding:
    """`fused` are the leaves whose product is added unrounded; `asked` those that could be. `wide` are the nodes that
    keep more bits than f32; `precision` is the bits that all nodes keep, None where they differ or there is but one."""

    fused: frozenset[int]
    asked: frozenset[int]
    wide: frozenset[int]
    precision: int | None

    @property
    def all_fused(self) -> bool | None:
        """None where nothing was asked, or some are and some are not."""
        if not self.asked or self.fused not in (frozenset(), self.asked):
            return None
        return bool(self.fused)


def rounding(prober: Prober, tree: Tree, most: int | None = FEW) -> Rounding:
    """Asks about additions: up to `most` of each kind, spread over the tree, and if these are alike, so are all taken
    to be; else, or where `most` is None, about every one."""
    wide, precision = _widths(prober, tree, most)
    if not prober.products or not tree.binary:
        return Rounding(frozenset(), frozenset(), wide, precision)
    joins = _joins(tree)
    some = _spread(joins, most)
    fused, asked = _fused(prober, tree, some)
    if len(some) < len(joins) and asked and fused in (frozenset(), asked):
        every = frozenset(right if right < tree.leaves else left for left, right in joins)
        return Rounding(every if fused else fused, every, wide, precision)
    if len(some) < len(joins):
        fused, asked = _fused(prober, tree, joins)
    return Rounding(fused, asked, wide, precision)


def _joins(tree: Tree) -> list[tuple[int, ...]]:
    """The additions that take a term."""
    return [children for children in tree.nodes if min(children) < tree.leaves]


def _spread(items: Sequence[T], most: int | None) -> Sequence[T]:
    if most is None or len(items) <= most:
        return items
    return [items[k * (len(items) - 1) // (most - 1)] for k in range(most)]


def _fused(prober: Prober, tree: Tree, joins: Sequence[tuple[int, ...]]) -> tuple[frozenset[int], frozenset[int]]:
    """Of these additions, the terms whose product enters unrounded, and those of which that could be said: a later
    term meets a partial sum that cancels its product."""
    fused: set[int] = set()
    asked: set[int] = set()
    first = _first_leaves(tree)
    for left, right in joins:
        leaf = right if right < tree.leaves else left
        other = first[left if leaf == right else right]
        if _enters_unrounded(prober, leaf, other):
            fused.add(leaf)
        elif left < tree.leaves and right < tree.leaves and _enters_unrounded(prober, left, right):
            fused.add(left)
            leaf = left
        if left >= tree.leaves or right >= tree.leaves or leaf in fused:
            asked.add(leaf)  # two terms alone may be the first of two lanes, where nothing is there to fuse with
    return frozenset(fused), frozenset(asked)


def _enters_unrounded(prober: Prober, leaf: int, other: int) -> bool:
    """FACTOR^2 - FACTOR, from a square that was rounded or from the exact one. All factors are one, since weights may
    cost an executor more to change than terms do."""
    terms = np.zeros(prober.length, np.float32)
    terms[leaf], terms[other] = FACTOR, -1
    return prober.call(terms, np.full(prober.length, FACTOR, np.float32)) != 2.0**-12


def _first_leaves(tree: Tree) -> list[int]:
    return tree.fold(lambda leaf: leaf, min)


def _widths(prober: Prober, tree: Tree, most: int | None) -> tuple[frozenset[int], int | None]:
    """The nodes that keep more than f32's bits, and the bits of all where they are the same."""
    first = _first_leaves(tree)
    probes = dict[int, _Meeting]()
    for node, outside in _outside(tree, first).items():
        mask, unit = (first[child] for child in tree.children(node)[:2])
        probes[node] = _Meeting(prober, mask, unit, outside)
    some = _spread(list(probes), most)
    wide = frozenset(node for node in some if not probes[node].swallows(F32_BITS))
    if len(some) < len(probes):
        alike = wide in (frozenset(), frozenset(some))
        rest = () if alike else [node for node in probes if node not in some]
        wide |= frozenset(node for node in rest if not probes[node].swallows(F32_BITS))
        wide = frozenset(probes) if alike and wide else wide
    bits = {probes[min(group)].bits() for group in (wide, probes.keys() - wide) if group}
    return wide | _root_if_wide(tree, wide), bits.pop() if len(bits) == 1 else None


def _root_if_wide(tree: Tree, wide: frozenset[int]) -> frozenset[int]:
    """Nothing comes after the root to ask it with: it is taken to be as wide as what it adds."""
    return frozenset({tree.root}) if any(child in wide for child in tree.children(tree.root)) else frozenset()


def _outside(tree: Tree, first: list[int]) -> dict[int, int]:
    """For each node but the root, a leaf that its parent brings to it."""
    return {
        child: next(first[other] for other in children if other != child)
        for children in tree.nodes
        for child in children
        if child >= tree.leaves
    }


@dataclass
class _Meeting:
    """A mask and a unit that meet at a node, and a leaf beyond it that takes the mask away."""

    prober: Prober
    mask: int
    unit: int
    outside: int

    def swallows(self, bits: int) -> bool:
        terms = np.zeros(self.prober.length, np.float32)
        terms[self.mask], terms[self.outside], terms[self.unit] = 2.0**bits, -(2.0**bits), 1
        return self.prober.call(terms) == 0

    def bits(self) -> int:
        """The least k for which 2^k swallows the unit: the significand's bits."""
        low, high = 1, MOST_BITS + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.swallows(middle) else (middle + 1, high)
        return low


# ── the bits that follow ────────────────────────────────────────────────────────────────────────────


def confirm(prober: Prober, tree: Tree, how: Rounding, seed: int = 0) -> bool | None:
    """Whether tree and rounding give the executor's bits for random terms. None where they cannot be evaluated."""
    if not tree.binary or how.precision not in (None, F32_BITS, F64_BITS):
        return None
    draw = np.random.Generator(np.random.PCG64(seed))
    terms = (draw.random((CHECKED_VECTORS, tree.leaves)) - 0.5).astype(np.float32)
    factors = (draw.random(tree.leaves) - 0.5).astype(np.float32) if prober.products else None
    expected = evaluate(tree, how, terms, factors)
    given = [prober.call(row, factors) for row in terms]
    return np.array(given, np.float32).tobytes() == expected.tobytes()


def evaluate(tree: Tree, how: Rounding, terms: Array, factors: Array | None) -> Array:
    """f32 sums of terms, times factors [terms] where given, for each row: [rows, terms] -> [rows]. Wide nodes add in
    f64."""
    products = terms if factors is None else terms * factors
    exact = terms.astype(np.float64) * (1 if factors is None else factors.astype(np.float64))
    values: list[Array] = [products[:, leaf] for leaf in range(tree.leaves)]
    for node, (left, right) in enumerate(tree.nodes, tree.leaves):
        fused = right if right in how.fused else left if left in how.fused else None
        if node in how.wide:
            parts = [exact[:, part] if part == fused else values[part].astype(np.float64) for part in (left, right)]
            values.append(parts[0] + parts[1])
        elif fused is None or factors is None:
            values.append((values[left] + values[right]).astype(np.float32))
        else:
            values.append(fma_f32(terms[:, fused], factors[fused : fused + 1], values[left + right - fused]))
    return values[-1].astype(np.float32)
