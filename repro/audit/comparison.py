"""Captures compared: each executor with golden, executors with each other, machines with machines.

All of it is found from records alone. Where a capture kept digests only, everything is found but how far values are
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from repro.audit.drift import drift, no_drift
from repro.audit.origins import Changes, Comparison, Found, Lineage, Side, changes, made
from repro.audit.records import (
    Audit,
    Capture,
    Drift,
    Executor,
    Kind,
    ModelSummary,
    Origin,
    Outcome,
    Pair,
    Record,
    Value,
)
from repro.errors import ReproError
from repro.ir.types import BY_NAME, Array, parse_type

GOLDEN = "golden"
"""What golden is called in a comparison."""
OWN = "repro"
"""The family of repro's own targets."""
NOT_KEPT = "values not kept"
ANOTHER_TYPE = "another type or shape"
"""Why a difference has no size: the second is said with both types."""

_OPEN = "draws random numbers: ONNX specifies no stream, so other results are no error"
_OPEN_IN_TRAINING = f"in training mode it {_OPEN}"
LEFT_OPEN: Mapping[str, str] = {
    "RandomNormal": _OPEN,
    "RandomNormalLike": _OPEN,
    "RandomUniform": _OPEN,
    "RandomUniformLike": _OPEN,
    "Bernoulli": _OPEN,
    "Multinomial": _OPEN,
    "Dropout": _OPEN_IN_TRAINING,
}
"""Operators whose results ONNX leaves open."""

Progress = Callable[[str], None]


# ── two captures ────────────────────────────────────────────────────────────────────────────────────


def compare(left: Capture, right: Capture, model: ModelSummary, golden: Capture | None = None) -> Pair:
    """Two captures of one model on one set of inputs. `golden` is what was fed to both; without it, what was fed is
    taken to be the same. Raises ReproError where one of them did not run."""
    record = Record(model, {}, golden or Capture(left.executor, left.outcome), (), {})
    one, other = (Side(GOLDEN if each is golden else each.executor.name, each, record) for each in (left, right))
    return _Measure().pair(one, other)


class _Measure:
    """Pairs of sides, measured. Executors often share bits, so what is known of two digests is kept."""

    def __init__(self) -> None:
        self._known: dict[tuple[Value, Value, bool], Drift | None] = {}
        self._changes: dict[tuple[int, int], Changes] = {}
        self._lineages: dict[int, Lineage] = {}

    def comparison(self, left: Side, right: Side) -> Comparison:
        for side in (left, right):
            if not side.capture.ran:
                raise ReproError(
                    "a capture of a run that did not end cannot be compared",
                    found=f"{side.name}: {side.capture.outcome.value}",
                    expected="a capture that ran",
                )
        key = id(left.record), id(right.record)
        if key not in self._changes:
            self._changes[key] = changes(left.record, right.record)
        model = left.record.model
        lineage = self._lineages.setdefault(id(model), Lineage(model))
        return Comparison(left, right, lineage, self._changes[key])

    def pair(self, left: Side, right: Side, growth: bool = True) -> Pair:
        compared = self.comparison(left, right)
        differing = compared.differing
        first = next(iter(differing), None)
        nodes = compared.lineage.model.nodes
        made_by = compared.lineage.producers.get(first or "")
        outputs, unmeasured = self._outputs(compared)
        return Pair(
            left=left.name,
            right=right.name,
            compared=len(compared.compared),
            different=len(differing),
            first=first,
            first_node=None if made_by is None else nodes[made_by].name,
            origins=(*_given(compared), *(self._origin(compared, found) for found in compared.found())),
            growth=tuple(self._growth(compared)) if growth else (),
            outputs=outputs,
            notes=tuple(_notes(compared)),
            unmeasured=unmeasured,
        )

    def _outputs(self, compared: Comparison) -> tuple[dict[str, Drift], dict[str, str]]:
        """How far each output is apart, and, where that is not known, why."""
        measured: dict[str, Drift] = {}
        unmeasured: dict[str, str] = {}
        one, other = compared.left.values, compared.right.values
        for name in compared.lineage.model.outputs:
            if name not in one or name not in other:
                silent = compared.left if name not in one else compared.right
                unmeasured[name] = f"{silent.name} does not give it"
            elif one[name].type != other[name].type:
                unmeasured[name] = _types(compared.left, compared.right, one[name], other[name])
            elif (found := self._drift(compared, name, argmax=True)) is not None:
                measured[name] = found
            else:
                unmeasured[name] = NOT_KEPT
        return measured, unmeasured

    def _growth(self, compared: Comparison) -> Iterator[tuple[str, Drift]]:
        one, other = (_arrays(side) for side in (compared.left, compared.right))
        for name in compared.compared:
            if name in one and name in other and _is_float(compared.left.values[name]):
                found = self._drift(compared, name)
                if found is not None:
                    yield name, found

    def _drift(self, compared: Comparison, name: str, argmax: bool = False) -> Drift | None:
        """Of a value of the run; None where it differs and arrays or a common type are missing."""
        one, other = compared.left.values[name], compared.right.values[name]
        if one == other:
            return _none(one, argmax)
        left, right = (_arrays(side).get(name) for side in (compared.left, compared.right))
        return self._measured(one, other, left, right, argmax)

    def _measured(
        self, one: Value, other: Value, left: Array | None, right: Array | None, argmax: bool = False
    ) -> Drift | None:
        if one.type != other.type or left is None or right is None:
            return None
        key = one, other, argmax
        if key not in self._known:
            self._known[key] = drift(left, right, argmax and _is_float(one))
        return self._known[key]

    def _origin(self, compared: Comparison, found: Found) -> Origin:
        nodes = [compared.lineage.model.nodes[place] for place in sorted(found.nodes)]
        left, right = compared.left, compared.right
        one, other = ((side.fed if found.fed else side.values)[found.value] for side in (left, right))
        mine, theirs = ((_fed_arrays(side) if found.fed else _arrays(side)).get(found.value) for side in (left, right))
        notes = [f"{node.name} {LEFT_OPEN[node.op_type]}" for node in nodes if node.op_type in LEFT_OPEN]
        if one.type != other.type:
            notes.append(_types(left, right, one, other))
        for side in (left, right):
            run_by = side.capture.implementations
            notes += [f"{node.name}: run by {run_by[node.name]}" for node in nodes if node.name in run_by]
        return Origin(
            kind=found.kind,
            nodes=tuple(node.name for node in nodes),
            value=found.value,
            left=one.digest,
            right=other.digest,
            drift=self._measured(one, other, mine, theirs),
            fed=found.fed,
            sources=_sources(compared, found),
            notes=tuple(notes),
        )


def _none(value: Value, argmax: bool) -> Drift | None:
    if value.type.partition("[")[0] not in BY_NAME:
        return None
    kind = parse_type(value.type)
    return no_drift(kind.elements, kind.dtype.is_float, argmax and kind.dtype.is_float)


def _is_float(value: Value) -> bool:
    dtype = BY_NAME.get(value.type.partition("[")[0])
    return dtype is not None and dtype.is_float


def _arrays(side: Side) -> Mapping[str, Array]:
    return side.capture.arrays


def _fed_arrays(side: Side) -> Mapping[str, Array]:
    return side.capture.arrays if side.is_golden else side.capture.fed_arrays


def _types(left: Side, right: Side, one: Value, other: Value) -> str:
    return f"{ANOTHER_TYPE}: {left.name} {one.type}, {right.name} {other.type}"


def _sources(compared: Comparison, found: Found) -> dict[str, str]:
    """The digests of what an origin read, as far as records have them."""
    record = compared.left.record
    values = record.golden.values if found.fed else compared.left.values
    inputs = {name: value.digest for name, value in record.inputs.items()}
    known = {**inputs, **record.model.initializers, **{name: value.digest for name, value in values.items()}}
    return {name: known[name] for name in compared.lineage.ordered(found.sources) if name in known}


def _given(compared: Comparison) -> Iterator[Origin]:
    """Origins in what was given. A change of the graph is one, whatever its extent."""
    changed, one, other = compared.changed, compared.left.record, compared.right.record
    for name in changed.weights:
        yield Origin(Kind.WEIGHT, (), name, one.model.initializers[name], other.model.initializers[name], None)
    for name in changed.inputs:
        left, right = one.inputs[name], other.inputs[name]
        notes = (_types(compared.left, compared.right, left, right),) if left.type != right.type else ()
        yield Origin(Kind.INPUT, (), name, left.digest, right.digest, None, notes=notes)
    for mine, theirs in changed.attributes:
        yield Origin(Kind.ATTRIBUTE, (mine.name,), made(mine), mine.digest, theirs.digest, None)
    if changed.graph or changed.graph_leaves:
        nodes = tuple(dict.fromkeys(node.name for node in changed.graph))
        leaves = ", ".join(changed.graph_leaves)
        notes = (f"inputs or weights of one side only: {leaves}",) if leaves else ()
        value = [*(made(node) for node in changed.graph), *changed.graph_leaves][0]
        yield Origin(Kind.GRAPH, nodes, value, one.model.digest, other.model.digest, None, notes=notes)


def _notes(compared: Comparison) -> Iterator[str]:
    for side in (compared.left, compared.right):
        if not side.capture.faithful:
            yield f"{side.name}: showing its values changes its outputs, so only those are compared"
        yield from (f"{side.name}: {note}" for note in side.capture.notes)
    if not compared.compared:
        yield "no value in common"


# ── groups ──────────────────────────────────────────────────────────────────────────────────────────


Groups = tuple[tuple[str, ...], ...]
"""Names of executors, those with the same capture together."""


def group(captures: Sequence[Capture], model: ModelSummary) -> Groups:
    """The executors that ran, in groups."""
    ran = [each for each in captures if each.ran]
    record = Record(model, {}, Capture(Executor(OWN), Outcome.SKIPPED), (), {})
    return _names(_groups([Side(each.executor.name, each, record) for each in ran], _Measure()))


def _names(groups: Iterable[Iterable[Side]]) -> Groups:
    return tuple(tuple(side.name for side in members) for members in groups)


def _groups(sides: Iterable[Side], measure: _Measure) -> list[list[Side]]:
    """Each side joins the first group that it agrees with as a whole: fused executors show fewer values than others."""
    groups: list[list[Side]] = []
    for side in sides:
        for members in groups:
            if all(_agree(measure.comparison(member, side)) for member in members):
                members.append(side)
                break
        else:
            groups.append([side])
    return groups


def _agree(compared: Comparison) -> bool:
    """Whether two sides made the same of the same, in the run and when fed."""
    return bool(compared.compared) and not compared.differing and not compared.changed and not compared.found()


# ── whole audits ────────────────────────────────────────────────────────────────────────────────────


def audit(records: Sequence[Record], growth_between: bool = False, progress: Progress | None = None) -> Audit:
    """All findings of one record, or of those of several machines.

    With several, a name stands behind its record's label (`laptop:onnxruntime`, `laptop:golden`). Executors of records
    of one model and one set of inputs are compared in groups, wherever they ran; across models or inputs, golden with
    golden and each executor with its namesake: what was given is an origin then. `growth_between`: how drift grows
    between executors too, not only away from golden.
    """
    if not records:
        raise ReproError("nothing to compare", expected="at least one record")
    tell = progress or (lambda _: None)
    measure = _Measure()
    goldens, executors = sides(records)
    bases = _bases(goldens, measure)
    groups = [_groups([*base, *(side for side in executors if _within(side, base))], measure) for base in bases]
    against = [(golden, side) for golden in goldens for side in executors if side.record is golden.record]
    between = [pair for members in groups for pair in _across_groups(members)]
    pairs: list[Pair] = []
    for left, right in [*against, *combinations(goldens, 2), *between, *_namesakes(executors, bases)]:
        tell(f"comparing {left.name} with {right.name}")
        pairs.append(measure.pair(left, right, growth_between or left.is_golden))
    return Audit(tuple(records), tuple(pairs), _names(members for base in groups for members in base))


def sides(records: Sequence[Record]) -> tuple[list[Side], list[Side]]:
    """Golden of each record, and all executors that ran, under the names that they have in an audit."""
    before = labels(records)
    goldens = [Side(f"{label}{GOLDEN}", record.golden, record) for label, record in zip(before, records, strict=True)]
    executors = [
        Side(f"{label}{capture.executor.name}", capture, record)
        for label, record in zip(before, records, strict=True)
        for capture in record.captures
        if capture.ran
    ]
    return goldens, executors


def labels(records: Sequence[Record]) -> list[str]:
    """What stands before the names of each record: its label and a colon, its place where labels do not tell."""
    if len(records) == 1:
        return [""]
    given = [record.label for record in records]
    plain = [label if label and given.count(label) == 1 else "" for label in given]
    return [f"{label or place}:" for place, label in enumerate(plain, 1)]


def _bases(goldens: Iterable[Side], measure: _Measure) -> list[list[Side]]:
    """Goldens of records of one model and one set of inputs together."""
    bases: list[list[Side]] = []
    for golden in goldens:
        same = next((base for base in bases if not measure.comparison(base[0], golden).changed), None)
        if same is None:
            bases.append([golden])
        else:
            same.append(golden)
    return bases


def _within(side: Side, base: Iterable[Side]) -> bool:
    return any(side.record is golden.record for golden in base)


def _across_groups(groups: Sequence[Sequence[Side]]) -> Iterator[tuple[Side, Side]]:
    """One pair for each two groups without golden: namesakes on two machines if there are any, else those that show
    the most."""
    for one, other in combinations([members for members in groups if not any(each.is_golden for each in members)], 2):
        alike = ((a, b) for a in one for b in other if _name(a) == _name(b))
        yield next(alike, (_most_shown(one), _most_shown(other)))


def _most_shown(members: Sequence[Side]) -> Side:
    return max(members, key=lambda side: len(side.values))


def _namesakes(executors: Sequence[Side], bases: Sequence[Sequence[Side]]) -> Iterator[tuple[Side, Side]]:
    """The same executor on records of different models or inputs."""
    for one, other in combinations(executors, 2):
        if _name(one) == _name(other) and not any(_within(one, base) and _within(other, base) for base in bases):
            yield one, other


def _name(side: Side) -> str:
    return side.capture.executor.name
