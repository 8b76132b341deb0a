"""Leaves: arguments, parameters, constants, index ramps, random bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from repro.ir import index as ix
from repro.ir.expressions import Expr, convert
from repro.ir.graph import Node, Value, constant, constant_array
from repro.ir.types import I64, U32, Array, DType, TensorType, to_storage
from repro.numerics.random_bits import philox_word, philox_words, seed_words
from repro.ops.record import (
    Access,
    Attributes,
    Axes,
    ByElement,
    NotDifferentiable,
    Op,
    Sample,
    Structural,
    make,
    register,
)


def _given(_: Attributes, __: tuple[TensorType, ...], ___: tuple[object, ...]) -> tuple[TensorType, ...]:
    raise TypeError("leaves carry their type; build them with repro.ir.graph")


def _outside(node: Node, _: tuple[Array, ...]) -> tuple[Array, ...]:
    raise TypeError(f"{node.op} is bound by whoever evaluates the graph")


def _no_samples() -> Iterable[Sample]:
    return ()


for _name in ("argument", "parameter"):
    register(
        Op(
            _name,
            infer=_given,
            reference=_outside,
            gradient=NotDifferentiable("a leaf: its cotangent is the result, not passed on"),
            lowering=Structural("a buffer of its own"),
            samples=_no_samples,
        )
    )

register(
    Op(
        "constant",
        infer=_given,
        reference=lambda node, _: (constant_array(node),),
        gradient=NotDifferentiable("a leaf without operands"),
        lowering=Structural("bits in the kernel or a buffer of its own"),
        samples=_no_samples,
    )
)


def scalar(value: float | int | bool, dtype: DType) -> Value:
    """A rank-0 constant; a Python number is rounded to the dtype's nearest (narrow floats too)."""
    return constant(to_storage(np.asarray(value).astype(dtype.face), dtype), dtype)


def integers(values: Sequence[int] | Array, dtype: DType = I64) -> Value:
    """An integer (or bool) constant from any nested sequence."""
    return constant(np.asarray(values, dtype=dtype.storage), dtype)


def is_constant(value: Value) -> bool:
    return value.node.op == "constant"


def static(value: Value) -> Array | None:
    """The storage array of a constant, or None."""
    return constant_array(value.node) if is_constant(value) else None


# ── iota ────────────────────────────────────────────────────────────────────────────────────────────


def _iota_type(attributes: Attributes, _: tuple[TensorType, ...], __: object) -> tuple[TensorType, ...]:
    return (TensorType(I64, attributes["shape"]),)


def _iota_reference(node: Node, _: tuple[Array, ...]) -> tuple[Array, ...]:
    shape, axis = node["shape"], node["axis"]
    ramp = np.arange(shape[axis], dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return (np.broadcast_to(ramp, shape).copy(),)


def _iota_element(node: Node, _: int, index: tuple[Expr, ...], __: tuple[Access, ...], ___: Axes) -> Expr:
    return index[node["axis"]]


def iota(shape: Sequence[int], axis: int) -> Value:
    """i64 tensor whose elements are their own index along an axis."""
    return make("iota", shape=tuple(shape), axis=axis).value


register(
    Op(
        "iota",
        infer=_iota_type,
        reference=_iota_reference,
        gradient=NotDifferentiable("no operands"),
        lowering=ByElement(_iota_element, moves=True),
        samples=lambda: (Sample((), lambda: iota((3, 5), 1)), Sample((), lambda: iota((4,), 0))),
    )
)

# ── random bits ─────────────────────────────────────────────────────────────────────────────────────

_SCALAR_I64 = TensorType(I64, ())


def _random_type(attributes: Attributes, types: tuple[TensorType, ...], _: object) -> tuple[TensorType, ...]:
    if types != (_SCALAR_I64, _SCALAR_I64):
        raise TypeError(f"random_bits takes run number and first element, both i64[], not {types}")
    return (TensorType(U32, attributes["shape"]),)


def _random_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    kind = node.types[0]
    run, first = (int(operand) for operand in operands)
    words = philox_words(node["seed"], node["identity"], run, kind.elements, first)
    return (words.reshape(kind.shape),)


def _random_element(node: Node, _: int, index: tuple[Expr, ...], operands: tuple[Access, ...], __: Axes) -> Expr:
    run, first = (operand(()) for operand in operands)
    position = ix.add(first, ix.linear(index, node["shape"]))
    return philox_word(position, seed_words(node["seed"]), node["identity"], convert(run, U32))


def random_bits(identity: int | str, seed: int, shape: Sequence[int], run: Value, first: Value) -> Value:
    """Philox words u32 (rule 16): element i is word `first + i` of the node's stream in that run.

    `seed` is the 64-bit key. `run` and `first` are i64 scalars: the run number, and the global number of
    the first element (loop iteration times elements).
    """
    node = make("random_bits", run, first, identity=identity, seed=seed, shape=tuple(shape))
    return node.value


register(
    Op(
        "random_bits",
        infer=_random_type,
        reference=_random_reference,
        gradient=NotDifferentiable("random bits do not depend on a float"),
        lowering=ByElement(_random_element),
        samples=lambda: (
            Sample((), lambda: random_bits(0, 42, (37,), scalar(0, I64), scalar(0, I64))),
            Sample((), lambda: random_bits(3, (7 << 40) + 1, (2, 9), scalar(5, I64), scalar(1000, I64))),
        ),
        expensive=True,
    )
)
