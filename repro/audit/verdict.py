"""What an audit comes to under a user's thresholds: a row for each executor, and the exit code.

Drift of another runtime is a finding, and a failure only where a threshold says so. Drift of repro's own targets is an
error in repro, whatever the thresholds. What did not run is a row with its reason, and never counts as a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from repro.artifact.checks import Check, Report, Status
from repro.audit.comparison import ANOTHER_TYPE, GOLDEN, OWN, labels, sides
from repro.audit.records import Audit, Capture, Kind, Outcome, Pair, Record
from repro.errors import ReproError

DRIFT, ORIGIN, ARGMAX = "drift", "origin", "argmax"
FAIL_ON = frozenset({DRIFT, ORIGIN, ARGMAX})


@dataclass(frozen=True)
class Thresholds:
    """What fails an audit. `max_ulp` bounds the distance of the model's float outputs; of what has none (a NaN, an
    integer) any difference is beyond it. `fail_on`: any differing value (drift), any origin, a changed argmax of an
    output. They hold for each executor against golden, and for an executor on one machine against its namesake on
    another."""

    max_ulp: int | None = None
    fail_on: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if unknown := self.fail_on - FAIL_ON:
            raise ReproError("unknown threshold", found=", ".join(sorted(unknown)), expected=", ".join(sorted(FAIL_ON)))
        if self.max_ulp is not None and self.max_ulp < 0:
            raise ReproError("a distance in units in the last place is not negative", found=str(self.max_ulp))


def verdict(audit: Audit, thresholds: Thresholds | None = None, required: Sequence[str] = ()) -> Report:
    """The rows and the exit code. `required` are families or whole names of executors that had to run."""
    limits = thresholds or Thresholds()
    pairs = {(pair.left, pair.right): pair for pair in audit.pairs}
    rows: list[Check] = []
    for label, record in zip(labels(audit.records), audit.records, strict=True):
        for capture in record.captures:
            name = f"{label}{capture.executor.name}"
            pair = pairs.get((f"{label}{GOLDEN}", name))
            rows.append(_executor(name, capture, pair, limits, _is_named(capture, required)))
    rows += [_absent(name) for name in required if not _names_any(name, audit.records)]
    rows += _between_records(audit, limits)
    model = audit.records[0].model
    return Report(model.name, model.digest, tuple(rows))


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────


def _executor(name: str, capture: Capture, pair: Pair | None, limits: Thresholds, required: bool) -> Check:
    own = capture.executor.family == OWN
    if not capture.ran:
        ended = ": ".join(part for part in (capture.outcome.value, capture.reason) if part)
        broken = own and capture.outcome not in (Outcome.SKIPPED, Outcome.MISSING)
        return Check(name, Status.NOT_RUN, ended, required or broken)
    if pair is None or not pair.compared:
        return Check(name, Status.NOT_RUN, "no value was compared", required or own)
    return _own(name, capture, pair) if own else _judged(name, pair, limits)


def _own(name: str, capture: Capture, pair: Pair) -> Check:
    if not pair.identical:
        return Check(name, Status.MISMATCH, f"error in repro: {_found(pair)}")
    if not capture.faithful:
        return Check(name, Status.MISMATCH, "error in repro: showing its values changes its outputs")
    return Check(name, Status.GOOD, _found(pair))


def _judged(name: str, pair: Pair, limits: Thresholds) -> Check:
    """A pair under the thresholds; where what they ask for is not known, it did not run."""
    if beyond := "; ".join(_beyond(pair, limits)):
        return Check(name, Status.MISMATCH, beyond)
    if unknown := "; ".join(_unknown(pair, limits)):
        return Check(name, Status.NOT_RUN, unknown)
    return Check(name, Status.GOOD, _found(pair))


def _found(pair: Pair) -> str:
    """A pair in a line."""
    if pair.different:
        return f"{pair.different} of {pair.compared} values differ, {_first(pair)}"
    if pair.origins:
        return f"all {pair.compared} values of the run equal; fed golden values, {_origins(pair)}"
    return f"all {pair.compared} values equal"


def _first(pair: Pair) -> str:
    return f"the first is {pair.first}" + (f" of {pair.first_node}" if pair.first_node else "")


def _origins(pair: Pair) -> str:
    first = pair.origins[0]
    where = ", ".join(first.nodes) or first.value
    count = "one origin" if len(pair.origins) == 1 else f"{len(pair.origins)} origins, the first"
    return f"{count}: {where} ({first.kind.value})"


def _beyond(pair: Pair, limits: Thresholds) -> Iterator[str]:
    if DRIFT in limits.fail_on and pair.different:
        yield _found(pair)
    if ORIGIN in limits.fail_on and pair.origins:
        yield _origins(pair)
    for name, drift in pair.outputs.items():
        if ARGMAX in limits.fail_on and drift.argmax_flips:
            yield f"output {name}: {drift.argmax_flips} rows with another argmax"
        if limits.max_ulp is None:
            continue
        if drift.histogram[-1]:
            yield f"output {name}: {drift.histogram[-1]} elements at no distance in ULP"
        elif (drift.max_ulp or 0) > limits.max_ulp:
            yield f"output {name}: {drift.max_ulp} ULP, allowed are {limits.max_ulp}"
    if _sized(limits):
        yield from (f"output {name}: {why}" for name, why in pair.unmeasured.items() if why.startswith(ANOTHER_TYPE))


def _unknown(pair: Pair, limits: Thresholds) -> Iterator[str]:
    if _sized(limits):
        yield from (f"output {name}: {why}" for name, why in pair.unmeasured.items())


def _sized(limits: Thresholds) -> bool:
    """Whether a threshold asks how far outputs are apart."""
    return limits.max_ulp is not None or ARGMAX in limits.fail_on


def _absent(name: str) -> Check:
    return Check(name, Status.NOT_RUN, "required, but no such executor was asked to run")


def _is_named(capture: Capture, names: Sequence[str]) -> bool:
    return capture.executor.family in names or capture.executor.name in names


def _names_any(name: str, records: Iterable[Record]) -> bool:
    return any(_is_named(capture, (name,)) for record in records for capture in record.captures)


def _between_records(audit: Audit, limits: Thresholds) -> Iterator[Check]:
    """Golden with golden, which one model and one set of inputs make the same everywhere, and namesakes."""
    goldens, executors = sides(audit.records)
    known = {side.name: side for side in (*goldens, *executors)}
    for pair in audit.pairs:
        left, right = known[pair.left], known[pair.right]
        name = f"{pair.left} and {pair.right}"
        given = any(origin.kind not in (Kind.NODE, Kind.FUSED) for origin in pair.origins)
        if left.is_golden and right.is_golden and not given:
            yield _other_contract(name, left.capture, right.capture) or _own(name, right.capture, pair)
        elif left.record is not right.record and left.capture.executor.name == right.capture.executor.name:
            yield _judged(name, pair, limits)


def _other_contract(name: str, left: Capture, right: Capture) -> Check | None:
    """Two versions of the numerics contract say two things: neither is an error, and nothing follows."""
    one, other = (capture.environment.get("versions", {}).get("contract") for capture in (left, right))
    if one == other:
        return None
    return Check(name, Status.NOT_RUN, f"made under versions {one} and {other} of the numerics contract")
