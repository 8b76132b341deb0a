"""Audits of quantized models: on integers, between integers and integers, with the bits of runtimes that compute so."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import repro
from repro.audit import comparison
from repro.audit.golden import best_executor
from repro.audit.model import note_qdq, prepare, qdq_of_prepared
from repro.audit.parts import Part
from repro.errors import ReproError
from repro.ir.types import F32
from tests.frontend.qdq import FLOAT, INTEGER, U8, Quantized, Sketch, To, of

FUSED, PLAIN = "onnxruntime[level=all,threads=1]", "onnxruntime[level=disable,threads=1]"


@pytest.fixture(scope="module")
def sketch() -> Sketch:
    """A float image through QuantizeLinear, Conv, Relu and Conv to bytes and back. Of sums by a power of two of their
    scale, many lie halfway between two bytes, where floats that are a little off are rounded to the other one."""
    random, made, channels = np.random.default_rng(5), Sketch(opset=17), (3, 8, 4)
    scale, zero = np.float32(0.031), 117
    now = made.quantized(made.given(random.standard_normal((2, 3, 12, 10)).astype(np.float32)), To(U8, scale, zero))
    for before, after in itertools.pairwise(channels):
        stored = random.integers(-64, 64, (after, before, 3, 3)).astype(np.int8)
        weights = Quantized(stored, np.asarray(0.013, np.float32), None, 0)
        left = made.op("DequantizeLinear", now, made.fixed(np.asarray(scale)), made.fixed(of(U8, zero)))
        now = made.op("Relu", made.op("Conv", left, made.dequantized(weights, fixed=True), pads=[1, 1, 1, 1]))
        scale, zero = np.float32(scale * weights.scale * np.float32(128)), 0
        now = made.quantized(now, To(U8, scale, zero))
    made.op("DequantizeLinear", now, made.fixed(np.asarray(scale)), made.fixed(of(U8, zero)))
    return made


def audited(sketch: Sketch, qdq: str, *against: str) -> Any:
    proto = sketch.proto(sketch.nodes[-1].output[0])
    proto.metadata_props.add(key="repro.qdq", value=INTEGER)  # what a file says of it is not asked for
    return repro.audit_model(proto, qdq=qdq, inputs=sketch.feeds, against=against)


@pytest.fixture(scope="module")
def on_integers(sketch: Sketch) -> Any:
    return audited(sketch, INTEGER, FUSED, PLAIN, best_executor().name)


def with_our_bits(findings: Any) -> set[str]:
    return {name for group in findings.audit.groups if comparison.GOLDEN in group for name in group}


def test_onnxruntimes_optimizer_has_our_bits_and_its_floats_have_others(on_integers: Any) -> None:
    assert on_integers.exit_code == 0, "repro's own targets agree"
    assert {FUSED, PLAIN} & with_our_bits(on_integers) == {FUSED}
    origins = {row.operators for row in on_integers.view.origins}
    assert all(operators[-1] == "QuantizeLinear" for operators in origins)
    assert origins


def test_a_part_is_computed_as_its_model() -> None:
    """The small models of --reduce, which are audited as the whole one is, and run by scripts."""
    frame = onnx.ModelProto(ir_version=9, opset_import=[helper.make_opsetid("", 17)])
    note_qdq(frame, INTEGER)
    relu = helper.make_node("Relu", ["x"], ["y"], name="relu")
    part = Part((relu,), {"x": np.zeros(2, np.float32)}, {}, {"y": F32}, frame)
    assert qdq_of_prepared(part.proto()) == INTEGER
    audited = prepare(part.proto(), inputs=part.inputs, qdq=qdq_of_prepared(part.frame))
    assert qdq_of_prepared(audited.proto) == INTEGER


@pytest.mark.full
def test_in_floats_its_optimizer_has_others(sketch: Sketch) -> None:
    assert FUSED not in with_our_bits(audited(sketch, FLOAT, FUSED))


def test_values_that_integers_do_not_have_are_not_compared(sketch: Sketch, on_integers: Any) -> None:
    (record,) = on_integers.audit.records
    kinds = {name: value.type for name, value in record.golden.values.items()}
    output = sketch.nodes[-1].output[0]
    assert sorted(kind[:2] for name, kind in kinds.items() if name != output) == ["u8"] * 3


def test_an_artifact_is_audited_as_it_was_built(sketch: Sketch, tmp_path: Path) -> None:
    proto = sketch.proto(sketch.nodes[-1].output[0])
    repro.build(proto, tmp_path / "a", inputs=sketch.feeds, qdq=INTEGER)
    findings = repro.audit_model(tmp_path / "a", against=FUSED)
    assert FUSED in with_our_bits(findings)
    with pytest.raises(ReproError, match="an artifact computes as it was built"):
        repro.audit_model(tmp_path / "a", against=FUSED, qdq=FLOAT)


def test_a_training_run_has_no_integers(sketch: Sketch) -> None:
    with pytest.raises(ReproError, match="--qdq integer does not go with a training run"):
        repro.audit_model(sketch.proto(sketch.nodes[-1].output[0]), steps=1, loss="mse", qdq=INTEGER)
