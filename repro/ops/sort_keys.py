"""Elements as integers that compare in the order of rule 5, and a key with its place as one integer.

A packed key is `key * 2^32 + place`: no two of a row are equal, and their order is the stable one. Rows are
[outer, n, inner] with their elements along n.
"""

from __future__ import annotations

import numpy as np

from repro.ir.expressions import Expr, apply, bitcast, const, convert
from repro.ir.graph import Node, Value
from repro.ir.types import F32, F64, I32, I64, U32, U64, Array, DType, TensorType
from repro.ops.arithmetic import add, bitcast_to, convert_to, elementwise
from repro.ops.movement import fill
from repro.ops.record import Access, Attributes, Axes, ByElement, NotDifferentiable, Op, Sample, make, register
from repro.ops.structure import iota

PLACE_BITS = 32
LAST = (1 << 63) - 1
"""Behind every packed key: no place reaches 2^32 - 1."""
_INFINITY = {F32: 0x7F800000, F64: 0x7FF0000000000000}

# ── one key ─────────────────────────────────────────────────────────────────────────────────────────


def is_narrow(dtype: DType) -> bool:
    """Whether a key takes 32 bits."""
    return dtype.bits <= 32


def _key_type(_: Attributes, types: tuple[TensorType, ...], __: object) -> tuple[TensorType, ...]:
    if not (types[0].dtype.is_float and types[0].dtype.computes):
        raise TypeError(f"sort_key of {types[0]}: narrow floats are sorted as f32, integers as they are")
    return (TensorType(I64, types[0].shape),)


def _key_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    value, dtype = operands[0], node.operands[0].dtype
    bits = value.view(f"i{dtype.bytes}").astype(np.int64)
    magnitude = bits & ((1 << (dtype.bits - 1)) - 1)
    signed = np.where(bits < 0, -magnitude, magnitude)
    return (np.where(np.isnan(value), _INFINITY[dtype] + 1, signed),)


def _key_element(_: Node, __: int, index: tuple[Expr, ...], operands: tuple[Access, ...], ___: Axes) -> Expr:
    return convert(_of_float(operands[0](index)), I64)


def _of_float(value: Expr) -> Expr:
    """Sign and magnitude as a two's complement: -0 is +0, and every NaN one key above infinity."""
    dtype = value.dtype
    bits = bitcast(value, I32 if dtype is F32 else I64)
    magnitude = apply("and", bits, const(bits.dtype, (1 << (dtype.bits - 1)) - 1))
    signed = apply("select", apply("lt", bits, const(bits.dtype, 0)), apply("neg", magnitude), magnitude)
    is_nan = apply("gt", magnitude, const(bits.dtype, _INFINITY[dtype]))
    return apply("select", is_nan, const(bits.dtype, _INFINITY[dtype] + 1), signed)


def key(value: Value, descending: bool) -> Value:
    """i64 in the order of the elements; of a narrow type within -2^31 to 2^31 - 1."""
    dtype = value.dtype
    if dtype.is_float:
        made = make("sort_key", value).value
    elif dtype is U64:
        wide = TensorType(I64, value.shape)
        made = elementwise("xor", bitcast_to(value, I64), fill(-(1 << 63), wide))
    else:
        made = convert_to(value, I64)
        made = add(made, _filled(-(1 << 31), made)) if dtype is U32 else made
    return elementwise("not", made) if descending else made


register(
    Op(
        "sort_key",
        infer=_key_type,
        reference=_key_reference,
        gradient=NotDifferentiable("an order, not a value"),
        lowering=ByElement(_key_element),
        samples=lambda: (
            Sample((TensorType(F32, (40,)),), lambda v: key(v, False)),
            Sample((TensorType(F64, (40,)),), lambda v: key(v, True)),
        ),
        meaning="an integer in the order in which rule 5 has floats",
    )
)

# ── keys and places ─────────────────────────────────────────────────────────────────────────────────


def _filled(number: int, like: Value) -> Value:
    return fill(number, like.type)


def halves(keys: Value) -> tuple[Value, Value]:
    """The upper and the lower half of 64-bit keys, each to be packed with places: the order is theirs, upper first."""
    upper = elementwise("and", keys, _filled(-(1 << PLACE_BITS), keys))
    lower = elementwise("shl", keys, _filled(PLACE_BITS, keys))
    return upper, elementwise("xor", lower, _filled(-(1 << 63), keys))


def packed(keys: Value) -> Value:
    """Keys of 32 bits and the places of their rows as packed keys."""
    return with_places(elementwise("shl", keys, _filled(PLACE_BITS, keys)))


def with_places(half: Value) -> Value:
    """A half of 64-bit keys, and the places of their rows, as packed keys."""
    return elementwise("or", half, iota(half.shape, 1))


def places_of(values: Value) -> Value:
    """The places of packed keys."""
    return elementwise("and", values, _filled((1 << PLACE_BITS) - 1, values))
