"""Trained models that ship inside wheels (text detection and orientation, speech, file types): repro's targets agree
in every value, other runtimes do not, and what is found is the same again."""

from __future__ import annotations

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

import repro
from repro.audit.records import Kind, Outcome

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "orientation": (
        "rapidocr-onnxruntime",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"bind": {"x[0]": 1, "x[2]": 48, "x[3]": 192}},
    ),
    "detection": (
        "rapidocr-onnxruntime",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        {"bind": {"x[0]": 1, "x[2]": 64, "x[3]": 64}},
    ),
    "speech": (
        "silero-vad",
        "silero_vad/data/silero_vad.onnx",
        {"bind": {"input[0]": 1, "input[1]": 576, "state[1]": 1}, "set": {"sr": 16000}},
    ),
    "file types": ("magika", "magika/models/standard_v3_3/model.onnx", {"bind": {"bytes[0]": 1}}),
}
FEW = ("onnxruntime[level=disable,threads=1]", "onnxruntime[level=all,threads=1]")


def path_of(name: str) -> Path:
    """The model's file; its package is never imported. A missing one is a failure: `make setup` installs them."""
    package, inside, _ = MODELS[name]
    return Path(str(distribution(package).locate_file(inside)))


def found(name: str, against: tuple[str, ...] | None = FEW) -> Any:
    return repro.audit_model(path_of(name), against=against, **MODELS[name][2])


def said(findings: Any) -> dict[str, Any]:
    """The findings; machines aside, whose free memory, say, may change."""
    return {name: value for name, value in json.loads(findings.json()).items() if name != "machines"}


def check(findings: Any) -> None:
    (record,) = findings.audit.records
    own = [capture for capture in record.captures if capture.executor.family == "repro"]
    assert {capture.outcome for capture in own} <= {Outcome.RAN, Outcome.SKIPPED}
    assert sum(capture.ran for capture in own) >= 2, "each cpu target of this host, on one thread and on two"
    for capture in own:
        if capture.ran:
            assert dict(capture.values) == {name: record.golden.values[name] for name in capture.values}
            assert set(capture.values) >= set(record.model.outputs)
    assert findings.exit_code == 0


@pytest.mark.parametrize(
    "name", ["speech", *(pytest.param(n, marks=pytest.mark.full) for n in ("orientation", "file types"))]
)
def test_own_targets_agree_and_a_runtime_drifts(name: str) -> None:
    findings = found(name)
    check(findings)
    golden = [pair for pair in findings.audit.pairs if pair.left == "golden" and pair.right.startswith("onnxruntime")]
    assert len(golden) == 2
    for pair in golden:
        assert pair.compared > 10
        assert pair.origins, "nothing that this runtime computes here is repro's to the bit"
        assert {origin.kind for origin in pair.origins} <= {Kind.NODE, Kind.FUSED}


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_the_whole_audit_says_the_same_again(name: str) -> None:
    first, second = found(name, None), found(name, None)
    check(first)
    assert said(first) == said(second)
