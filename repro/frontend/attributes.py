"""Reading a node's attributes: one typed reader for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar, overload

import numpy as np
import onnx

if TYPE_CHECKING:
    from repro.frontend.context import NodeContext

Read = TypeVar("Read")
Default = TypeVar("Default")
AttributeMap = Mapping[str, onnx.AttributeProto]
_KINDS = onnx.AttributeProto


class _Required:
    """Stands for 'no default: the attribute has to be there'."""


_REQUIRED = _Required()


class BoundReader(Generic[Read]):
    """`ctx.attr_int("axis", 0)`: the attribute, else the default, else an error."""

    def __init__(self, ctx: NodeContext, kind: int, read: Callable[[onnx.AttributeProto], Read]) -> None:
        self._ctx, self._kind, self._read = ctx, kind, read

    @overload
    def __call__(self, name: str) -> Read: ...
    @overload
    def __call__(self, name: str, default: Default) -> Read | Default: ...
    def __call__(self, name: str, default: object = _REQUIRED) -> object:
        found = self._ctx.attributes.get(name)
        if found is None:
            if default is _REQUIRED:
                raise self._ctx.error(f"attribute '{name}' is missing", expected=f"the attribute '{name}'")
            return float(np.float32(default)) if isinstance(default, float) else default
        if found.type != self._kind:
            names = _KINDS.AttributeType.Name
            raise self._ctx.error(f"attribute '{name}' has the wrong type", names(found.type), names(self._kind))
        return self._read(found)


class Reader(Generic[Read]):
    """The reader of one kind of attribute; on an instance it is bound to the node."""

    def __init__(self, kind: int, read: Callable[[onnx.AttributeProto], Read]) -> None:
        self._kind, self._read = kind, read

    def __get__(self, ctx: NodeContext, _: type[NodeContext] | None = None) -> BoundReader[Read]:
        return BoundReader(ctx, self._kind, self._read)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


INT = Reader[int](_KINDS.INT, lambda a: int(a.i))
INTS = Reader[tuple[int, ...]](_KINDS.INTS, lambda a: tuple(int(i) for i in a.ints))
FLOAT = Reader[float](_KINDS.FLOAT, lambda a: float(a.f))
FLOATS = Reader[tuple[float, ...]](_KINDS.FLOATS, lambda a: tuple(float(f) for f in a.floats))
STR = Reader[str](_KINDS.STRING, lambda a: _text(a.s))
STRS = Reader[tuple[str, ...]](_KINDS.STRINGS, lambda a: tuple(_text(s) for s in a.strings))
TENSOR = Reader[onnx.TensorProto](_KINDS.TENSOR, lambda a: a.t)


def resolve(node: onnx.NodeProto, around: AttributeMap) -> dict[str, onnx.AttributeProto]:
    """A node's attributes; references to those of the function around it are followed, unset ones left out."""
    found: dict[str, onnx.AttributeProto] = {}
    for item in node.attribute:
        if not item.ref_attr_name:
            found[item.name] = item
        elif item.ref_attr_name in around:
            found[item.name] = around[item.ref_attr_name]
    return found
