"""python -m tests.conformance [OP or case ...]: a line per failing case, and the counts."""

from __future__ import annotations

from repro import ending
from repro.errors import ReproError
from tests.conformance.runner import cases, cases_of, expected_failure, run_case


def main(names: list[str]) -> int:
    chosen = cases_of(*names) if names else list(cases())
    if not chosen:
        raise ReproError("no conformance case has such a name", found=", ".join(names))
    passed = surprising = 0
    for name in chosen:
        outcome = run_case(name)
        passed += not outcome.failure
        if outcome.failure:
            known = expected_failure(name)
            surprising += not known
            print(f"{name}: {outcome.failure}{'  (expected)' if known else ''}", flush=True)
    print(f"{passed} of {len(chosen)} cases pass, {surprising} fail that are not expected to")
    return 1 if surprising else 0


if __name__ == "__main__":
    ending.run(main)
