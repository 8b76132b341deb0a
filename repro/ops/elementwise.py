"""Elementwise ops: the scalar operations and the elementary functions, applied to every element.

Operands have one shape; broadcasting is an op of its own. Arithmetic is defined on f32, f64, integers
and bool; the narrow floats are only moved, selected, compared by bits and converted (rule 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from repro.ir.expressions import Expr, apply, bitcast, const, convert
from repro.ir.graph import Node
from repro.ir.scalars import SCALARS
from repro.ir.types import (
    BF16,
    BOOL,
    BY_NAME,
    CANONICAL_NAN,
    F16,
    F32,
    F64,
    I32,
    I64,
    U8,
    U32,
    Array,
    DType,
    Kind,
    TensorType,
)
from repro.numerics import interpret, numpy_scalars
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS
from repro.ops.arithmetic import (
    add,
    bitcast_to,
    canonical_nan,
    compare,
    convert_to,
    div,
    elementwise,
    maximum,
    minimum,
    mul,
    neg,
    select,
    sub,
)
from repro.ops.elementwise_gradients import GRADIENTS, convert_gradient
from repro.ops.record import (
    Access,
    Attributes,
    Axes,
    ByElement,
    NotDifferentiable,
    Op,
    Sample,
    register,
)

__all__ = [
    "add", "bitcast_to", "canonical_nan", "canonical_nan_expr", "compare", "convert_to", "div", "elementwise",
    "maximum", "minimum", "mul", "neg", "select", "sub",
]  # fmt: skip

Types = tuple[TensorType, ...]


def _one_shape(name: str, types: Types) -> tuple[int, ...]:
    if any(kind.shape != types[0].shape for kind in types):
        raise TypeError(f"{name}: shapes differ: {', '.join(map(str, types))}")
    return types[0].shape


def _scalar_type(name: str) -> Callable[[Attributes, Types, object], Types]:
    op = SCALARS[name]

    def infer(_: Attributes, types: Types, __: object) -> Types:
        shape = _one_shape(name, types)
        dtypes = [kind.dtype for kind in types]
        checked = dtypes[-1]
        if len(types) != op.arity or checked.kind not in op.kinds:
            raise TypeError(f"{name} is not defined on {', '.join(map(str, types))}")
        if name != "select" and not checked.computes:
            raise TypeError(f"{name} on {checked}: narrow floats compute in f32")
        return (TensorType(op.result(dtypes), shape),)

    return infer


def _scalar_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    dtypes = [value.dtype for value in node.operands]
    return (numpy_scalars.evaluate(node.op, node.types[0].dtype, dtypes, operands),)


def _scalar_element(node: Node, _: int, index: tuple[Expr, ...], operands: tuple[Access, ...], __: Axes) -> Expr:
    return apply(node.op, *(operand(index) for operand in operands))


_COMMUTATIVE = frozenset({"add", "mul", "min", "max", "eq", "ne", "and", "or", "xor"})
_EXPENSIVE = frozenset({"div", "rem", "sqrt"})
_BY_KIND: dict[Kind, tuple[DType, ...]] = {
    Kind.FLOAT: (F32, F64),
    Kind.SIGNED: (I32, I64),
    Kind.UNSIGNED: (U8, U32),
    Kind.BOOL: (BOOL,),
}


def _scalar_samples(name: str) -> Callable[[], Iterable[Sample]]:
    def samples() -> Iterable[Sample]:
        for kind, dtypes in _BY_KIND.items():
            if kind not in SCALARS[name].kinds:
                continue
            for dtype in dtypes:
                of = TensorType(dtype, (3, 21))
                operands = [of] * SCALARS[name].arity
                if name == "select":
                    operands[0] = TensorType(BOOL, of.shape)
                yield Sample(tuple(operands), lambda *values: elementwise(name, *values))

    return samples


for _name in SCALARS:
    if _name in ("convert", "bitcast"):
        continue
    register(
        Op(
            _name,
            infer=_scalar_type(_name),
            reference=_scalar_reference,
            gradient=GRADIENTS[_name],
            lowering=ByElement(_scalar_element),
            samples=_scalar_samples(_name),
            commutative=_name in _COMMUTATIVE,
            expensive=_name in _EXPENSIVE,
            meaning=SCALARS[_name].meaning,
        )
    )

# ── elementary functions ────────────────────────────────────────────────────────────────────────────


def _function_type(name: str, arity: int) -> Callable[[Attributes, Types, object], Types]:
    def infer(_: Attributes, types: Types, __: object) -> Types:
        _one_shape(name, types)
        if len(types) != arity or types[0].dtype not in (F32, F64) or types[0] != types[-1]:
            raise TypeError(f"{name} takes {arity} operands of f32 or f64, not {', '.join(map(str, types))}")
        return (types[0],)

    return infer


def _register_function(name: str, function: Callable[..., Expr], arity: int) -> None:
    def reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
        return (interpret.evaluate(function, operands, [value.dtype for value in node.operands]),)

    def element(node: Node, _: int, index: tuple[Expr, ...], operands: tuple[Access, ...], __: Axes) -> Expr:
        return function(*(operand(index) for operand in operands))

    def samples() -> Iterable[Sample]:
        for dtype in (F32, F64):
            of = (TensorType(dtype, (5, 17)),) * arity
            yield Sample(of, lambda *values: elementwise(name, *values))

    register(
        Op(
            name,
            infer=_function_type(name, arity),
            reference=reference,
            gradient=GRADIENTS[name],
            lowering=ByElement(element),
            samples=samples,
            expensive=True,
            meaning="elementary function (rule 14)",
        )
    )


for _name, _function in FUNCTIONS.items():
    _register_function(_name, _function, 1)
for _name, _binary in BINARY_FUNCTIONS.items():
    _register_function(_name, _binary, 2)

# ── convert, bitcast, canonical NaN ─────────────────────────────────────────────────────────────────


def _to_dtype(attributes: Attributes, types: Types, _: object) -> Types:
    return (TensorType(BY_NAME[attributes["to"]], types[0].shape),)


def _bitcast_type(attributes: Attributes, types: Types, _: object) -> Types:
    to = BY_NAME[attributes["to"]]
    if to.bits != types[0].dtype.bits:
        raise TypeError(f"bitcast from {types[0].dtype} to {to}: widths differ")
    return (TensorType(to, types[0].shape),)


def _convert_element(node: Node, _: int, index: tuple[Expr, ...], operands: tuple[Access, ...], __: Axes) -> Expr:
    return convert(operands[0](index), node.types[0].dtype)


def _bitcast_element(node: Node, _: int, index: tuple[Expr, ...], operands: tuple[Access, ...], __: Axes) -> Expr:
    return bitcast(operands[0](index), node.types[0].dtype)


def _convert_samples() -> Iterable[Sample]:
    for source in BY_NAME.values():
        for target in BY_NAME.values():
            if source is not target:
                of = TensorType(source, (19,))
                yield Sample((of,), lambda value, to=target: convert_to(value, to))


register(
    Op(
        "convert",
        infer=_to_dtype,
        reference=_scalar_reference,
        gradient=convert_gradient,
        lowering=ByElement(_convert_element),
        samples=_convert_samples,
        meaning=SCALARS["convert"].meaning,
    )
)
register(
    Op(
        "bitcast",
        infer=_bitcast_type,
        reference=_scalar_reference,
        gradient=NotDifferentiable("reads bits"),
        lowering=ByElement(_bitcast_element),
        samples=lambda: (Sample((TensorType(U32, (9,)),), lambda value: bitcast_to(value, F32)),),
        meaning=SCALARS["bitcast"].meaning,
    )
)


def _nan_type(_: Attributes, types: Types, __: object) -> Types:
    if types[0].dtype not in CANONICAL_NAN:
        raise TypeError(f"canonical_nan is not defined on {types[0]}")
    return (types[0],)


_INFINITY = {F16: 0x7C00, BF16: 0x7F80, F32: 0x7F800000, F64: 0x7FF0000000000000}


def canonical_nan_expr(operand: Expr) -> Expr:
    """Every NaN becomes the canonical one; all else keeps its bits.

    By integers: a compiler may take `x != x ? NaN : x` for x, since to it all NaNs are one.
    """
    dtype = operand.dtype
    bits = bitcast(operand, BY_NAME[f"u{dtype.bits}"])
    magnitude = apply("and", bits, const(bits.dtype, (1 << (dtype.bits - 1)) - 1))
    is_nan = apply("gt", magnitude, const(bits.dtype, _INFINITY[dtype]))
    return bitcast(apply("select", is_nan, const(bits.dtype, CANONICAL_NAN[dtype]), bits), dtype)


def _nan_element(_: Node, __: int, index: tuple[Expr, ...], operands: tuple[Access, ...], ___: Axes) -> Expr:
    return canonical_nan_expr(operands[0](index))


def _nan_reference(node: Node, operands: tuple[Array, ...]) -> tuple[Array, ...]:
    return (numpy_scalars.canonicalize(operands[0], node.types[0].dtype),)


register(
    Op(
        "canonical_nan",
        infer=_nan_type,
        reference=_nan_reference,
        gradient=lambda _, cotangents: cotangents,
        lowering=ByElement(_nan_element, settles=True),
        samples=lambda: (
            Sample((TensorType(F32, (33,)),), canonical_nan),
            Sample((TensorType(F16, (33,)),), canonical_nan),
        ),
        meaning="NaNs take their canonical bits (rule 4)",
    )
)
