"""python -m tests.conformance [OP or case ...]: a line per failing case, and the counts."""

from __future__ import annotations

import sys

from tests.conformance.runner import cases, cases_of, expected_failure, run_case


def main(names: list[str]) -> int:
    chosen = cases_of(*names) if names else list(cases())
    passed = 0
    for name in chosen:
        outcome = run_case(name)
        passed += not outcome.failure
        if outcome.failure:
            known = "  (expected)" if expected_failure(name) else ""
            print(f"{name}: {outcome.failure}{known}", flush=True)
    print(f"{passed} of {len(chosen)} cases pass")
    return 0 if chosen and passed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
