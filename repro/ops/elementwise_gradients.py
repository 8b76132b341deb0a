"""Gradients of the elementwise ops; g is the cotangent, y the op's own result.

Each formula is part of the contract: the table "Gradients of the core ops" of docs/numerics.md says it in words. y
stands in a formula where that is cheaper and loses nothing; where 1 - x * x would cancel, (1 - x) * (1 + x) stands.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from repro.ir.graph import Node, Value, constant_array
from repro.ir.types import to_face
from repro.ops.arithmetic import add, compare, convert_to, div, elementwise, mul, neg, select, sub
from repro.ops.movement import fill
from repro.ops.record import Gradient, NotDifferentiable
from repro.ops.structure import static

Cotangents = tuple[Value, ...]
Made = tuple[Value | None, ...]

LN_2 = 0.6931471805599453
LN_10 = 2.302585092994046
TWO_OVER_ROOT_PI = 1.1283791670955126
"""Each the nearest f64, rounded again to the type that computes; tests/ops/test_gradients.py checks them."""


def number(value: float, like: Value) -> Value:
    return fill(value, like.type)


# ── arithmetic ──────────────────────────────────────────────────────────────────────────────────────


def _add(_: Node, cotangents: Cotangents) -> Made:
    """g, g."""
    return cotangents[0], cotangents[0]


def _sub(_: Node, cotangents: Cotangents) -> Made:
    """g, -g."""
    return cotangents[0], neg(cotangents[0])


def _mul(node: Node, cotangents: Cotangents) -> Made:
    """g * b, g * a."""
    a, b = node.operands
    return mul(cotangents[0], b), mul(cotangents[0], a)


def _div(node: Node, cotangents: Cotangents) -> Made:
    """q = g / b; q, -(q * y)."""
    quotient = div(cotangents[0], node.operands[1])
    return quotient, neg(mul(quotient, node.value))


def _rem(node: Node, cotangents: Cotangents) -> Made:
    """g, -(g * round((a - y) / b)): the quotient is whole, and trunc(a / b) may be one off."""
    a, b = node.operands
    whole = elementwise("round", div(sub(a, node.value), b))
    return cotangents[0], neg(mul(cotangents[0], whole))


def _fma(node: Node, cotangents: Cotangents) -> Made:
    """g * b, g * a, g."""
    a, b, _ = node.operands
    return mul(cotangents[0], b), mul(cotangents[0], a), cotangents[0]


def _neg(_: Node, cotangents: Cotangents) -> Made:
    """-g."""
    return (neg(cotangents[0]),)


def _sqrt(node: Node, cotangents: Cotangents) -> Made:
    """g / (y + y)."""
    return (div(cotangents[0], add(node.value, node.value)),)


def _abs(node: Node, cotangents: Cotangents) -> Made:
    """x > 0 ? g : x < 0 ? -g : +0."""
    x, zero = node.operands[0], number(0, node.operands[0])
    below = select(compare("lt", x, zero), neg(cotangents[0]), zero)
    return (select(compare("gt", x, zero), cotangents[0], below),)


def _extreme(order: str) -> Callable[[Node, Cotangents], Made]:
    def rule(node: Node, cotangents: Cotangents) -> Made:
        """The operand that is the result takes g, the other +0; ties go left, and NaN wins (rule 5). Beside a number
        the result is asked in place of the other operand: it compares alike, and is kept for what reads it anyway."""
        a, b = node.operands
        if _is_number(a):
            left = compare(order, a, node.value)
        else:
            left = elementwise("or", compare(order, a, b), compare("ne", a, a))
        zero = number(0, a)
        return select(left, cotangents[0], zero), select(left, zero, cotangents[0])

    return rule


def _select(node: Node, cotangents: Cotangents) -> Made:
    """c ? g : +0, c ? +0 : g."""
    condition, zero = node.operands[0], fill(0, cotangents[0].type)
    return None, select(condition, cotangents[0], zero), select(condition, zero, cotangents[0])


def convert_gradient(node: Node, cotangents: Cotangents) -> Made:
    """g, rounded once to the operand's type; no path from or to integers."""
    source = node.operands[0].dtype
    if not (source.is_float and node.types[0].dtype.is_float):
        return (None,)
    return (convert_to(cotangents[0], source),)


# ── powers ──────────────────────────────────────────────────────────────────────────────────────────


def _is_number(value: Value) -> bool:
    """Whether all elements are one constant that is no NaN."""
    of = value.node.operands[0] if value.node.op == "broadcast" else value
    array = static(of) if of.type.elements == 1 else None
    return array is not None and not np.isnan(to_face(array, of.dtype)).any()


def _is_two(value: Value) -> bool:
    """Whether a value is known to be 2 throughout."""
    node = value.node
    while node.op in ("broadcast", "reshape"):
        node = node.operands[0].node
    if node.op != "constant" or not node.types[0].elements:
        return False
    return bool(np.all(to_face(constant_array(node), node.types[0].dtype) == 2.0))


def _pow(node: Node, cotangents: Cotangents) -> Made:
    """Of p = pow(x, n): n = 0 ? +0 : g * (n * pow(x, n - 1)); x = 0 and n >= 0 ? +0 : g * (p * log(x)).

    If n is known to be 2 throughout, the first is g * (x + x).
    """
    (base, exponent), g = node.operands, cotangents[0]
    zero = number(0, base)
    if _is_two(exponent):
        by_base = mul(g, add(base, base))
    else:
        lower = elementwise("pow", base, sub(exponent, number(1, base)))
        by_base = select(compare("eq", exponent, zero), zero, mul(g, mul(exponent, lower)))
    flat = elementwise("and", compare("eq", base, zero), compare("ge", exponent, zero))
    return by_base, select(flat, zero, mul(g, mul(node.value, elementwise("log", base))))


def _atan2(node: Node, cotangents: Cotangents) -> Made:
    """Of atan2(a, b): d = a * a + b * b; g * (b / d), -(g * (a / d))."""
    (a, b), g = node.operands, cotangents[0]
    square = add(mul(a, a), mul(b, b))
    return mul(g, div(b, square)), neg(mul(g, div(a, square)))


# ── functions of one operand: x, y and g to the cotangent of x ───────────────────────────────────────

Formula = Callable[[Value, Value, Value], Value]


def _of(name: str, x: Value) -> Value:
    return elementwise(name, x)


def _one_plus(x: Value) -> Value:
    return add(number(1, x), x)


def _one_minus(x: Value) -> Value:
    return sub(number(1, x), x)


def _bell(x: Value) -> Value:
    """2 / sqrt(pi) * exp(-(x * x)), the slope of erf."""
    return mul(number(TWO_OVER_ROOT_PI, x), _of("exp", neg(mul(x, x))))


def _arc(x: Value) -> Value:
    """sqrt((1 - x) * (1 + x))."""
    return _of("sqrt", mul(_one_minus(x), _one_plus(x)))


FORMULAS: dict[str, Formula] = {
    "exp": lambda _, y, g: mul(g, y),
    "exp2": lambda _, y, g: mul(g, mul(y, number(LN_2, y))),
    "expm1": lambda x, _, g: mul(g, _of("exp", x)),  # y + 1 would cancel far below 0
    "log": lambda x, _, g: div(g, x),
    "log2": lambda x, _, g: div(g, mul(x, number(LN_2, x))),
    "log10": lambda x, _, g: div(g, mul(x, number(LN_10, x))),
    "log1p": lambda x, _, g: div(g, _one_plus(x)),
    "sin": lambda x, _, g: mul(g, _of("cos", x)),
    "cos": lambda x, _, g: neg(mul(g, _of("sin", x))),
    "tan": lambda _, y, g: mul(g, _one_plus(mul(y, y))),
    "asin": lambda x, _, g: div(g, _arc(x)),
    "acos": lambda x, _, g: neg(div(g, _arc(x))),
    "atan": lambda x, _, g: div(g, _one_plus(mul(x, x))),
    "sinh": lambda x, _, g: mul(g, _of("cosh", x)),
    "cosh": lambda x, _, g: mul(g, _of("sinh", x)),
    "tanh": lambda _, y, g: mul(g, _one_minus(mul(y, y))),
    "asinh": lambda x, _, g: div(g, _of("sqrt", _one_plus(mul(x, x)))),
    "acosh": lambda x, _, g: div(g, _of("sqrt", mul(sub(x, number(1, x)), _one_plus(x)))),
    "atanh": lambda x, _, g: div(g, mul(_one_minus(x), _one_plus(x))),
    "erf": lambda x, _, g: mul(g, _bell(x)),
    "erfc": lambda x, _, g: neg(mul(g, _bell(x))),
    "cbrt": lambda _, y, g: div(g, mul(number(3, y), mul(y, y))),
    "rsqrt": lambda _, y, g: mul(g, mul(number(-0.5, y), mul(mul(y, y), y))),
}


def _by_formula(formula: Formula) -> Callable[[Node, Cotangents], Made]:
    return lambda node, cotangents: (formula(node.operands[0], node.value, cotangents[0]),)


# ── the table ───────────────────────────────────────────────────────────────────────────────────────

_PIECEWISE_CONSTANT = NotDifferentiable("piecewise constant: zero wherever it is defined")
_DISCRETE = NotDifferentiable("defined on integers and booleans, or gives booleans")

GRADIENTS: dict[str, Gradient] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "rem": _rem,
    "fma": _fma,
    "neg": _neg,
    "sqrt": _sqrt,
    "abs": _abs,
    "max": _extreme("ge"),
    "min": _extreme("le"),
    "select": _select,
    "pow": _pow,
    "atan2": _atan2,
    **{name: _by_formula(formula) for name, formula in FORMULAS.items()},
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), _PIECEWISE_CONSTANT),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "shl", "shr"), _DISCRETE),
}
"""By the op's name; an elementwise op without a line here fails at import."""
