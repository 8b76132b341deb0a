# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.
"""Convolutions, poolings and resizings of pictures, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from repro.bench.network import Network
from repro.bench.workloads.operation import MICROSOFT, drawn, operation, simple
from repro.bench.workloads.workload import Tensors, Workload

Gradients = Callable[..., tuple[Any, ...]]
"""PyTorch's from dy, x and w, and which of them are asked for."""


def _with_gradients(
    name: str,
    operator: str,
    shapes: dict[str, tuple[int, ...]],
    attributes: dict[str, Any],
    forward: Callable[..., Any],
    backward: Gradients,
) -> Sequence[Workload]:
    """An operator of x and w: forward, input gradient and weight gradient; `shapes` are those of dy, x and w."""

    def gradient(which: int) -> Callable[..., Any]:
        return lambda dy, a, b: backward(dy, a, b, [which == 0, which == 1, False])[which]

    def build(which: int) -> Callable[..., str]:
        def add(net: Network, *names: str) -> str:
            first = net.node(f"{operator}Grad", *names, domain=MICROSOFT, outputs=2, **attributes)
            return first if which == 0 else f"{first}.1"

        return add

    of_x = {each: shapes[each] for each in ("x", "w")}
    return (
        operation(name, "forward", of_x, simple(operator, **attributes), forward),
        operation(f"{name}/dx", "input gradient", shapes, build(0), gradient(0), onnxruntime=False),
        operation(f"{name}/dw", "weight gradient", shapes, build(1), gradient(1), onnxruntime=False),
    )


def _convolution(
    name: str, channels: int, outputs: int, image: int, size: int, stride: int, groups: int = 1, batch: int = 32,
    rank: int = 2,
) -> Sequence[Workload]:  # fmt: skip
    pad, out = size // 2, image // stride
    attributes = {"kernel_shape": [size] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank, "group": groups}
    shapes = {
        "dy": (batch, outputs, *[out] * rank),
        "x": (batch, channels, *[image] * rank),
        "w": (outputs, channels // groups, *[size] * rank),
    }

    def forward(a: Any, b: Any) -> Any:
        import torch.nn.functional as f

        return getattr(f, f"conv{rank}d")(a, b, None, stride, pad, 1, groups)

    def backward(dy: Any, a: Any, b: Any, mask: list[bool]) -> tuple[Any, ...]:
        import torch

        steps, pads, dilations, none = ([number] * rank for number in (stride, pad, 1, 0))
        return torch.ops.aten.convolution_backward(
            dy, a, b, None, steps, pads, dilations, False, none, groups, mask
        )  # fmt: skip

    return _with_gradients(f"conv/{name}", "Conv", shapes, attributes, forward, backward)


def _transposed(
    name: str, channels: int, outputs: int, image: int, size: int, stride: int, batch: int = 8
) -> Sequence[Workload]:
    """Transposed: a picture `stride` times as wide and as high, as decoders make it."""
    pad, out = (size - stride) // 2, image * stride
    attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    shapes = {
        "dy": (batch, outputs, out, out),
        "x": (batch, channels, image, image),
        "w": (channels, outputs, size, size),
    }

    def forward(a: Any, b: Any) -> Any:
        import torch.nn.functional as f

        return f.conv_transpose2d(a, b, None, stride, pad)

    def backward(dy: Any, a: Any, b: Any, mask: list[bool]) -> tuple[Any, ...]:
        import torch

        steps, pads, dilations, none = ([number] * 2 for number in (stride, pad, 1, 0))
        return torch.ops.aten.convolution_backward(
            dy, a, b, None, steps, pads, dilations, True, none, 1, mask
        )  # fmt: skip

    return _with_gradients(f"conv_t/{name}", "ConvTranspose", shapes, attributes, forward, backward)


CONVOLUTIONS = (
    *_convolution("3x3x64", 64, 64, 32, 3, 1),
    *_convolution("3x3x256", 256, 256, 8, 3, 1),
    *_convolution("3x3x128s2", 64, 128, 32, 3, 2),
    *_convolution("1x1x128", 64, 128, 32, 1, 1),
    *_convolution("dw3x3x256", 256, 256, 14, 3, 1, 256),
    *_convolution("dw3x3x144s2", 144, 144, 56, 3, 2, 144, 8),
    *_convolution("dw7x7x384", 384, 384, 14, 7, 1, 384),
    *_convolution("g32x3x3x128", 128, 128, 28, 3, 1, 32, 8),
    *_convolution("g32x3x3x512", 512, 512, 14, 3, 1, 32, 8),
    *_convolution("3x3x3x32", 32, 64, 16, 3, 1, batch=2, rank=3),
    *_transposed("2x2x128", 128, 64, 32, 2, 2),
    *_transposed("4x4x64", 64, 32, 32, 4, 2),
)

# ── small pictures ──────────────────────────────────────────────────────────────────────────────────


def _few_pixels(name: str, channels: int, outputs: int, image: int, size: int, groups: int = 1) -> Workload:
    """A convolution of two small pictures by the model's own weights, and SiLU, as late layers of classifiers are."""
    pad, shape = size // 2, (2, channels, image, image)

    def network(mode: str) -> tuple[Network, tuple[str, ...]]:
        net = Network("few_pixels")
        w = net.weight("w", (outputs, channels // groups, size, size))
        y = net.node("Conv", net.input("x", shape), w, kernel_shape=[size] * 2, pads=[pad] * 4, group=groups)
        return net, (net.node("Mul", y, net.node("Sigmoid", y)),)

    def run(parameters: Tensors, inputs: Tensors, mode: str) -> Any:
        import torch.nn.functional as f

        return f.silu(f.conv2d(inputs["x"], parameters["w"], None, 1, pad, 1, groups))

    return Workload(f"conv/few/{name}", f"{shape}, its weights known", network, drawn({"x": shape}), run)


FEW_PIXELS = (
    _few_pixels("1x1x1152", 192, 1152, 2, 1),
    _few_pixels("1x1x64", 512, 64, 3, 1),
    _few_pixels("3x3x256", 64, 256, 3, 3),
    _few_pixels("dw5x5x672", 672, 672, 4, 5, 672),
)

# ── pooling ─────────────────────────────────────────────────────────────────────────────────────────

_PICTURE, _HALF = (8, 64, 112, 112), (8, 64, 56, 56)
_POOL: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}


def _pool(name: str) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        import torch.nn.functional as f

        return f.max_pool2d(x, 3, 2, 1) if name == "max" else f.avg_pool2d(x, 3, 2, 1, count_include_pad=False)

    return run


_SMALL, _FLAT = (4, 256, 14, 14), (1, 256, 20, 20)
_WIDE: dict[str, Any] = {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2, 2, 2, 2]}


def _wide_torch(x: Any) -> Any:
    import torch.nn.functional as f

    return f.max_pool2d(x, 5, 1, 2)


def _max_gradient(net: Network, dy: str, x: str) -> str:
    """As a training step has it: the pooling's places, and the gradient at them."""
    places = f"{net.node('MaxPool', x, outputs=2, **_POOL)}.1"
    return net.node("MaxPoolGrad", dy, places, domain=MICROSOFT, **_POOL)


def _max_gradient_torch(dy: Any, x: Any) -> Any:
    import torch

    options: Any = [[3, 3], [2, 2], [1, 1], [1, 1]]
    _, places = torch.ops.aten.max_pool2d_with_indices(x, *options, False)
    return torch.ops.aten.max_pool2d_with_indices_backward(dy, x, *options, False, places)


_PARTS = {"a": (2, 256, 8, 8), "b": (2, 224, 8, 8)}


def _of_parts(net: Network, *names: str) -> str:
    return net.node("MaxPool", net.node("Concat", *names, axis=1), **_POOL)


def _of_parts_torch(*parts: Any) -> Any:
    import torch

    return _pool("max")(torch.cat(parts, 1))


def _global_average_torch(x: Any) -> Any:
    return x.mean((2, 3), keepdim=True)


def _linear(net: Network, x: str) -> str:
    scales = net.constant("scales", np.array([1, 1, 2, 2], np.float32))
    return net.node("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")


def _linear_torch(x: Any) -> Any:
    import torch.nn.functional as f

    return f.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def _sampled_torch(x: Any, grid: Any) -> Any:
    import torch.nn.functional as f

    return f.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _deformed(net: Network, x: str, w: str, offset: str) -> str:
    return net.node("DeformConv", x, w, offset, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def _deformed_torch(x: Any, w: Any, offset: Any) -> Any:
    """The taps of all pixels as one picture, 9 times as high."""
    import torch
    import torch.nn.functional as f

    size = x.shape[-1]
    pixels, taps = torch.arange(size, dtype=x.dtype), torch.arange(3, dtype=x.dtype) - 1
    moves = offset.reshape(9, 2, size, size)
    rows = moves[:, 0] + pixels.reshape(1, -1, 1) + taps.repeat_interleave(3).reshape(-1, 1, 1)
    columns = moves[:, 1] + pixels + taps.repeat(3).reshape(-1, 1, 1)
    grid = torch.stack((columns, rows), -1).reshape(1, 9 * size, size, 2) * (2 / (size - 1)) - 1
    found = f.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=True)
    return (w.reshape(len(w), -1) @ found.reshape(-1, size * size)).reshape(1, -1, size, size)


POOLINGS = (
    operation("pool/max3x3s2", f"{_PICTURE}", {"x": _PICTURE}, simple("MaxPool", **_POOL), _pool("max")),
    operation(
        "pool/max3x3s2/dx", f"{_PICTURE}, its places among it", {"dy": _HALF, "x": _PICTURE}, _max_gradient,
        _max_gradient_torch, onnxruntime=False,
    ),
    operation("pool/average3x3s2", f"{_PICTURE}", {"x": _PICTURE}, simple("AveragePool", **_POOL), _pool("average")),
    operation("pool/max3x3s2/small", f"{_SMALL}", {"x": _SMALL}, simple("MaxPool", **_POOL), _pool("max")),
    operation("pool/max5x5", f"{_FLAT}", {"x": _FLAT}, simple("MaxPool", **_WIDE), _wide_torch),
    operation("pool/max3x3s2/parts", "two small pictures in two parts", _PARTS, _of_parts, _of_parts_torch),
    operation("pool/global", f"{_HALF}", {"x": _HALF}, simple("GlobalAveragePool"), _global_average_torch),
    operation("resize/linear2", f"{_HALF} twice as wide and high", {"x": _HALF}, _linear, _linear_torch),
    operation(
        "grid_sample", "(8, 64, 56, 56) at as many places", {"x": _HALF, "grid": (8, 56, 56, 2)},
        simple("GridSample", mode="linear"), _sampled_torch,
    ),
    operation(
        "deform_conv", "64 filters of 3 x 3 over (1, 64, 32, 32)",
        {"x": (1, 64, 32, 32), "w": (64, 64, 3, 3), "offset": (1, 18, 32, 32)}, _deformed, _deformed_torch,
    ),
)  # fmt: skip

PICTURES = (*CONVOLUTIONS, *FEW_PIXELS, *POOLINGS)
