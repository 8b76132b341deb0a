"""python -m tests.conformance.coverage: writes docs/coverage.md, cases per operator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from repro.ops import OPS
from repro.ops.record import NotDifferentiable
from tests.conformance.runner import Outcome, cases, expected_failure, run_case

TARGET = Path(__file__).parents[2] / "docs" / "coverage.md"
_HEAD = """\
# Coverage of the ONNX operators

Made by `python -m tests.conformance.coverage`; do not edit. A case of `onnx.backend.test` passes when the reference
gives its values within the case's tolerance and this host's CPU code gives the reference's bits. A case counts for
each operator in its graph. `folded` counts passing cases in which nothing was left to run after what the case fixes
at build.

| operator | cases | pass | folded | fail |
|---|---|---|---|---|
"""


def table(outcomes: list[Outcome]) -> str:
    """The page for the outcomes of every case."""
    total, passed, folded = Counter[str](), Counter[str](), Counter[str]()
    for outcome in outcomes:
        total.update(outcome.ops)
        if not outcome.failure:
            passed.update(outcome.ops)
            folded.update(() if outcome.at_run_time else outcome.ops)
    rows = [f"| {op} | {total[op]} | {passed[op]} | {folded[op]} | {total[op] - passed[op]} |" for op in sorted(total)]
    good = sum(not outcome.failure for outcome in outcomes)
    reasons = Counter(expected_failure(outcome.name) or "not expected" for outcome in outcomes if outcome.failure)
    listed = [f"| {count} | {reason} |" for reason, count in sorted(reasons.items(), key=lambda r: (-r[1], r[0]))]
    summary = ["", f"{good} of {len(outcomes)} cases pass.", "", "| cases | why they do not pass |", "|---|---|"]
    return _HEAD + "\n".join([*rows, *summary, *listed, *_gradients()]) + "\n"


def _gradients() -> list[str]:
    """How many core ops have a gradient, and why the others have none."""
    refused = sorted(
        (name, op.gradient.reason) for name, op in OPS.items() if isinstance(op.gradient, NotDifferentiable)
    )
    counts = f"Of {len(OPS)} core ops, {len(OPS) - len(refused)} have a gradient and {len(refused)} have none."
    rows = [f"| {name} | {reason} |" for name, reason in refused]
    head = ["", "## Gradients", "", counts, "", "| core op | why it has none |", "|---|---|"]
    return [*head, *rows]


def main() -> None:
    TARGET.write_text(table([run_case(name) for name in cases()]), encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
