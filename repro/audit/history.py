"""Two artifacts of one model: what changed between the builds, stage by stage, and whether the results' bits did.

The stages are those of a build: source, options, toolchain, contract, then per entry the passes in order, kernels, code
per target, and the golden run. The first pass whose digests differ is where two builds of one source part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from typing import Any

import onnx
from onnx import TensorProto

from repro.artifact import comparison
from repro.artifact.canonical import Json, sha256
from repro.artifact.comparison import ABSENT
from repro.artifact.config import CompiledEntry, Config, GoldenRun, Tensor, to_json
from repro.artifact.reading import Stored
from repro.audit.model import summarize
from repro.audit.records import ModelSummary, Node
from repro.errors import EXIT_GOOD, EXIT_INCOMPLETE, EXIT_MISMATCH


class Bits(Enum):
    """Whether the golden results are the same."""

    SAME = "the golden results have the same bits"
    DIFFERENT = "the golden results have other bits"
    UNKNOWN = "the golden results cannot be compared"


@dataclass(frozen=True)
class Change:
    """One thing that is not the same: the stage of the build, which part of it, and both sides."""

    stage: str
    where: str
    old: str
    new: str


@dataclass(frozen=True)
class History:
    """Two artifacts, old and new. `leaves` counts every place where their configs and layers differ."""

    old: str
    new: str
    changes: tuple[Change, ...]
    first_pass: str | None
    bits: Bits
    reason: str
    leaves: int

    @property
    def exit_code(self) -> int:
        """Results count: 0 if the bits are the same whatever else changed, 1 if not, 3 if nobody can say."""
        return {Bits.SAME: EXIT_GOOD, Bits.DIFFERENT: EXIT_MISMATCH, Bits.UNKNOWN: EXIT_INCOMPLETE}[self.bits]

    @property
    def summary(self) -> str:
        if self.old == self.new:
            return "the artifacts are identical; exit code 0"
        said = self.bits.value + (f" ({self.reason})" if self.reason else "")
        first = f"the first pass that differs is {self.first_pass}; " if self.first_pass else ""
        return f"{first}{said}; exit code {self.exit_code}"

    def json(self) -> Json:
        changes = [{"stage": c.stage, "where": c.where, "old": c.old, "new": c.new} for c in self.changes]
        return {
            "old": self.old,
            "new": self.new,
            "changes": changes,
            "first_pass": self.first_pass,
            "bits": self.bits.name.lower(),
            "reason": self.reason,
            "leaves": self.leaves,
            "exit_code": self.exit_code,
        }


def history(old: Stored, new: Stored) -> History:
    """What changed from one artifact to the other. Raises ReproError for blobs that are missing or damaged."""
    one, other = old.config, new.config
    passes = tuple(_passes(one, other))
    changes = (
        *_source(old, new),
        *_tree("options", to_json(one.build), to_json(other.build)),
        *_tree("toolchain", to_json(one.versions), to_json(other.versions)),
        *_leaf("contract", "version", str(one.contract), str(other.contract)),
        *_tree("limits", to_json(one.limits), to_json(other.limits)),
        *(Change("pass", name, *_short(before, after)) for name, before, after in passes),
        *_compiled(one, other),
        *_results(one, other),
    )
    bits, reason = _bits(one, other)
    leaves = len(comparison.differences(old, new))
    return History(old.id, new.id, changes, passes[0][0] if passes else None, bits, reason, leaves)


# ── source ──────────────────────────────────────────────────────────────────────────────────────────


def _source(old: Stored, new: Stored) -> Iterator[Change]:
    yield from _weights(old.config.weights, new.config.weights)
    if old.config.source.digest == new.config.source.digest:
        return
    one, other = _Read(old), _Read(new)
    found = [*_nodes(one.summary, other.summary), *_ports(one.summary, other.summary)]
    found += [Change("constant", name, *_short(*both)) for name, *both in _paired(one.constants, other.constants)]
    yield from found
    if not found and one.rest != other.rest:
        yield Change("source", "order of nodes, functions, names or metadata", *_short(one.rest, other.rest))


class _Read:
    """A source model taken apart. Its weights are external data there, and compared from the config."""

    def __init__(self, stored: Stored) -> None:
        model = onnx.load_from_string(bytes(stored.by_digest(stored.config.source.digest)))
        inside = (item for item in model.graph.initializer if item.data_location != TensorProto.EXTERNAL)
        self.constants = {item.name: sha256(item.SerializeToString(deterministic=True)) for item in inside}
        del model.graph.initializer[:]
        self.rest = sha256(model.SerializeToString(deterministic=True))
        self.summary = summarize(model, "")


def _nodes(one: ModelSummary, other: ModelSummary) -> Iterator[Change]:
    """Nodes are told apart by the value that they make first."""
    sides = [{node.outputs[0]: node for node in model.nodes if node.outputs} for model in (one, other)]
    for value in dict.fromkeys((*sides[0], *sides[1])):
        left, right = sides[0].get(value), sides[1].get(value)
        if left is None or right is None:
            yield Change("source", f"node of {value}", _node(left), _node(right))
        elif left.digest != right.digest:
            what = "operator" if left.op_type != right.op_type else "attributes"
            yield Change("source", f"{what} of {left}", *_short(left.digest, right.digest))
        elif left.inputs != right.inputs:
            yield Change("source", f"inputs of {left}", ", ".join(left.inputs), ", ".join(right.inputs))


def _node(node: Node | None) -> str:
    return ABSENT if node is None else str(node)


def _ports(one: ModelSummary, other: ModelSummary) -> Iterator[Change]:
    for what, left, right in (("inputs", one.inputs, other.inputs), ("outputs", one.outputs, other.outputs)):
        yield from _leaf("source", what, ", ".join(left), ", ".join(right))


def _weights(old: Iterable[Tensor], new: Iterable[Tensor]) -> Iterator[Change]:
    sides = [{each.name: f"{each.type} {each.digest}" for each in tensors} for tensors in (old, new)]
    for name, left, right in _paired(*sides):
        one, other = (text.partition(" ") for text in (left, right))
        same_type = one[0] == other[0]
        yield Change("weight", name, *(_short(one[2], other[2]) if same_type else (one[0], other[0])))


# ── the build ───────────────────────────────────────────────────────────────────────────────────────


def _passes(one: Config, other: Config) -> Iterator[tuple[str, str, str]]:
    """(name, old digest, new digest) of the first stage of each entry that gives something else."""
    sides = [dict(_stages(config)) for config in (one, other)]
    for key in (key for key in sides[0] if key in sides[1]):
        for left, right in zip_longest(sides[0][key], sides[1][key], fillvalue=("no such pass", ABSENT)):
            if left != right:
                name = left[0] if left[0] == right[0] else f"{left[0]} (now {right[0]})"
                yield f"{name} of {' for '.join(filter(None, key))}", left[1], right[1]
                break


def _stages(config: Config) -> Iterator[tuple[tuple[str, str], list[tuple[str, str]]]]:
    """By entry and target, the digest of what import gave and of what each pass made of it."""
    for group in config.passes:
        imported = [("import", group.passes[0].before)] if group.passes else []
        yield (group.entry, group.target), [*imported, *((each.name, each.after) for each in group.passes)]


def _compiled(one: Config, other: Config) -> Iterator[Change]:
    sides = [dict(_programs(config)) for config in (one, other)]
    for key in dict.fromkeys((*sides[0], *sides[1])):
        left, right = sides[0].get(key), sides[1].get(key)
        if left is None or right is None:
            yield Change("code", key, *("made" if side else ABSENT for side in (left, right)))
            continue
        yield from _leaf("program", key, left.program, right.program, digests=True)
        yield from _kernels(key, left, right)
        if left.code != right.code:
            yield Change("code", f"{key}, the program", *_short(left.code, right.code))


def _programs(config: Config) -> Iterator[tuple[str, CompiledEntry]]:
    for target in config.targets:
        for each in target.entries:
            yield f"{each.entry} on {target.name}", each


def _kernels(key: str, left: CompiledEntry, right: CompiledEntry) -> Iterator[Change]:
    """What kernels compute, how they are scheduled, and what the same schedule of the same kernel became."""
    one, other = ({each.kernel: each for each in side.kernels} for side in (left, right))
    gone, added = [name for name in one if name not in other], [name for name in other if name not in one]
    if gone or added:
        yield Change("kernels", key, _listed(gone, len(one)), _listed(added, len(other)))
    both = [name for name in one if name in other]
    rescheduled = [name for name in both if one[name].schedule != other[name].schedule]
    recoded = [name for name in both if name not in rescheduled and one[name].code != other[name].code]
    for stage, names, what in (("schedule", rescheduled, "other schedules"), ("code", recoded, "other code")):
        if names:
            yield Change(stage, f"{key}, {what}", _listed(names, len(one)), _listed(names, len(other)))


def _listed(names: Sequence[str], count: int) -> str:
    shown = " ".join(name.removeprefix("sha256:")[:12] for name in names[:4])
    return f"{len(names)} of {count}" + (f": {shown}" if shown else "") + (" ..." if len(names) > 4 else "")


# ── results ─────────────────────────────────────────────────────────────────────────────────────────


def _results(one: Config, other: Config) -> Iterator[Change]:
    for entry, left, right in _runs(one, other):
        if left is None or right is None or _given(left) != _given(right):
            continue
        for name, a, b in _paired(_digests(left), _digests(right)):
            yield Change("results", f"{name} of {entry}", *_short(a, b))


def _bits(one: Config, other: Config) -> tuple[Bits, str]:
    """Bits are compared of entries that both have, on equal inputs; one that cannot be makes the answer unknown."""
    runs = list(_runs(one, other))
    different = False
    reasons: list[str] = []
    for entry, left, right in runs:
        if left is None or right is None:
            reasons.append(f"only one of them has entry {entry}")
        elif _given(left) != _given(right):
            reasons.append(f"entry {entry} was run on other inputs")
        else:
            different = different or _digests(left) != _digests(right)
    if different:
        return Bits.DIFFERENT, "; ".join(reasons)
    return (Bits.UNKNOWN, "; ".join(reasons)) if reasons or not runs else (Bits.SAME, "")


def _runs(one: Config, other: Config) -> Iterator[tuple[str, GoldenRun | None, GoldenRun | None]]:
    for name in dict.fromkeys(entry.name for entry in (*one.entries, *other.entries)):
        yield name, one.golden_run(name), other.golden_run(name)


def _given(run: GoldenRun) -> dict[str, str]:
    return {each.name: f"{each.type} {each.digest}" for each in run.inputs}


def _digests(run: GoldenRun) -> dict[str, str]:
    found = {f"output {each.name}": each.digest for each in run.outputs}
    return found | {f"state {each.name}": each.digest for each in run.state}


# ── both sides ──────────────────────────────────────────────────────────────────────────────────────


def _paired(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys((*old, *new)):
        left, right = old.get(name, ABSENT), new.get(name, ABSENT)
        if left != right:
            yield name, left, right


def _leaf(stage: str, where: str, old: str, new: str, digests: bool = False) -> Iterator[Change]:
    if old != new:
        yield Change(stage, where, *(_short(old, new) if digests else (old, new)))


def _tree(stage: str, old: Any, new: Any) -> Iterator[Change]:
    for each in comparison.document_differences(old, new):
        yield Change(stage, each.where, each.left, each.right)


def _short(old: str, new: str) -> tuple[str, str]:
    """The first 16 hex digits of digests: enough to tell them apart."""
    one, other = (text.removeprefix("sha256:")[:16] or ABSENT for text in (old, new))
    return one, other
