"""Sums, means, extremes, and running sums."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from repro.audit.peers.torch_ops.call import TABLE, Call, Function, integers, op, require

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """Over several axes as over one: torch.prod takes only one."""
    others = [axis for axis in range(x.dim()) if axis not in axes]
    flat = x.permute(*others, *axes).reshape(*(x.shape[axis] for axis in others), -1)
    found = torch.prod(flat, -1, dtype=x.dtype)
    return found.reshape(_kept(x, axes)) if keep else found


def _kept(x: Tensor, axes: tuple[int, ...]) -> list[int]:
    return [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]


def _extreme(function: Callable[..., Tensor]) -> Reduction:
    def reduce(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        require(x.numel() > 0, "an extreme of nothing")
        return function(x, axes, keep)

    return reduce


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": lambda x, axes, keep: torch.linalg.vector_norm(x, 1, axes, keep),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: torch.log(torch.sum(x, axes, keep)),
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceMax": _extreme(torch.amax),
    "ReduceMean": torch.mean,
    "ReduceMin": _extreme(torch.amin),
    "ReduceProd": _product,
    "ReduceSum": lambda x, axes, keep: torch.sum(x, axes, keep, dtype=x.dtype),
    "ReduceSumSquare": lambda x, axes, keep: torch.sum(torch.square(x), axes, keep, dtype=x.dtype),
}


def _function(reduction: Reduction) -> Function:
    def run(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
        chosen = integers(axes) if axes is not None else list(call.get("axes", ()))
        keep, nothing = bool(call.get("keepdims", 1)), bool(call.get("noop_with_empty_axes", 0))
        if not x.dim() or (nothing and not chosen):
            return reduction(x.unsqueeze(0), (0,), False)
        return reduction(x, tuple(sorted(axis % x.dim() for axis in chosen)) or tuple(range(x.dim())), keep)

    return run


TABLE.update({name: _function(reduction) for name, reduction in _REDUCTIONS.items()})


@op("ArgMax")
def arg_max(call: Call, x: Tensor) -> Tensor:
    return _position(call, x, torch.argmax)


@op("ArgMin")
def arg_min(call: Call, x: Tensor) -> Tensor:
    return _position(call, x, torch.argmin)


def _position(call: Call, x: Tensor, function: Callable[..., Tensor]) -> Tensor:
    """PyTorch gives the first of equal ones on a CPU."""
    axis, keep = call.axis(x.dim(), 0), bool(call.get("keepdims", 1))
    if not call.get("select_last_index", 0):
        return function(x, axis, keep)
    return x.shape[axis] - 1 - function(torch.flip(x, (axis,)), axis, keep)


@op("CumSum")
def running_sum(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    return _running(call, x, int(axis), torch.cumsum, 0)


@op("CumProd")
def running_product(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    return _running(call, x, int(axis), torch.cumprod, 1)


def _running(call: Call, x: Tensor, axis: int, function: Callable[..., Tensor], start: int) -> Tensor:
    flipped = bool(call.get("reverse", 0))
    turned = torch.flip(x, (axis,)) if flipped else x
    if call.get("exclusive", 0):
        first = torch.full_like(turned.narrow(axis, 0, 1), start)
        turned = torch.cat((first, turned.narrow(axis, 0, turned.shape[axis] - 1)), axis)
    found = function(turned, axis, dtype=x.dtype)
    return torch.flip(found, (axis,)) if flipped else found
