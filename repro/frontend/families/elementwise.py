"""Elementwise operators: arithmetic, comparison, logic, bits, rounding, unary mathematics, conversion."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from repro.frontend.context import NodeContext, broadcast_together
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value, constant
from repro.ir.types import F32, F64, DType, TensorType
from repro.numerics.narrow_formats import NARROW
from repro.ops import (
    add,
    bitcast_to,
    broadcast,
    canonical_nan,
    compare,
    convert_to,
    div,
    elementwise,
    fill,
    maximum,
    minimum,
    mul,
    neg,
    reshape,
    select,
)

Function = Callable[..., Value]

# ── one core op each ────────────────────────────────────────────────────────────────────────────────

_UNARY: tuple[tuple[str, str, int], ...] = (
    ("Neg", "neg", 1), ("Abs", "abs", 1), ("Floor", "floor", 1), ("Ceil", "ceil", 1), ("Round", "round", 11),
    ("Sqrt", "sqrt", 1), ("Exp", "exp", 1), ("Log", "log", 1), ("Sin", "sin", 7), ("Cos", "cos", 7),
    ("Tan", "tan", 7), ("Asin", "asin", 7), ("Acos", "acos", 7), ("Atan", "atan", 7), ("Sinh", "sinh", 9),
    ("Cosh", "cosh", 9), ("Tanh", "tanh", 1), ("Asinh", "asinh", 9), ("Acosh", "acosh", 9), ("Atanh", "atanh", 9),
    ("Erf", "erf", 9), ("Not", "not", 1), ("BitwiseNot", "not", 18),
)  # fmt: skip
"""ONNX name, core op, first opset version."""

_BINARY: tuple[tuple[str, str, int], ...] = (
    ("Add", "add", 7), ("Sub", "sub", 7), ("Mul", "mul", 7), ("Div", "div", 7), ("Equal", "eq", 7),
    ("Greater", "gt", 7), ("Less", "lt", 7), ("GreaterOrEqual", "ge", 12), ("LessOrEqual", "le", 12),
    ("And", "and", 7), ("Or", "or", 7), ("Xor", "xor", 7), ("BitwiseAnd", "and", 18), ("BitwiseOr", "or", 18),
    ("BitwiseXor", "xor", 18),
)  # fmt: skip

_VARIADIC: tuple[tuple[str, str, int], ...] = (("Sum", "add", 6), ("Min", "min", 6), ("Max", "max", 6))


def _unary(op: str) -> Function:
    def function(_: NodeContext, x: Value) -> Value:
        return elementwise(op, x)

    return function


def _binary(op: str) -> Function:
    def function(_: NodeContext, a: Value, b: Value) -> Value:
        return elementwise(op, *broadcast_together(a, b))

    return function


def _folded(ctx: NodeContext, op: str, values: tuple[Value, ...]) -> Value:
    """The operands taken together from left to right; they broadcast from opset 8 on."""
    if ctx.opset < 8 and any(value.shape != values[0].shape for value in values):
        found = ", ".join(str(value.type) for value in values)
        raise ctx.error(f"{ctx.op_type} before opset 8 does not broadcast", found, "operands of one shape")
    stretched = broadcast_together(*values)
    result = stretched[0]
    for value in stretched[1:]:
        result = elementwise(op, result, value)
    return result


def _variadic(op: str) -> Function:
    def function(ctx: NodeContext, first: Value, *rest: Value) -> Value:
        return _folded(ctx, op, (first, *rest))

    return function


for _name, _core, _since in _UNARY:
    onnx_op(_name, since=_since)(_unary(_core))
for _name, _core, _since in _BINARY:
    onnx_op(_name, since=_since)(_binary(_core))
for _name, _core, _since in _VARIADIC:
    onnx_op(_name, since=_since)(_variadic(_core))


@onnx_op("Mean", since=6)
def mean(ctx: NodeContext, first: Value, *rest: Value) -> Value:
    """(a + b + ...) / count: sums from left to right, one division."""
    total = _folded(ctx, "add", (first, *rest))
    return div(total, fill(1 + len(rest), total.type))


@onnx_op("Reciprocal")
def reciprocal(_: NodeContext, x: Value) -> Value:
    """1 / x."""
    return div(fill(1, x.type), x)


@onnx_op("Sign", since=9)
def sign(ctx: NodeContext, x: Value) -> Value:
    """x > 0 ? 1 : x < 0 ? -1 : x == 0 ? +0 : x."""

    def body(x: Value) -> Value:
        zero, one = fill(0, x.type), fill(1, x.type)
        at_most = zero
        if x.dtype.is_float:
            at_most = select(compare("eq", x, zero), zero, x)
        if x.dtype.is_float or x.dtype.is_signed:
            at_most = select(compare("lt", x, zero), neg(one), at_most)
        return select(compare("gt", x, zero), one, at_most)

    return ctx.composite("Sign", (x,), body).value


# ── remainders and powers ───────────────────────────────────────────────────────────────────────────


@onnx_op("Mod", since=10)
def mod(ctx: NodeContext, a: Value, b: Value) -> Value:
    """fmod=1: the exact remainder, sign of a. fmod=0: r = rem(a, b), then r + b where their signs differ."""
    a, b = broadcast_together(a, b)
    if ctx.attr_bool("fmod"):
        return elementwise("rem", a, b)
    if a.dtype.is_float and ctx.opset < 28:
        raise ctx.error("Mod of floats needs fmod=1", f"fmod=0 on {a.type}", "fmod=1, or opset 28 and up")

    def body(a: Value, b: Value) -> Value:
        rest = elementwise("rem", a, b)
        if not (a.dtype.is_float or a.dtype.is_signed):
            return rest
        zero = fill(0, rest.type)
        opposite = elementwise("xor", compare("lt", rest, zero), compare("lt", b, zero))
        moved = select(opposite, add(rest, b), rest)
        return select(compare("eq", rest, zero), _zero_like(b), moved)

    return ctx.composite("Mod", (a, b), body).value


def _zero_like(b: Value) -> Value:
    """A zero with the sign of b; b is not zero where a float remainder is."""
    zero = fill(0, b.type)
    if not b.dtype.is_float:
        return zero
    return select(compare("lt", b, zero), neg(zero), zero)


@onnx_op("Pow", since=7)
def power(ctx: NodeContext, x: Value, y: Value) -> Value:
    """x ^ y in the type of x; a wider float exponent, and a float exponent of integers, compute in f64."""
    if x.dtype.is_integer and y.dtype.is_integer:
        return _integer_power(ctx, x, y)
    dtype = F64 if F64 in (x.dtype, y.dtype) or x.dtype.is_integer else F32
    base, exponent = broadcast_together(convert_to(x, dtype), convert_to(y, dtype))
    original = ctx.inputs[0]
    result = original.dtype if isinstance(original, Value) and dtype is F64 else x.dtype
    return convert_to(elementwise("pow", base, exponent), result)


def _integer_power(ctx: NodeContext, x: Value, y: Value) -> Value:
    """Powers of integers by repeated squaring, wrapping; a negative exponent truncates 1 / x^|y|, with 1 / 0 = 0."""
    known = ctx.static_value(y)
    bits = y.dtype.bits - y.dtype.is_signed
    if known is not None:
        bits = max((max(int(n), 0).bit_length() for n in known.reshape(-1)), default=0)
    negative = y.dtype.is_signed and (known is None or bool((known < 0).any()))
    x, y = broadcast_together(x, y)

    def body(x: Value, y: Value) -> Value:
        zero, one = fill(0, x.type), fill(1, x.type)
        result, square = one, x
        for bit in range(bits):
            odd = compare("ne", elementwise("and", y, fill(1 << bit, y.type)), fill(0, y.type))
            result = select(odd, mul(result, square), result)
            square = mul(square, square) if bit + 1 < bits else square
        if not negative:
            return result
        inverse = select(compare("eq", x, one), one, zero)
        if x.dtype.is_signed:
            odd = compare("ne", elementwise("and", y, fill(1, y.type)), fill(0, y.type))
            inverse = select(compare("eq", x, neg(one)), select(odd, neg(one), one), inverse)
        return select(compare("lt", y, fill(0, y.type)), inverse, result)

    return ctx.composite("Pow", (x, y), body).value


@onnx_op("BitShift", since=11)
def bit_shift(ctx: NodeContext, x: Value, y: Value) -> Value:
    """A shift by the width or more, or by a negative amount, leaves copies of the sign to the right, 0 to the left."""
    direction = ctx.attr_str("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise ctx.error("BitShift has no such direction", f"'{direction}'", "LEFT or RIGHT")
    x, y = broadcast_together(x, y)
    if direction == "LEFT":
        return elementwise("shl", x, y)
    if x.dtype.is_signed:
        last = fill(x.dtype.bits - 1, y.type)
        y = select(compare("lt", y, fill(0, y.type)), last, minimum(y, last))
    return elementwise("shr", x, y)


# ── special values, selection, bounds ───────────────────────────────────────────────────────────────


def _computed(x: Value) -> Value:
    """Narrow floats as f32, f8 too."""
    return x if x.dtype.computes else convert_to(x, F32)


@onnx_op("IsNaN", since=9, moves=True)
def is_nan(_: NodeContext, x: Value) -> Value:
    """x != x."""
    wide = _computed(x)
    return compare("ne", wide, wide)


@onnx_op("IsInf", since=10, moves=True)
def is_inf(ctx: NodeContext, x: Value) -> Value:
    """x == inf or x == -inf, each where it is asked for."""
    wide = _computed(x)
    asked = [("detect_positive", float("inf")), ("detect_negative", float("-inf"))]
    found = [compare("eq", wide, fill(value, wide.type)) for name, value in asked if ctx.attr_bool(name, True)]
    if not found:
        return compare("ne", fill(0, wide.type), fill(0, wide.type))
    return found[0] if len(found) == 1 else elementwise("or", *found)


@onnx_op("Where", since=9, moves=True)
def where(_: NodeContext, condition: Value, x: Value, y: Value) -> Value:
    """condition ? x : y."""
    return select(*broadcast_together(condition, x, y))


def _clip(ctx: NodeContext, x: Value, low: Value | None, high: Value | None) -> Value:
    """min(max(x, low), high); a bound that is left out bounds nothing."""
    given = [bound for bound in (low, high) if bound is not None]

    def body(x: Value, *bounds: Value) -> Value:
        rest = list(bounds)
        if low is not None:
            x = maximum(x, broadcast(rest.pop(0), x.shape, ()))
        return x if high is None else minimum(x, broadcast(rest.pop(0), x.shape, ()))

    return ctx.composite("Clip", (x, *given), body, low=low is not None, high=high is not None).value if given else x


@onnx_op("Clip", until=10)
def clip_attributes(ctx: NodeContext, x: Value) -> Value:
    """Clip between attributes."""
    bounds = [ctx.attr_float(name) if ctx.has(name) else None for name in ("min", "max")]
    kind = TensorType(x.dtype, ())
    low, high = (None if bound is None else fill(bound, kind) for bound in bounds)
    return _clip(ctx, x, low, high)


@onnx_op("Clip", since=11)
def clip(ctx: NodeContext, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """Clip between inputs of one element."""
    for name, bound in (("min", low), ("max", high)):
        if bound is not None and bound.type.elements != 1:
            raise ctx.error(f"the bound '{name}' of Clip is not one number", str(bound.type), f"{x.dtype}[]")
    low, high = (None if bound is None else reshape(bound, ()) for bound in (low, high))
    return _clip(ctx, x, low, high)


# ── conversion ──────────────────────────────────────────────────────────────────────────────────────

_F8 = tuple(dtype for dtype in NARROW if dtype.bits == 8)


def _filled_code(code: int, dtype: DType, shape: tuple[int, ...]) -> Value:
    return broadcast(constant(np.array(code, dtype.storage), dtype), shape, ())


def to_f8_unsaturated(x: Value, to: DType) -> Value:
    """As f8; what rounds above the greatest value is infinity, or NaN where there is none (rule 3)."""
    fmt = NARROW[to]
    greatest = fmt.value(fmt.greatest)
    wide = convert_to(x, F64)
    tie = fill(greatest + (greatest - fmt.value(fmt.greatest - 1)) / 2, wide.type)
    # a tie goes to the even neighbour: the greatest value itself, where its code is even
    beyond = compare("gt" if fmt.greatest % 2 == 0 else "ge", elementwise("abs", wide), tie)
    over = _filled_code(fmt.nan, to, x.shape)
    if fmt.infinity is not None:
        minus = _filled_code(1 << (fmt.width - 1) | fmt.infinity, to, x.shape)
        over = select(compare("lt", wide, fill(0, wide.type)), minus, _filled_code(fmt.infinity, to, x.shape))
    return select(beyond, over, convert_to(x, to))


def _cast(ctx: NodeContext, x: Value, to: DType) -> Value:
    if x.dtype is to or to not in _F8 or ctx.attr_bool("saturate", True):
        return convert_to(x, to)
    return ctx.composite("Cast", (x,), lambda x: to_f8_unsaturated(x, to), to=to, saturate=False).value


@onnx_op("Cast", moves=True)
def cast(ctx: NodeContext, x: Value) -> Value:
    """One rounding from the exact value (rules 3 and 6)."""
    return _cast(ctx, x, ctx.attr_dtype("to"))


@onnx_op("CastLike", since=15, moves=True)
def cast_like(ctx: NodeContext, x: Value, target: Value) -> Value:
    """Cast to the element type of another tensor."""
    return _cast(ctx, x, target.dtype)


@onnx_op("BitCast", since=26, moves=True)
def bit_cast(ctx: NodeContext, x: Value) -> Value:
    """The same bits as another type; NaNs are canonical first (rule 4)."""
    return bitcast_to(canonical_nan(x), ctx.attr_dtype("to"))
