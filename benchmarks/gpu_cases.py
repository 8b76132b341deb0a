# pyright: reportMissingImports=false
"""What the GPU's benchmarks measure: each case as an ONNX model, and the same in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from passes import pipeline
from repro.bench.network import Network
from repro.bench.workloads.models import MODELS
from repro.bench.workloads.transformers import gpt, gpt_torch
from repro.bench.workloads.workload import STEP, Workload
from repro.frontend import EntryGraph, import_model
from repro.frontend.load import load_model
from repro.ir.program import Program
from repro.ir.types import Array
from repro.targets.gpu.guard import guarded
from repro.train_step import train_step
from repro.train_step.words import training_of

GPT = {"layers": 12, "width": 768, "heads": 12, "tokens": 1024, "batch": 8, "vocabulary": 50257}


@dataclass(frozen=True)
class Case:
    """One operation: its inputs, its node in ONNX, its call in PyTorch. `dot`: it is one contraction."""

    name: str
    what: str
    shapes: dict[str, tuple[int, ...]]
    build: Callable[..., str]
    torch: Callable[..., Any]
    dot: bool = False

    def program(self) -> Program:
        net = Network("case")
        names = [net.input(name, shape) for name, shape in self.shapes.items()]
        return _lowered(net, self.build(net, *names))


def _lowered(net: Network, output: str) -> Program:
    return _program(import_model(load_model(net.model(output)), {}, {}, None, 0).infer)


def _program(entry: EntryGraph) -> Program:
    return guarded(pipeline.run(entry.graph, entry.locations, entry.updates).program)


@dataclass(frozen=True, eq=False)
class Step:
    """A training step: its program, the first values of its parameters by position, and the model's weights by name."""

    program: Program
    initial: tuple[Array, ...]
    weights: dict[str, Array]


def gpt_step(sizes: dict[str, int]) -> Step:
    """The training step of a GPT with AdamW."""
    net, (output,) = gpt(sizes)
    options = training_of({"loss": "softmax_cross_entropy", "optimizer": "adamw", "learning_rate": 1e-3})
    entry = train_step(import_model(load_model(net.model(output)), {}, {}, None, 0), options).entry
    return Step(_program(entry), tuple(slot.initial for slot in entry.parameters), net.weights)


def convolution_step() -> Program:
    """The training step of two 3 x 3 convolutions, 64 to 64 and 64 to 128 channels, on 32 images of 56 x 56."""
    net = Network("convolutions")
    x = net.input("x", (32, 64, 56, 56))
    first, second = net.weight("first", (64, 64, 3, 3)), net.weight("second", (128, 64, 3, 3))
    x = net.node("Relu", net.node("Conv", x, first, pads=[1] * 4))
    x = net.node("GlobalAveragePool", net.node("Conv", x, second, pads=[1] * 4))
    output = net.linear("fc", net.node("Flatten", x), 128, 16)
    options = training_of({"loss": "softmax_cross_entropy", "optimizer": "sgd", "learning_rate": 1e-3})
    return _program(train_step(import_model(load_model(net.model(output)), {}, {}, None, 0), options).entry)


def resnet_step() -> Step:
    """The training step of ResNet-18 on 32 images of 32 x 32, by SGD with momentum: the workload of `repro bench`."""
    made = _resnet()
    net, outputs = made.network(STEP)
    entry = train_step(import_model(load_model(net.model(*outputs)), {}, {}, None, 0), training_of(made.training)).entry
    return Step(_program(entry), tuple(slot.initial for slot in entry.parameters), net.weights)


@dataclass(frozen=True, eq=False)
class Training:
    """A network that is trained on both sides: our step; its input and labels; PyTorch's network of the weights by name
    and the input, and its optimizer of what it trains, all but the `buffers`."""

    name: str
    step: Callable[[], Step]
    inputs: tuple[Array, Array]
    torch: Callable[[dict[str, Any], Any], Any]
    optimizer: Callable[[list[Any]], Any]
    buffers: tuple[str, ...] = ()

    def trains(self, name: str, weight: Array) -> bool:
        return weight.dtype.kind == "f" and weight.ndim > 0 and name.rpartition(".")[2] not in self.buffers


def trainings(layers: int) -> tuple[Training, ...]:
    """A GPT of so many layers, and ResNet-18."""
    sizes, resnet = {**GPT, "layers": layers}, _resnet()
    generator = np.random.default_rng(1)
    ids = generator.integers(0, sizes["vocabulary"], (sizes["batch"], sizes["tokens"]))
    labels = generator.integers(0, sizes["vocabulary"], ids.size)
    images, kinds = generator.standard_normal((32, 3, 32, 32), np.float32), generator.integers(0, 10, 32)
    blocks, convolutions = gpt_torch(sizes), resnet.torch
    assert convolutions is not None, "the workload has a network in PyTorch"
    return (
        Training(
            f"GPT step, {layers} layers", lambda: gpt_step(sizes), (ids, labels),
            lambda weights, given: blocks(weights, {"ids": given}, STEP), _adamw,
        ),
        Training(
            "ResNet-18 step", resnet_step, (images, kinds),
            lambda weights, given: convolutions(weights, {"x": given}, STEP), _momentum, resnet.buffers,
        ),
    )  # fmt: skip


def _adamw(trained: list[Any]) -> Any:
    import torch

    return torch.optim.AdamW(trained, 1e-3, capturable=True)


def _momentum(trained: list[Any]) -> Any:
    import torch

    return torch.optim.SGD(trained, 0.01, momentum=0.9)


def _resnet() -> Workload:
    return next(workload for workload in MODELS if workload.name == "resnet18")


def _node(operator: str, **attributes: Any) -> Callable[..., str]:
    return lambda net, *inputs: net.node(operator, *inputs, **attributes)


def _sum(*axes: int) -> Callable[..., str]:
    def build(net: Network, x: str) -> str:
        return net.node("ReduceSum", x, net.constant("axes", np.array(axes, np.int64)), keepdims=0)

    return build


def _functional(name: str, *arguments: Any, **named: Any) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        import torch.nn.functional as f

        return getattr(f, name)(*inputs, *arguments, **named)

    return call


def _square(size: int) -> Case:
    shapes = {"a": (size, size), "b": (size, size)}
    return Case(f"dot {size}", f"{size}^3", shapes, _node("MatMul"), lambda a, b: a @ b, dot=True)


def _weight_gradient(rows: int, outputs: int, inputs: int) -> Case:
    """x^T dy: K is the rows of a batch."""

    def build(net: Network, x: str, dy: str) -> str:
        return net.node("MatMul", net.node("Transpose", x, perm=[1, 0]), dy)

    shapes = {"x": (rows, inputs), "dy": (rows, outputs)}
    what = f"{inputs} x {outputs}, K = {rows}"
    return Case(f"weight gradient {outputs}", what, shapes, build, lambda x, dy: x.t() @ dy, dot=True)


def _attention(net: Network, q: str, k: str, v: str) -> str:
    scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1]))
    return net.node("MatMul", net.node("Softmax", scores, axis=-1), v)


def _odd(rows: int, columns: int, terms: int, left: bool = False, right: bool = False) -> Case:
    """A product of matrices of which no row is 16 bytes; `left`, `right`: that operand is given transposed."""

    def build(net: Network, a: str, b: str) -> str:
        a = net.node("Transpose", a, perm=[1, 0]) if left else a
        return net.node("MatMul", a, net.node("Transpose", b, perm=[1, 0]) if right else b)

    def call(a: Any, b: Any) -> Any:
        return (a.t() if left else a) @ (b.t() if right else b)

    shapes = {"a": (terms, rows) if left else (rows, terms), "b": (columns, terms) if right else (terms, columns)}
    what = f"{rows} x {columns}, K = {terms}" + ", a^T" * left + ", b^T" * right
    return Case("odd", what, shapes, build, call, dot=True)


ODD: tuple[Case, ...] = (
    _odd(1000, 1001, 1000),
    _odd(1000, 1001, 1000, left=True),
    _odd(1000, 1001, 1001, right=True),
    _odd(1000, 777, 1030),
    _odd(2047, 2049, 2051),
    _odd(2048, 2050, 2050, right=True),
    _odd(4096, 4095, 4095, right=True),
)
"""What `benchmarks.gpu_static` shows beside the cases."""

_BIG = (1 << 26,)
_ROWS = (8192, 768)

CASES: tuple[Case, ...] = (
    *(_square(size) for size in (4096, 8192, 1024)),
    Case(
        "linear", "8192 x 3072, K = 768, x W^T + b", {"x": (8192, 768), "w": (3072, 768), "b": (3072,)},
        _node("Gemm", transB=1), _functional("linear"), dot=True,
    ),
    _weight_gradient(8192, 768, 768),
    _weight_gradient(8192, 3072, 768),
    Case(
        "scores", "96 of 1024 x 1024, K = 64", {"q": (96, 1024, 64), "k": (96, 64, 1024)},
        _node("MatMul"), lambda q, k: q @ k, dot=True,
    ),
    Case(
        "mixing", "96 of 1024 x 64, K = 1024", {"p": (96, 1024, 1024), "v": (96, 1024, 64)},
        _node("MatMul"), lambda p, v: p @ v, dot=True,
    ),
    Case(
        "convolution", "32 images 56 x 56, 64 to 128 channels, 3 x 3, pad 1",
        {"x": (32, 64, 56, 56), "w": (128, 64, 3, 3)}, _node("Conv", pads=[1] * 4), _functional("conv2d", padding=1),
    ),
    Case(
        "attention", "8 x 12 heads, 1024 tokens of 64", dict.fromkeys("qkv", (96, 1024, 64)),
        _attention, lambda q, k, v: (q @ k.transpose(1, 2)).softmax(-1) @ v,
    ),
    Case("add", "2^26", {"x": _BIG, "y": _BIG}, _node("Add"), lambda x, y: x + y),
    Case("relu", "2^26", {"x": _BIG}, _node("Relu"), lambda x: x.relu()),
    Case("exp", "2^26", {"x": _BIG}, _node("Exp"), lambda x: x.exp()),
    Case("tanh", "2^26", {"x": _BIG}, _node("Tanh"), lambda x: x.tanh()),
    Case("gelu", "2^26", {"x": _BIG}, _node("Gelu"), _functional("gelu")),
    Case("sum of all", "2^26", {"x": _BIG}, _sum(0), lambda x: x.sum()),
    Case("sum of rows", "65536 x 1024", {"x": (65536, 1024)}, _sum(1), lambda x: x.sum(1)),
    Case("sum of columns", "65536 x 1024", {"x": (65536, 1024)}, _sum(0), lambda x: x.sum(0)),
    Case("softmax", "98304 x 1024", {"x": (98304, 1024)}, _node("Softmax", axis=-1), _functional("softmax", -1)),
    Case(
        "layer norm", "8192 x 768", {"x": _ROWS, "scale": _ROWS[1:], "bias": _ROWS[1:]},
        _node("LayerNormalization", axis=-1, epsilon=1e-5),
        lambda x, scale, bias: _functional("layer_norm", scale.shape, scale, bias)(x),
    ),
)  # fmt: skip
