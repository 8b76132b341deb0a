"""Dimensions and values that the user fixes: `--bind N=32`, `--bind x[0]=32`, `--set flag=1`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from repro.errors import ReproError
from repro.frontend.limits import check_tensor_size
from repro.frontend.tensors import dtype_of
from repro.ir.types import Array, DType, TensorType, to_storage

_AT_AXIS = re.compile(r"(?P<input>.+)\[(?P<axis>-?\d+)\]")


def parse_bindings(texts: Sequence[str]) -> dict[str, int]:
    """`NAME=INT` or `INPUT[AXIS]=INT`, as on the command line."""
    found: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not equals or not re.fullmatch(r"\d{1,18}", number):
            raise ReproError("--bind is not understood", found=text, expected="NAME=INT or INPUT[AXIS]=INT")
        found[name] = int(number)
    return found


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """`INPUT=VALUE` with a number, true, false or a (nested) list of them, as on the command line."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            found[name] = json.loads(value)
        except (json.JSONDecodeError, RecursionError):
            equals = ""
        if not equals:
            raise ReproError("--set is not understood", found=text, expected="INPUT=VALUE, VALUE a number or [numbers]")
    return found


@dataclass
class Bindings:
    """What fixes dimensions, and what is still open after asking for every one."""

    given: Mapping[str, int]
    known: dict[str, int] = field(default_factory=dict[str, int])
    used: set[str] = field(default_factory=set[str])
    open: dict[str, str] = field(default_factory=dict[str, str])
    """The `--bind` word that would fix a dimension, and where it stands."""

    def __post_init__(self) -> None:
        for name, extent in self.given.items():
            if extent < 0:
                raise ReproError("a bound dimension is negative", found=f"{name}={extent}", expected="0 or more")
            if not _AT_AXIS.fullmatch(name):
                self.known[name] = extent

    def learn(self, name: str, declared: onnx.TensorShapeProto, shape: Sequence[int]) -> None:
        """Takes an input's actual shape as the value of its symbolic dimensions."""
        if len(declared.dim) != len(shape):
            raise _conflict(name, f"rank {len(shape)}", f"rank {len(declared.dim)} as the model declares it")
        for axis, (dimension, extent) in enumerate(zip(declared.dim, shape, strict=True)):
            if dimension.dim_value > 0 and dimension.dim_value != extent:
                raise _conflict(
                    name, f"extent {extent} on axis {axis}", f"{dimension.dim_value} as the model declares it"
                )
            symbol = _symbol(dimension)
            if symbol and self.known.setdefault(symbol, extent) != extent:
                raise _conflict(name, f"extent {extent} for {symbol} on axis {axis}", f"{symbol}={self.known[symbol]}")

    def extent(self, name: str, axis: int, rank: int, dimension: onnx.TensorShapeProto.Dimension) -> int:
        """The extent of one axis; noted as open (and 1) where nothing fixes it."""
        words = (f"{name}[{axis}]", f"{name}[{axis - rank}]")
        own = next((word for word in words if word in self.given), None)
        if own is not None:
            self.used.add(own)
            extent = self.given[own]
            if dimension.dim_value > 0 and dimension.dim_value != extent:
                raise _conflict(name, f"{own}={extent}", f"{dimension.dim_value} as the model declares it")
            return extent
        if dimension.dim_value > 0:
            return int(dimension.dim_value)
        symbol = _symbol(dimension)
        if symbol in self.known:
            self.used.add(symbol)
            return self.known[symbol]
        self.open.setdefault(symbol or words[0], f"axis {axis} of '{name}'")
        return 1

    def check(self, inputs: Sequence[str]) -> None:
        """Raises for bindings that name nothing, and for dimensions still open."""
        fixing = " ".join(f"--bind {word}=INT" for word in self.open)
        idle = [word for word in self.given if word not in self.used]
        if idle:  # first: what is still open is often what they were meant to name
            symbols = ", ".join(self.open) or "a symbolic dimension"
            raise ReproError(
                "a binding names no dimension of the model's inputs",
                found=", ".join(idle),
                expected=f"{symbols}, or INPUT[AXIS] with INPUT one of {', '.join(inputs) or '(none)'}",
                next=f"leave it out, or correct the name{': ' + fixing if fixing else ''}",
            )
        if self.open:
            raise ReproError(
                "dimensions of the model's inputs are not bound",
                found=", ".join(f"{word} ({where})" for word, where in self.open.items()),
                expected="every input dimension fixed at build",
                next=f"{fixing}   (or give --inputs)",
            )


def _symbol(dimension: onnx.TensorShapeProto.Dimension) -> str:
    """The name of a symbolic dimension; '' for one without a name ('?' is none)."""
    name = dimension.dim_param if dimension.HasField("dim_param") else ""
    return "" if name.strip() in ("", "?", "-1") else name


def _conflict(name: str, found: str, expected: str) -> ReproError:
    return ReproError(f"the shape of input '{name}' conflicts", node=name, found=found, expected=expected)


def input_tensor(item: onnx.ValueInfoProto) -> tuple[DType, onnx.TensorShapeProto | None]:
    """Element type and declared shape of a graph input; refuses inputs that are no tensors."""
    kind = item.type.WhichOneof("value")
    if kind != "tensor_type":
        found = {None: "no type"}.get(kind, str(kind).removesuffix("_type"))
        raise ReproError(f"input '{item.name}' is not a tensor", node=item.name, found=found, expected="a tensor")
    tensor = item.type.tensor_type
    return dtype_of(tensor.elem_type, f"input '{item.name}'", item.name), tensor.shape if tensor.HasField(
        "shape"
    ) else None


def input_type(item: onnx.ValueInfoProto, bindings: Bindings, shapes: Mapping[str, Sequence[int]]) -> TensorType:
    """The static type of a graph input, by what the model declares, bindings and given shapes."""
    dtype, declared = input_tensor(item)
    if declared is None:
        if item.name not in shapes:
            bindings.open.setdefault(f"{item.name}[...]", f"'{item.name}' has no declared rank: give --inputs")
            return TensorType(dtype, ())
        return TensorType(dtype, tuple(shapes[item.name]))
    if item.name in shapes:
        extents = [int(extent) for extent in shapes[item.name]]
        for axis, dimension in enumerate(declared.dim):
            bound = (
                bindings.extent(item.name, axis, len(extents), dimension)
                if _is_bound(item.name, axis, bindings)
                else None
            )
            if bound not in (None, extents[axis]):
                raise _conflict(
                    item.name, f"extent {extents[axis]} on axis {axis} of the given input", f"{bound} as bound"
                )
        bindings.used.update(filter(None, map(_symbol, declared.dim)))
    else:
        rank = len(declared.dim)
        extents = [bindings.extent(item.name, axis, rank, dim) for axis, dim in enumerate(declared.dim)]
    check_tensor_size(extents, dtype.bytes, node=item.name)
    return TensorType(dtype, tuple(extents))


def _is_bound(name: str, axis: int, bindings: Bindings) -> bool:
    return f"{name}[{axis}]" in bindings.given


def set_value(item: onnx.ValueInfoProto, value: Any) -> tuple[DType, Array]:
    """A value for an input, fixed at build: exactly representable in its type, of its declared rank."""
    dtype, declared = input_tensor(item)
    try:
        array = np.asarray(value)
        with np.errstate(all="ignore"):
            face = array.astype(dtype.face)
    except (TypeError, ValueError, OverflowError):
        raise ReproError(f"--set {item.name}: not a tensor of numbers", node=item.name, found=str(value)[:80]) from None
    exact = array.dtype.kind in "biuf" or array.dtype == dtype.face
    if exact and not dtype.is_float:
        exact = bool(np.all(face == array))
    if not exact:
        raise ReproError(
            f"--set {item.name}: the value does not fit the input's type",
            node=item.name,
            found=str(value)[:80],
            expected=str(dtype),
        )
    if declared is not None and len(declared.dim) != face.ndim:
        if face.size != 1 or any(dim.dim_value > 1 for dim in declared.dim):
            raise _conflict(
                item.name, f"a value of rank {face.ndim}", f"rank {len(declared.dim)} as the model declares it"
            )
        face = face.reshape((1,) * len(declared.dim))
    return dtype, to_storage(face, dtype)
