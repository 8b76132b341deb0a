"""Pools, and the padding that they share with convolutions."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from repro.audit.peers.torch_ops.call import Call, integers, op, require

MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
GLOBAL_AVERAGE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
GLOBAL_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


@dataclass(frozen=True)
class Windows:
    """Where a kernel goes over a tensor [N, C, ...]: one number for each spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def symmetric(self) -> bool:
        return self.before == self.after

    def padded(self, x: Tensor, value: float) -> Tensor:
        """The tensor with its padding written out."""
        pairs = zip(reversed(self.before), reversed(self.after), strict=True)
        return F.pad(x, [extent for pair in pairs for extent in pair], value=value)


def windows(call: Call, extents: Sequence[int], kernel: Sequence[int]) -> Windows:
    """From the attributes; `extents` are those of the spatial axes."""
    rank = len(extents)
    require(rank in MAX_POOL, f"{rank} spatial axes")
    ones, zeros = (1,) * rank, (0,) * 2 * rank
    strides = tuple(call.get("strides", ones))
    dilations = tuple(call.get("dilations", ones))
    pads = tuple(call.get("pads", zeros))
    automatic = call.get("auto_pad", "NOTSET")
    if automatic == "VALID":
        pads = zeros
    elif automatic != "NOTSET":
        pads = _same(automatic, extents, Windows(tuple(kernel), strides, dilations, (), ()))
    require(min(pads) >= 0, "negative padding")
    return Windows(tuple(kernel), strides, dilations, pads[:rank], pads[rank:])


def _same(automatic: str, extents: Sequence[int], w: Windows) -> tuple[int, ...]:
    """The padding with which ceil(extent / stride) windows fit; the odd one at the end for SAME_UPPER."""
    totals = [
        max((-(-extent // stride) - 1) * stride + (kernel - 1) * dilation + 1 - extent, 0)
        for extent, stride, kernel, dilation in zip(extents, w.strides, w.kernel, w.dilations, strict=True)
    ]
    small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return (*small, *large) if automatic == "SAME_UPPER" else (*large, *small)


@op("MaxPool")
def max_pool(call: Call, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    w = windows(call, x.shape[2:], call.get("kernel_shape"))
    fits = w.symmetric and all(2 * pad <= kernel for pad, kernel in zip(w.before, w.kernel, strict=True))
    function, ceil = MAX_POOL[x.dim() - 2], bool(call.get("ceil_mode", 0))
    if call.outputs > 1:
        require(fits and not call.get("storage_order", 0), "indices in this form")
        values, places = function(x, w.kernel, w.strides, w.before, w.dilations, ceil, return_indices=True)
        planes = torch.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(w.kernel))
        return values, places + planes * x[0, 0].numel()
    if fits:
        return function(x, w.kernel, w.strides, w.before, w.dilations, ceil)
    require(x.is_floating_point() and not ceil, "this padding of integers, or with ceil_mode")
    return function(w.padded(x, float("-inf")), w.kernel, w.strides, 0, w.dilations, ceil)


@op("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    w = windows(call, x.shape[2:], call.get("kernel_shape"))
    fits = w.symmetric and all(2 * pad <= kernel for pad, kernel in zip(w.before, w.kernel, strict=True))
    require(set(w.dilations) == {1}, "a dilated average")
    counted, ceil = bool(call.get("count_include_pad", 0)), bool(call.get("ceil_mode", 0))
    function = AVERAGE_POOL[x.dim() - 2]
    if fits:
        return function(x, w.kernel, w.strides, w.before, ceil, counted)
    require(counted and not ceil, "this padding of an average")
    return function(w.padded(x, 0.0), w.kernel, w.strides, 0, ceil, True)


@op("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
    require(x.dim() - 2 in GLOBAL_AVERAGE, "this number of spatial axes")
    return GLOBAL_AVERAGE[x.dim() - 2](x, 1)


@op("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
    require(x.dim() - 2 in GLOBAL_MAX, "this number of spatial axes")
    return GLOBAL_MAX[x.dim() - 2](x, 1)


@op("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
    w = windows(call, x.shape[2:], call.get("kernel_shape"))
    require(x.dim() in (3, 4) and set(w.dilations) == {1} and not call.get("ceil_mode", 0), "this form of LpPool")
    positive, p = torch.abs(w.padded(x, 0.0)), float(call.get("p", 2))
    if x.dim() == 3:
        return F.lp_pool1d(positive, p, w.kernel[0], w.strides[0])
    return F.lp_pool2d(positive, p, (w.kernel[0], w.kernel[1]), (w.strides[0], w.strides[1]))


@op("Col2Im")
def fold(call: Call, x: Tensor, image: Tensor, kernel: Tensor) -> Tensor:
    extents = tuple(integers(image))
    w = windows(call, extents, integers(kernel))
    require(len(extents) == 2 and w.symmetric, "other than two spatial axes, padded alike on both sides")
    return F.fold(x, extents, w.kernel, w.dilations, w.before, w.strides)
