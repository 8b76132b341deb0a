"""What changes shape or place and computes nothing."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from onnx import numpy_helper
from torch import Tensor

from repro.audit.peers.torch_ops.call import Call, integers, op, require
from repro.audit.peers.torch_ops.tensors import element, to_torch

# ── constants and shapes ────────────────────────────────────────────────────────────────────────────


@op("Constant")
def constant(call: Call) -> Tensor:
    for name, dtype in (
        ("value_float", torch.float32),
        ("value_floats", torch.float32),
        ("value_int", torch.int64),
        ("value_ints", torch.int64),
    ):
        if name in call.attributes:
            return torch.tensor(call.get(name), dtype=dtype)
    require("value" in call.attributes, "this kind of constant")
    return to_torch(numpy_helper.to_array(call.get("value")))


@op("ConstantOfShape")
def constant_of_shape(call: Call, shape: Tensor) -> Tensor:
    value = call.get("value")
    one = torch.zeros(1) if value is None else to_torch(numpy_helper.to_array(value)).reshape(1)
    return one.expand(integers(shape)).clone() if shape.numel() else one.reshape(())


@op("Shape")
def shape_of(call: Call, x: Tensor) -> Tensor:
    return torch.tensor(list(x.shape)[call.get("start", 0) : call.get("end")], dtype=torch.int64)


@op("Size")
def size_of(call: Call, x: Tensor) -> Tensor:
    return torch.tensor(x.numel(), dtype=torch.int64)


@op("Range")
def number_range(call: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    require(not start.is_floating_point(), "a range of floats")
    return torch.arange(int(start), int(limit), int(delta), dtype=start.dtype)


@op("EyeLike")
def eye_like(call: Call, x: Tensor) -> Tensor:
    dtype = element(call.get("dtype")) if "dtype" in call.attributes else x.dtype
    ones = torch.ones(x.shape, dtype=dtype)
    offset = call.get("k", 0)
    return ones.tril(offset).triu(offset)


# ── shape ───────────────────────────────────────────────────────────────────────────────────────────


@op("Reshape")
def reshape(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    wanted = integers(shape)
    if not call.get("allowzero", 0):
        wanted = [x.shape[axis] if extent == 0 else extent for axis, extent in enumerate(wanted)]
    if -1 in wanted and x.numel() == 0:
        wanted[wanted.index(-1)] = 0
    return x.reshape(tuple(wanted))


@op("Flatten")
def flatten(call: Call, x: Tensor) -> Tensor:
    axis = int(call.get("axis", 1))
    rows = 1
    for extent in x.shape[:axis]:
        rows *= extent
    return x.reshape(rows, -1) if x.numel() else x.reshape(rows, 0)


def _axes(call: Call, given: Tensor | None) -> list[int] | None:
    return integers(given) if given is not None else call.get("axes")


@op("Squeeze")
def squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = _axes(call, axes)
    return torch.squeeze(x) if chosen is None else torch.squeeze(x, tuple(chosen))


@op("Unsqueeze")
def unsqueeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = _axes(call, axes) or []
    rank = x.dim() + len(chosen)
    for axis in sorted(axis % rank for axis in chosen):
        x = x.unsqueeze(axis)
    return x


@op("Expand")
def expand(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(integers(shape))))


@op("Transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(call.get("perm", tuple(reversed(range(x.dim())))))


# ── parts ───────────────────────────────────────────────────────────────────────────────────────────


@op("Concat")
def concat(call: Call, *parts: Tensor) -> Tensor:
    return torch.cat(parts, call.get("axis"))


@op("Split")
def split(call: Call, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = call.axis(x.dim(), 0)
    given = integers(sizes) if sizes is not None else call.get("split")
    if given is None:
        number = call.get("num_outputs", call.outputs)
        step = -(-x.shape[axis] // number)
        given = [step] * (number - 1) + [x.shape[axis] - step * (number - 1)]
    return torch.split(x, list(given), axis)


@op("SplitToSequence")
def split_to_sequence(call: Call, x: Tensor, sizes: Tensor | None = None) -> list[Tensor]:
    axis = call.axis(x.dim(), 0)
    if sizes is None:
        parts = torch.split(x, 1, axis)
        return list(parts) if call.get("keepdims", 1) else [part.squeeze(axis) for part in parts]
    return list(torch.split(x, integers(sizes) if sizes.dim() else int(sizes), axis))


@op("SequenceConstruct")
def sequence_construct(call: Call, *parts: Tensor) -> list[Tensor]:
    return list(parts)


@op("SequenceAt")
def sequence_at(call: Call, parts: list[Tensor], position: Tensor) -> Tensor:
    return parts[int(position)]


@op("SequenceLength")
def sequence_length(call: Call, parts: list[Tensor]) -> Tensor:
    return torch.tensor(len(parts), dtype=torch.int64)


@op("ConcatFromSequence")
def concat_from_sequence(call: Call, parts: list[Tensor]) -> Tensor:
    axis = call.get("axis")
    return torch.stack(parts, axis) if call.get("new_axis", 0) else torch.cat(parts, axis)


@op("Slice")
def cut(
    call: Call,
    x: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    if starts is None or ends is None:
        first, last, chosen, strides = call.get("starts"), call.get("ends"), call.get("axes"), None
    else:
        first, last = integers(starts), integers(ends)
        chosen, strides = _listed(axes), _listed(steps)
    for place, axis in enumerate(range(len(first)) if chosen is None else chosen):
        x = _slice(x, axis % x.dim(), slice(first[place], last[place], strides[place] if strides else 1))
    return x


def _listed(tensor: Tensor | None) -> list[int] | None:
    return None if tensor is None else integers(tensor)


def _slice(x: Tensor, axis: int, part: slice) -> Tensor:
    """Bounds as in Python, except that the first element is reached backwards by any end below -extent."""
    extent = x.shape[axis]
    start, stop, step = part.start, part.stop, part.step
    if step < 0 and stop < -extent:
        stop = None
    found = range(extent)[slice(start, stop, step)]
    if step > 0:
        return x[(slice(None),) * axis + (slice(found.start, found.stop, step),)]
    return torch.index_select(x, axis, torch.tensor(list(found), dtype=torch.int64))


@op("Tile")
def tile(call: Call, x: Tensor, repeats: Tensor) -> Tensor:
    return x.repeat(integers(repeats)) if x.dim() else x


_PADDING = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@op("Pad")
def pad(
    call: Call, x: Tensor, pads: Tensor | None = None, value: Tensor | None = None, axes: Tensor | None = None
) -> Tensor:
    mode = call.get("mode", "constant")
    given = integers(pads) if pads is not None else list(call.get("pads"))
    if axes is not None:
        given = _on_all_axes(given, [axis % x.dim() for axis in integers(axes)], x.dim())
    if mode == "constant":
        fill = call.get("value", 0.0) if value is None else value.item()
        return F.pad(x, _reversed(given), value=fill)
    require(min(given) >= 0, f"negative padding of mode {mode}")
    for axis in range(x.dim()):
        x = _pad_axis(x, axis, given[axis], given[axis + len(given) // 2], _PADDING[mode])
    return x


def _on_all_axes(given: Sequence[int], axes: Sequence[int], rank: int) -> list[int]:
    made = [0] * 2 * rank
    for place, axis in enumerate(axes):
        made[axis], made[axis + rank] = given[place], given[place + len(axes)]
    return made


def _reversed(pads: Sequence[int]) -> list[int]:
    """PyTorch counts padding from the last axis."""
    rank = len(pads) // 2
    return [extent for axis in reversed(range(rank)) for extent in (pads[axis], pads[axis + rank])]


def _pad_axis(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    if not before and not after:
        return x
    require(max(before, after) < x.shape[axis] + (mode != "reflect"), "padding by more than the tensor")
    rows = x.movedim(axis, -1)
    padded = F.pad(
        rows.reshape(1, -1, rows.shape[-1]).float()
        if not x.is_floating_point()
        else rows.reshape(1, -1, rows.shape[-1]),
        (before, after),
        mode=mode,
    ).to(x.dtype)
    return padded.reshape(*rows.shape[:-1], -1).movedim(-1, axis)


# ── places ──────────────────────────────────────────────────────────────────────────────────────────


@op("DepthToSpace")
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    size = call.get("blocksize")
    if call.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, size)
    n, c, h, w = x.shape
    blocks = x.reshape(n, size, size, c // size**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return blocks.reshape(n, c // size**2, h * size, w * size)


@op("SpaceToDepth")
def space_to_depth(call: Call, x: Tensor) -> Tensor:
    size = call.get("blocksize")
    require(call.get("mode", "DCR") == "DCR", "mode CRD")
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // size, size, w // size, size).permute(0, 3, 5, 1, 2, 4)
    return blocks.reshape(n, c * size**2, h // size, w // size)


@op("Trilu")
def triangle(call: Call, x: Tensor, diagonal: Tensor | None = None) -> Tensor:
    offset = 0 if diagonal is None else int(diagonal)
    return torch.triu(x, offset) if call.get("upper", 1) else torch.tril(x, offset)


@op("ReverseSequence")
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
    time, batch = call.get("time_axis", 0), call.get("batch_axis", 1)
    rows = x.movedim((batch, time), (0, 1)).clone()
    for row, length in enumerate(integers(lengths)):
        rows[row, :length] = torch.flip(rows[row, :length], (0,))
    return rows.movedim((0, 1), (batch, time))
