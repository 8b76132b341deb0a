"""What each arithmetic instruction computes, on NumPy arrays of one value for each thread.

Operands come with the type that the opcode names; a result has the type that it names, or bits of its width. Floating
point is IEEE with one rounding, which is what `.rn` says; opcodes that say anything else are not in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.ir.types import Array
from repro.numerics.numpy_fma import fma_f32, fma_f64

Function = Callable[..., Array]


@dataclass(frozen=True)
class Operation:
    """The types of the operands, and the function of them."""

    operands: tuple[np.dtype[Any], ...]
    function: Function
    result: np.dtype[Any]


class UndefinedError(Exception):
    """An operation that the language leaves open, such as a division by zero."""


def dtype_of(name: str) -> np.dtype[Any]:
    """Of a PTX type: `b` types are unsigned."""
    if name == "pred":
        return np.dtype(np.bool_)
    kind = {"u": "u", "b": "u", "s": "i", "f": "f"}[name[0]]
    return np.dtype(f"{kind}{int(name[1:]) // 8}")


def operation(words: tuple[str, ...]) -> Operation | None:
    """By the opcode's parts; None for what is not known."""
    found = _TABLE.get(words)
    if found is None and words[0] == "setp" and len(words) == 3:
        found = _comparison(words[1], words[2])
    if found is None and words[0] == "cvt":
        found = _conversion(words[1:])
    return found


# ── integers ────────────────────────────────────────────────────────────────────────────────────────


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")


def _multiply_wide(a: Array, b: Array) -> Array:
    wide = _wide(a.dtype)
    return np.multiply(a.astype(wide), b.astype(wide))


def _multiply_high(a: Array, b: Array) -> Array:
    if a.dtype.itemsize < 8:
        return (_multiply_wide(a, b) >> np.array(8 * a.dtype.itemsize, _wide(a.dtype))).astype(a.dtype)
    return _high64_signed(a, b) if a.dtype.kind == "i" else _high64(a, b)


def _high64(a: Array, b: Array) -> Array:
    """The upper half of a 64 x 64 bit product, from 32-bit digits."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    low_a, high_a, low_b, high_b = a & mask, a >> half, b & mask, b >> half
    middle = high_a * low_b + ((low_a * low_b) >> half)
    rest = low_a * high_b + (middle & mask)
    return high_a * high_b + (middle >> half) + (rest >> half)


def _high64_signed(a: Array, b: Array) -> Array:
    x, y = a.view(np.uint64), b.view(np.uint64)
    return (_high64(x, y) - np.where(a < 0, y, 0) - np.where(b < 0, x, 0)).view(np.int64)


def _divide(a: Array, b: Array) -> Array:
    """Towards zero."""
    if not b.all():
        raise UndefinedError("a division by zero")
    if a.dtype.kind == "u":
        return np.floor_divide(a, b)
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    """With the sign of a."""
    if not b.all():
        raise UndefinedError("a division by zero")
    return np.fmod(a, b)


def _shift_left(a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    return np.where(b < bits, a << np.minimum(b, bits - 1).astype(a.dtype), a.dtype.type(0))


def _shift_right(a: Array, b: Array) -> Array:
    """Filled with the sign of a signed operand; shifts by more than the width are shifts by the width."""
    bits = 8 * a.dtype.itemsize
    shifted = a >> np.minimum(b, bits - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(b < bits, shifted, a.dtype.type(0))


def _funnel(a: Array, b: Array, by: Array, left: bool) -> Array:
    """32 bits of b:a, shifted by at most 32."""
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    shift = by.astype(np.uint64)
    return ((both << shift) >> np.uint64(32) if left else both >> shift).astype(np.uint32)


def _shf(left: bool, wrap: bool) -> Function:
    def function(a: Array, b: Array, c: Array) -> Array:
        return _funnel(a, b, c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32)), left)

    return function


def _low_bits(count: Array, dtype: np.dtype[Any]) -> Array:
    """So many ones."""
    bits, one = 8 * dtype.itemsize, dtype.type(1)
    return np.where(count < bits, (one << np.minimum(count, bits - 1).astype(dtype)) - one, ~dtype.type(0))


def _extract(a: Array, position: Array, length: Array) -> Array:
    """Bits [position, position + length) of an unsigned or, its sign kept, a signed operand."""
    bits = 8 * a.dtype.itemsize
    at, count = position & np.uint32(255), length & np.uint32(255)
    raw = a.view(f"u{a.dtype.itemsize}")
    mask = _low_bits(count, raw.dtype)
    found = _shift_right(raw, at) & mask
    if a.dtype.kind == "u":
        return found
    top = np.minimum(at + count - np.uint32(1), np.uint32(bits - 1)).astype(raw.dtype)
    sign = ((raw >> top) & raw.dtype.type(1)).astype(np.bool_) & (count > 0)
    return np.where(sign, found | ~mask, found)


def _insert(a: Array, b: Array, position: Array, length: Array) -> Array:
    """The low bits of a in b, from position on."""
    at, count = position & np.uint32(255), length & np.uint32(255)
    mask = _low_bits(count, a.dtype)
    return (b & ~_shift_left(mask, at)) | _shift_left(a & mask, at)


def _permute(a: Array, b: Array, selector: Array) -> Array:
    """Four bytes picked from b:a; bit 3 of a pick spreads the byte's sign."""
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), np.uint32)
    for place in range(4):
        pick = (selector >> np.uint32(4 * place)) & np.uint32(15)
        byte = ((both >> (np.uint64(8) * (pick & np.uint32(7)).astype(np.uint64))) & np.uint64(255)).astype(np.uint32)
        spread = np.where(byte >> np.uint32(7), np.uint32(255), np.uint32(0))
        result |= np.where(pick >> np.uint32(3), spread, byte) << np.uint32(8 * place)
    return result


def _byte_dot(a: Array, b: Array, total: Array) -> Array:
    """total + the products of a's bytes, unsigned, with b's, signed."""
    result = total.copy()
    for place in range(4):
        unsigned = (a >> np.uint32(8 * place)) & np.uint32(255)
        signed = (b << np.int32(24 - 8 * place)) >> np.int32(24)
        result = result + unsigned * signed.view(np.uint32)
    return result


def _leading_zeros(a: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    found = np.zeros(a.shape, np.uint32)
    rest = a.copy()
    step = bits // 2
    while step:
        empty = rest < a.dtype.type(1 << (bits - step))
        found += np.where(empty, np.uint32(step), np.uint32(0))
        rest = np.where(empty, rest << a.dtype.type(step), rest)
        step //= 2
    return np.where(a == 0, np.uint32(bits), found)


def _ones(a: Array) -> Array:
    return np.bitwise_count(a).astype(np.uint32)


def _reverse(a: Array) -> Array:
    big = a.dtype.newbyteorder(">")
    bits = np.unpackbits(a.astype(big).view(np.uint8).reshape(-1, a.dtype.itemsize), axis=1)
    return np.packbits(bits[:, ::-1], axis=1).reshape(-1).view(big).astype(a.dtype)


def _select(a: Array, b: Array, condition: Array) -> Array:
    return np.where(condition, a, b)


# ── floats ──────────────────────────────────────────────────────────────────────────────────────────


def _extreme(least: bool, nan_wins: bool) -> Function:
    """min or max, -0 below +0; a NaN beside a number is the number, or NaN where it is to win."""

    def function(a: Array, b: Array) -> Array:
        raw = np.dtype(f"u{a.dtype.itemsize}")
        chosen = (np.minimum if least else np.maximum) if nan_wins else (np.fmin if least else np.fmax)
        result = np.asarray(chosen(a, b))
        bits = (np.bitwise_or if least else np.bitwise_and)(a.view(raw), b.view(raw))
        return np.where(a == b, bits, result.view(raw)).view(a.dtype)

    return function


def _copysign(a: Array, b: Array) -> Array:
    """The magnitude of b with the sign of a."""
    return np.copysign(b, a)


def _reciprocal(a: Array) -> Array:
    return np.divide(a.dtype.type(1), a)


_FLOAT_COMPARISONS: dict[str, Function] = {
    "eq": np.equal, "ne": lambda a, b: (a < b) | (a > b), "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "equ": lambda a, b: ~((a < b) | (a > b)), "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b), "num": lambda a, b: (a == a) & (b == b), "nan": lambda a, b: (a != a) | (b != b),
}  # fmt: skip
_INTEGER_COMPARISONS: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def _comparison(name: str, kind: str) -> Operation | None:
    dtype = dtype_of(kind)
    function = (_FLOAT_COMPARISONS if dtype.kind == "f" else _INTEGER_COMPARISONS).get(name)
    return None if function is None else Operation((dtype, dtype), function, np.dtype(np.bool_))


# ── conversions ─────────────────────────────────────────────────────────────────────────────────────

_TO_WHOLE: dict[str, Function] = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}


def _conversion(words: tuple[str, ...]) -> Operation | None:
    """cvt.[how].to.from, without saturation to [0, 1] and without flushing."""
    how, kinds = (words[0], words[1:]) if words[0] in ("rn", *_TO_WHOLE) else ("", words)
    if len(kinds) != 2 or not all(kind[1:].isdigit() and int(kind[1:]) <= 64 for kind in kinds) or "f16" in kinds:
        return None
    to, origin = (dtype_of(kind) for kind in kinds)
    function: Function | None = None
    if origin.kind != "f" and to.kind != "f":
        function = None if how else lambda a: a.astype(to)
    elif origin.kind != "f":
        function = (lambda a: a.astype(to)) if how == "rn" else None
    elif to.kind != "f":
        function = _to_integer(_TO_WHOLE[how], to) if how in _TO_WHOLE else None
    elif origin == to:
        function = _TO_WHOLE.get(how)
    elif to.itemsize < origin.itemsize:
        function = (lambda a: a.astype(to)) if how == "rn" else None
    elif not how:
        function = lambda a: a.astype(to)  # noqa: E731
    return None if function is None else Operation((origin,), function, to)


def _to_integer(whole: Function, to: np.dtype[Any]) -> Function:
    """Clamped to the type's range; NaN gives 0."""
    limits = np.iinfo(to)

    def function(a: Array) -> Array:
        value = whole(a)
        low, high = a.dtype.type(limits.min), a.dtype.type(float(limits.max) + 1.0)
        inside = np.where((value >= low) & (value < high), value, a.dtype.type(0)).astype(to)
        clamped = np.where(value >= high, to.type(limits.max), inside)
        return np.where(value < low, to.type(limits.min), clamped)

    return function


# ── the table ───────────────────────────────────────────────────────────────────────────────────────


def _table() -> dict[tuple[str, ...], Operation]:
    made: dict[tuple[str, ...], Operation] = {}

    def add(opcode: str, function: Function, kind: str, operands: tuple[str, ...], result: str | None = None) -> None:
        types = tuple(dtype_of(each) for each in operands)
        made[tuple(f"{opcode}.{kind}".split("."))] = Operation(types, function, dtype_of(result or kind))

    for bits in (16, 32, 64):
        for sign in "us":
            kind, raw = f"{sign}{bits}", f"b{bits}"
            add("add", np.add, kind, (raw, raw), raw)
            add("sub", np.subtract, kind, (raw, raw), raw)
            add("mul.lo", np.multiply, kind, (raw, raw), raw)
            add("mad.lo", lambda a, b, c: a * b + c, kind, (raw, raw, raw), raw)
            add("mul.hi", _multiply_high, kind, (kind, kind))
            add("mad.hi", lambda a, b, c: _multiply_high(a, b) + c, kind, (kind, kind, kind))
            if bits < 64:
                wide = f"{sign}{2 * bits}"
                add("mul.wide", _multiply_wide, kind, (kind, kind), wide)
                add("mad.wide", lambda a, b, c: _multiply_wide(a, b) + c, kind, (kind, kind, wide), wide)
            add("div", _divide, kind, (kind, kind))
            add("rem", _remainder, kind, (kind, kind))
            add("min", np.minimum, kind, (kind, kind))
            add("max", np.maximum, kind, (kind, kind))
            add("shr", _shift_right, kind, (kind, "u32"))
            add("selp", _select, kind, (raw, raw, "pred"), raw)
            if bits > 16:
                add("bfe", _extract, kind, (kind, "u32", "u32"))
        kind = f"b{bits}"
        signed = f"s{bits}"
        add("abs", np.abs, signed, (signed,))
        add("neg", np.negative, signed, (signed,))
        add("shl", _shift_left, kind, (kind, "u32"))
        add("shr", _shift_right, kind, (kind, "u32"))
        add("selp", _select, kind, (kind, kind, "pred"))
        if bits > 16:
            add("bfi", _insert, kind, (kind, kind, "u32", "u32"))
            add("clz", _leading_zeros, kind, (kind,), "u32")
            add("popc", _ones, kind, (kind,), "u32")
            add("brev", _reverse, kind, (kind,))
    for kind in ("pred", "b16", "b32", "b64"):
        add("and", np.bitwise_and, kind, (kind, kind))
        add("or", np.bitwise_or, kind, (kind, kind))
        add("xor", np.bitwise_xor, kind, (kind, kind))
        add("not", np.bitwise_not, kind, (kind,))
    add("dp4a.u32", _byte_dot, "s32", ("u32", "s32", "b32"), "b32")
    add("prmt", _permute, "b32", ("b32", "b32", "b32"))
    for left, direction in ((True, "l"), (False, "r")):
        for wrap in (True, False):
            add(f"shf.{direction}.{'wrap' if wrap else 'clamp'}", _shf(left, wrap), "b32", ("b32", "b32", "b32"))
    for kind, fma in (("f32", fma_f32), ("f64", fma_f64)):
        two = (kind, kind)
        for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)):
            add(f"{name}.rn", function, kind, two)
        add("fma.rn", fma, kind, (kind, kind, kind))
        add("sqrt.rn", np.sqrt, kind, (kind,))
        add("rcp.rn", _reciprocal, kind, (kind,))
        add("abs", np.abs, kind, (kind,))
        add("neg", np.negative, kind, (kind,))
        add("copysign", _copysign, kind, two)
        add("selp", _select, kind, (kind, kind, "pred"))
        for least, name in ((True, "min"), (False, "max")):
            add(name, _extreme(least, False), kind, two)
            add(f"{name}.NaN", _extreme(least, True), kind, two)
    return made


_TABLE = _table()
