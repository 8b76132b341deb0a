"""What a function for an ONNX operator is given: the node's attributes, static inputs, errors, composites."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from repro.errors import ReproError
from repro.frontend import attributes
from repro.frontend.folding import Sources
from repro.frontend.limits import check_tensor_size
from repro.frontend.scope import Body, Item, Items, Scope, name_of
from repro.frontend.tensors import dtype_of
from repro.ir.graph import Attribute, Node, Value, constant
from repro.ir.types import I64, Array, DType, to_face
from repro.ops import broadcast_shape, broadcast_to, mul, random_bits, scalar
from repro.ops import composite as make_composite

if TYPE_CHECKING:
    from repro.frontend.importer import Importer


def float_bits(value: float) -> str:
    """A float attribute of a composite: the bits of the f32, as hex. `read_float` is the inverse."""
    return struct.pack(">f", value).hex()


def read_float(text: str) -> float:
    return float(struct.unpack(">f", bytes.fromhex(text))[0])


def _as_attribute(value: Attribute | float | Sequence[Any] | DType) -> Attribute:
    if isinstance(value, DType):
        return value.name
    if isinstance(value, float):
        return float_bits(value)
    if isinstance(value, list | tuple):
        return tuple(_as_attribute(item) for item in value)
    return value  # pyright: ignore[reportReturnType]


class NodeContext:
    """One node on its way in."""

    def __init__(self, importer: Importer, scope: Scope, index: int, inputs: tuple[Item, ...]) -> None:
        self.importer, self.scope, self.index = importer, scope, index
        self.node = scope.body.nodes[index]
        self.inputs = inputs
        self.op_type: str = self.node.op_type
        self.outputs = len(self.node.output)
        self.opset = scope.opsets.get("" if self.node.domain == "ai.onnx" else self.node.domain, 1)
        self.attributes = attributes.resolve(self.node, scope.attributes)
        self._draws = 0

    @property
    def name(self) -> str:
        """The node's name, or that of its first output where it has none; function calls in front."""
        return f"{self.scope.path}{name_of(self.node)}"

    def wants(self, output: int) -> bool:
        """Whether the model names this output."""
        return output < self.outputs and bool(self.node.output[output])

    # ── errors ──────────────────────────────────────────────────────────────────────────────────────

    def error(
        self,
        what: str,
        found: str | None = None,
        expected: str | None = None,
        next: str | None = None,  # noqa: A002
    ) -> ReproError:
        """An error at this node; raise it."""
        return ReproError(what, self.op_type, self.name, found, expected, next)

    # ── attributes ──────────────────────────────────────────────────────────────────────────────────

    def has(self, name: str) -> bool:
        return name in self.attributes

    attr_int = attributes.INT
    attr_ints = attributes.INTS
    attr_float = attributes.FLOAT
    """A Python float with exactly the f32's value; a default is rounded to f32 too."""
    attr_floats = attributes.FLOATS
    attr_str = attributes.STR
    attr_strs = attributes.STRS
    attr_tensor_proto = attributes.TENSOR

    def attr_bool(self, name: str, default: bool = False) -> bool:
        return bool(self.attr_int(name, int(default)))

    def attr_tensor(self, name: str) -> Value:
        """A tensor attribute as a constant."""
        dtype, array = self.importer.loaded.tensor(self.attr_tensor_proto(name), f"{self.name}.{name}")
        return self.importer.constant(array, dtype)

    def attr_dtype(self, name: str, default: DType | None = None) -> DType:
        """An element type given by its ONNX code."""
        if default is not None and name not in self.attributes:
            return default
        try:
            return dtype_of(self.attr_int(name), f"attribute '{name}'")
        except ReproError as error:
            raise self.error(error.what, error.found, error.expected) from None

    def attr_graph(self, name: str) -> Body:
        """The body of a subgraph attribute."""
        graphs = [item.name for item in self.node.attribute if item.type == onnx.AttributeProto.GRAPH]
        if name not in graphs:
            raise self.error(f"attribute '{name}' is missing", expected=f"a graph '{name}'")
        return self.scope.body.children(self.index)[graphs.index(name)]

    # ── static inputs ───────────────────────────────────────────────────────────────────────────────

    def given(self, index: int) -> bool:
        """Whether an optional input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def static(self, index: int) -> Array:
        """The array of an input that must be known at build (NumPy's own types). Parameters count as known, but those
        that training changes."""
        item = self.inputs[index] if index < len(self.inputs) else None
        if not isinstance(item, Value):
            raise self.error(f"input {index} is missing", expected="a tensor")
        found = self.static_value(item)
        if found is None:
            raise self.dynamic(index, item)
        return found

    def static_value(self, value: Value) -> Array | None:
        """The array of any value, if it is known at build."""
        array = self.importer.static(self.scope, value)
        return None if array is None else to_face(array, value.dtype)

    def static_ints(self, index: int) -> tuple[int, ...]:
        """A static integer input, flattened."""
        array = self.static(index)
        if array.dtype.kind not in "iub":
            raise self.error(f"input {index} is not of an integer type", found=str(array.dtype), expected="int64")
        return tuple(int(item) for item in array.reshape(-1))

    def static_int(self, index: int) -> int:
        values = self.static_ints(index)
        if len(values) != 1:
            raise self.error(f"input {index} is not one number", found=f"{len(values)} numbers", expected="one")
        return values[0]

    def static_bool(self, index: int) -> bool:
        return bool(self.static_int(index))

    def dynamic(self, index: int, value: Value) -> ReproError:
        """The error for an input whose value must be known at build and is not."""
        name = self.node.input[index] if index < len(self.node.input) else f"#{index}"
        sources = self.sources(value)
        return self.error(
            f"input {index} ('{name}') must be known at build",
            found=f"a value that depends on {sources.names or 'data at run time'}",
            expected="a constant, or something computed from constants and shapes",
            next=sources.fixed,
        )

    def data_dependent(self, value: Value | None = None) -> ReproError:
        """The error for an operator whose result shape depends on data at run time."""
        operand = value or next((item for item in self.inputs if isinstance(item, Value)), None)
        sources = self.sources(*([] if operand is None else [operand]))
        return self.error(
            "the shape of the result depends on data at run time",
            found=f"an operand that depends on {sources.names or 'data'}",
            expected="a shape that is known at build",
            next=sources.fixed,
        )

    def sources(self, *values: Value) -> Sources:
        """What only the run knows of what values depend on."""
        return sum((self.importer.sources(self.scope, value) for value in values), Sources())

    def check_size(self, shape: Sequence[int], dtype: DType) -> None:
        """Refuses a result over the size limits; call it before an array of that size is made."""
        check_tensor_size(shape, dtype.bytes, op=self.op_type, node=self.name)

    # ── building ────────────────────────────────────────────────────────────────────────────────────

    def axis(self, axis: int, rank: int) -> int:
        """A non-negative axis; negative ones count from the end."""
        if not -rank <= axis < rank:
            raise self.error("an axis is out of range", f"axis {axis}", f"{-rank} to {rank - 1}")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Distinct non-negative axes, in the order given."""
        found = tuple(self.axis(axis, rank) for axis in axes)
        if len(set(found)) != len(found):
            raise self.error("an axis is given twice", f"axes {list(axes)}", "distinct axes")
        return found

    def composite(
        self,
        name: str,
        operands: Sequence[Value],
        body: Callable[..., Value | Sequence[Value]],
        **attributes: Attribute | float | Sequence[Any] | DType,
    ) -> Node:
        """A composite node: `body` is called with the region's arguments and gives its result or results.

        Constants may be used inside as they are; everything else comes in through `operands`. Float
        attributes are kept as the hex of their f32 bits.
        """
        kept = {key: _as_attribute(value) for key, value in attributes.items()}
        return make_composite(name, operands, body, **kept)

    def random_bits(self, shape: Sequence[int], seed: int | None = None) -> Value:
        """u32 words of this node's own random stream (rule 16): seeded by the build, or by `seed`."""
        elements = 1
        for extent in shape:
            elements *= extent
        iteration = self.scope.linear_iteration()
        first = scalar(0, I64) if iteration is None else mul(iteration, scalar(elements, I64))
        self._draws += 1
        identity = f"{self.scope.path}{next(name for name in self.node.output if name)}#{self._draws}"
        self.importer.random_names[identity] = self.name
        if seed is None:
            self.importer.unseeded.setdefault(self.name)
        key = self.importer.seed if seed is None else seed
        return random_bits(identity, key, shape, scalar(0, I64), first)

    def float_seed(self) -> int | None:
        """The key of a node with a `seed` attribute: the bits of the f32; None without one."""
        if not self.has("seed"):
            return None
        return int(np.float32(self.attr_float("seed")).view(np.uint32))


def broadcast_together(*values: Value) -> tuple[Value, ...]:
    """The values stretched to their common shape by NumPy's rule; TypeError where there is none."""
    shape = broadcast_shape(*(value.shape for value in values))
    return tuple(broadcast_to(value, shape) for value in values)


__all__ = ["Items", "NodeContext", "broadcast_together", "constant", "float_bits", "read_float"]
