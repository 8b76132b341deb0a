"""Resizing and sampling on a grid, where PyTorch has the same rule."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from repro.audit.peers.torch_ops.call import Call, integers, op, require

_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@op("Resize")
def resize(
    call: Call, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None
) -> Tensor:
    """Only where the extents that come out are the scales exactly: then both say the same positions."""
    require(call.opset >= 11, "Resize before opset 11")
    plain = ("axes", "antialias", "exclude_outside", "keep_aspect_ratio_policy")
    require(not any(call.get(name) for name in plain), "this form of Resize")
    if sizes is not None and sizes.numel():
        wanted = integers(sizes)
    else:
        given = [] if scales is None else scales.tolist()
        require(len(given) == x.dim(), "no scales")
        exact = [extent * scale for extent, scale in zip(x.shape, given, strict=True)]
        require(all(each == int(each) for each in exact), "extents that are rounded")
        wanted = [int(each) for each in exact]
    rank = x.dim() - 2
    require(1 <= rank <= 3 and wanted[:2] == list(x.shape[:2]) and x.is_floating_point(), "these axes")
    return _interpolated(call, x, wanted[2:], rank)


def _interpolated(call: Call, x: Tensor, wanted: list[int], rank: int) -> Tensor:
    mode, where = call.get("mode", "nearest"), call.get("coordinate_transformation_mode", "half_pixel")
    if mode == "nearest":
        same = where == "asymmetric" and call.get("nearest_mode", "round_prefer_floor") == "floor"
        whole = all(new % old == 0 for new, old in zip(wanted, x.shape[2:], strict=True))
        multiple = where == "half_pixel" and whole and "nearest_mode" not in call.attributes
        require(same or multiple, "this rule of the nearest element")
        return F.interpolate(x, wanted, mode="nearest")
    aligned = where == "align_corners"
    known = aligned or where == "half_pixel" or (where == "pytorch_half_pixel" and min(wanted) > 1)
    require(known, f"coordinates by {where}")
    if mode == "linear":
        return F.interpolate(x, wanted, mode=_LINEAR[rank], align_corners=aligned)
    require(rank == 2 and call.get("cubic_coeff_a", -0.75) == -0.75, "this cubic")
    return F.interpolate(x, wanted, mode="bicubic", align_corners=aligned)


@op("GridSample")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    said = str(call.get("mode", "linear"))
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(said, said)
    require(mode != "bicubic" or x.dim() == 4, "a cubic over three axes")
    return F.grid_sample(x, grid, mode, call.get("padding_mode", "zeros"), bool(call.get("align_corners", 0)))
