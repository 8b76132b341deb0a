"""Dimensions and values that the user fixes: `--bind N=32`, `--bind x[0]=32`, `--set flag=1`."""

from __future__ import annotations

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

_AT_AXIS = re.compile(r"(?P<input>.+)\[(?P<axis>0|-?[1-9]\d{0,8})\]", re.DOTALL)


@dataclass
class Bindings:
    """What fixes dimensions, and what is still open after asking for every one.

    A word that reads as an axis of an input is that axis, whatever symbol has this name; any other word is a symbol.
    """

    given: Mapping[str, int]
    ranks: Mapping[str, int]
    """Of the inputs that bindings may name, as the model declares them."""
    known: dict[str, int] = field(default_factory=dict[str, int])
    used: set[str] = field(default_factory=set[str])
    open: dict[str, str] = field(default_factory=dict[str, str])
    """The `--bind` word that would fix a dimension, and where it stands."""
    unranked: list[str] = field(default_factory=list[str])
    """Inputs whose rank is neither declared nor given: no word fixes them."""

    def __post_init__(self) -> None:
        for name, extent in self.given.items():
            if extent < 0:
                raise ReproError("a bound dimension is negative", found=f"{name}={extent}", expected="0 or more")
            if not self._is_axis(name):
                self.known[name] = extent

    def _is_axis(self, word: str) -> bool:
        match = _AT_AXIS.fullmatch(word)
        rank = self.ranks.get(match["input"], 0) if match else 0
        return match is not None and -rank <= int(match["axis"]) < rank

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

    def of_axis(self, name: str, axis: int, rank: int) -> dict[str, int]:
        """The bindings that name one axis of an input, counted from either side."""
        words = (f"{name}[{axis}]", f"{name}[{axis - rank}]")
        found = {word: self.given[word] for word in words if word in self.given}
        self.used.update(found)
        return found

    def extent(self, name: str, axis: int, rank: int, dimension: onnx.TensorShapeProto.Dimension) -> int:
        """The extent of one axis; noted as open (and 1) where nothing fixes it. Raises ReproError where two do."""
        fixing = self.of_axis(name, axis, rank)
        symbol = _symbol(dimension)
        if symbol in self.known:
            self.used.add(symbol)
            fixing.setdefault(symbol, self.known[symbol])
        if len(set(fixing.values())) > 1:
            both = " and ".join(f"{word}={extent}" for word, extent in fixing.items())
            raise _conflict(name, both, f"one extent for axis {axis}", "leave one of them out, or correct it")
        if fixing:
            word, extent = next(iter(fixing.items()))
            if dimension.dim_value > 0 and dimension.dim_value != extent:
                raise _conflict(name, f"{word}={extent}", f"{dimension.dim_value} as the model declares it")
            return extent
        if dimension.dim_value > 0:
            return int(dimension.dim_value)
        word = symbol if symbol and not self._is_axis(symbol) else f"{name}[{axis}]"
        self.open.setdefault(word, f"axis {axis} of '{name}'")
        return 1

    def check(self, inputs: Sequence[str]) -> None:
        """Raises for bindings that name nothing, and for dimensions still open."""
        if self.unranked:
            raise ReproError(
                "inputs of the model have no declared shape, and --bind cannot give them one",
                found=", ".join(self.unranked),
                expected="every input dimension fixed at build",
                next="give arrays of the shapes that are meant: --inputs FILE.npz",
            )
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


def _conflict(name: str, found: str, expected: str, advice: str | None = None) -> ReproError:
    return ReproError(f"the shape of input '{name}' conflicts", None, name, found, expected, advice)


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
            bindings.unranked.append(item.name)
            return TensorType(dtype, ())
        return TensorType(dtype, tuple(shapes[item.name]))
    if item.name in shapes:
        extents = [int(extent) for extent in shapes[item.name]]
        for axis, extent in enumerate(extents):
            for word, bound in bindings.of_axis(item.name, axis, len(extents)).items():
                if bound != extent:
                    found = f"extent {extent} on axis {axis} of the given input"
                    raise _conflict(item.name, found, f"{word}={bound} as bound")
        bindings.used.update(filter(None, map(_symbol, declared.dim)))
    else:
        rank = len(declared.dim)
        extents = [bindings.extent(item.name, axis, rank, dim) for axis, dim in enumerate(declared.dim)]
    check_tensor_size(extents, dtype.bytes, node=item.name)
    return TensorType(dtype, tuple(extents))


def set_value(item: onnx.ValueInfoProto, value: Any) -> tuple[DType, Array]:
    """A value for an input, fixed at build, of its declared rank: exactly representable in a type of integers, rounded
    to one of floats. Raises ReproError, also where a finite value is too large for its type."""
    dtype, declared = input_tensor(item)
    try:
        array = np.asarray(value)
        with np.errstate(all="ignore"):
            face = array.astype(dtype.face)
    except (TypeError, ValueError, OverflowError):
        raise ReproError(f"--set {item.name}: not a tensor of numbers", node=item.name, found=str(value)[:80]) from None
    fits = array.dtype.kind in "biuf" or array.dtype == dtype.face
    if fits:
        fits = bool(np.all(np.isfinite(face) | ~np.isfinite(array) if dtype.is_float else face == array))
    if not fits:
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
