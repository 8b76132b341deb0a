"""The causes of an audit's origins: what each node read, golden's result and the executor's, given to `causes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from onnx import NodeProto

from repro.audit.causes import causes
from repro.audit.comparison import GOLDEN
from repro.audit.model import Audited
from repro.audit.records import Audit, Capture, Cause, Kind, Origin, Pair
from repro.frontend.tensors import read_array
from repro.ir.types import Array

Progress = Callable[[str, int, int], None]
FAULT = "not sought to the end"


def explained(audit: Audit, audited: Audited, golden: Capture, progress: Progress) -> Audit:
    """The audit of one record with the causes of every origin against golden. `golden` has its arrays."""
    captures = {capture.executor.name: capture for capture in audit.records[0].captures}
    context = _Context(audited, golden)
    against = [pair for pair in audit.pairs if pair.left == GOLDEN]
    pairs: list[Pair] = []
    for pair in audit.pairs:
        if pair.left == GOLDEN:
            progress("causes", len(pairs), len(against))
            found = tuple(context.explain(origin, captures[pair.right]) for origin in pair.origins)
            pairs.append(replace(pair, origins=found))
        else:
            pairs.append(pair)
    progress("causes", len(against), len(against))
    return replace(audit, pairs=tuple(pairs))


@dataclass(frozen=True, eq=False)
class _Context:
    """The model's nodes and arrays. What is known of two results is kept: executors often share bits."""

    audited: Audited
    golden: Capture

    @cached_property
    def _known(self) -> dict[tuple[str, str, bool], tuple[Cause, ...]]:
        return {}

    @cached_property
    def _nodes(self) -> Mapping[str, NodeProto]:
        return {node.name: node for node in self.audited.proto.graph.node}

    @cached_property
    def _weights(self) -> Mapping[str, Array]:
        folder = self.audited.folder
        return {item.name: read_array(item, folder)[0] for item in self.audited.proto.graph.initializer}

    def explain(self, origin: Origin, capture: Capture) -> Origin:
        theirs = (capture.fed_arrays if origin.fed else capture.arrays).get(origin.value)
        mine = self.golden.arrays.get(origin.value)
        nodes = [self._nodes[name] for name in origin.nodes if name in self._nodes]
        if origin.kind not in (Kind.NODE, Kind.FUSED) or theirs is None or mine is None or not nodes:
            return origin
        key = origin.value, origin.right, origin.fed
        if key not in self._known:
            self._known[key] = self._causes(nodes, mine, theirs)
        return replace(origin, causes=self._known[key])

    def _causes(self, nodes: list[NodeProto], mine: Array, theirs: Array) -> tuple[Cause, ...]:
        """A fault in the search for a cause is said in its place: the findings, which need no cause, are not lost."""
        try:
            return causes(nodes[0], self._read(nodes), mine, theirs, nodes[1:])
        except Exception as error:
            return (Cause(FAULT, f"a fault of repro, please report it: {type(error).__name__}: {error}"),)

    def _read(self, nodes: list[NodeProto]) -> dict[str, Array]:
        """What the nodes read, as golden has it: up to an origin of the run both sides have the same."""
        sources: list[Mapping[str, Array]] = [self.audited.inputs, self._weights, self.golden.arrays]
        names = {name for node in nodes for name in node.input if name}
        return {name: source[name] for name in names for source in sources if name in source}
