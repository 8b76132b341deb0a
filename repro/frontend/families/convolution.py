"""Conv, ConvTranspose, ConvInteger: the core convolution, whose K runs (channel, taps) (rule 8)."""

from __future__ import annotations

from repro.frontend.context import NodeContext
from repro.frontend.families.contraction import less_zero_point
from repro.frontend.families.windows import Windows, auto_pad, halves, kernel_shape, read_windows, spatial_ints
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ops import add, broadcast, convolution, reshape, transpose


def biased(ctx: NodeContext, y: Value, bias: Value | None) -> Value:
    """y with one number added to each channel."""
    if bias is None:
        return y
    if bias.shape != (y.shape[1],):
        raise ctx.error("the bias does not fit", str(bias.type), f"one number for each of {y.shape[1]} channels")
    return add(y, broadcast(bias, y.shape, (1,)))


def forward_windows(ctx: NodeContext, x: Value, w: Value) -> Windows:
    """The windows of a convolution whose operands fit, in groups of the attribute."""
    groups = ctx.attr_int("group", 1)
    if x.rank != w.rank or x.rank < 3:
        raise ctx.error("input and weights do not fit", f"{x.type} and {w.type}", "one rank of 3 or more")
    if groups < 1 or w.shape[0] % groups or x.shape[1] != w.shape[1] * groups:
        expected = f"{x.shape[1]} channels in {groups} groups, the first axis of the weights a multiple of the groups"
        raise ctx.error("channels do not fit", f"{x.type} with weights {w.type}", expected)
    windows = read_windows(ctx, x.shape[2:], w.shape[2:])
    ctx.check_size((x.shape[0], w.shape[0], *windows.output), x.dtype)
    return windows


def _forward(ctx: NodeContext, x: Value, w: Value) -> Value:
    windows, groups = forward_windows(ctx, x, w), ctx.attr_int("group", 1)
    offsets = tuple(-low for low in windows.low)
    return convolution(x, w, windows.output, windows.strides, windows.dilations, offsets, groups=groups)


@onnx_op("Conv")
def conv(ctx: NodeContext, x: Value, w: Value, bias: Value | None = None) -> Value:
    """convolution(x, w) + bias."""
    return biased(ctx, _forward(ctx, x, w), bias)


@onnx_op("ConvInteger", since=10)
def conv_integer(
    ctx: NodeContext, x: Value, w: Value, x_zero_point: Value | None = None, w_zero_point: Value | None = None
) -> Value:
    """Convolution of (x - x_zero_point) with (w - w_zero_point) in i32; the second may be one for each out channel."""
    if w_zero_point is not None and w_zero_point.rank == 1:
        w_zero_point = reshape(w_zero_point, (*w_zero_point.shape, *(1,) * (w.rank - 1)))
    return _forward(ctx, less_zero_point(x, x_zero_point), less_zero_point(w, w_zero_point))


@onnx_op("ConvTranspose")
def conv_transpose(ctx: NodeContext, x: Value, w: Value, bias: Value | None = None) -> Value:
    """The input gradient of a convolution with weights w [C, M/group, taps], + bias; K runs (channel, taps)."""
    groups = ctx.attr_int("group", 1)
    if x.rank != w.rank or x.rank < 3:
        raise ctx.error("input and weights do not fit", f"{x.type} and {w.type}", "one rank of 3 or more")
    if groups < 1 or x.shape[1] != w.shape[0] or w.shape[0] % groups:
        expected = f"{x.shape[1]} channels in {groups} groups as the first axis of the weights"
        raise ctx.error("channels do not fit", f"{x.type} with weights {w.type}", expected)
    rank = x.rank - 2
    kernel = kernel_shape(ctx, w.shape[2:], rank)
    strides, dilations = (spatial_ints(ctx, name, rank, 1, 1) for name in ("strides", "dilations"))
    reach = tuple((size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True))
    low, output = _transposed_padding(ctx, x.shape[2:], strides, reach)
    ctx.check_size((x.shape[0], w.shape[1] * groups, *output), x.dtype)
    in_channels, out_channels = w.shape[0] // groups, w.shape[1]
    grouped = reshape(w, (groups, in_channels, out_channels, *kernel))
    swapped = transpose(grouped, (0, 2, 1, *range(3, 3 + rank)))
    weights = reshape(swapped, (groups * out_channels, in_channels, *kernel))
    steps = tuple(-dilation for dilation in dilations)
    return biased(ctx, convolution(x, weights, output, (1,) * rank, steps, low, strides, groups), bias)


def _transposed_padding(
    ctx: NodeContext, extents: tuple[int, ...], strides: tuple[int, ...], reach: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding in front and extents of the output, by ONNX's equations."""
    rank = len(extents)
    mode = auto_pad(ctx)
    added = spatial_ints(ctx, "output_padding", rank, 0, 0)
    whole = [s * (n - 1) + a + r for n, s, a, r in zip(extents, strides, added, reach, strict=True)]
    if ctx.has("output_shape"):
        output = list(spatial_ints(ctx, "output_shape", rank, 0, 1))
    elif mode.startswith("SAME"):
        output = [n * s for n, s in zip(extents, strides, strict=True)]
    else:
        pads = spatial_ints(ctx, "pads", 2 * rank, 0, 0) if mode == "NOTSET" else (0,) * (2 * rank)
        output = [n - low - high for n, low, high in zip(whole, pads[:rank], pads[rank:], strict=True)]
        if min(output) < 1:
            raise ctx.error("the padding takes the whole output", f"pads {list(pads)} of {whole}", "something left")
        return pads[:rank], tuple(output)
    totals = [max(0, n - wanted) for n, wanted in zip(whole, output, strict=True)]
    return tuple(halves(total, mode == "SAME_UPPER")[0] for total in totals), tuple(output)
