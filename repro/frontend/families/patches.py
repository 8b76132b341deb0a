"""Col2Im: patches put back where a sliding window read them (torch.nn.Fold)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.windows import spatial_ints
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import Array
from repro.ops import broadcast, integers, reshape, scalar, scatter, slice_, transpose

_Ints = Sequence[int]


@onnx_op("Col2Im", since=18)
def col2im(ctx: NodeContext, x: Value, _: Value, __: Value) -> Value:
    """Zeros, to which each place's elements are added one by one, taps ascending (rule 12); padding is cut off."""
    image, kernel = ctx.static_ints(1), ctx.static_ints(2)
    rank, taps = len(image), math.prod(kernel)
    if len(kernel) != rank or min((*image, *kernel), default=0) < 1:
        raise ctx.error("the shapes do not fit", f"image {list(image)}, block {list(kernel)}", "one extent an axis")
    strides = spatial_ints(ctx, "strides", rank, 1, 1)
    dilations = spatial_ints(ctx, "dilations", rank, 1, 1)
    pads = spatial_ints(ctx, "pads", 2 * rank, 0, 0)
    padded = [n + a + b for n, a, b in zip(image, pads[:rank], pads[rank:], strict=True)]
    reaches = [(n - 1) * dilation + 1 for n, dilation in zip(kernel, dilations, strict=True)]
    blocks = [(n - reach) // stride + 1 for n, reach, stride in zip(padded, reaches, strides, strict=True)]
    if x.rank != 3 or x.shape[1] % taps or min(blocks) < 1 or x.shape[2] != math.prod(blocks):
        raise ctx.error("the patches do not fit", str(x.type), f"[N, C * {taps}, {blocks}], as many as windows fit")
    batch, channels = x.shape[0], x.shape[1] // taps
    ctx.check_size((batch, channels, *padded), x.dtype)
    rows = reshape(x, (batch * channels, taps * x.shape[2]))
    places = integers(_places(padded, kernel, blocks, strides, dilations).reshape(-1, 1))
    zeros = broadcast(scalar(0, x.dtype), (math.prod(padded), batch * channels), ())
    whole = transpose(scatter("add", zeros, places, transpose(rows, (1, 0)), (0,)), (1, 0))
    whole = reshape(whole, (batch, channels, *padded))
    starts = (0, 0, *pads[:rank])
    return slice_(whole, starts, [a + n for a, n in zip(starts, (batch, channels, *image), strict=True)])


def _places(padded: _Ints, kernel: _Ints, blocks: _Ints, strides: _Ints, dilations: _Ints) -> Array:
    """The offset in the padded image of each tap of each block, taps first."""
    rank, places = len(padded), np.zeros((1,) * 2 * len(padded), np.int64)
    for axis, (extent, taps, count) in enumerate(zip(padded, kernel, blocks, strict=True)):
        at = np.arange(taps)[:, None] * dilations[axis] + np.arange(count) * strides[axis]
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = taps, count
        places = places * extent + at.reshape(shape)
    return places
