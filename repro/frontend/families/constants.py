"""Values that need no operand's elements: constants, shapes, ramps, unit matrices."""

from __future__ import annotations

import math

import numpy as np
import onnx

from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import BF16, BOOL, F16, F32, F64, I64, Array, DType, TensorType
from repro.ops import add, broadcast, compare, convert_to, elementwise, fill, integers, iota, mul, reshape, scalar, sub

_NUMBERS = {"value_float": F32, "value_int": I64, "value_floats": F32, "value_ints": I64}


@onnx_op("Constant", moves=True)
def constant(ctx: NodeContext) -> Value:
    """The one value attribute that is there, as a constant."""
    given = sorted(ctx.attributes)
    if len(given) != 1:
        raise ctx.error("Constant has one value", f"attributes {given}", "one of value, value_*, sparse_value")
    name = given[0]
    if name == "value":
        return ctx.attr_tensor("value")
    if name == "sparse_value":
        return _dense(ctx)
    if name not in _NUMBERS:
        raise ctx.error(f"a Constant of '{name}' is not supported", expected="numbers")
    reader = {"value_float": ctx.attr_float, "value_int": ctx.attr_int, "value_floats": ctx.attr_floats}
    dtype = _NUMBERS[name]
    numbers = np.asarray(reader.get(name, ctx.attr_ints)(name), dtype.storage)
    ctx.check_size(numbers.shape, dtype)
    return ctx.importer.constant(numbers, dtype)


def _dense(ctx: NodeContext) -> Value:
    """A sparse tensor attribute (COO, by number or by coordinates) as a dense constant."""
    item = ctx.attributes["sparse_value"]
    if item.type != onnx.AttributeProto.SPARSE_TENSOR:
        raise ctx.error("attribute 'sparse_value' has the wrong type", expected="a sparse tensor")
    sparse, shape = item.sparse_tensor, tuple(item.sparse_tensor.dims)
    dtype, values = ctx.importer.loaded.tensor(sparse.values, f"{ctx.name}.sparse_value")
    kind, places = ctx.importer.loaded.tensor(sparse.indices, f"{ctx.name}.sparse_value")
    if min(shape, default=0) < 0 or kind is not I64 or places.shape[:1] != values.shape:
        raise ctx.error("a sparse tensor does not fit itself", f"dims {list(shape)}, indices {places.shape}")
    ctx.check_size(shape, dtype)
    dense: Array = np.zeros(shape, dtype.storage)
    points = places.reshape(-1, 1) if places.ndim == 1 else places
    extents = np.asarray((math.prod(shape),) if places.ndim == 1 else shape)
    if points.shape[1] != len(extents) or np.any(points < 0) or np.any(points >= extents):
        raise ctx.error("indices of a sparse tensor are out of range", expected=f"points inside {list(shape)}")
    target = dense.reshape(-1) if places.ndim == 1 else dense
    target[tuple(points.T)] = values
    return ctx.importer.constant(dense, dtype)


@onnx_op("ConstantOfShape", moves=True)
def constant_of_shape(ctx: NodeContext, _: Value) -> Value:
    """One value (default: f32 zero) everywhere."""
    shape = _shape(ctx, 0)
    value = ctx.attr_tensor("value") if ctx.has("value") else scalar(0, F32)
    if value.type.elements != 1:
        raise ctx.error("'value' is not one element", str(value.type), "a tensor of one element")
    ctx.check_size(shape, value.dtype)
    return broadcast(reshape(value, ()), shape, ())


def _shape(ctx: NodeContext, index: int) -> tuple[int, ...]:
    shape = ctx.static_ints(index)
    if min(shape, default=0) < 0:
        raise ctx.error("a shape has a negative extent", str(list(shape)), "extents of 0 and up")
    return shape


@onnx_op("Shape", until=14, moves=True)
@onnx_op("Shape", since=15, moves=True)
def shape(ctx: NodeContext, data: Value) -> Value:
    """The extents from axis `start` to before `end` (opset 15), both clamped to the rank."""
    start, end = (ctx.attr_int("start", 0), ctx.attr_int("end", data.rank)) if ctx.opset >= 15 else (0, data.rank)
    low, high = (min(max(at + data.rank if at < 0 else at, 0), data.rank) for at in (start, end))
    return integers(np.asarray(data.shape[low:high], np.int64))


@onnx_op("Size", moves=True)
def size(_: NodeContext, data: Value) -> Value:
    """The number of elements."""
    return scalar(data.type.elements, I64)


@onnx_op("Range", since=11, moves=True)
def numbers(ctx: NodeContext, _: Value, __: Value, ___: Value) -> Value:
    """start + i * delta; the count, ceil((limit - start) / delta), of floats is taken in f64."""
    first = ctx.inputs[0]
    dtype = first.dtype if isinstance(first, Value) else F32
    start, limit, step = (_number(ctx, index) for index in range(3))
    if step == 0 or not all(math.isfinite(number) for number in (start, limit, step)):
        raise ctx.error("a range without an end", f"start {start}, limit {limit}, delta {step}", "finite, delta not 0")
    if dtype.is_float:
        count = math.ceil((limit - start) / step) if math.isfinite((limit - start) / step) else 1 << 62
    else:
        count = -(-(int(limit) - int(start)) // int(step))
    count = max(count, 0)
    ctx.check_size((count,), dtype)
    computed = _range_type(ctx, dtype)
    ramp, of = convert_to(iota((count,), 0), computed), TensorType(computed, (count,))
    if step != 1:
        ramp = mul(ramp, fill(step, of))
    if start != 0:
        ramp = add(ramp, fill(start, of))
    return convert_to(ramp, dtype)


def _number(ctx: NodeContext, index: int) -> float | int:
    found = ctx.static(index)
    if found.size != 1:
        raise ctx.error(f"input {index} is not one number", f"{found.size} numbers", "a scalar")
    number = found.reshape(-1)[0]
    return int(number) if found.dtype.kind in "iu" else float(number)


def _range_type(ctx: NodeContext, dtype: DType) -> DType:
    """f16 and bf16 are computed in f32, or in f64 where `stash_type` (opset 27) says so."""
    if dtype not in (F16, BF16):
        return dtype
    stash = ctx.attr_dtype("stash_type", F32) if ctx.opset >= 27 else F32
    if stash not in (F32, F64):
        raise ctx.error("'stash_type' is not supported", str(stash), "float32 or float64")
    return stash


@onnx_op("EyeLike", since=9, moves=True)
def eye_like(ctx: NodeContext, data: Value) -> Value:
    """Ones on diagonal `k`, zeros elsewhere."""
    if data.rank != 2:
        raise ctx.error("EyeLike takes a matrix", str(data.type), "a tensor of rank 2")
    dtype = ctx.attr_dtype("dtype", data.dtype)
    return convert_to(on_diagonals(data.shape, "eq", scalar(ctx.attr_int("k", 0), I64)), dtype)


@onnx_op("Trilu", since=14, moves=True)
def trilu(ctx: NodeContext, data: Value, k: Value | None = None) -> Value:
    """The upper (column - row >= k) or lower (<= k) triangle; zero elsewhere."""
    if data.rank < 2:
        raise ctx.error("Trilu takes matrices", str(data.type), "a tensor of rank 2 or more")
    diagonal = scalar(0, I64) if k is None else convert_to(reshape(k, ()), I64)
    kept = on_diagonals(data.shape, "ge" if ctx.attr_bool("upper", True) else "le", diagonal)
    return elementwise("select", kept, data, fill(0, data.type))


def on_diagonals(shape: tuple[int, ...], relation: str, k: Value) -> Value:
    """bool: whether (column - row) of the last two axes stands in the relation to `k`."""
    plane = shape[-2:]
    offset = sub(iota(plane, 1), iota(plane, 0))
    held = compare(relation, offset, broadcast(k, plane, ()))
    assert held.dtype is BOOL
    return broadcast(held, shape, (len(shape) - 2, len(shape) - 1))
