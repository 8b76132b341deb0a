"""Operators that draw (rule 16): uniform and normal numbers, Bernoulli, Multinomial, Dropout."""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import BOOL, F32, F64, I32, I64, DType
from repro.numerics.random_bits import TWO_PI
from repro.ops import (
    add,
    broadcast,
    broadcast_to,
    compare,
    concatenate,
    convert_to,
    div,
    elementwise,
    fill,
    minimum,
    mul,
    reduce_axes,
    reduce_keep,
    reshape,
    scalar,
    select,
    slice_,
    sub,
)
from repro.ops.running import cumulative

# ── words to numbers ────────────────────────────────────────────────────────────────────────────────


def _high_bits(words: Value) -> Value:
    return elementwise("shr", words, fill(8, words.type))


def _unit(integers: Value) -> Value:
    """Integers of 24 bits as f32, times 2^-24: exact."""
    floats = convert_to(integers, F32)
    return mul(floats, fill(2.0**-24, floats.type))


def uniform_of(words: Value) -> Value:
    """(w >> 8) * 2^-24, f32 in [0, 1)."""
    return _unit(_high_bits(words))


def normal_of(words: Value) -> Value:
    """Standard normals f32[n, 2] from words u32[n, 2], by Box and Muller (rule 16)."""
    rows = words.shape[0]
    first, second = slice_(words, (0, 0), (rows, 1)), slice_(words, (0, 1), (rows, 2))
    u1 = _unit(add(_high_bits(first), fill(1, first.type)))
    logarithm = elementwise("log", u1)
    radius = elementwise("sqrt", mul(logarithm, fill(-2.0, logarithm.type)))
    turn = uniform_of(second)
    angle = mul(turn, fill(TWO_PI, turn.type))
    return concatenate([mul(radius, elementwise(name, angle)) for name in ("cos", "sin")], 1)


def _scaled(x: Value, scale: float, shift: float, dtype: DType) -> Value:
    """x * scale + shift in f32 (f64 for f64), then one rounding to `dtype`."""
    wide = convert_to(x, F64 if dtype is F64 else F32)
    return convert_to(add(mul(wide, fill(scale, wide.type)), fill(shift, wide.type)), dtype)


# ── uniform and normal tensors ──────────────────────────────────────────────────────────────────────


def _float_dtype(ctx: NodeContext, default: DType) -> DType:
    dtype = ctx.attr_dtype("dtype", default)
    if not dtype.is_float or dtype.bits < 16:
        raise ctx.error(f"{ctx.op_type} gives floats", f"element type {dtype}", "f32, f64, f16 or bf16")
    return dtype


def _uniform(ctx: NodeContext, shape: Sequence[int], dtype: DType) -> Value:
    """u * (high - low) + low."""
    low, high = ctx.attr_float("low", 0.0), ctx.attr_float("high", 1.0)
    ctx.check_size(shape, dtype)
    words = ctx.random_bits(shape, ctx.float_seed())

    def body(words: Value) -> Value:
        return _ranged(uniform_of(words), low, high, dtype)

    return ctx.composite("RandomUniform", (words,), body, low=low, high=high, dtype=dtype).value


def _ranged(u: Value, low: float, high: float, dtype: DType) -> Value:
    wide = convert_to(u, F64 if dtype is F64 else F32)
    start = fill(low, wide.type)
    extent = sub(fill(high, wide.type), start)
    return convert_to(add(mul(wide, extent), start), dtype)


def _normal(ctx: NodeContext, shape: Sequence[int], dtype: DType) -> Value:
    """z * scale + mean; an odd count draws one word more and leaves the last sine unused."""
    center, scale = ctx.attr_float("mean", 0.0), ctx.attr_float("scale", 1.0)
    ctx.check_size(shape, dtype)
    count = math.prod(shape)
    words = ctx.random_bits((-(-count // 2), 2), ctx.float_seed())

    def body(words: Value) -> Value:
        pairs = normal_of(words)
        flat = slice_(reshape(pairs, (pairs.type.elements,)), (0,), (count,))
        return _scaled(reshape(flat, shape), scale, center, dtype)

    return ctx.composite("RandomNormal", (words,), body, mean=center, scale=scale, dtype=dtype).value


_DRAWS = {"RandomUniform": _uniform, "RandomNormal": _normal}


@onnx_op("RandomUniform")
@onnx_op("RandomNormal")
def random_tensor(ctx: NodeContext) -> Value:
    """Of the shape that an attribute gives."""
    shape = ctx.attr_ints("shape")
    if min(shape, default=0) < 0:
        raise ctx.error("the shape has a negative extent", str(list(shape)), "extents of 0 and up")
    return _DRAWS[ctx.op_type](ctx, shape, _float_dtype(ctx, F32))


@onnx_op("RandomUniformLike", moves=True)
@onnx_op("RandomNormalLike", moves=True)
def random_like(ctx: NodeContext, x: Value) -> Value:
    """Of the shape of the input, and its element type where no attribute gives one."""
    return _DRAWS[ctx.op_type.removesuffix("Like")](ctx, x.shape, _float_dtype(ctx, x.dtype))


# ── draws by probability ────────────────────────────────────────────────────────────────────────────


@onnx_op("Bernoulli", since=15, moves=True)
def bernoulli(ctx: NodeContext, p: Value) -> Value:
    """u < p."""
    dtype = ctx.attr_dtype("dtype", p.dtype)
    wide = convert_to(p, F64 if p.dtype is F64 else F32)
    words = ctx.random_bits(p.shape, ctx.float_seed())

    def body(p: Value, words: Value) -> Value:
        return convert_to(compare("lt", convert_to(uniform_of(words), p.dtype), p), dtype)

    return ctx.composite("Bernoulli", (wide, words), body, dtype=dtype).value


@onnx_op("Multinomial", since=7)
def multinomial(ctx: NodeContext, x: Value) -> Value:
    """e = exp(x - max(x)), c = running sum of e; how many classes but the last have c <= u * c[last]."""
    dtype, samples = ctx.attr_dtype("dtype", I32), ctx.attr_int("sample_size", 1)
    if x.rank != 2 or not x.shape[1] or dtype not in (I32, I64) or samples < 0:
        raise ctx.error(
            "Multinomial draws classes from rows of logarithms", f"{x.type}, {samples} samples as {dtype}",
            "a matrix with at least one class, and int32 or int64",
        )  # fmt: skip
    rows, classes = x.shape
    words = ctx.random_bits((rows, samples), ctx.float_seed())

    def body(x: Value, words: Value) -> Value:
        weights = elementwise("exp", sub(x, broadcast_to(reduce_keep("max", x, (1,)), x.shape)))
        running = cumulative("add", weights, 1)
        total = slice_(running, (0, classes - 1), (rows, classes))
        u = convert_to(uniform_of(words), x.dtype)
        threshold = mul(u, broadcast_to(total, u.shape))
        cube = (rows, samples, classes)
        passed = compare("le", broadcast(running, cube, (0, 2)), broadcast(threshold, cube, (0, 1)))
        number = reduce_axes("add", convert_to(passed, dtype), (2,))
        return minimum(number, fill(classes - 1, number.type))

    return ctx.composite("Multinomial", (x, words), body, dtype=dtype, samples=samples).value


# ── Dropout ─────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("Dropout", since=7, until=11, moves=True)
def dropout_inference(ctx: NodeContext, x: Value) -> tuple[Value, Value]:
    """Before opset 12 there is no training input: the identity, and a mask of ones."""
    ctx.importer.lost_dropouts.setdefault(ctx.name)
    mask = scalar(1, F32 if ctx.opset < 10 else BOOL)
    return x, broadcast(convert_to(mask, x.dtype if ctx.opset < 10 else BOOL), x.shape, ())


@onnx_op("Dropout", since=12)
def dropout(
    ctx: NodeContext, x: Value, ratio: Value | None = None, training: Value | None = None
) -> tuple[Value, Value]:
    """keep = u >= ratio; training: keep ? x * (1 / (1 - ratio)) : 0, else x; the mask is keep, or all true."""
    everything = fill(True, compare("eq", x, x).type)
    known = ctx.static_value(training) if training is not None else None
    if training is None or (known is not None and not known.any()):
        ctx.importer.lost_dropouts.setdefault(ctx.name)
        return x, everything
    rate = scalar(0.5, x.dtype) if ratio is None else convert_to(reshape(ratio, ()), x.dtype)
    words = ctx.random_bits(x.shape, ctx.attr_int("seed", None))
    made = ctx.composite("Dropout", (x, rate, words), _dropped)
    dropped, keep = made.results
    if known is not None:
        return dropped, keep
    condition = broadcast(reshape(training, ()), x.shape, ())
    return select(condition, dropped, x), select(condition, keep, everything)


def _dropped(x: Value, rate: Value, words: Value) -> tuple[Value, Value]:
    one = scalar(1, x.dtype)
    factor = broadcast(div(one, sub(one, rate)), x.shape, ())
    u = convert_to(uniform_of(words), x.dtype)
    keep = compare("ge", u, broadcast(rate, x.shape, ()))
    return select(keep, mul(x, factor), fill(0, x.type)), keep
