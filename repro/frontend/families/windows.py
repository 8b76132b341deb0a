"""Sliding windows: kernel, strides, dilations and padding as Conv and the pools write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.frontend.context import NodeContext

_AUTO_PAD = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
_LARGEST = 2**31 - 1
"""Of a stride, dilation, kernel extent or padding: positions stay far inside 64 bits."""


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial axes; `low` and `high` are the padding that the model states."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    output: tuple[int, ...]

    def reach(self, axis: int) -> int:
        """Positions from a window's first element to its last, both included."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def needed_high(self, extents: Sequence[int]) -> tuple[int, ...]:
        """The padding behind that the last window of each axis reaches into: more than `high` in ceil mode."""
        return tuple(
            max(0, (out - 1) * stride + self.reach(axis) - extent - low)
            for axis, (out, stride, extent, low) in enumerate(
                zip(self.output, self.strides, extents, self.low, strict=True)
            )
        )


def spatial_ints(ctx: NodeContext, name: str, rank: int, default: int, least: int) -> tuple[int, ...]:
    """An integer attribute with one number for each of `rank` places."""
    found = ctx.attr_ints(name, (default,) * rank)
    if len(found) != rank or any(not least <= item <= _LARGEST for item in found):
        expected = f"{rank} numbers from {least} to {_LARGEST}"
        raise ctx.error(f"attribute '{name}' does not fit", str(list(found)), expected)
    return found


def auto_pad(ctx: NodeContext) -> str:
    found = ctx.attr_str("auto_pad", "NOTSET") or "NOTSET"
    if found not in _AUTO_PAD:
        raise ctx.error("attribute 'auto_pad' is unknown", found, ", ".join(_AUTO_PAD))
    return found


def halves(total: int, upper: bool) -> tuple[int, int]:
    """A padding split in two; the odd element goes behind where `upper`, else in front."""
    small = total // 2
    return (small, total - small) if upper else (total - small, small)


def kernel_shape(ctx: NodeContext, taps: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The kernel's extents: of the weights where there are any, with which the attribute must agree."""
    if taps is None:
        ctx.attr_ints("kernel_shape")
        return spatial_ints(ctx, "kernel_shape", rank, 1, 1)
    if ctx.attr_ints("kernel_shape", tuple(taps)) != tuple(taps):
        raise ctx.error("kernel_shape does not fit the weights", str(list(ctx.attr_ints("kernel_shape"))), str(taps))
    return tuple(taps)


def read_windows(
    ctx: NodeContext, extents: Sequence[int], taps: Sequence[int] | None = None, ceil: bool = False
) -> Windows:
    """The windows that a node's attributes lay over an input's spatial axes; `taps` are the weights' axes."""
    rank = len(extents)
    kernel = kernel_shape(ctx, taps, rank)
    strides = spatial_ints(ctx, "strides", rank, 1, 1)
    dilations = spatial_ints(ctx, "dilations", rank, 1, 1)
    mode = auto_pad(ctx)
    pads = spatial_ints(ctx, "pads", 2 * rank, 0, 0) if mode == "NOTSET" else (0,) * (2 * rank)
    low, high, output = list(pads[:rank]), list(pads[rank:]), list[int]()
    for axis, (extent, size, stride, dilation) in enumerate(zip(extents, kernel, strides, dilations, strict=True)):
        reach = (size - 1) * dilation + 1
        if mode.startswith("SAME"):
            count = -(-extent // stride)
            padding = max(0, (count - 1) * stride + reach - extent)
            low[axis], high[axis] = halves(padding, mode == "SAME_UPPER")
        else:
            count = _count(extent + low[axis] + high[axis] - reach, stride, ceil and mode == "NOTSET")
            if ceil and (count - 1) * stride >= extent + low[axis]:
                count -= 1  # a window that would start in the padding behind
        output.append(count)
    if min(output, default=1) < 1:
        found = f"kernel {list(kernel)}, dilations {list(dilations)}, over {list(extents)} padded by {low} and {high}"
        raise ctx.error("the window is larger than its padded input", found, "a window that fits")
    return Windows(kernel, strides, dilations, tuple(low), tuple(high), tuple(output))


def _count(room: int, stride: int, ceil: bool) -> int:
    return (-(-room // stride) if ceil else room // stride) + 1
