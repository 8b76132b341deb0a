# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.
"""Single operations, of the shapes that the models have and of those that show a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from repro.bench.network import Network
from repro.bench.workloads.inputs import drawn
from repro.bench.workloads.operation import MICROSOFT, operation, simple
from repro.bench.workloads.pictures import PICTURES
from repro.bench.workloads.workload import Tensors, Workload
from repro.ir.types import Array


def _functional(name: str, *arguments: Any) -> Callable[..., Any]:
    def run(*tensors: Any) -> Any:
        import torch.nn.functional as f

        return getattr(f, name)(*tensors, *arguments)

    return run


# ── dots ────────────────────────────────────────────────────────────────────────────────────────────


def _dot(kind: str, m: int, n: int, k: int, family: str = "dot") -> Workload:
    def torch(a: Any, b: Any) -> Any:
        return a @ b

    name = f"{family}/{m}" if m == n == k else f"{family}/{m}x{n}x{k}"
    return operation(name, f"{kind}: ({m}, {k}) with ({k}, {n})", {"a": (m, k), "b": (k, n)}, simple("MatMul"), torch)


def _weight_gradient(m: int, n: int, k: int) -> Workload:
    """A^T B, as the weight's gradient of a linear layer with k rows."""

    def torch(a: Any, b: Any) -> Any:
        return a.t() @ b

    what = f"weight gradient: ({k}, {m}) transposed with ({k}, {n})"
    return operation(
        f"dot_t/{m}x{n}x{k}",
        what,
        {"a": (k, m), "b": (k, n)},
        lambda net, a, b: net.node("Gemm", a, b, transA=1),
        torch,
    )


def _weighted(m: int, n: int, k: int) -> Workload:
    """x W^T, as a linear layer's with the model's own weight."""

    def network(mode: str) -> tuple[Network, tuple[str, ...]]:
        net = Network(f"linear_{m}_{n}_{k}")
        return net, (net.node("Gemm", net.input("x", (m, k)), net.weight("weight", (n, k)), transB=1),)

    def torch(parameters: Tensors, inputs: Tensors, mode: str) -> Any:
        return inputs["x"] @ parameters["weight"].t()

    what = f"linear layer: ({m}, {k}) with its weight ({n}, {k}) transposed"
    return Workload(f"linear/{m}x{n}x{k}", what, network, drawn({"x": (m, k)}), torch)


def _attention(queries: int, keys: int) -> Workload:
    """Of so many queries of 12 heads of 64 over keys and values that are given."""
    shapes = {"q": (1, 12, queries, 64), "k": (1, 12, keys, 64), "v": (1, 12, keys, 64)}

    def build(net: Network, q: str, k: str, v: str) -> str:
        scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = net.node("Mul", scores, net.constant("scale", np.array(0.125, np.float32)))
        return net.node("MatMul", net.node("Softmax", scores, axis=-1), v)

    what = f"{queries} queries over {keys} keys, 12 heads of 64"
    return operation(f"attention/{queries}x{keys}", what, shapes, build, _functional("scaled_dot_product_attention"))


SQUARE = tuple(_dot("square", n, n, n) for n in (256, 512, 1024, 2048, 4096))
SKINNY = (
    _dot("tall", 4096, 64, 512),
    _dot("flat", 64, 4096, 512),
    _dot("long", 64, 64, 16384),
    _weight_gradient(384, 1536, 2048),
    _weight_gradient(1024, 256, 2048),
    _weight_gradient(784, 1024, 256),
    _weight_gradient(96, 384, 2048),
    _weight_gradient(1024, 64, 2048),
    _weight_gradient(1024, 32, 2048),
)

BATCHES = tuple(_dot("a batch", m, n, k, "batch") for m, n, k in ((28, 512, 512), (64, 512, 512), (64, 1024, 256)))
"""Of some tens of rows, with a matrix that is given: a product of two activations, or a weight in training."""

FEW_ROWS = (
    *(_weighted(1, n, k) for n, k in ((3072, 768), (768, 3072), (4096, 4096))),
    _weighted(4, 3072, 768),
    _attention(1, 1024),
    _attention(4, 1024),
)

# ── rows, elements, sums ────────────────────────────────────────────────────────────────────────────

_ROWS = (4096, 1024)


def _layer_norm() -> Workload:
    """By the model's own scale and bias, as in a model."""

    def network(mode: str) -> tuple[Network, tuple[str, ...]]:
        net = Network("layer_norm")
        weights = (net.weight(name, _ROWS[1:]) for name in ("scale", "bias"))
        return net, (net.node("LayerNormalization", net.input("x", _ROWS), *weights, axis=-1, epsilon=1e-5),)

    def run(parameters: Tensors, inputs: Tensors, mode: str) -> Any:
        import torch.nn.functional as f

        return f.layer_norm(inputs["x"], _ROWS[1:], parameters["scale"], parameters["bias"])

    return Workload("layer_norm", f"last axis of {_ROWS}, its weights known", network, drawn({"x": _ROWS}), run)


def _sum(axes: Sequence[int], shape: tuple[int, ...] = (256, 128, 256), among: str = "") -> Workload:
    def build(net: Network, x: str) -> str:
        return net.node("ReduceSum", x, net.constant("axes", np.array(axes, np.int64)), keepdims=0)

    where = "".join(map(str, axes))
    return operation(
        f"sum/{where}{among}", f"axes {where} of {shape}", {"x": shape}, build, lambda x: x.sum(tuple(axes)), True
    )


def _chain(net: Network, x: str, y: str) -> str:
    return net.node("Relu", net.node("Sub", net.node("Mul", net.node("Add", x, y), x), y))


ROWS = (
    operation(
        "softmax", f"last axis of {_ROWS}", {"x": _ROWS}, simple("Softmax", axis=-1), _functional("softmax", -1),
    ),
    _layer_norm(),
    operation("gelu", f"{_ROWS}", {"x": _ROWS}, simple("Gelu"), _functional("gelu")),
    operation("sigmoid", f"{_ROWS}", {"x": _ROWS}, simple("Sigmoid"), lambda x: x.sigmoid()),
    operation(
        "elementwise", f"relu((x + y) x - y) of {_ROWS}", {"x": _ROWS, "y": _ROWS}, _chain,
        lambda x, y: ((x + y) * x - y).relu(), True,
    ),
    operation(
        "argmax", f"last axis of {_ROWS}", {"x": _ROWS}, simple("ArgMax", axis=-1, keepdims=0), lambda x: x.argmax(-1),
    ),
    *(_sum(axes) for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2))),
    _sum((0,), (21, 65536), "/21x65536"),
    _sum((0, 2, 3), (16, 64, 28, 28), "/28x28"),
    _sum((0, 2, 3), (32, 512, 7, 7), "/7x7"),
)  # fmt: skip

# ── cross-entropy, embedding gradient, Adam ─────────────────────────────────────────────────────────

_TOKENS, _VOCABULARY, _WIDTH = 4096, 4096, 384


def _indexed(
    name: str,
    what: str,
    inputs: dict[str, tuple[tuple[int, ...], bool]],
    build: Callable[..., str],
    torch: Callable[..., Any],
    onnxruntime: bool,
) -> Workload:
    """Inputs by name: shape, and whether they are indices below the vocabulary."""

    def network(mode: str) -> tuple[Network, tuple[str, ...]]:
        net = Network(name)
        names = [net.input(each, shape, np.int64 if index else np.float32) for each, (shape, index) in inputs.items()]
        return net, (build(net, *names),)

    def draw() -> dict[str, Array]:
        random = np.random.default_rng(1)
        return {
            each: random.integers(0, _VOCABULARY, shape) if index else random.standard_normal(shape).astype(np.float32)
            for each, (shape, index) in inputs.items()
        }

    def run(parameters: Tensors, tensors: Tensors, mode: str) -> Any:
        return torch(*(tensors[each] for each in inputs))

    return Workload(name, what, network, draw, run, onnxruntime=onnxruntime)


def _embedding_gradient(net: Network, dy: str, ids: str) -> str:
    shape = net.constant("shape", np.array((_VOCABULARY, _WIDTH), np.int64))
    return net.node("GatherGrad", shape, ids, dy, domain=MICROSOFT, axis=0)


def _embedding_gradient_torch(dy: Any, ids: Any) -> Any:
    import torch

    return torch.ops.aten.embedding_dense_backward(dy, ids, _VOCABULARY, -1, False)


INDEXED = (
    _indexed(
        "cross_entropy", f"mean over {_TOKENS} rows of {_VOCABULARY}",
        {"x": ((_TOKENS, _VOCABULARY), False), "labels": ((_TOKENS,), True)},
        simple("SoftmaxCrossEntropyLoss"), _functional("cross_entropy"), True,
    ),
    _indexed(
        "embedding_gradient", f"{_TOKENS} rows of {_WIDTH} into {_VOCABULARY}",
        {"dy": ((_TOKENS, _WIDTH), False), "ids": ((_TOKENS,), True)},
        _embedding_gradient, _embedding_gradient_torch, False,
    ),
)  # fmt: skip

# ── order and places ────────────────────────────────────────────────────────────────────────────────


def _top(count: int, *shape: int, dtype: type[np.generic] = np.float32) -> Workload:
    """The places of the greatest of each row; of all of them it is a sort."""

    def build(net: Network, x: str) -> str:
        k = net.constant("k", np.array([count], np.int64))
        return f"{net.node('TopK', x, k, outputs=2)}.1"

    def torch(x: Any) -> Any:
        return x.topk(count).indices if count < shape[-1] else x.sort(descending=True, stable=True).indices

    rows, extent = shape
    name, what = (f"topk/{extent}", f"{count} of {extent}") if count < extent else (f"sort/{extent}", f"{extent}")
    name = name if dtype is np.float32 else f"{name}/{dtype.__name__}"
    return operation(name, f"{what}, {rows} times", {"x": shape}, build, torch, dtype=dtype)


def _turned(name: str, shape: tuple[int, ...], *order: int, dtype: type[np.generic] = np.float32) -> Workload:
    def torch(x: Any) -> Any:
        return x.permute(order).contiguous()

    what, build = f"{shape} by {order}, {dtype.__name__}", simple("Transpose", perm=order)
    return operation(f"transpose/{name}", what, {"x": shape}, build, torch, dtype=dtype)


def _turned_rows(name: str, build: Callable[[Network, str], str], torch: Callable[[Any], Any]) -> Workload:
    """Of images with channels first: the channels of each pixel, with channels last."""
    shape, order = (8, 512, 196), (0, 2, 1)
    what = f"{name.replace('_', ' ')} of {shape} by {order}"

    def node(net: Network, x: str) -> str:
        return build(net, net.node("Transpose", x, perm=order))

    return operation(f"transpose/{name}", what, {"x": shape}, node, lambda x: torch(x.permute(order)))


def _norm(net: Network, x: str) -> str:
    return net.node("LayerNormalization", x, net.constant("scale", np.ones(512, np.float32)), axis=-1, epsilon=1e-5)


PLACES = (
    _top(50, 1, 50257),
    _top(5, 64, 1000),
    _top(100, 1, 1_000_000),
    _top(1_000_000, 1, 1_000_000),
    _top(300, 1, 25200),
    _top(8, 4096, 64),
    _top(100, 64, 100),
    _top(8, 4096, 128),
    _top(32_000, 1, 32_000),
    _top(50, 1, 50257, dtype=np.int64),
    _turned("square", (4096, 4096), 1, 0),
    _turned("heads", (8, 1024, 12, 64), 0, 2, 1, 3),
    _turned("channels_last", (8, 64, 56, 56), 0, 2, 3, 1),
    _turned("short", (512, 12, 64), 0, 2, 1),
    _turned("float64", (1024, 1024), 1, 0, dtype=np.float64),
    _turned("float16", (2048, 2048), 1, 0, dtype=np.float16),
    _turned("uint8", (2048, 2048), 1, 0, dtype=np.uint8),
    _turned_rows("softmax", simple("Softmax", axis=-1), _functional("softmax", -1)),
    _turned_rows("layer_norm", _norm, _functional("layer_norm", (512,))),
)

_PARAMETERS = 10_000_000


def _adam(mode: str) -> tuple[Network, tuple[str, ...]]:
    """A step that updates its state where it lies, as that of any training does. `h` is a mean of squares."""
    net, step = Network("adam"), Network("adam_step")
    made = drawn(dict.fromkeys(("x", "v", "h"), (_PARAMETERS,)))()
    weights = {**made, "h": np.abs(made["h"])}
    state = [net.constant(name, array) for name, array in weights.items()]
    gradient = net.input("g", (_PARAMETERS,))
    rate, time = step.constant("rate", np.array(1e-3, np.float32)), step.constant("step", np.array(10, np.int64))
    domain, options = "ai.onnx.preview.training", {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-8}

    def adam(x: str, g: str, v: str, h: str) -> str:
        return step.node("Adam", rate, time, x, g, v, h, domain=domain, outputs=3, **options)

    made = adam(state[0], gradient, state[1], state[2])
    x, g, v, h = (_head(step, each) for each in (state[0], gradient, *state[1:]))
    net.algorithm(step, (adam(x, g, v, h),), dict(zip(state, (made, f"{made}.1", f"{made}.2"), strict=True)))
    return net, (_head(net, gradient),)


def _head(net: Network, x: str) -> str:
    """The first elements: a result that costs nothing."""
    ends = (net.constant(f"{net.name}.{place}", np.array([place], np.int64)) for place in (0, 8))
    return net.node("Slice", x, *ends)


def _adam_torch(parameters: Tensors, inputs: Tensors, mode: str) -> Any:
    """One step in place, as PyTorch's fused optimizer does it."""
    import torch

    x, v, h = (parameters[name] for name in ("x", "v", "h"))
    options = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-8}
    flags = {"amsgrad": False, "maximize": False}
    torch.ops.aten._fused_adam_([x], [inputs["g"]], [v], [h], [], [torch.tensor(10.0)], **options, **flags)
    return x[:8]


ADAM = Workload(
    "adam", f"{_PARAMETERS:,} parameters, in place", _adam, drawn({"g": (_PARAMETERS,)}), _adam_torch,
    onnxruntime=False, own_step=True,
)  # fmt: skip

SINGLE = (*SQUARE, *SKINNY, *BATCHES, *FEW_ROWS, *PICTURES, *ROWS, *INDEXED, *PLACES, ADAM)
