"""repro's own bits of every value: the same on all its targets, and the same whether they are shown or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repro.audit import golden as own
from repro.audit.capture import value_of
from repro.audit.golden import execute, golden, own_executors
from repro.audit.model import opened, prepare
from repro.audit.peers import own as own_peer
from repro.audit.peers.peer import PeerError
from repro.audit.records import Executor, Outcome
from repro.errors import InternalError, ReproError
from repro.ir.types import Array
from tests.audit.models import CHAIN, DECIDED, UNDECIDED, golden_models, model


def silent(*_: object) -> None:
    """No progress is shown."""


@pytest.mark.parametrize(
    ("text", "options"),
    [(CHAIN, {"bind": {"N": 7}}), (DECIDED, {"set": {"rate": 16000}}), (UNDECIDED, {})],
    ids=["chain", "decided", "undecided"],
)
def test_every_target_has_every_golden_value(text: str, options: Any) -> None:
    audited = prepare(model(text), **options)
    best = golden(audited, None, silent)
    assert best.values.keys() == set(audited.types) == best.arrays.keys() == best.fed_arrays.keys()
    assert best.ran
    assert best.faithful
    assert {name: value_of(array) for name, array in best.arrays.items()} == dict(best.values) == dict(best.fed)
    assert {name: value.type for name, value in best.values.items()} == {n: str(t) for n, t in audited.types.items()}
    executors = own_executors()
    assert len(executors) >= 3
    for executor in executors:
        found = execute(opened(audited.proto, list(audited.types)), None, audited.inputs, executor, None)
        assert {name: value_of(array) for name, array in found.items()} == dict(best.values), executor.name


@pytest.mark.parametrize("name", [name for name in golden_models() if "gpt" not in name])
def test_golden_models_on_the_reference(name: str) -> None:
    audited = prepare(**golden_models()[name])
    best = golden(audited, None, silent)
    found = execute(opened(audited.proto, list(audited.types)), None, audited.inputs, own_executors()[-1], None)
    assert len(best.values) >= len(audited.summary.nodes)
    assert {name: value_of(array) for name, array in found.items()} == dict(best.values)
    assert best.served.items() <= best.values.items()


def test_values_that_change_when_shown_are_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(proto: Any, *given: Any) -> dict[str, Array]:
        found = execute(proto, *given)
        return {n: a + np.float32(len(found) > 1) for n, a in found.items()}

    audited = prepare(model(CHAIN), bind={"N": 1})
    monkeypatch.setattr(own, "execute", changed)
    with pytest.raises(InternalError, match="bits of y"):
        golden(audited, None, silent)


def test_what_cannot_be_shown_is_noted() -> None:
    text = "parts = SplitToSequence<axis = 0>(x) i = Constant<value_int = 1>() y = SequenceAt(parts, i)"
    best = golden(prepare(model(f"g (float[2] x) => (float[1] y) {{ {text} }}")), None, silent)
    assert best.values.keys() == {"i", "y"}
    assert best.notes == ("not compared, as they are no tensors: parts",)


def test_an_index_out_of_range_is_an_error() -> None:
    source = model("g (float[3] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }")
    audited = prepare(source, inputs={"x": np.ones(3, np.float32), "i": np.array([5])})
    with pytest.raises(ReproError, match="out of range"):
        golden(audited, None, silent)


def test_the_reference_is_not_run_above_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    audited = prepare(model(CHAIN), bind={"N": 1})
    reference = Executor("repro", (("target", "reference"),))
    peer = own_peer.Own()
    assert peer.run(audited.proto, audited.inputs, reference).keys() == {"y"}
    monkeypatch.setattr(own_peer, "REFERENCE_LIMIT", 10)
    with pytest.raises(PeerError) as caught:
        peer.run(audited.proto, audited.inputs, reference)
    assert caught.value.outcome is Outcome.SKIPPED
    assert caught.value.reason.startswith("cost: ")
    assert peer.run(audited.proto, audited.inputs, own_executors()[0]).keys() == {"y"}
