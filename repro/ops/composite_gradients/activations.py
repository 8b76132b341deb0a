"""Gradients of activations: x is the operand, y the result, g the cotangent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.graph import Node, Value
from repro.ops.arithmetic import add, compare, div, elementwise, mul, neg, select, sub
from repro.ops.composite_gradients.reading import attribute, number, operand, own_argument, own_result
from repro.ops.record import Step

Formula = Callable[[Node, Value, Value, Value], Value]
"""From the composite, x, y and g to the cotangent of x."""

ONE_OVER_ROOT_TWO_PI = 0.3989422804014327


def _one_minus(x: Value) -> Value:
    return sub(number(1, x), x)


def _one_plus_exp_minus(x: Value) -> Value:
    return add(number(1, x), elementwise("exp", neg(x)))


def _below_zero(x: Value, there: Value, otherwise: Value) -> Value:
    return select(compare("lt", x, number(0, x)), there, otherwise)


# ── rectifiers and exponential units: the branch that is not taken is never multiplied by 0 ─────────


def _leaky_relu(node: Node, x: Value, _: Value, g: Value) -> Value:
    """x < 0 ? alpha * g : g."""
    return _below_zero(x, mul(attribute(node, "alpha", x), g), g)


def _elu(node: Node, x: Value, _: Value, g: Value) -> Value:
    """x < 0 ? g * (alpha * exp(x)) : g; y + alpha would cancel far below 0."""
    return _below_zero(x, mul(g, mul(attribute(node, "alpha", x), elementwise("exp", x))), g)


def _selu(node: Node, x: Value, y: Value, g: Value) -> Value:
    """h = gamma * g, then Elu's with h."""
    return _elu(node, x, y, mul(attribute(node, "gamma", x), g))


def _celu(node: Node, x: Value, _: Value, g: Value) -> Value:
    """x < 0 ? g * exp(x / alpha) : g."""
    return _below_zero(x, mul(g, elementwise("exp", div(x, attribute(node, "alpha", x)))), g)


# ── sigmoids ────────────────────────────────────────────────────────────────────────────────────────


def _sigmoid(_: Node, __: Value, y: Value, g: Value) -> Value:
    """g * (y * (1 - y)); exp(-x) may overflow, y does not."""
    return mul(g, mul(y, _one_minus(y)))


def _swish(node: Node, _: Value, y: Value, g: Value) -> Value:
    """s = sigmoid(alpha * x); g * (s + (alpha * y) * (1 - s)), where 1 * y = y."""
    s = operand(y, "mul", 1)
    one = attribute(node, "alpha", y) == number(1, y)
    scaled = y if one else mul(attribute(node, "alpha", y), y)
    return mul(g, add(s, mul(scaled, _one_minus(s))))


def _softplus(_: Node, x: Value, __: Value, g: Value) -> Value:
    """g / (1 + exp(-x))."""
    return div(g, _one_plus_exp_minus(x))


def _mish(_: Node, x: Value, y: Value, g: Value) -> Value:
    """t = tanh(softplus(x)); g * (t + x * ((1 - t * t) / (1 + exp(-x))))."""
    t = operand(y, "mul", 1)
    slope = div(_one_minus(mul(t, t)), _one_plus_exp_minus(x))
    return mul(g, add(t, mul(x, slope)))


def _softsign(_: Node, __: Value, y: Value, g: Value) -> Value:
    """b = 1 + abs(x); (g / b) / b."""
    b = operand(y, "div", 1)
    return div(div(g, b), b)


# ── Gelu ────────────────────────────────────────────────────────────────────────────────────────────


def _gelu(node: Node, x: Value, y: Value, g: Value) -> Value:
    """w = 1 + erf(x / sqrt(2)) or 1 + tanh(u), from y; g * (0.5 * w + its slope times 0.5 * x); see the two slopes."""
    w = operand(y, "mul", 1)
    curve = _tanh_slope(x, w) if node["approximate"] == "tanh" else _erf_slope(x)
    return mul(g, add(mul(number(0.5, x), w), curve))


def _erf_slope(x: Value) -> Value:
    """x * (1 / sqrt(2 pi) * exp(-0.5 * (x * x)))."""
    bell = elementwise("exp", mul(number(-0.5, x), mul(x, x)))
    return mul(x, mul(number(ONE_OVER_ROOT_TWO_PI, x), bell))


def _tanh_slope(x: Value, w: Value) -> Value:
    """u = c * (x + 0.044715 * x ** 3), t = tanh(u); (0.5 * x) * ((1 - t * t) * (c * (1 + 0.134145 * (x * x))))."""
    t = operand(w, "add", 1)
    c = operand(operand(t, "tanh"), "mul")
    steep = mul(c, add(number(1, x), mul(number(0.134145, x), mul(x, x))))
    return mul(mul(number(0.5, x), x), mul(_one_minus(mul(t, t)), steep))


# ── the table ───────────────────────────────────────────────────────────────────────────────────────


def _whole(formula: Formula) -> Callable[[Node], Sequence[Step]]:
    def find(node: Node) -> Sequence[Step]:
        x, y = own_argument(node), own_result(node)
        return (Step(y, (x,), lambda g: (formula(node, x, y, g),)),)

    return find


def _prelu(node: Node) -> Sequence[Step]:
    """x < 0 ? slope * g : g; of the slope x < 0 ? x * g : +0."""
    x, slope = own_argument(node, 0), own_argument(node, 1)

    def rule(g: Value) -> tuple[Value, Value]:
        return _below_zero(x, mul(slope, g), g), _below_zero(x, mul(x, g), number(0, x))

    return (Step(own_result(node), (x, slope), rule),)


def _dropout(node: Node) -> Sequence[Step]:
    """keep ? g * (1 / (1 - ratio)) : +0, of the forward's own mask; none of the ratio."""
    x, y = own_argument(node), own_result(node)
    keep, factor = operand(y, "select", 0), operand(operand(y, "select", 1), "mul", 1)
    return (Step(y, (x,), lambda g: (select(keep, mul(g, factor), number(0, g)),)),)


def _flat(node: Node) -> Sequence[Step]:
    """No path: piecewise constant."""
    return (Step(own_result(node), (), lambda _: ()),)


STEPS: dict[str, Callable[[Node], Sequence[Step]]] = {
    "LeakyRelu": _whole(_leaky_relu),
    "PRelu": _prelu,
    "Elu": _whole(_elu),
    "Selu": _whole(_selu),
    "Celu": _whole(_celu),
    "Sigmoid": _whole(_sigmoid),
    "Swish": _whole(_swish),
    "Softplus": _whole(_softplus),
    "Mish": _whole(_mish),
    "Softsign": _whole(_softsign),
    "Gelu": _whole(_gelu),
    "Dropout": _dropout,
    "Sign": _flat,
}
