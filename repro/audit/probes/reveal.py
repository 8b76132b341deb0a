"""The tree of a sum or dot that can only be called, after Xie, Gao, Wang and Xue, "Revealing Floating-Point
Accumulation Orders in Software/Hardware Implementations" (FPRev; USENIX ATC 2025, arXiv 2411.00442).

One term is MASK, one -MASK, all others 1. A unit that meets a mask is lost in it; the masks cancel where they meet; so
the result counts the units that stand outside the smallest subtree with both masks, and n less that is the subtree's
size. One term against all others gives the sizes of all subtrees on its way to the root; the terms that come in at each
of these are a subtree of their own, or several where a node has more than two children, and are read in the same way.
With a term drawn at random, n terms take about n log n calls whatever the order; blocks and lanes take few more than n.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from repro.audit.probes.tree import Builder, Tree
from repro.ir.types import Array

Adder = Callable[[Array, Array], float]

MASK = 2.0**100
"""Swallows units in accumulators of up to 75 bits, those of f64 and x87 among them, with thousands of units in one."""
MOST_TERMS = 1 << 20
"""Counts up to it are exact in f32."""


class NotATreeError(Exception):
    """The results are not those of rounded additions in one order: a compensated or exact sum, or one that depends
    on the values."""


@dataclass
class Prober:
    """Asks `adder` for sums of `length` terms, or, with `products`, of terms times factors; counts its calls."""

    adder: Adder
    length: int
    products: bool = False
    calls: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.length <= MOST_TERMS:
            raise NotATreeError(f"{self.length} terms; 1 to {MOST_TERMS} can be read")
        self._terms = np.ones(self.length, np.float32)
        self._ones = np.ones(self.length, np.float32)

    def call(self, terms: Array, factors: Array | None = None) -> float:
        """The sum of terms times factors, ones where not given."""
        self.calls += 1
        return float(self.adder(terms, self._ones if factors is None else factors))

    def size(self, i: int, j: int) -> int:
        """Leaves of the smallest subtree that holds terms i and j."""
        self._terms[i], self._terms[j] = MASK, -MASK
        outside = self.call(self._terms)
        self._terms[i] = self._terms[j] = 1
        if not (math.isfinite(outside) and outside == int(outside) and 0 <= outside <= self.length - 2):
            raise NotATreeError(f"masks at {i} and {j} left {outside} of {self.length - 2} units")
        return self.length - int(outside)


def reveal(prober: Prober, seed: int = 0) -> Tree:
    """The tree by which `prober` adds. Raises NotATreeError. `seed` chooses what is asked, never the result."""
    return _Revealed(prober, seed).tree()


class _Revealed:
    def __init__(self, prober: Prober, seed: int) -> None:
        self._prober = prober
        self._builder = Builder(prober.length)
        self._random = random.Random(seed)

    def tree(self) -> Tree:
        everything = list(range(self._prober.length))
        parts = self._parts(everything, len(everything) + 1)
        return self._builder.finish(parts[0])

    def _parts(self, terms: Sequence[int], above: int) -> list[int]:
        """The subtrees that `terms` make, all of them children of a node with `above` leaves: one, or several where
        that node has more than two children."""
        if len(terms) == 1:
            return [terms[0]]
        chosen = terms[self._random.randrange(len(terms))]
        by_size: dict[int, list[int]] = {}
        for other in terms:
            if other != chosen:
                by_size.setdefault(self._prober.size(chosen, other), []).append(other)
        part, held = chosen, 1
        for size in sorted(by_size):
            arriving = by_size[size]
            held += len(arriving)
            if size == above:
                return [part, *self._parts(arriving, above)]
            if held != size:
                raise NotATreeError(f"a subtree of {size} leaves around term {chosen} seems to have {held}")
            part = self._builder.join(part, *self._parts(arriving, size))
        return [part]
