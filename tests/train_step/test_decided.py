"""No initial value of a trained parameter decides about the graph, and no gradient lacks a part."""

from __future__ import annotations

import shlex
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from repro.artifact.build import Request, imported_entries
from repro.audit.training import prepare
from repro.audit.unrolled import entries_of
from repro.errors import ReproError
from repro.frontend import Imported, import_model, load_model
from repro.frontend.folding import frozen
from repro.ops.record import evaluate
from repro.train_step import TrainOptions, read_for_training, train_step
from repro.train_step.losses import MeanSquaredError
from tests.train_step.running import model
from tests.train_step.test_assemble import run

HEAD = '<ir_version: 9, opset_import: ["" : 20]>\n'
W = "<float[3] w = {0.5, 0.7, 0.9}, float[3] v = {1, 2, 3}, float two = {2}>"


def parsed(body: str) -> ModelProto:
    return onnx.parser.parse_model(f"{HEAD}g (float[2, 3] x) => (float[2, 3] y) {W}\n{{{body}}}")


def read(proto: ModelProto, **options: Any) -> Imported:
    return read_for_training(
        lambda changing: import_model(load_model(proto), changing=changing), TrainOptions(MeanSquaredError(), **options)
    )


BRANCHES = """
    s = ReduceSum <keepdims: int = 0> (w)
    more = Greater (s, two)
    r = If (more) <
        then_branch: graph = t () => (float[2, 3] t) { t = Mul (x, w) },
        else_branch: graph = e () => (float[2, 3] e) { e = Sub (x, w) }
    >
"""
BRANCH = parsed(f"{BRANCHES} y = Identity (r)")
"""Multiplies at first (0.5 + 0.7 + 0.9 > 2), and subtracts once a step has made the sum smaller."""


def test_a_branch_follows_the_parameter_that_decides_it() -> None:
    imported = read(BRANCH)
    step = train_step(imported, TrainOptions(MeanSquaredError(), learning_rate=0.5))
    x, labels = np.full((2, 3), 2, np.float32), np.zeros((2, 3), np.float32)
    _, state = run(step, x, labels)
    w = state["w"]
    assert w.sum() < 2
    initial = {slot.name: slot.initial for slot in imported.parameters}
    for value, wanted in ((initial["w"], x * initial["w"]), (w, x - w)):
        (found,) = evaluate(imported.graph, [x], list((initial | {"w": value}).values()))
        np.testing.assert_array_equal(found, wanted)
    _, after = run(step, x, labels, state=state)
    slope = -2 * (x - w).sum(0) / 6
    np.testing.assert_allclose(after["w"], w - np.float32(0.5) * slope, rtol=1e-6)


def test_all_entries_of_a_build_have_the_branch() -> None:
    options = TrainOptions(MeanSquaredError())
    request = Request(load_model(BRANCH), {}, {}, (), None, 0, 0, training=options, gradients=True)
    _, entries = imported_entries(request)
    assert [entry.name for entry in entries] == ["infer", "gradients", "train_step"]
    assert all("branch" in {node.op for node in entry.graph.nodes} for entry in entries)


def test_an_audit_of_the_training_has_the_branch() -> None:
    audited = prepare(load_model(BRANCH), TrainOptions(MeanSquaredError()), 2)
    entry, slopes = entries_of(audited.proto)
    assert slopes is not None
    assert all("branch" in {node.op for node in each.graph.nodes} for each in (entry, slopes))
    with pytest.raises(ReproError, match="depends on data"):
        prepare(load_model(PICKED), TrainOptions(MeanSquaredError()), 2)


def test_a_parameter_that_is_not_trained_decides() -> None:
    proto = parsed(f"{BRANCHES} y = Add (r, v)")
    ops = [{node.op for node in read(proto, frozen=frozen).graph.nodes} for frozen in ((), ("w",))]
    assert ["branch" in each for each in ops] == [True, False]


PICKED = parsed("""
    big = Greater (w, two)
    kept = Compress (w, big)
    s = ReduceSum <keepdims: int = 0> (kept)
    h = Mul (x, w)
    k = Add (h, s)
    y = Add (k, v)
""")
COUNTED = parsed("""
    on = Constant <value = bool {1}> ()
    zero = Sub (w, w)
    last, all = Loop (, on, zero) <body = b (int64 i, bool go, float[3] s) => (bool more, float[3] t, float[3] u) {
        t = Add (s, w)
        u = Identity (t)
        m = ReduceMax <keepdims: int = 0> (t)
        more = Less (m, two)
    }>
    axis = Constant <value = int64[1] {0}> ()
    sums = ReduceSum <keepdims: int = 0> (all, axis)
    h = Mul (x, sums)
    y = Add (h, v)
""")


@pytest.mark.parametrize(("proto", "node"), [(PICKED, "Compress"), (COUNTED, "Loop")], ids=["mask", "count"])
def test_a_shape_that_a_trained_parameter_decides_is_refused(proto: ModelProto, node: str) -> None:
    with pytest.raises(ReproError) as error:
        read(proto)
    assert error.value.op == node
    assert error.value.next == "do not train it: --frozen w"
    assert {slot.name for slot in read(proto, frozen=("w",)).parameters} == {"w", "v"}


def test_what_no_loss_depends_on_may_decide() -> None:
    """Scales of a Resize are floats of rank 1, and none of the graph's parameters."""
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["h"], mode="nearest"),
        helper.make_node("Mul", ["h", "w"], ["y"]),
    ]
    scales = np.array([1, 1, 2, 2], np.float32)
    imported = read(model(nodes, {"x": (1, 2, 3, 3)}, ["y"], {"scales": scales, "w": np.ones(6, np.float32)}))
    assert imported.outputs[0].type.shape == (1, 2, 6, 6)
    assert [slot.name for slot in imported.parameters] == ["w"]
    assert "scales" in imported.notes.decided


# ── paths ───────────────────────────────────────────────────────────────────────────────────────────

WHILE = """
    w1 = ReduceMax <keepdims: int = 0> (w)
    on = Constant <value = bool {{1}}> ()
    h = Mul (x, {start})
    l = Loop (, on, h) <body = b (int64 i, bool go, float[2, 3] s) => (bool more, float[2, 3] t) {{
        t = Add (s, {step})
        m = ReduceMax <keepdims: int = 0> (t)
        more = Less (m, two)
    }}>
"""
INNER = """
    trips = Constant <value = int64 {3}> ()
    on = Constant <value = bool {1}> ()
    y = Loop (trips, on, x) <body = o (int64 k, bool going, float[2, 3] r) => (bool on2, float[2, 3] z) {
        l = Loop (, going, r) <body = b (int64 i, bool go, float[2, 3] s) => (bool more, float[2, 3] t) {
            t = Add (s, w)
            m = ReduceMax <keepdims: int = 0> (t)
            more = Less (m, two)
        }>
        z = Add (l, w)
        on2 = Identity (on)
    }>
"""


BESIDE = INNER.replace("going, r)", "going, x)").replace("t = Add (s, w)", "t = Add (s, two)")
"""The while goes over the input alone."""
EITHER = """
    s = ReduceSum <keepdims: int = 0> (x)
    c = Greater (s, two)
    on = Constant <value = bool {1}> ()
    r = If (c) <
        then_branch: graph = t () => (float[2, 3] q) {
            q = Loop (, on, x) <body = b (int64 i, bool go, float[2, 3] a) => (bool more, float[2, 3] d) {
                d = Add (a, two)
                m = ReduceMax <keepdims: int = 0> (d)
                more = Less (m, two)
            }>
        },
        else_branch: graph = e () => (float[2, 3] e) { e = Sub (x, w) }
    >
    y = Add (r, w)
"""


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        (WHILE.format(start="w", step="two") + "y = Add (l, w)", True),
        (WHILE.format(start="two", step="w") + "y = Add (l, w)", True),
        (INNER, True),
        (WHILE.format(start="v", step="two") + "y = Add (l, w)", False),
        (WHILE.format(start="w", step="v") + "y = Identity (l)", False),
        (WHILE.format(start="w", step="two") + "g = Greater (l, two) c = Cast <to = 1> (g) y = Mul (c, w)", False),
        (WHILE.format(start="v", step="two").replace("Less (m, two)", "Less (m, w1)") + "y = Mul (l, w)", False),
        (BESIDE, False),
        (EITHER, False),
    ],
    ids=[
        "through its state",
        "read in its body",
        "inside a counted loop",
        "of another",
        "the only path",
        "compared",
        "only ends it",
        "beside it in a counted loop",
        "in the other branch",
    ],
)
def test_a_gradient_that_would_lack_a_part_is_refused(text: str, lacks: bool) -> None:
    options = TrainOptions(MeanSquaredError())
    imported = import_model(load_model(parsed(text)))
    if lacks:
        with pytest.raises(ReproError, match="the gradient of the parameter w would lack a part") as error:
            train_step(imported, options)
        assert "counted only as the loop runs" in str(error.value.found) and "--frozen w" in str(error.value.next)
    else:
        train_step(imported, options)


def test_patterns_name_parameters_of_the_branch_that_was_not_taken() -> None:
    """They are looked for in the model that is built, not in what initial values made of it."""
    proto = parsed(BRANCHES.replace("Sub (x, w)", "Sub (x, v)") + "y = Identity (r)")
    options = TrainOptions(MeanSquaredError(), frozen=("v",))
    assert {slot.name for slot in train_step(read(proto, frozen=("v",)), options).state if slot.trainable} == {"w"}


def test_normalizations_inside_a_branch_keep_their_statistics() -> None:
    text = BRANCHES.replace("e = Sub (x, w)", "e = BatchNormalization <training_mode: int = {mode}> (x, w, v, m0, v0)")
    ones = "float[3] m0 = {0, 0, 0}, float[3] v0 = {1, 1, 1}, float[3] w"
    for mode, said in (
        (0, "normalizes by its running statistics"),
        (1, "running statistics keep their initial values"),
    ):
        body = text.replace("{mode}", str(mode)) + "y = Add (r, w)"
        head = W.replace("float[3] w", ones, 1)
        proto = onnx.parser.parse_model(f"{HEAD}g (float[2, 3] x) => (float[2, 3] y) {head}\n{{{body}}}")
        step = train_step(read(proto), TrainOptions(MeanSquaredError()))
        assert {step.state[slot].name for slot, _ in step.updates} == {"w", "v", "step"}
        assert any(said in warning for warning in step.warnings), step.warnings


@pytest.mark.parametrize("name", ["w", "layers[0].w", "a*", "it's"])
def test_advice_names_one_parameter(name: str) -> None:
    """As a shell takes it apart, and as patterns are matched."""
    option, pattern = shlex.split(frozen([name]))
    assert option == "--frozen"
    others = ["layers0.w", "ab", "v"]
    assert [each for each in (name, *others) if fnmatchcase(each, pattern)] == [name]
