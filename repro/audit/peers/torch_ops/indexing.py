"""Gather, scatter, selection."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import torch
from torch import Tensor

from repro.audit.peers.torch_ops.call import Call, op, require

_REDUCED = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _wrapped(indices: Tensor, extent: int) -> Tensor:
    """Indices counted from the front."""
    places = indices.long()
    return torch.where(places < 0, places + extent, places)


@op("Gather")
def gather(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = call.axis(x.dim(), 0)
    found = torch.index_select(x, axis, _wrapped(indices, x.shape[axis]).reshape(-1))
    return found.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@op("GatherElements")
def gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = call.axis(x.dim(), 0)
    return torch.gather(x, axis, _wrapped(indices, x.shape[axis]))


@op("GatherND")
def gather_points(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    batch = call.get("batch_dims", 0)
    if not batch:
        return x[tuple(indices.long().unbind(-1))]
    rows = x.reshape(-1, *x.shape[batch:])
    points = indices.long().reshape(-1, *indices.shape[batch:])
    found = torch.stack([row[tuple(each.unbind(-1))] for row, each in zip(rows, points, strict=True)])
    return found.reshape(*indices.shape[:batch], *found.shape[1:])


@op("ScatterElements", "Scatter")
def scatter_elements(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = call.axis(x.dim(), 0)
    places, reduction = _wrapped(indices, x.shape[axis]), call.get("reduction", "none")
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    return torch.scatter_reduce(x, axis, places, updates, _REDUCED[reduction])


@op("ScatterND")
def scatter_points(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    reduction = call.get("reduction", "none")
    require(reduction in ("none", "add"), f"reduction {reduction}")
    return torch.index_put(x, tuple(indices.long().unbind(-1)), updates, accumulate=reduction == "add")


@op("TopK")
def top_k(call: Call, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """By a stable sort: torch.topk leaves open which of equal ones come first."""
    number = int(call.get("k")) if k is None else int(k)
    axis, largest = call.axis(x.dim(), -1), bool(call.get("largest", 1))
    require(x.is_floating_point() or x.dtype.is_signed, "unsigned integers, which do not sort downwards")
    values, places = torch.sort(x, dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, number), places.narrow(axis, 0, number)


@op("NonZero")
def non_zero(call: Call, x: Tensor) -> Tensor:
    require(x.dim() > 0, "a scalar")
    return torch.nonzero(x).t()


@op("OneHot")
def one_hot(call: Call, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    number = int(depth.reshape(()))
    axis = call.axis(indices.dim() + 1, -1)
    places = torch.fmod(indices.long() + number, number) if indices.is_floating_point() else indices.long()
    places = torch.where(places < 0, places + number, places).unsqueeze(axis)
    shape = [1] * (indices.dim() + 1)
    shape[axis] = number
    return torch.where(places == torch.arange(number).reshape(shape), values[1], values[0])


@op("Compress")
def compress(call: Call, x: Tensor, condition: Tensor) -> Tensor:
    chosen = torch.nonzero(condition).reshape(-1)
    if "axis" not in call.attributes:
        return x.reshape(-1)[chosen]
    return torch.index_select(x, call.axis(x.dim(), 0), chosen)
