"""The graph digest knows the meaning of a model and nothing else (hypothesis, over all golden models)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro.frontend import Imported, import_model, load_model
from tests.frontend import disguises
from tests.frontend.models import GOLDEN, model, node, value

ROOT = Path(__file__).resolve().parents[2]
GENTLY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)


@cache
def _content(name: str) -> bytes:
    return (ROOT / GOLDEN[name][0]).read_bytes()


@cache
def _imported(name: str) -> Imported:
    return import_model(load_model(_content(name)), bind=GOLDEN[name][1])


def _disguised(name: str, chosen: list[disguises.Disguise], seed: int) -> onnx.ModelProto:
    proto = onnx.load_model_from_string(_content(name))
    random = Random(seed)
    for disguise in chosen:
        disguise(proto, random)
    return proto


def assert_same(name: str, changed: Imported) -> None:
    """The same graph, and the same initial value in every parameter slot."""
    original = _imported(name)
    assert changed.graph.digest == original.graph.digest
    assert len(changed.parameters) == len(original.parameters) > 0
    for left, right in zip(changed.parameters, original.parameters, strict=True):
        assert (left.type, left.trainable) == (right.type, right.trainable)
        assert left.initial.tobytes() == right.initial.tobytes()
    assert [port.type for port in changed.inputs] == [port.type for port in original.inputs]


@pytest.mark.parametrize("disguise", disguises.ALL, ids=lambda disguise: disguise.__name__)
@pytest.mark.parametrize("name", GOLDEN)
def test_each_disguise_alone(name: str, disguise: disguises.Disguise) -> None:
    proto = _disguised(name, [disguise], seed=1)
    assert_same(name, import_model(load_model(proto), bind=GOLDEN[name][1]))


@pytest.mark.parametrize("name", GOLDEN)
@GENTLY
@given(chosen=st.permutations(disguises.ALL), count=st.integers(2, len(disguises.ALL)), seed=st.integers(0, 1 << 32))
def test_disguises_together(name: str, chosen: list[disguises.Disguise], count: int, seed: int) -> None:
    proto = _disguised(name, chosen[:count], seed)
    assert_same(name, import_model(load_model(proto), bind=GOLDEN[name][1]))


@pytest.mark.parametrize("name", GOLDEN)
def test_external_for_inline_data(name: str, tmp_path: Path) -> None:
    proto = onnx.load_model_from_string(_content(name))
    onnx.save_model(proto, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size > 0
    assert_same(name, import_model(load_model(tmp_path / "m.onnx"), bind=GOLDEN[name][1]))


@pytest.mark.parametrize("name", GOLDEN)
def test_two_imports_agree(name: str) -> None:
    assert_same(name, import_model(load_model(_content(name)), bind=GOLDEN[name][1]))


def test_initial_values_are_no_part_of_the_graph() -> None:
    """Values of parameters stand outside the digest; the artifact id is what changes with them."""
    proto = onnx.load_model_from_string(_content("digits_mlp"))
    raw = bytearray(proto.graph.initializer[0].raw_data)
    raw[0] ^= 1
    proto.graph.initializer[0].raw_data = bytes(raw)
    changed = import_model(load_model(proto), bind={"N": 4})
    assert changed.graph.digest == _imported("digits_mlp").graph.digest
    slots = zip(changed.parameters, _imported("digits_mlp").parameters, strict=True)
    assert sum(left.initial.tobytes() != right.initial.tobytes() for left, right in slots) == 1


# ── what has to change the digest ───────────────────────────────────────────────────────────────────


def _digest(proto: onnx.ModelProto, **options: object) -> bytes:
    return import_model(load_model(proto), **options).graph.digest  # type: ignore[arg-type]


def _gemm(inputs: str = "x w", **attributes: Any) -> onnx.ModelProto:
    weights = {"w": np.ones((3, 3), np.float32)}
    return model([node("Gemm", inputs, "y", **attributes)], [value("x", (3, 3))], initializers=weights)


def test_an_attribute_changes_the_digest() -> None:
    assert len({_digest(_gemm()), _digest(_gemm(transA=1)), _digest(_gemm(alpha=0.5)), _digest(_gemm(transB=1))}) == 4
    assert _digest(_gemm(alpha=1.0, transA=0)) == _digest(_gemm())


def test_the_order_of_operands_changes_the_digest() -> None:
    assert _digest(_gemm("x w")) != _digest(_gemm("w x"))


def test_a_dimension_changes_the_digest() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", ("N", 3))])
    assert _digest(proto, bind={"N": 2}) != _digest(proto, bind={"N": 3})


def test_equal_initializers_stay_two_parameters() -> None:
    """Two tensors that start with equal values are two parameters, and the graph says which stands where."""
    ones = np.ones((3, 3), np.float32)
    proto = model(
        [node("MatMul", "x a", "h"), node("MatMul", "h b", "y")],
        [value("x", (3, 3))],
        initializers={"a": ones, "b": ones},
    )
    shared = model(
        [node("MatMul", "x a", "h"), node("MatMul", "h a", "y")], [value("x", (3, 3))], initializers={"a": ones}
    )
    imported = import_model(load_model(proto))
    assert len(imported.parameters) == 2
    assert imported.graph.digest != _digest(shared)
