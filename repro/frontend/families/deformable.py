"""DeformConv: a convolution whose taps each read at a place of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.convolution import biased, forward_windows
from repro.frontend.families.grid import Sampling, sampled_at
from repro.frontend.families.windows import Windows
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value, constant
from repro.ops import add, broadcast, convolution, mul, reshape, slice_, transpose

_LINEAR = Sampling("linear", "zeros", corners=True)


@onnx_op("DeformConv", since=19)
def deform_conv(
    ctx: NodeContext, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None
) -> Value:
    """The sample of x (GridSample's, linear, zeros outside) at o * stride - pad + tap * dilation + offset, times mask,
    for each tap; their convolution with w, + bias."""
    windows = forward_windows(ctx, x, w)
    parts, groups = _parts(ctx, x, offset, mask, windows), ctx.attr_int("group", 1)
    pixels = math.prod(windows.output)
    ctx.check_size((*x.shape[:2], math.prod(windows.kernel), pixels), x.dtype)

    def body(x: Value, w: Value, offset: Value, *rest: Value) -> Value:
        samples = _samples(x, offset, rest, windows, parts)
        taps = reshape(w, (*w.shape[:2], samples.shape[2], 1))
        y = convolution(samples, taps, (1, pixels), (1, 1), (1, 1), (0, 0), groups=groups)
        return reshape(y, (*y.shape[:2], *windows.output))

    operands = (x, w, offset, *(() if mask is None else (mask,)))
    kept = {"strides": windows.strides, "dilations": windows.dilations, "pads": windows.low, "groups": groups}
    return biased(ctx, ctx.composite("DeformConv", operands, body, parts=parts, **kept).value, bias)


def _parts(ctx: NodeContext, x: Value, offset: Value, mask: Value | None, windows: Windows) -> int:
    """In how many parts of the channels the offsets differ; every operand fits."""
    parts, taps = ctx.attr_int("offset_group", 1), math.prod(windows.kernel)
    if parts < 1 or x.shape[1] % parts:
        raise ctx.error("offset_group does not fit", str(parts), f"a divisor of {x.shape[1]} channels")
    if 0 in x.shape[2:]:
        raise ctx.error("an empty tensor cannot be sampled", str(x.type), "extents above 0")
    for name, value, each in (("offset", offset, taps * len(windows.kernel)), ("mask", mask, taps)):
        wanted = (x.shape[0], parts * each, *windows.output)
        if value is not None and value.shape != wanted:
            raise ctx.error(f"the {name} does not fit", str(value.type), str(list(wanted)))
    return parts


def _samples(x: Value, offset: Value, mask: Sequence[Value], windows: Windows, parts: int) -> Value:
    """[N, C, taps, pixels]; the parts of the channels are sampled as images of their own."""
    batch, channels, *extents = x.shape
    rows, taps, rank = batch * parts, math.prod(windows.kernel), len(extents)
    moves = reshape(offset, (rows, taps, rank, *windows.output))
    places = [add(_places(moves, axis, windows), _along(moves, axis)) for axis in range(rank)]
    found = sampled_at(reshape(x, (rows, channels // parts, *extents)), places, _LINEAR)
    for each in mask:
        found = mul(found, broadcast(reshape(each, places[0].shape), found.shape, range(found.rank - 1)))
    samples = transpose(found, (0, found.rank - 1, *range(1, found.rank - 1)))
    return reshape(samples, (batch, channels, taps, math.prod(windows.output)))


def _along(moves: Value, axis: int) -> Value:
    """The offsets along one axis, [rows, taps, output...]."""
    starts, limits = [0] * moves.rank, list(moves.shape)
    starts[2], limits[2] = axis, axis + 1
    return reshape(slice_(moves, starts, limits), (*moves.shape[:2], *moves.shape[3:]))


def _places(moves: Value, axis: int, windows: Windows) -> Value:
    """Where the taps of an undeformed convolution are along one axis."""
    tap = np.indices(windows.kernel)[axis].reshape(-1, 1) * windows.dilations[axis]
    first = np.arange(windows.output[axis]) * windows.strides[axis] - windows.low[axis]
    table = constant((first + tap).astype(moves.dtype.storage), moves.dtype)
    return broadcast(table, (*moves.shape[:2], *moves.shape[3:]), (1, axis + 2))
