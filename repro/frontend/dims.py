"""Fixing the dimensions of graph inputs: by name, by INPUT[AXIS], or by the shapes of given inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from repro.errors import ReproError
from repro.frontend.limits import RANK, check_tensor_size
from repro.frontend.tensors import dtype_of
from repro.ir.types import TensorType

_PLACE = re.compile(r"(.*)\[(\d{1,3})\]", re.DOTALL)


@dataclass
class Dims:
    """What is known of dimensions: by name, by (input, axis), and which of the bindings were of use."""

    bind: Mapping[str, int]
    shapes: Mapping[str, Sequence[int]]
    named: dict[str, int] = field(default_factory=dict[str, int])
    used: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        for key, extent in self.bind.items():
            if extent < 0:
                raise ReproError("a bound dimension is negative", found=f"{key}={extent}", expected="0 or more")


def input_types(inputs: Sequence[onnx.ValueInfoProto], dims: Dims) -> dict[str, TensorType]:
    """The type of every input, with all dimensions fixed. Raises one ReproError that lists what is unbound."""
    for info in inputs:
        _learn(info, dims)
    unbound: dict[str, None] = {}
    made: dict[str, TensorType] = {}
    for info in inputs:
        dtype = dtype_of(_tensor_type(info).elem_type, f"input '{info.name}'")
        shape = _shape(info, dims, unbound)
        if None not in shape:
            fixed = tuple(extent for extent in shape if extent is not None)
            check_tensor_size(fixed, dtype.bytes, node=info.name)
            made[info.name] = TensorType(dtype, fixed)
    unknown = [key for key in dims.bind if key not in dims.used]
    if unknown:
        raise ReproError(
            "--bind names no dimension of the model",
            found=", ".join(unknown),
            expected=", ".join(_known(inputs)) or "no binding: every dimension is fixed",
        )
    if unbound:
        raise ReproError(
            f"{len(unbound)} dimension{'s are' if len(unbound) > 1 else ' is'} not fixed",
            found=", ".join(unbound),
            expected="every dimension fixed at build",
            next=" ".join(f"--bind {key}=INT" for key in unbound),
        )
    return made


def _tensor_type(info: onnx.ValueInfoProto) -> onnx.TypeProto.Tensor:
    if not info.type.HasField("tensor_type"):
        kind = info.type.WhichOneof("value") or "no type"
        raise ReproError(f"input '{info.name}' is not a tensor", found=kind, expected="a tensor")
    if len(info.type.tensor_type.shape.dim) > RANK:
        raise ReproError(f"input '{info.name}' has too many axes", expected=f"at most {RANK}")
    return info.type.tensor_type


def _name(dim: onnx.TensorShapeProto.Dimension) -> str | None:
    """The name by which a dimension can be bound; '?' and the like are none."""
    return dim.dim_param if dim.dim_param.strip("?-1 ") else None


def _fixed(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def _known(inputs: Sequence[onnx.ValueInfoProto]) -> list[str]:
    found: dict[str, None] = {}
    for info in inputs:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if _fixed(dim) is None:
                found[_name(dim) or f"{info.name}[{axis}]"] = None
    return list(found)


def _learn(info: onnx.ValueInfoProto, dims: Dims) -> None:
    """Collect named dimensions from --bind and from the shapes of given inputs; a conflict is an error."""
    given = dims.shapes.get(info.name)
    declared = _tensor_type(info).shape.dim
    if given is not None and info.type.tensor_type.HasField("shape") and len(given) != len(declared):
        raise ReproError(
            f"input '{info.name}' has another rank", found=f"shape {list(given)}", expected=f"{len(declared)} axes"
        )
    for axis, dim in enumerate(declared):
        name, place = _name(dim), f"{info.name}[{axis}]"
        candidates = {key: dims.bind[key] for key in (name, place) if key is not None and key in dims.bind}
        dims.used.update(candidates)
        if given is not None:
            candidates["the given input"] = given[axis]
        fixed = _fixed(dim)
        if fixed is not None:
            candidates["the model"] = fixed
        if name is not None and name in dims.named:
            candidates[f"'{name}' elsewhere"] = dims.named[name]
        if len(set(candidates.values())) > 1:
            found = ", ".join(f"{extent} by {source}" for source, extent in candidates.items())
            raise ReproError(f"dimension {place} is fixed in two ways", found=found, expected="one extent")
        if name is not None and candidates:
            dims.named[name] = next(iter(candidates.values()))


def _shape(info: onnx.ValueInfoProto, dims: Dims, unbound: dict[str, None]) -> list[int | None]:
    given = dims.shapes.get(info.name)
    if given is not None:
        return list(given)
    if not info.type.tensor_type.HasField("shape"):
        return _free_rank(info, dims, unbound)
    shape: list[int | None] = []
    for axis, dim in enumerate(info.type.tensor_type.shape.dim):
        name, place = _name(dim), f"{info.name}[{axis}]"
        extent = _fixed(dim)
        if extent is None:
            extent = dims.bind.get(place, dims.named.get(name) if name is not None else None)
        if extent is None:
            unbound[name or place] = None
        shape.append(extent)
    return shape


def _free_rank(info: onnx.ValueInfoProto, dims: Dims, unbound: dict[str, None]) -> list[int | None]:
    """An input without a shape: bindings of axes 0, 1, ... give its rank."""
    axes: dict[int, int] = {}
    for key, extent in dims.bind.items():
        match = _PLACE.fullmatch(key)
        if match is not None and match[1] == info.name:
            axes[int(match[2])] = extent
            dims.used.add(key)
    if not axes or sorted(axes) != list(range(len(axes))):
        missing = next(axis for axis in range(len(axes) + 1) if axis not in axes)
        unbound[f"{info.name}[{missing}]"] = None
        return [None]
    return [axes[axis] for axis in range(len(axes))]
