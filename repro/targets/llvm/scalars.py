"""Scalar operations as LLVM IR, on scalars and vectors alike, with the contract's bits (rules 1 to 6)."""

from __future__ import annotations

from collections.abc import Callable

from repro.errors import InternalError
from repro.ir.types import BOOL, F32, F64, I32, DType
from repro.machines import Machine
from repro.targets.llvm.text import Function, Val, element, integer, literal, vector

_ARITHMETIC = {"add": ("fadd", "add"), "sub": ("fsub", "sub"), "mul": ("fmul", "mul")}
_ORDERED = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven", "sqrt": "sqrt", "abs": "fabs"}


def suffix(dtype: DType, width: int) -> str:
    """The name part of an overloaded intrinsic: v16f32."""
    kind = f"{'f' if dtype in (F32, F64) else 'i'}{1 if dtype is BOOL else dtype.bits}"
    return kind if width == 1 else f"v{width}{kind}"


def constant(f: Function, dtype: DType, bits: int, width: int) -> Val:
    """A constant in every lane."""
    one = literal(dtype, bits & ((1 << dtype.bits) - 1))
    if width == 1:
        return one
    return Val(f"splat ({one.typed})", dtype, width)


def binary(f: Function, instruction: str, a: Val, b: Val) -> Val:
    return f.let(f"{instruction} {a.typed}, {b.text}", a.dtype, a.width)


def intrinsic(f: Function, name: str, *operands: Val) -> Val:
    first = operands[0]
    return f.call(f"llvm.{name}.{suffix(first.dtype, first.width)}", first, operands)


def compare(f: Function, op: str, a: Val, b: Val) -> Val:
    if a.dtype in (F32, F64):
        return f.let(f"fcmp {_ORDERED[op]} {a.typed}, {b.text}", BOOL, a.width)
    signed = "s" if a.dtype.is_signed else "u"
    predicate = op if op in ("eq", "ne") else signed + op
    return f.let(f"icmp {predicate} {a.typed}, {b.text}", BOOL, a.width)


def least(f: Function, a: Val, b: Val) -> Val:
    """The lesser of two integers, as a number where both are known."""
    if a.number is not None and b.number is not None:
        return integer(min(a.number, b.number), a.dtype)
    return select(f, compare(f, "lt", a, b), a, b)


def greatest(f: Function, a: Val, b: Val) -> Val:
    """The greater of two integers, as a number where both are known."""
    if a.number is not None and b.number is not None:
        return integer(max(a.number, b.number), a.dtype)
    return select(f, compare(f, "lt", a, b), b, a)


def select(f: Function, condition: Val, a: Val, b: Val) -> Val:
    return f.let(f"select {condition.typed}, {a.typed}, {b.typed}", a.dtype, a.width)


def any_lane(f: Function, condition: Val) -> Val:
    """Whether a condition holds in some lane, as a scalar: not all lanes have its opposite, since a condition is often
    that something else does not hold."""
    if condition.width == 1:
        return condition
    opposite = binary(f, "xor", condition, constant(f, BOOL, 1, condition.width))
    all_opposite = f.call(f"llvm.vector.reduce.and.{suffix(BOOL, condition.width)}", (BOOL, 1), [opposite])
    return binary(f, "xor", all_opposite, literal(BOOL, 1))


def all_lanes(f: Function, condition: Val) -> Val:
    """Whether a condition holds in every lane, as a scalar."""
    if condition.width == 1:
        return condition
    return f.call(f"llvm.vector.reduce.and.{suffix(BOOL, condition.width)}", (BOOL, 1), [condition])


def fma(f: Function, a: Val, b: Val, c: Val) -> Val:
    """a b + c, of floats rounded once."""
    if not a.dtype.is_float:
        return binary(f, "add", binary(f, "mul", a, b), c)
    return intrinsic(f, "fma", a, b, c)


def _extreme(f: Function, op: str, a: Val, b: Val) -> Val:
    """IEEE 754-2019 minimum and maximum: NaN wins, -0 < +0."""
    if a.dtype in (F32, F64):
        return intrinsic(f, "minimum" if op == "min" else "maximum", a, b)
    return intrinsic(f, ("s" if a.dtype.is_signed else "u") + op, a, b)


def _divide(f: Function, op: str, a: Val, b: Val) -> Val:
    if a.dtype in (F32, F64):
        return binary(f, "fdiv" if op == "div" else "frem", a, b)
    zero, one = constant(f, a.dtype, 0, a.width), constant(f, a.dtype, 1, a.width)
    by_zero = compare(f, "eq", b, zero)
    safe = select(f, by_zero, one, b)
    if not a.dtype.is_signed:
        result = binary(f, "udiv" if op == "div" else "urem", a, safe)
        return select(f, by_zero, zero, result)
    minus = compare(f, "eq", b, constant(f, a.dtype, -1, a.width))
    safe = select(f, minus, one, safe)
    result = binary(f, "sdiv" if op == "div" else "srem", a, safe)
    special = binary(f, "sub", zero, a) if op == "div" else zero
    return select(f, by_zero, zero, select(f, minus, special, result))


def _shift(f: Function, op: str, a: Val, b: Val) -> Val:
    width = constant(f, b.dtype, a.dtype.bits, a.width)
    unsigned = f.let(f"icmp uge {b.typed}, {width.text}", BOOL, a.width)
    zero = constant(f, a.dtype, 0, a.width)
    safe = select(f, unsigned, constant(f, b.dtype, 0, a.width), b)
    instruction = "shl" if op == "shl" else "ashr" if a.dtype.is_signed else "lshr"
    return select(f, unsigned, zero, binary(f, instruction, a, safe))


def _negate(f: Function, a: Val) -> Val:
    if a.dtype in (F32, F64):
        return f.let(f"fneg {a.typed}", a.dtype, a.width)
    return binary(f, "sub", constant(f, a.dtype, 0, a.width), a)


def _absolute(f: Function, a: Val) -> Val:
    if a.dtype in (F32, F64):
        return intrinsic(f, "fabs", a)
    if not a.dtype.is_signed:
        return a
    return select(f, compare(f, "lt", a, constant(f, a.dtype, 0, a.width)), _negate(f, a), a)


def convert(f: Function, a: Val, to: DType) -> Val:
    """Between bool, integers, f32 and f64; the narrow floats are written out before (repro.numerics)."""
    source, target = a.dtype, vector(element(to), a.width)
    floats = (F32, F64)
    if to is BOOL:
        return compare(f, "ne", a, constant(f, source, 0, a.width))
    if source in floats and to in floats:
        instruction = "fpext" if to is F64 else "fptrunc"
    elif source in floats and to.bits < 32 and a.width > 1:
        return _narrowed(f, a, to)
    elif source in floats:
        name = f"llvm.fpto{'s' if to.is_signed else 'u'}i.sat.{suffix(to, a.width)}.{suffix(source, a.width)}"
        return f.call(name, (to, a.width), [a])
    elif to in floats:
        instruction = "sitofp" if source.is_signed else "uitofp"
    elif to.bits == (1 if source is BOOL else source.bits):
        return Val(a.text, to, a.width)
    elif source is not BOOL and to.bits < source.bits:
        instruction = "trunc"
    else:
        instruction = "sext" if source.is_signed else "zext"
    return f.let(f"{instruction} {a.typed} to {target}", to, a.width)


def nearest(f: Function, a: Val, machine: Machine) -> Val:
    """f32 that an i32 holds, rounded to it, ties to even."""
    if machine.rounds_to_integers:
        return f.call(f"llvm.lrint.{suffix(I32, a.width)}.{suffix(a.dtype, a.width)}", (I32, a.width), [a])
    rounded = intrinsic(f, _ROUNDING["round"], a)
    return f.let(f"fptosi {rounded.typed} to {vector(element(I32), a.width)}", I32, a.width)


def _narrowed(f: Function, a: Val, to: DType) -> Val:
    """Vectors of floats to integers of less than 32 bits, saturated, NaN to 0: between bounds as floats, which LLVM
    would do lane by lane. NaN is asked for apart: AArch64's bounds (FMAXNM) let a signaling one through."""
    low, high = (-(1 << (to.bits - 1)), (1 << (to.bits - 1)) - 1) if to.is_signed else (0, (1 << to.bits) - 1)
    least, most = (f.splat(convert(f, integer(end, I32), a.dtype), a.width) for end in (low, high))
    inside = select(f, compare(f, "gt", a, least), a, least)
    inside = select(f, compare(f, "lt", inside, most), inside, most)
    wide = f.let(f"fptosi {inside.typed} to {vector(element(I32), a.width)}", I32, a.width)
    number = compare(f, "eq", a, a)
    return convert(f, select(f, number, wide, constant(f, I32, 0, a.width)), to)


def bitcast(f: Function, a: Val, to: DType) -> Val:
    if element(a.dtype) == element(to):
        return Val(a.text, to, a.width)
    if BOOL in (a.dtype, to):
        return convert(f, a, to)
    return f.let(f"bitcast {a.typed} to {vector(element(to), a.width)}", to, a.width)


def apply(f: Function, op: str, to: DType, operands: list[Val]) -> Val:
    """One operation of `repro.ir.scalars` on operands of equal width."""
    a = operands[0]
    if op in _ARITHMETIC:
        return binary(f, _ARITHMETIC[op][0 if a.dtype in (F32, F64) else 1], a, operands[1])
    if op in _ORDERED:
        return compare(f, op, a, operands[1])
    simple: dict[str, Callable[[], Val]] = {
        "select": lambda: select(f, a, operands[1], operands[2]),
        "convert": lambda: convert(f, a, to),
        "bitcast": lambda: bitcast(f, a, to),
        "fma": lambda: fma(f, *operands),
        "neg": lambda: _negate(f, a),
        "abs": lambda: _absolute(f, a),
        "not": lambda: binary(f, "xor", a, constant(f, a.dtype, -1 if a.dtype is not BOOL else 1, a.width)),
    }
    if op in simple:
        return simple[op]()
    if op in _ROUNDING:
        return intrinsic(f, _ROUNDING[op], a)
    match op:
        case "min" | "max":
            return _extreme(f, op, a, operands[1])
        case "div" | "rem":
            return _divide(f, op, a, operands[1])
        case "and" | "or" | "xor":
            return binary(f, op, a, operands[1])
        case "shl" | "shr":
            return _shift(f, op, a, operands[1])
        case _:
            raise InternalError(f"no LLVM form for {op} on {a.dtype}")
