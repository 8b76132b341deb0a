"""Quantized models on integers as wholes: chains as ONNX Runtime computes them, bodies, artifacts, settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import repro
from repro import cli
from repro.errors import EXIT_USAGE, ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import Array, to_storage
from tests.frontend import disguises
from tests.frontend.models import GOLDEN, function, model, node, value
from tests.frontend.qdq import (
    F32,
    FLOAT,
    I8,
    INTEGER,
    MICROSOFT,
    ROOT,
    U8,
    Quantized,
    Scaled,
    Sketch,
    To,
    assert_scaled,
    bias_of,
    convolution,
    convolved,
    drawn,
    endings,
    full,
    multiplied,
    of,
    same,
)
from tests.frontend.running import by_onnxruntime, by_reference
from tests.running import run_on_cpu
from tests.targets.native import HERE

# ── whole models ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Chain:
    """A float image through Q, DQ, Conv, Relu, Q, DQ, Conv, Q, and DQ, GlobalAveragePool, Q."""

    sketch: Sketch
    image: Array
    outputs: tuple[str, str, str]
    wanted: tuple[Array, Array, Array]


def chain(bias: bool = True, seven_bits: bool = True) -> Chain:
    """Weights of 7 bits: of 8, pairs of products saturate in ONNX Runtime's code for AVX2."""
    random = np.random.default_rng(37)
    sketch = Sketch()
    image = (random.standard_normal((2, 3, 9, 8)) * 2).astype(F32)
    step = To(U8, F32(0.031), 117)
    now = sketch.quantized(sketch.given(image), step)
    x = Quantized(step.as_onnx(image), np.asarray(step.scale), of(U8, step.zero))
    wanted: list[Array] = []
    names: list[str] = []
    for number, (channels, floor, zero) in enumerate(((8, True, 0), (4, False, 131))):
        w = drawn(random, I8, (channels, x.stored.shape[1], 3, 3), 0)
        stored = random.integers(-64, 64, w.stored.shape).astype(I8) if seven_bits else w.stored
        w = replace(w, stored=stored, zero=np.zeros(channels, I8))
        attributes: dict[str, Any] = {"pads": [1, 1, 1, 1], "strides": [1 + number, 1]}
        integers = convolved(x.scaled.integers, w.scaled.integers, **full(attributes, 2))
        left = sketch.op("DequantizeLinear", now, sketch.fixed(x.scale), sketch.fixed(np.asarray(x.zero)))
        operands = [left, sketch.dequantized(w, fixed=True)]
        if bias:
            c = bias_of(random, x.scale * w.scale, channels)
            operands.append(sketch.dequantized(c, fixed=True))
            integers = integers + c.scaled.integers.reshape(-1, 1, 1)
        result = Scaled(integers, (x.scale * w.scale).reshape(-1, 1, 1))
        to = To(U8, F32(result.floats.max() / (220 if floor else 100)), zero)
        now = sketch.op("Conv", *operands, **attributes)
        now = sketch.quantized(sketch.op("Relu", now) if floor else now, to)
        stored = to.of(result, floor)
        x = Quantized(stored, np.asarray(to.scale), of(U8, to.zero))
        wanted.append(stored)
        names.append(now)
    left = sketch.op("DequantizeLinear", now, sketch.fixed(x.scale), sketch.fixed(np.asarray(x.zero)))
    total = x.scaled.integers.sum((2, 3), keepdims=True)
    part = Scaled(total, x.scale * F32(1 / np.prod(x.stored.shape[2:])))
    to = To(I8, F32(np.abs(part.floats).max() / 100), -5)
    names.append(sketch.quantized(sketch.op("GlobalAveragePool", left), to))
    wanted.append(to.of(part))
    for each in wanted:
        assert len(np.unique(each)) > 4
    return Chain(sketch, image, (names[0], names[1], names[2]), (wanted[0], wanted[1], wanted[2]))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seven_bits", [False, True])
def test_a_chain(bias: bool, seven_bits: bool) -> None:
    made = chain(bias, seven_bits)
    same(made.sketch.run(*made.outputs), made.wanted)
    for output, wanted in zip(made.outputs, made.wanted, strict=True):
        same(made.sketch.run(output), [wanted])


@pytest.mark.parametrize("bias", [False, True])
def test_a_chain_as_onnxruntime_computes_it(bias: bool) -> None:
    made = chain(bias)
    proto = made.sketch.proto(made.outputs[1])
    same(made.sketch.run(made.outputs[1]), by_onnxruntime(proto, made.sketch.feeds))


@pytest.mark.parametrize("kind", [U8, I8])
def test_a_product_as_onnxruntime_computes_it(kind: Any) -> None:
    random = np.random.default_rng(38)
    a, b = drawn(random, kind, (60, 64)), drawn(random, I8, (64, 50))
    b = replace(b, stored=random.integers(-64, 64, (64, 50)).astype(I8), zero=of(I8, 0))
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    output = sketch.quantized(
        product, To(kind, F32(np.abs(multiplied(a.scaled, b.scaled).floats).max() / 120), 3 if kind is I8 else 120)
    )
    found = sketch.run(output)
    assert len(np.unique(found[0])) > 100
    same(found, by_onnxruntime(sketch.proto(output), sketch.feeds))


def operator_form(op: str, x: Quantized, w: Quantized, to: To, bias: Quantized | None, **attributes: Any) -> Sketch:
    """The same numbers in the format QOperator; its last node is the output."""
    sketch = Sketch()
    sides: list[str] = []
    for side, fixed in ((x, False), (w, True)):
        assert side.zero is not None
        hold = sketch.fixed if fixed else sketch.given
        sides += [hold(side.stored), sketch.fixed(side.scale), sketch.fixed(side.zero)]
    sides += [sketch.fixed(np.asarray(to.scale)), sketch.fixed(of(to.kind, to.zero))]
    sketch.op(op, *sides, *([] if bias is None else [sketch.fixed(bias.stored)]), **attributes)
    return sketch


@pytest.mark.parametrize("setting", [FLOAT, INTEGER])
@pytest.mark.parametrize("op", ["QLinearMatMul", "QLinearConv", "QLinearConv with a bias"])
def test_the_format_qoperator_has_the_same_bits(op: str, setting: str) -> None:
    random = np.random.default_rng(39)
    convolves = op != "QLinearMatMul"
    x = drawn(random, U8, (2, 4, 9, 8) if convolves else (30, 37))
    w = drawn(random, I8, (20, 4, 3, 3), 0) if convolves else drawn(random, I8, (37, 20))
    c = bias_of(random, x.scale * w.scale, 20) if op.endswith("bias") else None
    attributes: dict[str, Any] = {"pads": [1, 0, 2, 1], "strides": [2, 1]} if convolves else {}
    to = To(U8, F32(2.3 if convolves else 1.3), 117)
    sketch = Sketch()
    operands = [sketch.dequantized(x), sketch.dequantized(w, fixed=True)]
    operands += [] if c is None else [sketch.dequantized(c, fixed=True)]
    output = sketch.quantized(sketch.op("Conv" if convolves else "MatMul", *operands, **attributes), to)
    other = operator_form(op.split()[0], x, w, to, c, **attributes)
    found = sketch.run(output)
    assert len(np.unique(found[0])) > 100
    same(found, other.run(other.nodes[-1].output[0], qdq=setting))


@pytest.mark.parametrize("setting", [FLOAT, INTEGER])
def test_operators_of_onnxruntime_have_the_same_bits(setting: str) -> None:
    random = np.random.default_rng(40)
    x, to = drawn(random, U8, (3, 40, 9, 7)), To(U8, F32(0.0007), 117)
    assert x.zero is not None
    sketch = Sketch()
    plain = sketch.quantized(sketch.op("GlobalAveragePool", sketch.dequantized(x)), to)
    scales = [sketch.fixed(each) for each in (x.scale, x.zero, np.asarray(to.scale), of(U8, to.zero))]
    operands = [next(iter(sketch.feeds)), *scales]
    pooled = sketch.op("QLinearGlobalAveragePool", *operands, domain=MICROSOFT, channels_last=0)
    same(sketch.run(plain), sketch.run(pooled, qdq=setting))
    for op in ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"):
        more: dict[str, Any] = {"opset": 13} if op == "QLinearSoftmax" else {}
        name = sketch.op(op, *operands, domain=MICROSOFT, **more)
        same(sketch.run(name, qdq=setting), sketch.run(name, qdq=FLOAT))


def _body(sketch: Sketch, row: str, x: Quantized, w: Quantized, outside: bool) -> list[onnx.NodeProto]:
    """The nodes of a body that multiplies a row; the weights are dequantized inside, or outside of it."""
    assert x.zero is not None and w.zero is not None
    scale, zero, *weights = (sketch.fixed(each) for each in (x.scale, x.zero, w.stored, w.scale, w.zero))
    right = sketch.op("DequantizeLinear", *weights) if outside else "right"
    inside = [] if outside else [node("DequantizeLinear", " ".join(weights), "right")]
    left = node("DequantizeLinear", f"{row} {scale} {zero}", "left")
    return [left, *inside, node("MatMul", f"left {right}", "product")]


@pytest.mark.parametrize("outside", [False, True])
def test_in_the_body_of_a_scan(outside: bool) -> None:
    """A body does not see that a value was dequantized outside of it."""
    random = np.random.default_rng(41)
    rows, w, sketch = drawn(random, U8, (4, 1, 37)), drawn(random, I8, (37, 20)), Sketch()
    nodes = _body(sketch, "row", rows, w, outside)
    body = helper.make_graph(nodes, "body", [value("row", (1, 37), TensorProto.UINT8)], [value("product", (1, 20))])
    output = sketch.op("Scan", sketch.given(rows.stored), body=body, num_scan_inputs=1)
    on_integers = multiplied(rows.scaled, replace(w.scaled, scale=w.scale.reshape(1, 1, 1))).floats
    same(sketch.run(output), sketch.run(output, qdq=FLOAT) if outside else [on_integers])


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("taken", [False, True])
def test_in_the_branches_of_an_if(outside: bool, taken: bool) -> None:
    random = np.random.default_rng(52)
    x, w, sketch = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6)), Sketch()
    nodes = _body(sketch, sketch.given(x.stored), x, w, outside)
    one = helper.make_graph(nodes, "one", [], [value("product", (5, 6))])
    other = helper.make_graph([*nodes, node("Neg", "product", "minus")], "other", [], [value("minus", (5, 6))])
    output = sketch.op("If", sketch.given(of(np.bool_, taken)), then_branch=one, else_branch=other)
    wanted = multiplied(x.scaled, w.scaled).floats
    same(sketch.run(output), sketch.run(output, qdq=FLOAT) if outside else [wanted if taken else -wanted])


def test_in_a_local_function() -> None:
    random = np.random.default_rng(42)
    a, b = drawn(random, U8, (5, 37)), drawn(random, I8, (37, 6))
    nodes = [
        node("DequantizeLinear", "q s z", "left"),
        node("MatMul", "left w", "product"),
    ]
    sketch = Sketch()
    assert a.zero is not None
    operands = [sketch.given(a.stored), sketch.fixed(a.scale), sketch.fixed(a.zero), sketch.dequantized(b, fixed=True)]
    name = sketch.op("product", *operands, domain="local")
    proto = sketch.proto(name)
    proto.functions.append(function("product", "q s z w", "product", nodes))
    proto.opset_import.append(helper.make_opsetid("local", 1))
    found = by_reference(import_model(load_model(proto), qdq=INTEGER), sketch.feeds)
    same(found, [multiplied(a.scaled, b.scaled).floats])


GENTLY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)


@GENTLY
@given(
    seed=st.integers(0, 2**32),
    left=st.sampled_from([U8, I8]),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 40), st.integers(1, 6)),
    axis=st.sampled_from([None, 0, 1]),
    column=st.sampled_from([None, 2]),
    bias=st.booleans(),
)
def test_any_product(seed: int, left: Any, sizes: Any, axis: Any, column: Any, bias: bool) -> None:
    random, (batch, rows, count, columns) = np.random.default_rng(seed), sizes
    a, b = drawn(random, left, (batch, rows, count), axis), drawn(random, I8, (batch, count, columns), column)
    wanted, sketch = multiplied(a.scaled, b.scaled), Sketch()
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    if bias and axis is None:
        c = bias_of(random, a.scale * b.scale, columns)
        name = sketch.op("Add", name, sketch.dequantized(c, fixed=True))
        wanted = replace(wanted, integers=wanted.integers + c.scaled.integers)
    assert_scaled(sketch, name, wanted)


@GENTLY
@given(
    seed=st.integers(0, 2**32),
    left=st.sampled_from([U8, I8]),
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(4, 8), st.integers(4, 8)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    group=st.integers(1, 3),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    axis=st.sampled_from([None, 0]),
    bias=st.booleans(),
)
def test_any_convolution(
    seed: int, left: Any, shape: Any, kernel: Any, group: int, strides: Any, pads: Any, axis: Any, bias: bool
) -> None:
    attributes = {"group": group, "strides": list(strides), "pads": list(pads)}
    given_shape = (shape[0], shape[1] * group, *shape[2:])
    taps = (kernel[0] * group, shape[1], *kernel[1:])
    sketch, random = Sketch(), np.random.default_rng(seed)
    assert_scaled(sketch, *convolution(random, sketch, left, given_shape, taps, attributes, axis, bias))


WRONG: dict[str, Callable[[Array, Any, Any, To], Array]] = {
    "scales one by one": lambda p, a, b, to: np.rint(((p * a) * b) / to.scale),
    "the value divided": lambda p, a, b, to: np.rint((p * (a * b)) / to.scale),
    "the scales in another order": lambda p, a, b, to: np.rint(p * (a * (b / to.scale))),
    "a reciprocal": lambda p, a, b, to: np.rint(p * ((a * b) * (F32(1) / to.scale))),
    "scales in f64": lambda p, a, b, to: np.rint(p * F32(np.float64(a) * b / to.scale)),
    "ties away from zero": lambda p, a, b, to: np.copysign(np.floor(np.abs(p * (a * b / to.scale)) + F32(0.5)), p),
    "truncated": lambda p, a, b, to: np.trunc(p * (a * b / to.scale)),
}  # fmt: skip


def test_other_orders_of_rounding_would_be_seen() -> None:
    """Each wrong formula gives other bytes than the contract's somewhere in the endings of a product."""
    random = np.random.default_rng(43)
    a, b = drawn(random, U8, (60, 37)), drawn(random, I8, (37, 50))
    wanted = multiplied(a.scaled, b.scaled)
    p, left, right = wanted.integers.astype(F32), a.scale[()], b.scale[()]
    assert ((p * left) * right).tobytes() != wanted.floats.tobytes()
    seen = {
        name: [
            to for to in endings(wanted) if not np.array_equal(to.saturated(wrong(p, left, right, to)), to.of(wanted))
        ]
        for name, wrong in WRONG.items()
    }
    assert all(seen.values()), seen
    sketch = Sketch()
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    assert_scaled(sketch, name, wanted)
    (plain,) = sketch.run(name, qdq=FLOAT)
    assert plain.tobytes() != wanted.floats.tobytes()


# ── graphs ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", GOLDEN)
def test_a_model_without_dequantize_linear_is_the_same_graph(name: str) -> None:
    path, bind = GOLDEN[name]
    one, other = (import_model(load_model(ROOT / path), bind=bind, qdq=qdq) for qdq in (FLOAT, INTEGER))
    assert one.graph.digest == other.graph.digest
    assert one.graph.digest == import_model(load_model(ROOT / path), bind=bind).graph.digest


@pytest.mark.parametrize("disguise", disguises.ALL, ids=lambda disguise: disguise.__name__)
def test_names_and_order_change_no_digest(disguise: disguises.Disguise) -> None:
    made = chain()
    proto = made.sketch.proto(*made.outputs)
    digests = {import_model(load_model(proto), qdq=INTEGER).graph.digest for _ in range(2)}
    assert import_model(load_model(proto)).graph.digest not in digests
    for seed in range(3):
        changed = onnx.ModelProto()
        changed.CopyFrom(proto)
        disguise(changed, Random(seed))
        digests.add(import_model(load_model(changed), qdq=INTEGER).graph.digest)
    assert len(digests) == 1


def test_compiled_code_has_the_same_bits() -> None:
    made = chain()
    found = made.sketch.imported(*made.outputs)
    parameters = [slot.initial for slot in found.parameters]
    inputs = [to_storage(made.image, found.inputs[0].type.dtype)]
    for machine in HERE:
        for threads in (1, 2):
            same(run_on_cpu(found.graph, inputs, parameters, machine, threads), made.wanted)


# ── artifacts ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> repro.LoadedArtifact:
    made = chain()
    return repro.build(
        made.sketch.proto(*made.outputs),
        tmp_path_factory.mktemp("built") / "out",
        targets=[machine.name for machine in HERE],
        inputs=made.sketch.feeds,
        qdq=INTEGER,
    )


def test_an_artifact_keeps_the_setting(built: repro.LoadedArtifact, tmp_path: Path) -> None:
    assert built.config.build.qdq == INTEGER
    assert repro.load(built.folder).config.build.qdq == INTEGER
    assert not any("--qdq" in text for text in built.warnings)
    made = chain()
    proto = made.sketch.proto(*made.outputs)
    plain = repro.build(proto, tmp_path / "plain", targets=HERE[0].name, inputs=made.sketch.feeds)
    assert plain.config.build.qdq == FLOAT
    assert any("--qdq integer" in text for text in plain.warnings)
    assert plain.id != built.id
    assert plain.graph_digest != built.graph_digest


def test_an_artifact_has_the_evaluated_bits(built: repro.LoadedArtifact) -> None:
    made = chain()
    assert HERE
    for target in ("reference", *(machine.name for machine in HERE)):
        for threads in (1, 2):
            with built.session(target=target, threads=threads) as session:
                outputs = session.run(made.sketch.feeds)
            same([outputs[name] for name in made.outputs], made.wanted)


def test_an_artifact_verifies(built: repro.LoadedArtifact) -> None:
    report = repro.verify(built.folder, targets=["reference", *(machine.name for machine in HERE)])
    assert report.exit_code == 0, report.summary
    ran = {check.name for check in report.checks if check.status.value == "good"}
    assert "rebuild" in ran
    assert all(any(name.startswith(f"run {machine.name}") for name in ran) for machine in HERE)


def test_a_float_model_gets_no_hint(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [value("x")])
    assert repro.build(proto, tmp_path / "out", targets=HERE[0].name).warnings == ()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = drawn(np.random.default_rng(44), U8, (2, 3)), drawn(np.random.default_rng(45), I8, (3, 2))
    sketch = Sketch()
    name = sketch.op("MatMul", sketch.dequantized(a), sketch.dequantized(b, fixed=True))
    onnx.save(sketch.proto(name), tmp_path / "m.onnx")
    words = ["build", str(tmp_path / "m.onnx"), "--targets", HERE[0].name]
    assert cli.main([*words, "--qdq", INTEGER, "-o", str(tmp_path / "one")]) == 0
    assert "--qdq" not in "".join(capsys.readouterr())
    assert cli.main([*words, "-o", str(tmp_path / "two")]) == 0
    assert "--qdq integer" in "".join(capsys.readouterr())
    assert [repro.load(tmp_path / each).config.build.qdq for each in ("one", "two")] == [INTEGER, FLOAT]
    assert cli.main([*words, "--qdq", "nonsense", "-o", str(tmp_path / "three")]) == EXIT_USAGE
    assert "nonsense" in "".join(capsys.readouterr())


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("qdq", ["nonsense", "", "Integer"])
def test_a_setting_that_is_none(qdq: str, tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [value("x")])
    with pytest.raises(ReproError) as caught:
        repro.build(proto, tmp_path / "out", qdq=qdq)
    assert caught.value.exit_code == EXIT_USAGE
    text = str(caught.value)
    assert "qdq" in text and qdq in text and FLOAT in text and INTEGER in text
    assert not (tmp_path / "out").exists()


def test_a_training_step_is_refused(tmp_path: Path) -> None:
    made = chain()
    proto = made.sketch.proto(made.outputs[1])
    with pytest.raises(ReproError) as caught:
        repro.build(proto, tmp_path / "out", qdq=INTEGER, loss="mse", optimizer="sgd", learning_rate=0.1)
    assert caught.value.exit_code == EXIT_USAGE
    text = str(caught.value)
    assert "qdq" in text and INTEGER in text and "train" in text
    assert not (tmp_path / "out").exists()
