"""Probes: each sum and dot of an executor, at several lengths, as a tree with its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repro.audit.peers.peer import Adder, PeerError
from repro.audit.probes.reveal import NotATreeError, Prober, reveal
from repro.audit.probes.rounding import confirm, rounding
from repro.audit.probes.words import UNKNOWN, describe
from repro.audit.records import Probe

LENGTHS = (16, 128, 1024)
"""Terms that an audit asks about unless told otherwise: longer sums take a runtime seconds each."""
SUM = "sum"
"""Operations whose name starts so add terms; all others add products."""


def probe_all(executor: str, adders: Mapping[str, Adder], lengths: Sequence[int] = LENGTHS) -> tuple[Probe, ...]:
    """One probe for each operation and length."""
    return tuple(probe(executor, operation, adder, length) for operation, adder in adders.items() for length in lengths)


def probe(executor: str, operation: str, adder: Adder, length: int) -> Probe:
    """The order of one operation at one length. Where its results fit no tree, the order says so."""
    try:
        prober = Prober(adder, length, products=not operation.startswith(SUM))
        tree = reveal(prober)
    except PeerError as error:
        return Probe(executor, operation, length, UNKNOWN, f"{error.outcome.value}: {error.reason}", None)
    except NotATreeError as error:
        return Probe(executor, operation, length, UNKNOWN, f"no tree: {error}", None)
    how = rounding(prober, tree)
    confirmed = confirm(prober, tree, how)
    if confirmed is False:
        how = rounding(prober, tree, most=None)
        confirmed = confirm(prober, tree, how)
    order, shown = describe(tree)
    if how.wide and how.precision is None:
        shown += f"; {len(how.wide)} of {len(tree.nodes)} additions wider than f32"
    return Probe(executor, operation, length, order, shown, how.all_fused, how.precision, confirmed, prober.calls)
