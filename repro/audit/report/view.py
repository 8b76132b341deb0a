"""What every form of the report says, worked out once: rows of executors, rows of origins, distances of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

from repro.artifact.checks import Check, Report, Status
from repro.audit.comparison import GOLDEN, OWN, sides
from repro.audit.probes.running import NOT_RUN
from repro.audit.probes.tables import groups, order_of
from repro.audit.records import Audit, Capture, Cause, Drift, Kind, Node, Origin, Pair, Record
from repro.errors import EXIT_GOOD, EXIT_MISMATCH


@dataclass(frozen=True)
class Reason:
    """Why the audit is not good: the executor (empty: the whole audit), and what about it."""

    executor: str
    text: str


@dataclass(frozen=True, eq=False)
class ExecutorRow:
    """One executor. `group` is the letter of those that gave the same bits in everything; empty if it did not run.
    `pair` compares it with golden; `check` is its row of the verdict."""

    name: str
    group: str
    capture: Capture
    pair: Pair | None
    check: Check
    label: str
    required: bool = False

    @property
    def own(self) -> bool:
        """Whether it is repro itself, where any difference is an error of ours."""
        return self.capture.executor.family == OWN

    @property
    def failed(self) -> bool:
        """Whether the verdict holds its drift against it."""
        return self.check.status is Status.MISMATCH

    @property
    def identical(self) -> bool:
        return self.pair is not None and self.pair.identical

    @property
    def outcome(self) -> str:
        return self.capture.outcome.value

    @property
    def first(self) -> str:
        """The node that made the first differing value; the value itself where no node did."""
        return (self.pair.first_node or self.pair.first or "") if self.pair else ""

    @property
    def worst(self) -> int | None:
        """The greatest distance of an output, in ULP; None where it has none or is not known."""
        found = [drift.max_ulp for drift in self._outputs() if drift.max_ulp is not None]
        return max(found, default=None)

    @property
    def flips(self) -> int | None:
        """Rows of the outputs whose greatest element is another one."""
        found = [drift.argmax_flips for drift in self._outputs() if drift.argmax_flips is not None]
        return sum(found) if found else None

    def _outputs(self) -> Iterable[Drift]:
        return () if self.pair is None else self.pair.outputs.values()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know, each once; the executor's own name is left out of them."""
        found = [note.removeprefix(f"{self.name}: ") for note in (self.pair.notes if self.pair else ())]
        unmeasured = self.pair.unmeasured if self.pair else {}
        found += [f"{name}: {reason}" for name, reason in unmeasured.items()]
        return tuple(dict.fromkeys((*self.capture.notes, *found)))


@dataclass(frozen=True)
class Variant:
    """How one or more executors drift at an origin. `left` and `right` are the two digests."""

    executors: tuple[str, ...]
    origin: Origin

    @property
    def drift(self) -> Drift | None:
        return self.origin.drift

    @property
    def causes(self) -> tuple[Cause, ...]:
        return self.origin.causes

    @property
    def notes(self) -> tuple[str, ...]:
        return self.origin.notes


@dataclass(frozen=True, eq=False)
class OriginRow:
    """A place where drift begins, and who drifts there and how."""

    number: int
    kind: Kind
    nodes: tuple[str, ...]
    value: str
    variants: tuple[Variant, ...]
    known: Mapping[str, Node] = field(repr=False)

    @property
    def title(self) -> str:
        """The nodes by name and operator, constants left out; for a weight or an input its own name."""
        names = [name for name in self.nodes if self._operator(name) != "Constant"] or list(self.nodes)
        folder = _folder(names)
        shown = [self._said(name, name.removeprefix(folder)) for name in names]
        return (f"{folder}: " if folder else "") + " + ".join(shown) if shown else self.value

    def _operator(self, name: str) -> str:
        return self.known[name].op_type if name in self.known else ""

    def _said(self, name: str, text: str) -> str:
        """A node's name, and its operator where the name does not tell."""
        operator = self._operator(name)
        return text if not operator or operator in text else f"{text} ({operator})"

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of its nodes, constants left out."""
        found = map(self._operator, self.nodes)
        return tuple(name for name in found if name not in ("", "Constant"))

    @property
    def is_node(self) -> bool:
        """Whether nodes drift here, rather than something that was given to them."""
        return self.kind in (Kind.NODE, Kind.FUSED)

    @property
    def executors(self) -> tuple[str, ...]:
        return tuple(name for variant in self.variants for name in variant.executors)

    @property
    def causes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cause.name for variant in self.variants for cause in variant.causes))

    @property
    def worst(self) -> int | None:
        found = [each.drift.max_ulp for each in self.variants if each.drift and each.drift.max_ulp is not None]
        return max(found, default=None)


@dataclass(frozen=True)
class OrderRow:
    """A sum or dot of the executors that add in one order. `fused`: products enter additions unrounded; `precision`
    is the accumulator's significand in bits; `confirmed`: the order gives the executor's bits of random terms."""

    executors: tuple[str, ...]
    operation: str
    lengths: tuple[int, ...]
    order: str
    fused: bool | None
    precision: int | None
    confirmed: bool | None


@dataclass(frozen=True, eq=False)
class View:
    """An audit with its verdict, as the reports show it."""

    audit: Audit
    report: Report
    required: tuple[str, ...] = ()
    """Families and names of executors that had to run."""

    @property
    def record(self) -> Record:
        """The first record: its model is the one that is shown."""
        return self.audit.records[0]

    @property
    def model(self) -> str:
        return self.record.model.name

    @property
    def models(self) -> tuple[tuple[str, str], ...]:
        """(label, digest) of each record's model; one without a label where all are the same."""
        found = tuple((record.label, record.model.digest) for record in self.audit.records)
        return found if len({digest for _, digest in found}) > 1 else (("", found[0][1]),)

    @property
    def exit_code(self) -> int:
        return self.report.exit_code

    @property
    def good(self) -> bool:
        return self.exit_code == EXIT_GOOD

    @property
    def verdict(self) -> str:
        """The exit code in words: drift is a finding, and no failure unless a threshold says so."""
        if self.good:
            return "no drift" if self.same == self.ran else "drift, none beyond a threshold"
        return "mismatch" if self.exit_code == EXIT_MISMATCH else "incomplete"

    @cached_property
    def goldens(self) -> tuple[str, ...]:
        """What golden is called in each record."""
        return tuple(side.name for side in sides(self.audit.records)[0])

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Executors by the letter of their group; golden is in the first."""
        return {letter(position): group for position, group in enumerate(self.audit.groups)}

    @cached_property
    def executors(self) -> tuple[ExecutorRow, ...]:
        """Every executor: those that ran by groups, then the others."""
        letters = {name: key for key, group in self.groups.items() for name in group}
        checks = {check.name: check for check in self.report.checks}
        rows: list[ExecutorRow] = []
        for record, golden in zip(self.audit.records, self.goldens, strict=True):
            for capture in record.captures:
                name = golden.removesuffix(GOLDEN) + capture.executor.name
                rows.append(
                    ExecutorRow(
                        name,
                        letters.get(name, ""),
                        capture,
                        self.golden_pairs.get(name),
                        checks[name],
                        record.label,
                        capture.executor.family in self.required or capture.executor.name in self.required,
                    )
                )
        order = list(self.groups)
        return tuple(sorted(rows, key=lambda row: order.index(row.group) if row.group else len(order)))

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """What made the audit fail, or incomplete."""
        names = {row.name for row in self.executors}
        failed = [
            check
            for check in self.report.checks
            if check.status is Status.MISMATCH or (check.status is Status.NOT_RUN and check.required)
        ]
        return tuple(
            Reason(check.name, check.detail) if check.name in names else Reason("", f"{check.name}: {check.detail}")
            for check in failed
        )

    @cached_property
    def golden_pairs(self) -> Mapping[str, Pair]:
        """By executor, how it compares with golden of its own machine."""
        found = {pair.right: pair for pair in self.audit.pairs if pair.left in self.goldens}
        return {name: pair for name, pair in found.items() if name not in self.goldens}

    @cached_property
    def others(self) -> tuple[Pair, ...]:
        """Pairs without golden on just one side: executors among each other, golden of two machines."""
        return tuple(pair for pair in self.audit.pairs if self.golden_pairs.get(pair.right) is not pair)

    def between(self, left: str, right: str) -> Pair | None:
        """How two groups compare, by their letters; None where that was not asked."""
        one, other = self.groups[left], self.groups[right]
        for pair in self.audit.pairs:
            if (pair.left in one and pair.right in other) or (pair.left in other and pair.right in one):
                return pair
        return None

    @cached_property
    def origins(self) -> tuple[OriginRow, ...]:
        """Every origin against golden, and of golden of one machine against another's, in canonical order; those of
        several executors are one row."""
        found: dict[tuple[Kind, tuple[str, ...], str], dict[tuple[object, ...], list[tuple[str, Origin]]]] = {}
        for pair in (pair for pair in self.audit.pairs if pair.left in self.goldens):
            for origin in pair.origins:
                variants = found.setdefault((origin.kind, origin.nodes, origin.value), {})
                same = origin.drift, origin.fed, origin.causes, origin.notes
                variants.setdefault(same, []).append((pair.right, origin))
        known = {node.name: node for record in self.audit.records for node in record.model.nodes}
        ordered = sorted(found.items(), key=lambda item: self._position(item[0][2]))
        return tuple(
            OriginRow(
                number,
                *key,
                tuple(Variant(tuple(name for name, _ in seen), seen[0][1]) for seen in variants.values()),
                known,
            )
            for number, (key, variants) in enumerate(ordered, start=1)
        )

    def _position(self, value: str) -> int:
        return self._positions.get(value, -1)

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        """Values in canonical order; what was given, weights and inputs, stands before."""
        names = (name for node in self.record.model.nodes for name in node.outputs)
        return {name: position for position, name in enumerate(names)}

    @cached_property
    def orders(self) -> tuple[OrderRow, ...]:
        """What the probes found, executors and lengths of one order together."""
        found: list[OrderRow] = []
        for probes in groups(probe for probe in self.audit.probes if probe.operation != NOT_RUN):
            first = probes[0]
            executors = tuple(dict.fromkeys(probe.executor for probe in probes))
            lengths = tuple(dict.fromkeys(probe.length for probe in probes))
            found.append(
                OrderRow(
                    executors, first.operation, lengths, order_of(first), first.fused, first.precision, first.confirmed
                )
            )
        return tuple(found)

    @property
    def not_probed(self) -> tuple[tuple[str, str], ...]:
        """Executors whose probe did not run to its end, and why."""
        return tuple((probe.executor, probe.tree) for probe in self.audit.probes if probe.operation == NOT_RUN)

    @property
    def ran(self) -> int:
        return sum(row.capture.ran for row in self.executors)

    @property
    def same(self) -> int:
        return sum(row.capture.ran and row.identical for row in self.executors)

    @property
    def summary(self) -> str:
        """The last line: n of m ran, k give repro's bits."""
        text = f"{self.ran} of {len(self.executors)} executors ran, {self.same} give repro's bits"
        origins = len(self.origins)
        if origins:
            text += f", {origins} origin{'s' if origins > 1 else ''}"
        return f"{text}; exit code {self.exit_code}"


def _folder(names: Sequence[str]) -> str:
    """The path that several names have in common, with its last slash; none where it is the root alone."""
    paths = [name.split("/")[:-1] for name in names] if len(names) > 1 else []
    shared = takewhile(lambda parts: len({*parts}) == 1, zip(*paths, strict=False))
    path = "".join(f"{parts[0]}/" for parts in shared)
    return "" if path == "/" else path


def letter(position: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    head, tail = divmod(position, 26)
    return (letter(head - 1) if head else "") + chr(ord("A") + tail)
