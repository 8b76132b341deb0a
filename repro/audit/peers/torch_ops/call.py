"""A node as a function of the table sees it, and the table itself."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import AttributeProto, NodeProto, helper
from torch import Tensor

WITHOUT_EFFECT = {
    "kernel_shape", "hidden_size", "spatial", "storage_order", "q_num_heads", "kv_num_heads",  # what the shapes say
    "momentum", "ratio", "seed",  # of training
    "nearest_mode", "cubic_coeff_a", "extrapolation_value",  # of another mode
    "saturate", "round_mode",  # of conversions to f8, which are refused
    "sorted",  # sorted is allowed where it is not asked for
}  # fmt: skip
"""Attributes that a function may leave unread, and why."""


class Unsupported(Exception):  # noqa: N818 - says what a node is, not that something went wrong
    """A form of an operator that no ATen kernel has; the reference evaluator runs the node instead."""


@dataclass(frozen=True)
class Call:
    """A node to be run: its attributes by name, the version of its operator set, how many outputs it names.

    A function must ask for every attribute: one that stays unread (a later opset may have added it) may mean
    something that the kernel does not do, and the node goes to the reference evaluator.
    """

    attributes: Mapping[str, Any]
    opset: int
    outputs: int
    read: set[str] = field(default_factory=set[str])
    """Names of the attributes that were asked for."""

    @classmethod
    def of(cls, node: NodeProto, opset: int) -> Call:
        attributes = {item.name: _value(item) for item in node.attribute}
        return cls(attributes, opset, len(node.output))

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return self.attributes.get(name, default)

    @property
    def unread(self) -> set[str]:
        return self.attributes.keys() - self.read - WITHOUT_EFFECT

    def axis(self, rank: int, default: int) -> int:
        """The attribute `axis`, counted from the front."""
        axis = int(self.get("axis", default))
        return axis + rank if axis < 0 else axis


def _value(item: AttributeProto) -> Any:
    """An attribute's value, strings decoded."""
    value = helper.get_attribute_value(item)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if item.type == AttributeProto.STRINGS:
        return [each.decode(errors="replace") for each in value]
    return value


Function = Callable[..., Any]
"""From a Call and the inputs, absent optional ones None; gives a tensor, a list (a sequence), or a tuple of outputs."""

TABLE: dict[str, Function] = {}
"""ONNX operator of the default domain -> what runs it."""


def op(*names: str) -> Callable[[Function], Function]:
    """Enter a function into the table."""

    def enter(function: Function) -> Function:
        for name in names:
            TABLE[name] = function
        return function

    return enter


def integers(tensor: Tensor) -> list[int]:
    """A tensor's elements as Python integers, whatever its rank."""
    return [int(each) for each in tensor.reshape(-1).tolist()]


def require(condition: bool, reason: str) -> None:
    """Raises Unsupported unless a condition holds."""
    if not condition:
        raise Unsupported(reason)
