"""The constants and orders of the numerics contract (docs/numerics.md), stated once."""

from __future__ import annotations

from repro.ir.expressions import Chain, Exact, Lanes, Order, Sequential
from repro.ir.types import DType

CONTRACT_VERSION = 1
"""Part of an artifact's identity: from the first release on, a change of any rule is a new version."""

PANEL = 512
"""Terms of one fma chain of a contraction (rule 7)."""

PANELS_PER_BLOCK = 8
"""Panels that are added up before blocks are (rule 7)."""

LANES = 32
"""Running sums of a leaf (rule 10)."""

LEAF = 4096
"""Values of a leaf (rule 10)."""


def chain(unit: int = 1) -> Chain:
    """The order of a contraction (rules 7 and 8).

    `unit` is the number of terms that a panel may not split: in a convolution all taps of a channel, or an
    output row of a weight gradient. A panel holds max(1, floor(512 / unit)) whole units.
    """
    if unit < 1:
        raise ValueError(f"a unit of {unit} terms")
    return Chain(max(1, PANEL // unit) * unit, PANELS_PER_BLOCK)


LANES_ORDER = Lanes(LANES, LEAF)
"""The order of float sums and products (rules 10 and 11)."""

SEQUENTIAL = Sequential()
"""The order of running sums and of scatter-add (rules 11 and 12)."""

EXACT = Exact()
"""Any order: the combiner is associative on bits."""


def sum_order(dtype: DType) -> Order:
    """The order of a plain sum or product: lanes for floats, any for integers, which wrap."""
    return LANES_ORDER if dtype.is_float else EXACT
