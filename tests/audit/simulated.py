"""Executors made by hand: a node's result is a hash of what it read, so any difference is seen in all that follows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from repro.artifact.canonical import sha256
from repro.audit.capture import value_of
from repro.audit.records import Capture, Executor, ModelSummary, Node, Outcome, Record, Value
from repro.ir.types import Array

GOLDEN = Executor("repro", (("target", "cpu"),))
LEAVES = ("x", "w0", "w1")


def numbers(*parts: bytes) -> Array:
    """Eight finite f32 numbers between 1 and 2, by hash."""
    raw = np.frombuffer(hashlib.sha256(b"\0".join(parts)).digest(), np.uint32)
    return ((raw & 0x7FFFFF) | 0x3F800000).astype(np.uint32).view(np.float32).reshape(2, 4)


def node(name: str, inputs: Iterable[str], outputs: Iterable[str], op_type: str = "Mix", digest: str = "") -> Node:
    return Node(name, op_type, "", tuple(inputs), tuple(outputs), digest or sha256(name.encode()))


def model(nodes: Iterable[Node], outputs: Iterable[str], weights: Mapping[str, bytes] | None = None) -> ModelSummary:
    """A model of one input, x, and weights by name."""
    known = tuple(nodes)
    given = {"w0": b"", "w1": b""} if weights is None else weights
    digests = {name: sha256(data) for name, data in given.items()}
    whole = repr((known, tuple(outputs), digests)).encode()
    return ModelSummary("model", sha256(whole), known, ("x",), tuple(outputs), digests)


@dataclass(frozen=True)
class Runtime:
    """`planted` are nodes that do it in another way, by the number of that way; `hidden` values are not shown."""

    planted: Mapping[str, int] = field(default_factory=dict[str, int])
    hidden: frozenset[str] = frozenset()

    def run(self, of: ModelSummary, x: Array, golden: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """All values; with golden ones, every shown value is read as golden has it."""
        leaves = {name: numbers(name.encode(), digest.encode()) for name, digest in of.initializers.items()}
        made: dict[str, Array] = {}
        for each in of.nodes:
            fed = {name: golden[name] for name in each.inputs if golden and name in made and name not in self.hidden}
            read = [({"x": x} | leaves | made | fed)[name].tobytes() for name in each.inputs]
            way = b"%d" % self.planted.get(each.name, 0)
            for place, name in enumerate(each.outputs):
                made[name] = numbers(each.digest.encode(), way, b"%d" % place, *read)
        return made

    def capture(self, executor: Executor, of: ModelSummary, x: Array, golden: Mapping[str, Array]) -> Capture:
        run, fed = ({n: a for n, a in self.run(of, x, g).items() if n not in self.hidden} for g in (None, golden))
        return Capture(
            executor,
            Outcome.RAN,
            served={name: value_of(run[name]) for name in of.outputs},
            values={name: value_of(array) for name, array in run.items()},
            fed={name: value_of(array) for name, array in fed.items()},
            arrays=run,
            fed_arrays=fed,
        )


def record(of: ModelSummary, peers: Mapping[str, Runtime], label: str = "", x: Array | None = None) -> Record:
    """Golden and peers by name."""
    given = numbers(b"x") if x is None else x
    values = Runtime().run(of, given)
    golden = replace(Runtime().capture(GOLDEN, of, given, values), fed={}, fed_arrays={})
    captures = tuple(peer.capture(Executor(name), of, given, values) for name, peer in peers.items())
    return Record(of, {"x": value_of(given)}, golden, captures, {}, label)


def without_arrays(capture: Capture) -> Capture:
    return replace(capture, arrays={}, fed_arrays={})


def types(values: Mapping[str, Value]) -> set[str]:
    return {value.type for value in values.values()}
