"""What one executor is asked for: served, opened, fed; what it could not show; what is no drift."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from repro.audit import peers
from repro.audit.capture import capture_of, key, load_arrays, store_arrays, value_of, with_arrays
from repro.audit.golden import golden
from repro.audit.model import Audited, prepare
from repro.audit.records import Capture, Executor
from repro.audit.worker import ARRAYS, CAPTURE, UNSTABLE, Job, work
from tests.audit.models import CHAIN, UNDECIDED, model
from tests.audit.troublesome import PEERS

CONSTANT = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { c = Exp(w) d = Neg(c) y = Mul(x, d) }"
NOT_A_NUMBER = "g (float[3] x) => (float[3] y) { n = Sqrt(x) y = Abs(n) }"


@cache
def prepared(text: str) -> tuple[Audited, Capture]:
    """A model and its golden values."""
    audited = prepare(model(text), bind={"N": 5} if "[N," in text else {})
    return audited, golden(audited, None, lambda *_: None)


def run(family: str, folder: Path, text: str = CHAIN, executor: Executor | None = None) -> Capture:
    """The capture of a planted peer, its arrays among golden's or kept."""
    audited, best = prepared(text)
    arrays = {key(value): best.arrays[name] for name, value in best.fed.items()}
    arrays |= {key(value_of(array)): array for array in audited.inputs.values()}
    store_arrays(folder / "golden", arrays)
    job = Job(
        model=audited.proto,
        inputs=audited.inputs,
        golden=dict(best.fed),
        arrays=folder / "golden",
        executor=executor or Executor(family),
        peers={**peers.PEERS, **PEERS},
        keep=True,
        memory=None,
        cache=None,
    )
    work(job, folder)
    capture = capture_of(json.loads((folder / CAPTURE).read_bytes()))
    kept = load_arrays(folder / ARRAYS) if capture.ran else {}
    assert not kept.keys() & arrays.keys(), "what golden has is not written again"
    return with_arrays(capture, {**arrays, **kept})


def different(capture: Capture, text: str = CHAIN) -> tuple[set[str], set[str]]:
    """The values that are not golden's: in the run, and fed."""
    best = prepared(text)[1]
    assert capture.values
    return (
        {name for name, value in capture.values.items() if value != best.values[name]},
        {name for name, value in capture.fed.items() if value != best.fed[name]},
    )


@pytest.mark.parametrize("text", [CHAIN, UNDECIDED, CONSTANT], ids=["chain", "bodies", "constant"])
def test_who_computes_the_same_has_golden_values(text: str, tmp_path: Path) -> None:
    capture = run("plain", tmp_path, text)
    best = prepared(text)[1]
    assert capture.ran
    assert capture.faithful
    assert not capture.notes
    assert dict(capture.served) == dict(best.served)
    assert dict(capture.values) == dict(capture.fed) == dict(best.values)
    assert {name: value_of(array) for name, array in capture.arrays.items()} == dict(capture.values)
    assert capture.environment["versions"] == {"plain": "1.0"}


def test_drift_runs_on_but_fed_it_stays_where_it_begins(tmp_path: Path) -> None:
    capture = run("off", tmp_path)
    assert different(capture) == ({"h", "biased", "e", "y"}, {"h"})
    best = prepared(CHAIN)[1]
    np.testing.assert_array_equal(capture.arrays["h"], best.arrays["h"] + np.float32(2**-20))
    np.testing.assert_array_equal(capture.fed_arrays["h"], capture.arrays["h"])


def test_values_that_fusion_took_away_are_not_there(tmp_path: Path) -> None:
    capture = run("fusing", tmp_path)
    assert capture.values.keys() == {"biased", "e", "y"} == capture.fed.keys()
    assert "y" not in different(capture)[1]


def test_what_was_folded_is_shown_and_its_readers_are_fed_golden_bits(tmp_path: Path) -> None:
    capture = run("folding", tmp_path, CONSTANT)
    assert different(capture, CONSTANT) == ({"c", "d", "y"}, set())
    np.testing.assert_array_equal(capture.arrays["c"], np.array([3, 8], np.float32))
    assert capture.fed.keys() == {"d", "y"}


def test_showing_values_may_change_the_outputs(tmp_path: Path) -> None:
    capture = run("unfaithful", tmp_path)
    assert not capture.faithful
    assert dict(capture.served) == dict(prepared(CHAIN)[1].served)
    assert value_of(capture.arrays["y"]) == capture.served["y"]
    assert not any(UNSTABLE in note for note in capture.notes)


def test_a_run_that_is_another_each_time_is_noted(tmp_path: Path) -> None:
    capture = run("unstable", tmp_path)
    assert any(note.startswith(UNSTABLE) and "y" in note for note in capture.notes)


def test_other_types_are_kept_and_what_is_no_tensor_is_noted(tmp_path: Path) -> None:
    capture = run("strange", tmp_path)
    assert capture.values["h"].type == "f64[5,3]"
    assert capture.arrays["h"].dtype == np.float64
    assert capture.notes == ("not compared, as they are no tensors: text",)
    assert {"pair[0]", "pair[1]"} <= capture.served.keys()
    assert "biased" not in different(capture)[1], "what reads h is not fed a golden value of another type"


def test_the_payload_of_a_nan_is_no_drift(tmp_path: Path) -> None:
    assert np.isnan(prepared(NOT_A_NUMBER)[1].arrays["y"]).any()
    assert different(run("payload", tmp_path, NOT_A_NUMBER), NOT_A_NUMBER) == (set(), set())


def test_who_shows_only_outputs_still_has_them(tmp_path: Path) -> None:
    capture = run("closed", tmp_path)
    assert capture.ran
    assert dict(capture.served) == dict(prepared(CHAIN)[1].served)
    assert not capture.values
    assert capture.faithful, "nothing was shown, so nothing was changed by it"
    assert capture.notes == ("its values cannot be shown: no such outputs",)


@pytest.mark.parametrize("family", ["onnxruntime", "onnx-reference"])
def test_real_runtimes_add_as_everybody_does(family: str, tmp_path: Path) -> None:
    """A sum of two is one rounding, so no runtime drifts there by itself, whatever it did before."""
    best = prepared(CHAIN)[1]
    capture = run(family, tmp_path, executor=peers.peer(family).variants()[0])
    assert capture.ran, capture.reason
    assert capture.faithful
    assert capture.values.keys() == {"h", "biased", "e", "y"} == capture.fed.keys()
    assert capture.fed["biased"] == best.fed["biased"]


def test_the_models_weights_are_not_values() -> None:
    audited, best = prepared(CHAIN)
    assert not best.values.keys() & {item.name for item in audited.proto.graph.initializer}
    assert numpy_helper.to_array(audited.proto.graph.initializer[0]).size == 3
