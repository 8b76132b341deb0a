"""Planted executors: a changed order is found at its node and nowhere else; each bad end is a row with its reason."""

from __future__ import annotations

import numpy as np
import pytest

from repro.audit.comparison import compare
from repro.audit.golden import golden
from repro.audit.model import Audited, prepare
from repro.audit.records import Capture, Executor, Kind, Outcome
from repro.audit.running import Limits, run_all
from tests.audit.models import golden_models, model
from tests.audit.planted_peers import PEERS, backwards

SMALL = """g (float[2, 3] x, float[3, 2] w) => (float[2, 2] y) { y = MatMul(x, w) }"""


def run(audited: Audited, own: Capture, executors: list[Executor], limits: Limits) -> tuple[Capture, ...]:
    return run_all(audited, own, executors, limits, True, lambda *_: None, peers=PEERS)


@pytest.mark.parametrize("name", ["digits_mlp/forward", "digits_cnn/forward"])
def test_a_changed_order_is_found_at_its_node_alone(name: str) -> None:
    case = golden_models()[name]
    audited = prepare(case["model"], bind={"N": 8})
    products = [node.name for node in audited.summary.nodes if node.op_type in ("Gemm", "MatMul")]
    own = golden(audited, None, lambda *_: None)
    planted = products[len(products) // 2]
    (capture,) = run(audited, own, [backwards(planted)], Limits(120))
    assert capture.outcome is Outcome.RAN, capture.reason
    assert capture.faithful
    pair = compare(own, capture, audited.summary)
    assert [(origin.kind, origin.nodes, origin.fed) for origin in pair.origins] == [(Kind.NODE, (planted,), False)]
    drift = pair.origins[0].drift
    assert drift is not None and 0 < drift.different < drift.elements
    assert pair.first_node == planted


def test_each_bad_end_is_a_row_with_its_reason() -> None:
    audited = prepare(model(SMALL), inputs={"x": np.ones((2, 3), np.float32), "w": np.ones((3, 2), np.float32)})
    own = golden(audited, None, lambda *_: None)
    names = ("aborts", "eats", "missing", "refuses", "raises")
    found = run(audited, own, [Executor(name) for name in names], Limits(120, 700 << 20))
    found += run(audited, own, [Executor("hangs")], Limits(6))
    rows = {capture.executor.family: capture for capture in found}
    outcomes = {family: capture.outcome for family, capture in rows.items()}
    assert outcomes == {
        "aborts": Outcome.CRASHED,
        "eats": Outcome.MEMORY,
        "missing": Outcome.MISSING,
        "refuses": Outcome.REFUSED,
        "raises": Outcome.FAILED,
        "hangs": Outcome.TIMEOUT,
    }
    assert "SIGABRT" in rows["aborts"].reason and "a broken invariant" in rows["aborts"].reason
    assert "700 MiB" in rows["eats"].reason
    assert rows["missing"].reason == "planted is not installed"
    assert rows["refuses"].reason == "no kernel for this operator"
    assert rows["raises"].reason == "OverflowError: an error of its own"
    assert "6 s" in rows["hangs"].reason
    assert not any(capture.ran or capture.served for capture in rows.values())
