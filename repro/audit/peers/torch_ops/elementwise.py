"""Functions of elements."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from repro.audit.peers.torch_ops.call import TABLE, Call, op, require
from repro.audit.peers.torch_ops.tensors import element

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseNot": torch.bitwise_not,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "HardSwish": F.hardswish,
    "Identity": lambda x: x,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}


def _enter_plain() -> None:
    def unary(function: Callable[[Tensor], Tensor]) -> Any:
        return lambda call, x: function(x)

    def binary(function: Callable[[Tensor, Tensor], Tensor]) -> Any:
        return lambda call, a, b: function(a, b)

    TABLE.update({name: unary(function) for name, function in _UNARY.items()})
    TABLE.update({name: binary(function) for name, function in _BINARY.items()})


_enter_plain()


# ── arithmetic ──────────────────────────────────────────────────────────────────────────────────────


@op("Div")
def divide(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Integers are cut off toward zero."""
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@op("Mod")
def mod(call: Call, a: Tensor, b: Tensor) -> Tensor:
    if call.get("fmod", 0):
        return torch.fmod(a, b)
    require(not a.is_floating_point(), "a remainder of floats with the divisor's sign")
    return torch.remainder(a, b)


@op("Pow")
def power(call: Call, base: Tensor, exponent: Tensor) -> Tensor:
    return torch.pow(base, exponent).to(base.dtype)


@op("BitShift")
def bit_shift(call: Call, x: Tensor, by: Tensor) -> Tensor:
    function = torch.bitwise_left_shift if call.get("direction") == "LEFT" else torch.bitwise_right_shift
    return function(x, by)


@op("Sum")
def add_all(call: Call, *terms: Tensor) -> Tensor:
    return reduce(torch.add, terms)


@op("Mean")
def mean_of(call: Call, *terms: Tensor) -> Tensor:
    return torch.div(reduce(torch.add, terms), len(terms))


@op("Max")
def maximum(call: Call, *terms: Tensor) -> Tensor:
    return reduce(torch.maximum, terms)


@op("Min")
def minimum(call: Call, *terms: Tensor) -> Tensor:
    return reduce(torch.minimum, terms)


@op("Clip")
def clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if call.opset < 11:
        return torch.clamp(x, call.get("min"), call.get("max")) if call.attributes else x
    return x if low is None and high is None else torch.clamp(x, low, high)


@op("Where")
def where(call: Call, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)


@op("IsInf")
def is_infinite(call: Call, x: Tensor) -> Tensor:
    if call.get("detect_positive", 1):
        return torch.isinf(x) if call.get("detect_negative", 1) else torch.isposinf(x)
    return torch.isneginf(x) if call.get("detect_negative", 1) else torch.zeros_like(x, dtype=torch.bool)


@op("Cast")
def cast(call: Call, x: Tensor) -> Tensor:
    require(x.dtype.itemsize > 1 or not x.is_floating_point(), "a conversion from f8")
    return x.to(element(call.get("to")))


@op("CastLike")
def cast_like(call: Call, x: Tensor, like: Tensor) -> Tensor:
    narrow = any(each.dtype.itemsize == 1 and each.is_floating_point() for each in (x, like))
    require(not narrow, "a conversion of f8")
    return x.to(like.dtype)


# ── activations ─────────────────────────────────────────────────────────────────────────────────────


@op("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    return F.leaky_relu(x, call.get("alpha", 0.01))


@op("PRelu")
def parametric_relu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    channels = x.shape[1] if x.dim() > 1 else 1
    if slope.numel() in (1, channels) and (slope.numel() == 1 or slope.shape[0] == channels):
        return F.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, x * slope, x)


@op("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    return F.elu(x, call.get("alpha", 1.0))


@op("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
    return F.celu(x, call.get("alpha", 1.0))


@op("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    alpha, gamma = call.get("alpha", 1.6732632423543772), call.get("gamma", 1.0507009873554805)
    if (round(alpha, 6), round(gamma, 6)) == (1.673263, 1.050701):
        return F.selu(x)
    return torch.mul(F.elu(x, alpha), gamma)


@op("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Tensor:
    return torch.where(x > call.get("alpha", 1.0), x, torch.zeros_like(x))


@op("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return torch.clamp(torch.add(torch.mul(x, call.get("alpha", 0.2)), call.get("beta", 0.5)), 0.0, 1.0)


@op("Shrink")
def shrink(call: Call, x: Tensor) -> Tensor:
    bias, bound = call.get("bias", 0.0), call.get("lambd", 0.5)
    return torch.where(x < -bound, x + bias, torch.where(x > bound, x - bias, torch.zeros_like(x)))


@op("Gelu")
def gelu(call: Call, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=call.get("approximate", "none"))


@op("Swish")
def swish(call: Call, x: Tensor) -> Tensor:
    alpha = call.get("alpha", 1.0)
    return F.silu(x) if alpha == 1.0 else torch.mul(x, torch.sigmoid(torch.mul(x, alpha)))


@op("Dropout")
def dropout(call: Call, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> tuple[Tensor, ...]:
    """In training PyTorch draws from its own stream, as ONNX leaves open."""
    part = call.get("ratio", 0.5) if ratio is None else float(ratio)
    if training is None or not bool(training) or part == 0.0:
        return x, torch.ones_like(x, dtype=torch.bool)
    torch.manual_seed(int(call.get("seed", 0)))
    kept, mask = torch.native_dropout(x, part, True)
    return kept, mask


# ── over one axis ───────────────────────────────────────────────────────────────────────────────────


@op("Softmax")
def softmax(call: Call, x: Tensor) -> Tensor:
    return _over_classes(call, x, torch.softmax)


@op("LogSoftmax")
def log_softmax(call: Call, x: Tensor) -> Tensor:
    return _over_classes(call, x, torch.log_softmax)


def _over_classes(call: Call, x: Tensor, function: Callable[..., Tensor]) -> Tensor:
    """Before opset 13 all axes from `axis` on are one."""
    if call.opset >= 13:
        return function(x, dim=call.axis(x.dim(), -1))
    rows = x.reshape(*x.shape[: call.axis(x.dim(), 1)], -1)
    return function(rows, dim=-1).reshape(x.shape)


@op("Hardmax")
def hardmax(call: Call, x: Tensor) -> Tensor:
    require(call.opset >= 13, "Hardmax over several axes")
    axis = call.axis(x.dim(), -1)
    first = torch.argmax(x, dim=axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, first, 1.0)
