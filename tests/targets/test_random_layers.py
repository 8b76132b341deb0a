"""Random layers of ONNX models, as each CPU target shapes and schedules them, give the reference's bytes: odd sizes,
paddings, strides and groups, values that break things, arrays that begin anywhere, small pieces, schedules that tuning
may choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from passes import pipeline
from passes.prepare import canonical_outputs
from passes.variants import DIMENSIONS, variants
from repro.frontend import import_model, load_model
from repro.ir.loops import Kernel
from repro.ir.parse_program import parse_schedule
from repro.ir.types import Array, to_storage
from repro.machines import CPUS
from repro.ops.record import evaluate
from repro.runtime.buffers import aligned
from repro.targets import registry
from repro.targets.llvm import pieces
from repro.targets.protocol import CompiledProgram, Runner
from tests import compiled

RUNNERS = [runner for runner in registry.family(registry.CPU).runners if runner.obstacle() is None]
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 3e38], np.float32)


class Layers:
    """A model that grows node by node; its operands are inputs or constants."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.edges = self.pick(0.0, 0.0, 0.003, 0.1)
        self.nodes: list[Any] = []
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}

    def pick(self, *choices: Any) -> Any:
        return choices[self.random.integers(len(choices))]

    def picks(self, count: int, *choices: int) -> list[int]:
        return [self.pick(*choices) for _ in range(count)]

    def new(self, *shape: int, fixed: bool | None = None) -> str:
        data = self.random.standard_normal(shape).astype(np.float32)
        chosen = self.random.random(shape) < self.edges
        data = np.where(chosen, self.random.choice(EDGES, shape), data).astype(np.float32)
        return self.known(data) if (self.pick(True, False) if fixed is None else fixed) else self.given(data)

    def given(self, data: Array) -> str:
        self.inputs[name := f"x{len(self.inputs)}"] = data
        return name

    def known(self, data: Any) -> str:
        self.constants[name := f"c{len(self.constants)}"] = np.asarray(data)
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def model(self, result: str) -> ModelProto:
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in self.inputs.items()]
        output = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        held = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "layers", inputs, [output], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def behind(m: Layers, y: str, channels: int, rank: int) -> str:
    """What often stands behind a layer."""
    match m.pick(*range(8)):
        case 0:
            return m.add("Relu", m.add("Add", y, m.new(1, channels, *(1,) * rank)))
        case 1:
            return m.add("Mul", y, m.add("Sigmoid", y))
        case 2:
            return m.add("Transpose", y, perm=[0, *range(2, rank + 2), 1])
        case 3:
            return m.add("GlobalAveragePool", y)
        case 4:
            return m.add("Concat", y, m.add("Tanh", y), axis=1)
        case _:
            return y


def convolution(m: Layers) -> str:
    rank, groups = m.pick(1, 2, 2, 3), m.pick(1, 1, 2, 5)
    channels, filters = groups * m.pick(1, 2, 3, 17), groups * m.pick(1, 2, 7, 16)
    taps, steps = m.picks(rank, 1, 2, 3, 5), m.picks(rank, 1, 1, 2)
    extents = [(k - 1) * d + 1 + m.pick(0, 1, 4, 9, 24 if rank < 3 else 2) for k, d in zip(taps, steps, strict=True)]
    operands = [m.new(m.pick(1, 2), channels, *extents, fixed=False), m.new(filters, channels // groups, *taps)]
    operands += [m.new(filters)] * m.pick(0, 1)
    pads, strides = m.picks(2 * rank, 0, 0, 1, 2), m.picks(rank, 1, 2, 3, 9)
    y = m.add("Conv", *operands, kernel_shape=taps, dilations=steps, strides=strides, pads=pads, group=groups)
    return behind(m, y, filters, rank)


def transposed(m: Layers) -> str:
    rank, groups = m.pick(1, 2, 2), m.pick(1, 1, 2)
    channels, filters = groups * m.pick(1, 3, 17), m.pick(1, 2, 8)
    taps, steps, strides = m.picks(rank, 2, 3, 4, 5), m.picks(rank, 1, 1, 2), m.picks(rank, 1, 2, 3, 8)
    pads = m.picks(2 * rank, 0, 0, 1)
    more = [m.pick(0, stride - 1) for stride in strides]
    x = m.new(m.pick(1, 2), channels, *m.picks(rank, 2, 3, 8, 13), fixed=False)
    w = m.new(channels, filters, *taps)
    y = m.add("ConvTranspose", x, w, dilations=steps, strides=strides, pads=pads, group=groups, output_padding=more)
    return behind(m, y, filters * groups, rank)


def pooling(m: Layers) -> str:
    rank, channels = m.pick(1, 2, 2), m.pick(1, 5, 17)
    taps, strides = m.picks(rank, 2, 3, 5), m.picks(rank, 1, 2, 3, 4, 7)
    x = m.new(m.pick(1, 2), channels, *(k + m.pick(0, 3, 17, 34) for k in taps), fixed=False)
    pads, up = m.picks(2 * rank, 0, 1), m.pick(0, 1)
    y = m.add(m.pick("MaxPool", "AveragePool"), x, kernel_shape=taps, strides=strides, pads=pads, ceil_mode=up)
    return behind(m, y, channels, rank)


def strided(m: Layers) -> str:
    rank = m.pick(1, 2, 3)
    shape = m.picks(rank, 1, 3, 7, 16, 33, 65)
    steps = m.picks(rank, 1, 2, 3, 4, 5, -1, -2)
    starts = [int(m.random.integers(extent)) for extent in shape]
    ends = [extent if step > 0 else -extent - 1 for extent, step in zip(shape, steps, strict=True)]
    x = m.add("Relu", m.new(*shape, fixed=False))
    y = m.add("Slice", x, *(m.known(np.array(each, np.int64)) for each in (starts, ends, range(rank), steps)))
    axis = m.pick(*range(rank))
    match m.pick(0, 1, 2):
        case 0:
            return m.add("Softmax", y, axis=axis)
        case 1:
            return m.add("ReduceSum", y, m.known(np.array([axis])))
        case _:
            return m.add("Concat", y, y, axis=axis)


def rows(m: Layers) -> str:
    width = m.pick(1, 2, 15, 17, 64, 127, 513, 4097)
    y = m.new(m.pick(1, 2, 7), m.pick(1, 3, 33) if width < 1000 else 2, width, fixed=False)
    for _ in range(m.pick(1, 2, 3)):
        match m.pick(*range(5)):
            case 0:
                y = m.add("Softmax", y, axis=-1)
            case 1:
                y = m.add("LayerNormalization", y, m.new(width), m.new(width), axis=-1)
            case 2:
                y = m.add("Mul", y, m.add("ReduceSum", y, m.known(np.array([m.pick(0, -1)]))))
            case 3:
                y = m.add("Gelu", y)
            case _:
                y = m.add("MatMul", y, m.new(width, width := m.pick(1, 5, 17, 64)))
    return y


FAMILY: tuple[Callable[[Layers], str], ...] = (convolution, transposed, pooling, strided, rows)


def code(runner: Runner, program: Any, schedule: Callable[[Kernel], str]) -> CompiledProgram:
    shaped = runner.code.shape(program)
    texts = tuple(map(schedule, shaped.kernels))
    machine, schedules = CPUS[runner.code.name], [parse_schedule(text) for text in texts]
    pairs = zip(shaped.kernels, schedules, strict=True)
    objects = tuple(compiled.compile_kernel(kernel.text, chosen, machine) for kernel, chosen in pairs)
    return CompiledProgram(runner.code, shaped, texts, objects, compiled.compile_program(shaped, schedules, machine))


def walk(m: Layers, runner: Runner, kernel: Kernel) -> str:
    """Some of the steps that tuning may take from the cost model's schedule."""
    machine = CPUS[runner.code.name]
    chosen = parse_schedule(runner.code.schedule(kernel))
    for dimension in DIMENSIONS:
        chosen = m.pick(chosen, *variants(dimension, kernel, machine, chosen)[:2])
    return chosen.text


def moved(array: Array, offset: int) -> Array:
    """The array so many bytes behind a line."""
    held = aligned(array.nbytes + 64)[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
    held[...] = array
    return held


def check(seed: int, families: Sequence[Callable[[Layers], str]], monkeypatch: pytest.MonkeyPatch) -> None:
    m = Layers(seed)
    imported = import_model(load_model(m.model(m.pick(*families)(m))))
    inputs = [to_storage(m.inputs[port.name], port.type.dtype) for port in imported.inputs]
    parameters = [slot.initial for slot in imported.parameters]
    wanted = [each.tobytes() for each in evaluate(canonical_outputs(imported.graph), inputs, parameters)]
    program = pipeline.run(imported.graph).program
    monkeypatch.setattr(pieces, "PIECE", m.pick(pieces.PIECE, 50))
    assert RUNNERS
    for runner in RUNNERS:
        schedule = m.pick(runner.code.schedule, lambda kernel, runner=runner: walk(m, runner, kernel))
        made = code(runner, program, schedule)
        for threads, offset in ((1, 0), (2, 16), (5, 4)):
            executable = runner.open(made, [each.reshape(-1) for each in parameters], threads)
            for _ in range(2):
                found = executable.run([moved(array, offset) for array in inputs])
                assert [each.tobytes() for each in found] == wanted, (runner.name, threads, made.schedules)
            executable.close()


@pytest.mark.parametrize("family", FAMILY)
def test_random_layers(family: Callable[[Layers], str], monkeypatch: pytest.MonkeyPatch) -> None:
    check(20, (family,), monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(150))
def test_many_random_layers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(seed, FAMILY, monkeypatch)
