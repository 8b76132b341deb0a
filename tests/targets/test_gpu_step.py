"""A whole training step whose weight gradients come in strips: what the interpreter leaves is what the CPU leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx

from passes import pipeline
from repro.artifact.compiling import compile_programs
from repro.bench.network import Network
from repro.frontend import import_model
from repro.frontend.load import load_model
from repro.machines import SM_80
from repro.targets import registry
from repro.targets.gpu import choice, codes
from repro.targets.gpu.guard import guarded
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from repro.targets.gpu.shape import shaped
from repro.train_step import train_step
from repro.train_step.words import training_of

FEW = replace(SM_80, multiprocessors=1, paces=(100,))
"""A chip that little work fills: on a large one so small a gradient is shared out in small tiles."""
TRAINING = {"loss": "softmax_cross_entropy", "optimizer": "sgd", "learning_rate": 0.1}
STEPS = 2


def network() -> onnx.ModelProto:
    """Two convolutions on four pictures, of 8 x 8 pixels and of 4 x 4."""
    net = Network("strips")
    x = net.input("x", (4, 16, 8, 8))
    first, second = net.weight("first", (64, 16, 3, 3)), net.weight("second", (64, 64, 3, 3))
    x = net.node("Relu", net.node("Conv", x, first, pads=[1] * 4))
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("GlobalAveragePool", net.node("Conv", x, second, pads=[1] * 4))
    return net.model(net.linear("fc", net.node("Flatten", x), 64, 4))


def test_a_step_in_strips_leaves_the_cpus_bits() -> None:
    entry = train_step(import_model(load_model(network()), {}, {}, None, 0), training_of(TRAINING)).entry
    program = pipeline.run(entry.graph, entry.locations, entry.updates).program
    device = shaped(guarded(program), FEW)
    plans = [choice.plan(kernel, FEW) for kernel in device.kernels]
    assert sum(each is not None and each.tile.taps == 3 for each in plans) == 2

    runner = registry.runner("cpu")
    (compiled,) = compile_programs([(runner.code, program)], None, lambda *_: None)
    start = [slot.initial.reshape(-1) for slot in entry.parameters]
    cpu, gpu = runner.open(compiled, start, 1), InterpretedExecutable(device, codes(device, FEW), start)
    generator = np.random.default_rng(0)
    for _ in range(STEPS):
        x = generator.standard_normal(4 * 16 * 8 * 8).astype(np.float32)
        inputs = [x, generator.integers(0, 4, 4)]
        wanted, found = ([array.tobytes() for array in side.run(inputs)] for side in (cpu, gpu))
        assert found == wanted
        left, right = ([side.parameter(n) for n in sorted(program.written)] for side in (cpu, gpu))
        assert left and [a.tobytes() for a in left if a is not None] == [a.tobytes() for a in right if a is not None]
    cpu.close()
    changed = [n for n in program.written if (now := gpu.parameter(n)) is not None and (now != start[n]).any()]
    assert len(changed) >= 4  # both convolutions' weights, and the last layer's
