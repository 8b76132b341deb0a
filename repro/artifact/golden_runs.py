"""Golden runs: one run of an entry from its initial state, whose results others must have too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from repro.artifact import golden, remembered, sessions, tensors
from repro.artifact.cache import Cache, Key, key
from repro.artifact.canonical import encode, sha256
from repro.artifact.config import Entry, GoldenRun, Tensor
from repro.artifact.entries import BuiltEntry
from repro.artifact.layout import Layer
from repro.artifact.media import TENSOR_TYPE
from repro.artifact.sources import RUNNING, toolchain
from repro.artifact.workers import cores
from repro.frontend import EntryGraph
from repro.ir.types import Array, to_face
from repro.targets import registry

Progress = Callable[[str, int, int], None]
Kept = tuple[Layer, ...]

LARGE_OUTPUT = 1 << 20
"""Bytes; of a larger golden output the artifact keeps the digest alone."""


def golden_inputs(
    source: EntryGraph, entry: Entry, given: Mapping[str, Array] | None, seed: int, notes: Mapping[str, str]
) -> dict[str, Array]:
    """The inputs given, checked, or inputs drawn from the seed. `notes` helps with the shapes of some."""
    types = source.graph.arguments
    if given is not None:
        stored = sessions.match(given, entry.inputs, notes=notes)
        chosen = tuple(to_face(array, kind.dtype) for array, kind in zip(stored, types, strict=True))
    else:
        chosen = golden.draw(types, golden.index_limits(source.graph), seed)
    return {port.name: array for port, array in zip(source.inputs, chosen, strict=True)}


def golden_run(
    built: BuiltEntry,
    target: str,
    inputs: Mapping[str, Array],
    weights: Sequence[Tensor],
    cache: Cache | None,
    progress: Progress,
) -> tuple[GoldenRun, Kept]:
    """One run from the initial state: outputs, and the state after it if the entry has any; and what is kept of both.

    `weights` are the artifact's. What the same code gave for the same inputs and weights before is not run again.
    """
    progress(f"golden run of {built.name}", 0, 1)
    taken = [_layer(built, "inputs", position, array) for position, array in enumerate(inputs.values())]
    described = _described(inputs, taken)
    asked = _key(built, target, described, weights)
    data = None if cache is None or asked is None else cache.get(asked)
    if data is None:
        outputs, state, kept = _run(built, target, inputs)
        if cache is not None and asked is not None:
            head = {"outputs": _plain(outputs), "state": _plain(state), "titles": [layer.title for layer in kept]}
            cache.put(asked, remembered.packed(head, [layer.data for layer in kept]))
    else:
        head, parts = remembered.unpacked(data)
        outputs, state = ([Tensor(*each) for each in head[kind]] for kind in ("outputs", "state"))
        kept = [Layer(title, TENSOR_TYPE, part) for title, part in zip(head["titles"], parts, strict=True)]
    progress(f"golden run of {built.name}", 1, 1)
    return GoldenRun(built.name, tuple(described), tuple(outputs), tuple(state)), (*taken, *kept)


def _run(built: BuiltEntry, target: str, inputs: Mapping[str, Array]) -> tuple[list[Tensor], list[Tensor], list[Layer]]:
    with built.session(target, cores()) as session:
        results = session.run(inputs)
        outputs = [_layer(built, "outputs", position, array) for position, array in enumerate(results.values())]
        after = session.state_views()
        state = {name: after[name] for name in _updated(built.source)}
        left = (
            _layer(built, "state", position, array) for position, array in enumerate(state.values())
        )  # one at a time
        kept = [layer for layer in outputs if len(layer.data) <= LARGE_OUTPUT]
        return _described(results, outputs), _described(state, left), kept


def _layer(built: BuiltEntry, kind: str, position: int, array: Array) -> Layer:
    return Layer(f"golden/{built.name}/{kind}/{position:03}", TENSOR_TYPE, tensors.to_bytes(array))


def _described(arrays: Mapping[str, Array], layers: Iterable[Layer]) -> list[Tensor]:
    pairs = zip(arrays.items(), layers, strict=True)
    return [Tensor(name, str(tensors.type_of(array)), layer.digest) for (name, array), layer in pairs]


def _plain(found: Iterable[Tensor]) -> list[list[str]]:
    return [[each.name, each.type, each.digest] for each in found]


def _key(built: BuiltEntry, target: str, inputs: Iterable[Tensor], weights: Sequence[Tensor]) -> Key | None:
    """All that the run follows from; None for the reference, which has no code."""
    runner = registry.runner_called(target)
    compiled = None if runner is None else built.compiled.get(runner.code.name)
    if compiled is None:
        return None
    code = [sha256(part) for part in (compiled.program_object, *compiled.kernel_objects)]
    initial = [weights[position] for position in built.entry.weights]
    content = {"program": compiled.program.digest, "code": code, "inputs": _plain(inputs), "weights": _plain(initial)}
    given = encode(content).decode()
    return key("golden-run", entry=built.name, target=target, given=given, **toolchain(RUNNING))


def _updated(source: EntryGraph) -> list[str]:
    """Names of the parameters that a run changes, in slot order."""
    return [source.parameters[slot].name for slot in sorted(slot for slot, _ in source.updates)]
