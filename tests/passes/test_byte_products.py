"""Integer contractions as byte dots: the same bits as the sums of products that they stand for, for every kind of zero
point, padding, stride, group and shape, with the instruction that a host may have and without it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from passes import pipeline
from passes.byte_products import byte_products
from passes.schedule import schedule
from repro.bench.network import Network
from repro.frontend import import_model, load_model
from repro.ir import index as ix
from repro.ir.byte_dot import byte_dot, factors
from repro.ir.contraction import find
from repro.ir.expressions import Reduce, apply, const, load, topological
from repro.ir.program import TEMPORARY, Call, Program, walk
from repro.ir.types import I32, U8, Array, to_storage
from repro.machines import AARCH64, CPUS, X86_64_V4, Machine
from repro.ops.record import evaluate
from repro.targets import cpu, interpreter, registry
from repro.targets.llvm import kernel as kernels
from tests.targets import native

KINDS = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8}


def model(op: str, inputs: Mapping[str, Array], fixed: Sequence[str], **attributes: Any) -> onnx.ModelProto:
    """A model of one node; the inputs named in `fixed` are constants of it, all others are given to each run."""
    free = [
        helper.make_tensor_value_info(name, KINDS[array.dtype], array.shape)
        for name, array in inputs.items()
        if name not in fixed
    ]
    known = [numpy_helper.from_array(inputs[name], name) for name in fixed]
    node = helper.make_node(op, list(inputs), ["y"], **attributes)
    out = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    graph = helper.make_graph([node], "bytes", free, [out], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def quads(program: Program) -> int:
    """How many contractions of quads a program has."""
    found = [find(kernel) for kernel in program.kernels]
    return sum(each is not None and each.unsigned is not None for each in found)


def lowered(proto: onnx.ModelProto, inputs: Mapping[str, Array]) -> tuple[Program, list[Array], list[bytes]]:
    """A model's program, its inputs as a run takes them, and the bytes of its outputs by the reference."""
    imported = import_model(load_model(proto))
    given = [to_storage(inputs[port.name], port.type.dtype) for port in imported.inputs]
    wanted = [array.tobytes() for array in evaluate(imported.graph, given)]
    return pipeline.run(imported.graph).program, [array.reshape(-1) for array in given], wanted


def check(proto: onnx.ModelProto, inputs: Mapping[str, Array], of_quads: int = 1) -> None:
    """The reference's bytes on all machines of this host, with and without what it has beyond them; and in the
    interpreter of kernels, which knows neither tiles nor instructions."""
    program, flat, wanted = lowered(proto, inputs)
    made = byte_products(program)
    assert quads(made) == of_quads
    assert [array.tobytes() for array in interpreter.run(made, flat)][:1] == wanted[:1]
    for machine in native.HERE:
        shaped = registry.code_target(machine.name).shape(program)
        assert quads(shaped) == (of_quads if machine.adds_pairs else 0)
        schedules = [schedule(kernel, machine) for kernel in shaped.kernels]
        for features in sorted({0, cpu.features(machine)}):
            for threads in (1, 3):
                runner = native.executable(shaped, machine, schedules, threads, features)
                found = [array.tobytes() for array in runner.run(flat)]
                runner.close()
                assert found[:1] == wanted[:1], (machine.name, threads, features)


def drawn(seed: int, shape: Sequence[int], dtype: Any, ends: bool = True) -> Array:
    """Random bytes, many of them at the ends of their type."""
    random, limits = np.random.default_rng(seed), np.iinfo(dtype)
    found = random.integers(limits.min, limits.max, tuple(shape), dtype, endpoint=True)
    if ends:
        edge = random.choice(np.array([limits.min, limits.max], dtype), tuple(shape))
        found = np.where(random.random(tuple(shape)) < 0.3, edge, found)
    return found.astype(dtype)


FIXED = ("b", "zb"), ("a", "za"), ("b", "za", "zb"), ()
ALWAYS = {
    *itertools.product(("ui", "uu", "ii", "iu"), FIXED[:2]),
    *itertools.product(("uu", "iu"), FIXED[2:3]),
    ("ui", ()),
    ("ii", ()),
}
"""What is run for every change."""


@pytest.mark.parametrize(
    ("kinds", "fixed"),
    [
        pytest.param(*case, marks=() if case in ALWAYS else pytest.mark.full, id=f"{case[0]}-{'-'.join(case[1])}")
        for case in itertools.product(("ui", "uu", "ii", "iu"), FIXED)
    ],
)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 48, 64), (17, 40, 67), (33, 20, 600)])
def test_products_of_matrices(kinds: str, fixed: tuple[str, ...], m: int, n: int, k: int) -> None:
    left, right = (np.uint8 if kind == "u" else np.int8 for kind in kinds)
    inputs = {
        "a": drawn(1, (m, k), left),
        "b": drawn(2, (k, n), right),
        "za": drawn(3, (), left),
        "zb": drawn(4, (), right),
    }
    few = m == 1 and "b" not in fixed  # nothing is worth making quads of
    check(model("MatMulInteger", inputs, fixed), inputs, of_quads=0 if few else 1)


@pytest.mark.parametrize("zero", [-128, 0, 5, 127])
def test_zero_points_at_the_ends(zero: int) -> None:
    a, b = drawn(1, (9, 40), np.int8), drawn(2, (40, 24), np.int8)
    inputs = {"a": a, "b": b, "za": np.array(zero, np.int8), "zb": np.array(0, np.int8)}
    check(model("MatMulInteger", inputs, ("b", "za", "zb")), inputs)


def test_zero_points_of_rows_and_columns() -> None:
    inputs = {
        "a": drawn(1, (13, 36), np.uint8),
        "b": drawn(2, (36, 40), np.int8),
        "za": drawn(3, (13,), np.uint8),
        "zb": drawn(4, (40,), np.int8),
    }
    check(model("MatMulInteger", inputs, ("b", "zb")), inputs)


def test_products_of_batches() -> None:
    inputs = {
        "a": drawn(1, (2, 3, 9, 20), np.uint8),
        "b": drawn(2, (3, 20, 17), np.uint8),
        "za": np.array(3, np.uint8),
        "zb": np.array(130, np.uint8),
    }
    check(model("MatMulInteger", inputs, ("za", "zb")), inputs)


@pytest.mark.parametrize(
    ("zero", "kind", "known"),
    [
        pytest.param(zero, kind, known, marks=() if ((zero != 0) == (kind is np.uint8)) == known else pytest.mark.full)
        for zero, kind, known in itertools.product((0, 131), (np.uint8, np.int8), (False, True))
    ],
)
@pytest.mark.parametrize(
    ("shape", "weights", "attributes"),
    [
        ((2, 8, 9, 9), (20, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 3, 17, 15), (16, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
        ((1, 16, 7, 7), (24, 16, 1, 1), {}),
        ((1, 12, 8, 8), (12, 4, 3, 3), {"group": 3, "pads": [0, 1, 2, 0]}),
        ((1, 8, 12), (5, 8, 4), {"dilations": [2], "pads": [3, 2]}),
        ((2, 70, 6, 6), (33, 70, 3, 3), {"pads": [1, 1, 1, 1]}),
    ],
    ids=["3x3", "7x7 stride", "1x1", "groups", "dilated line", "odd channels"],
)
def test_convolutions(
    zero: int, kind: Any, known: bool, shape: Sequence[int], weights: Sequence[int], attributes: Any
) -> None:
    inputs = {
        "x": drawn(1, shape, kind),
        "w": drawn(2, weights, np.int8),
        "zx": np.array(zero if kind is np.uint8 else zero - 128, kind),
        "zw": np.array(0, np.int8),
    }
    check(model("ConvInteger", inputs, ("w", "zw", *(("zx",) if known else ())), **attributes), inputs)


def test_weights_with_a_zero_point_of_each_channel() -> None:
    inputs = {
        "x": drawn(1, (1, 6, 8, 8), np.uint8),
        "w": drawn(2, (18, 6, 3, 3), np.uint8),
        "zx": np.array(9, np.uint8),
        "zw": drawn(3, (18,), np.uint8),
    }
    check(model("ConvInteger", inputs, ("w", "zx", "zw"), pads=[1, 1, 1, 1]), inputs)


def test_a_channel_a_group_has_no_quads() -> None:
    inputs = {
        "x": drawn(1, (1, 16, 9, 9), np.uint8),
        "w": drawn(2, (16, 1, 3, 3), np.int8),
        "zx": np.array(9, np.uint8),
        "zw": np.array(0, np.int8),
    }
    check(model("ConvInteger", inputs, ("w", "zx", "zw"), pads=[1, 1, 1, 1], group=16), inputs, of_quads=0)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A ConvInteger of any groups, taps, padding and strides, and its inputs."""
    groups, inside, outside = (draw(st.integers(low, high)) for low, high in ((1, 3), (3, 18), (1, 40)))
    taps = [draw(st.integers(1, 3)) for _ in range(2)]
    pads = [draw(st.integers(0, 2)) for _ in range(4)]
    sizes = [draw(st.integers(max(1, tap - pads[at] - pads[at + 2]), 9)) for at, tap in enumerate(taps)]
    strides = [draw(st.integers(1, 2)) for _ in range(2)]
    left, right = (draw(st.sampled_from([np.uint8, np.int8])) for _ in range(2))
    inputs = {
        "x": drawn(draw(st.integers(0, 99)), (draw(st.integers(1, 2)), groups * inside, *sizes), left),
        "w": drawn(draw(st.integers(0, 99)), (groups * outside, inside, *taps), right),
        "zx": drawn(draw(st.integers(0, 99)), (), left),
        "zw": drawn(draw(st.integers(0, 99)), draw(st.sampled_from([(), (groups * outside,)])), right),
    }
    fixed = ["w", "zw", *draw(st.sampled_from([["zx"], []]))]
    return model("ConvInteger", inputs, fixed, pads=pads, strides=strides, group=groups), inputs


def check_convolution(convolution: tuple[onnx.ModelProto, dict[str, Array]]) -> None:
    proto, inputs = convolution
    imported = import_model(load_model(proto))
    check(proto, inputs, of_quads=quads(byte_products(pipeline.run(imported.graph).program)))


@settings(max_examples=6, deadline=None)
@given(convolution=convolutions())
def test_random_convolutions(convolution: tuple[onnx.ModelProto, dict[str, Array]]) -> None:
    check_convolution(convolution)


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(convolution=convolutions())
def test_many_random_convolutions(convolution: tuple[onnx.ModelProto, dict[str, Array]]) -> None:
    check_convolution(convolution)


# ── programs ────────────────────────────────────────────────────────────────────────────────────────


def chain(convolutions: int, residual: bool = False) -> Program:
    """Quantized convolutions one behind the other, and the first one's operand added at the end."""
    net = Network("chain")
    scale, zero = net.constant("s", np.array(0.1, np.float32)), net.constant("z", np.array(3, np.uint8))
    weights, none = net.constant("ws", np.array(0.1, np.float32)), net.constant("wz", np.array(0, np.int8))
    first = y = net.node("QuantizeLinear", net.input("x", (2, 16, 8, 8)), scale, zero)
    for number in range(convolutions):
        weight = net.constant(f"w{number}", drawn(number, (16, 16, 3, 3), np.int8))
        y = net.node("QLinearConv", y, scale, zero, weight, weights, none, scale, zero, pads=[1] * 4)
    if residual:
        of = (scale, zero)
        y = net.node("QLinearAdd", y, *of, first, *of, *of, domain="com.microsoft")
    return pipeline.run(import_model(load_model(net.model(net.node("DequantizeLinear", y, scale, zero)))).graph).program


@pytest.mark.parametrize("residual", [False, True])
def test_values_between_contractions_stay_bytes(residual: bool) -> None:
    program = chain(3, residual)
    large = [b.dtype for b in program.buffers if b.role == TEMPORARY and b.elements >= 2048]
    assert large
    assert set(large) == {U8}


def test_quads_and_sums_are_made_once_for_several_readers() -> None:
    nodes = [helper.make_node("MatMulInteger", ["a", f"b{n}", "za"], [f"y{n}"]) for n in range(3)]
    given = [
        helper.make_tensor_value_info(name, TensorProto.UINT8, shape) for name, shape in (("a", (9, 64)), ("za", ()))
    ]
    known = [numpy_helper.from_array(drawn(n, (64, 40), np.int8), f"b{n}") for n in range(3)]
    outs = [helper.make_tensor_value_info(f"y{n}", TensorProto.INT32, None) for n in range(3)]
    graph = helper.make_graph(nodes, "three", given, outs, known)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    program = pipeline.run(import_model(load_model(proto)).graph).program
    made = byte_products(program)
    calls = [step for step in walk(made.steps) if isinstance(step, Call)]
    assert quads(made) == 1, "one kernel, called three times"
    assert len(calls) == 3 + 1 + 2 * 3, "products, quads of what all read, and of each weight quads and sums"


def test_no_memory_no_quads() -> None:
    program = replace(chain(1), most_bytes=1)
    assert byte_products(program) is program


def test_a_loop_makes_its_own_quads() -> None:
    """What an iteration writes is another one's operand: its quads are made in each."""
    body = helper.make_graph(
        [
            helper.make_node("MatMulInteger", ["h", "b"], ["wide"]),
            helper.make_node("Cast", ["wide"], ["next"], to=TensorProto.INT8),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("h", TensorProto.INT8, (16, 32)),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("next", TensorProto.INT8, (16, 32)),
        ],
    )
    inputs = {"x": drawn(1, (16, 32), np.int8)}
    known = [
        numpy_helper.from_array(drawn(2, (32, 32), np.int8), "b"),
        numpy_helper.from_array(np.array(3, np.int64), "n"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body)],
        "loop",
        [helper.make_tensor_value_info("x", TensorProto.INT8, (16, 32))],
        [helper.make_tensor_value_info("y", TensorProto.INT8, (16, 32))],
        known,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    check(proto, inputs)


# ── the expression and its code ─────────────────────────────────────────────────────────────────────


def test_a_byte_dot_is_found_and_nothing_else_is() -> None:
    axis = ix.axis(0, 8)
    a, b = load(I32, 0, axis), load(I32, 1, axis)
    assert factors(byte_dot(a, b)) == (a, b)
    assert factors(byte_dot(a, a)) == (a, a)
    for other in (a, apply("mul", a, b), apply("add", byte_dot(a, b), const(I32, 0)), apply("neg", byte_dot(a, b))):
        assert factors(other) is None
    first = byte_dot(a, b).children[0]
    assert factors(apply("add", first, byte_dot(b, a).children[1])) is None


def test_machines_without_pairs_have_none() -> None:
    inputs = {"a": drawn(1, (9, 40), np.uint8), "b": drawn(2, (40, 24), np.int8)}
    program = pipeline.run(import_model(load_model(model("MatMulInteger", inputs, ("b",)))).graph).program
    assert quads(registry.code_target(AARCH64.name).shape(program)) == 0
    assert quads(registry.code_target(X86_64_V4.name).shape(program)) == 1


def _code(machine: Machine) -> str:
    inputs = {"a": drawn(1, (9, 40), np.uint8), "b": drawn(2, (40, 24), np.int8)}
    program = pipeline.run(import_model(load_model(model("MatMulInteger", inputs, ("b",)))).graph).program
    shaped = registry.code_target(machine.name).shape(program)
    (kernel,) = (
        k for k in shaped.kernels if any(isinstance(e, Reduce) for e in topological(k.expressions)) and find(k)
    )
    return kernels.emit(kernel, schedule(kernel, machine), machine)


@pytest.mark.parametrize("machine", [m for m in CPUS.values() if m.adds_pairs], ids=lambda m: m.name)
def test_code_has_the_instructions(machine: Machine) -> None:
    """Pairs in code for every host, quads beside them only where hosts may have the instruction."""
    text = _code(machine)
    assert "pmadd" in text
    assert ("vpdpbusd" in text) == bool(machine.beyond)
    assert text.count("define ") == (3 if machine.beyond else 1)
