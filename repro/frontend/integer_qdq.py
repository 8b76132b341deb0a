"""`qdq="integer"`: what lies between DequantizeLinear and QuantizeLinear, computed on the integers.

ONNX defines a quantized model of this format in floats: integers times their scale, an operator, and back. Where the
operator adds products (or values) of integers with a scale each, this reading adds the integers, exactly, and scales
the sum once (docs/numerics.md, "Quantized models on integers"):

    contraction(a * s_a, b * s_b)    float(contraction(a, b)) * (s_a * s_b)
    sum(x * s)                       float(sum(x)) * s
    QuantizeLinear(float(p) * s)     round(float(p) * (s / s_y)) + zero point

These are the formulas of QLinearMatMul, QLinearConv and QLinearGlobalAveragePool. All else between the two operators
computes as ONNX says. Integers that are only moved on their way, or the greatest of some, do not become floats at all;
those bits are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from repro.errors import ReproError
from repro.frontend.families.elementwise import broadcast_together
from repro.frontend.families.quantized import rescaled
from repro.ir.graph import Graph, Node, Value, rebuild, substitute
from repro.ir.types import F32, I32, Array, DType
from repro.ops import (
    add,
    broadcast_to,
    composite,
    convert_to,
    div,
    fill,
    make,
    mul,
    reshape,
    reverse,
    scalar,
    slice_,
    static,
    transpose,
)

QDQ = FLOAT, INTEGER = "float", "integer"
"""How what lies between DequantizeLinear and QuantizeLinear computes."""

Known = Callable[[Value], Array | None]
"""The array of a value that is known at build, parameters' initial values included."""

_MOVES = ("reshape", "transpose", "broadcast", "slice", "reverse")
_PLAIN_SCALES = (2.0**-100, 2.0**100)
"""Between these, n * s / s rounds to n for every n of 16 bits: neither step leaves the normal numbers, and two
roundings err by less than a half."""
_MOST_SCALES = 1 << 20
"""Of a sum and its bias, which are compared at build."""


def qdq_of(word: str) -> str:
    """One of `QDQ`. Raises ReproError for anything else."""
    if word not in QDQ:
        raise ReproError("no way to compute a quantized model", found=f"qdq={word!r}", expected=" or ".join(QDQ))
    return word


def contractions(graph: Graph) -> int:
    """How many contractions of floats would be contractions of integers."""
    if not any(_is(node, "DequantizeLinear") for node in graph.nodes):
        return 0
    reading = IntegerQdq()
    for node in graph.nodes:
        reading.learn(node)
    return sum(node.op in ("dot", "convolution") and reading.total(node) is not None for node in graph.nodes)


@dataclass(frozen=True)
class _Range:
    """What integers can be."""

    least: int
    most: int

    @property
    def fits(self) -> bool:
        """Whether i32 holds them."""
        return self.within(_whole(I32))

    def within(self, other: _Range) -> bool:
        return other.least <= self.least and self.most <= other.most

    def __add__(self, other: _Range) -> _Range:
        return _Range(self.least + other.least, self.most + other.most)

    def __sub__(self, other: _Range) -> _Range:
        return _Range(self.least - other.most, self.most - other.least)

    def __mul__(self, other: _Range) -> _Range:
        products = [a * b for a in (self.least, self.most) for b in (other.least, other.most)]
        return _Range(min(products), max(products))

    def times(self, terms: int) -> _Range:
        """Of a sum of up to so many: those in the padding are absent."""
        return _Range(min(0, terms * self.least), max(0, terms * self.most))


@dataclass(frozen=True)
class _Scaled:
    """float(integers) * scale, in f32. The integers are i32; the scale has the rank of the value, and along each axis
    its extent or 1."""

    integers: Value
    scale: Value
    range: _Range

    @property
    def value(self) -> Value:
        return mul(convert_to(self.integers, F32), broadcast_to(self.scale, self.integers.shape))


@dataclass(frozen=True)
class _Stored:
    """Integers as DequantizeLinear was given them, moved since: with its scale and zero point (if any), one for all."""

    integers: Value
    scale: Value
    zero: tuple[Value, ...]


class IntegerQdq:
    """The reading of one model: what its values became, and what is known of them."""

    def __init__(self) -> None:
        self._read: dict[Value, Value] = {}
        self._scaled: dict[Value, _Scaled] = {}
        self._sums: dict[Value, _Scaled] = {}
        """What QuantizeLinear scales once: sums read on integers, moved, or divided by a number (means)."""
        self._stored_as: dict[Value, _Stored] = {}

    def read(self, value: Value, known: Known) -> Value:
        """What stands for a value."""
        stack = [value]
        while stack:
            node = stack[-1].node
            left = [each for each in node.operands if each not in self._read]
            if stack[-1] in self._read or left:
                stack.extend(left) if stack[-1] not in self._read else stack.pop()
                continue
            fresh = rebuild(node, tuple(self._read[each] for each in node.operands))
            results = self._rule(fresh, known) or fresh.results
            for old, new in zip(node.results, results, strict=True):
                self._read[old] = self._read[new] = new
                self.learn(new.node)
        return self._read[value]

    def keeps(self, value: Value) -> bool:
        """Whether a value that could be a constant of floats is better left as what it is of integers."""
        return value in self._scaled or _integers(value) is not None

    def learn(self, node: Node) -> None:
        """Notes what a node's result is, of what is known of its operands."""
        value, operands = node.results[0], node.operands
        if node.op in _MOVES:
            for facts in (self._scaled, self._sums):
                if value not in facts and (moved := _moved(node, facts.get(operands[0]))) is not None:
                    facts[value] = moved
        elif _is(node, "DequantizeLinear") and value.dtype is F32:
            found = _product(substitute(node.regions[0], operands)[0])
            if found is not None:
                self._scaled[value] = found
            if all(each.type.elements == 1 for each in operands[1:]):
                self._stored_as[value] = _Stored(operands[0], operands[1], operands[2:])
        elif node.op == "mul" and value not in self._scaled and (found := _product(value)) is not None:
            self._scaled[value] = found
        elif node.op == "div" and (total := self._exact(operands[0])) and (count := _number(operands[1]) or 0) >= 1:
            scale = mul(total.scale, fill(1 / count, total.scale.type))
            self._sums[value] = _Scaled(total.integers, scale, total.range)
        greatest = node.op in ("reduce", "window_reduce") and node["combiner"] == "max"
        if (greatest or node.op in _MOVES) and (stored := self._stored_as.get(operands[0])) is not None:
            self._stored_as[value] = replace(stored, integers=_again(node, stored.integers))

    # ── what stands for a node ──────────────────────────────────────────────────────────────────────

    def _rule(self, node: Node, known: Known) -> tuple[Value] | None:
        if _is(node, "QuantizeLinear"):
            value = self._stored(node, known) or self._quantized(node, known)
            return None if value is None else (value,)
        found = self.total(node)
        if node.op == "add":
            one, other = node.operands
            found = self._biased(one, other, known) or self._biased(other, one, known)
        if found is None:
            return None
        self._scaled[found.value] = self._sums[found.value] = found
        return (found.value,)

    def total(self, node: Node) -> _Scaled | None:
        """A contraction or a sum of floats on integers, if its operands are integers that have one scale in each sum,
        and i32 holds what they add up to."""
        parts = [found for each in node.operands if (found := self._scaled.get(each)) is not None]
        rule = _SCALES.get(node.op)
        if rule is None or len(parts) < len(node.operands) or node.types[0].dtype is not F32:
            return None
        scale, of = rule(node, [each.scale for each in parts]), _range(node, [each.range for each in parts])
        if scale is None or not of.fits:
            return None
        exact = {"order": "exact"} if node.op == "reduce" else {"mode": "exact"}
        return _Scaled(_again(node, *(each.integers for each in parts), **exact), scale, of)

    def _biased(self, value: Value, bias: Value, known: Known) -> _Scaled | None:
        """A sum and integers of the very same scale, as one sum."""
        total, more = self._exact(value), self._scaled.get(bias)
        if total is None or more is None or not (total.range + more.range).fits:
            return None
        scales = broadcast_together(total.scale, more.scale)
        if scales[0].type.elements > _MOST_SCALES:
            return None
        left, right = (known(each) for each in scales)
        if left is None or right is None or not np.array_equal(left, right):
            return None
        return _Scaled(add(total.integers, more.integers), total.scale, total.range + more.range)

    def _exact(self, value: Value) -> _Scaled | None:
        """A sum that the value is, up to the scaling."""
        found = self._sums.get(value)
        return found if found == self._scaled.get(value) else None

    def _quantized(self, node: Node, known: Known) -> Value | None:
        """QuantizeLinear of a sum, or of the greater of 0 and a sum: scaled once."""
        x, out, *zero = node.operands
        dtype = node.types[0].dtype
        floored = _floored(x)
        found = self._sums.get(x if floored is None else floored)
        if found is None or not dtype.is_integer or out.type.elements != 1:
            return None
        if floored is not None and not _one(known(out)) > 0:
            return None
        shift = (_of_constant(zero[0]) or _whole(dtype)) if zero else _Range(0, 0)
        needed = floored is not None and shift.most > _whole(dtype).least  # else what is converted saturates there

        def body(p: Value, scale: Value, out: Value, *zero: Value) -> Value:
            factor = div(scale, broadcast_to(reshape(convert_to(out, F32), ()), scale.shape))
            return rescaled(p, factor, reshape(zero[0], ()) if zero else scalar(0, dtype), needed)

        return composite("Requantize", (found.integers, found.scale, out, *zero), body).value

    def _stored(self, node: Node, known: Known) -> Value | None:
        """QuantizeLinear by the scale and zero point of what DequantizeLinear was given: those integers."""
        (x, scale, *zero), (low, high) = node.operands, _PLAIN_SCALES
        found, dtype = self._stored_as.get(x), node.types[0].dtype
        if found is None or not dtype.is_integer or found.integers.dtype is not dtype or found.zero != tuple(zero):
            return None
        return found.integers if low <= _one(known(scale)) == _one(known(found.scale)) <= high else None


# ── one node ────────────────────────────────────────────────────────────────────────────────────────


def _is(node: Node, name: str) -> bool:
    return node.op == "composite" and node["name"] == name


def _again(node: Node, *operands: Value, **changed: str) -> Value:
    """The node's value of operands of another type."""
    attributes: dict[str, Any] = {**node.attributes, **changed}
    return make(node.op, *operands, **attributes).value


def _floored(value: Value) -> Value | None:
    """x of max(x, 0)."""
    if value.node.op != "max":
        return None
    one, other = value.node.operands
    return other if _number(one) == 0 else one if _number(other) == 0 else None


def _one(array: Array | None) -> float:
    """The number of an array that is known and has one; else NaN."""
    return math.nan if array is None or array.size != 1 else float(array.reshape(()))


def _number(value: Value) -> float | None:
    """The number that a value is everywhere, if it is a constant."""
    source = value.node.operands[0] if value.node.op == "broadcast" else value
    array = static(source)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _product(value: Value) -> _Scaled | None:
    """float(integers) * scale."""
    if value.node.op != "mul":
        return None
    for one, other in (value.node.operands, value.node.operands[::-1]):
        if (integers := _integers(one)) is not None:
            node = other.node
            scale = _stretched(node.operands[0], node) if node.op == "broadcast" else other
            return _Scaled(convert_to(integers, I32), scale, _bounds(integers))
    return None


def _integers(value: Value) -> Value | None:
    """What was converted to f32, if i32 holds it."""
    node = value.node
    if node.op != "convert" or value.dtype is not F32 or not node.operands[0].dtype.is_integer:
        return None
    return node.operands[0] if _whole(node.operands[0].dtype).fits else None


def _stretched(value: Value, node: Node) -> Value:
    """What a broadcast node stretches in the rank of its result, with extent 1 where it is stretched."""
    shape = [1] * len(node["shape"])
    for axis, extent in zip(node["axes"], value.shape, strict=True):
        shape[axis] = extent
    return reshape(value, shape)


def _moved(node: Node, inner: _Scaled | None) -> _Scaled | None:
    """What a node that moves elements makes of integers times a scale."""
    if inner is None:
        return None
    scale, before, after = inner.scale, node.operands[0].shape, node.types[0].shape
    if scale.type.elements == 1:
        scale = _shaped(scale, (1,) * len(after))
    elif node.op == "transpose":
        scale = transpose(scale, node["permutation"])
    elif node.op == "broadcast":
        scale = _stretched(scale, node)
    elif node.op == "reshape":
        scale = _reshaped(scale, before, after)
    else:
        scale = _cut(scale, node)
    return _Scaled(_again(node, inner.integers), scale, inner.range)


def _reshaped(scale: Value, before: Sequence[int], after: Sequence[int]) -> Value:
    """A scale under a new shape of its value: the axes that become others together are stretched, or are 1 in it."""
    stretched, extents = list(scale.shape), list[int]()
    for old, new in _groups(before, after):
        if any(scale.shape[axis] != 1 for axis in old):
            stretched[old.start : old.stop] = before[old.start : old.stop]
            extents += after[new.start : new.stop]
        else:
            extents += [1] * len(new)
    return _shaped(broadcast_to(scale, stretched), extents)


def _shaped(scale: Value, shape: Sequence[int]) -> Value:
    """A scale of another shape, by one reshape however often it has been moved."""
    while scale.node.op == "reshape":
        scale = scale.node.operands[0]
    return reshape(scale, shape)


def _groups(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Runs of axes, as short as can be, that have the same number of places before and after a reshape."""
    old = new = 0
    while old < len(before) or new < len(after):
        first, to, left, right = old, new, 1, 1
        while old == first or new == to or left != right:
            if new == len(after) or (old < len(before) and left <= right):
                left, old = left * before[old], old + 1
            else:
                right, new = right * after[new], new + 1
            if old == len(before) and new == len(after):
                break
        yield range(first, old), range(to, new)


def _cut(scale: Value, node: Node) -> Value:
    """A scale whose value is sliced or reversed: along the axes that it has."""
    long = [axis for axis, extent in enumerate(scale.shape) if extent != 1]
    if node.op == "reverse":
        return reverse(scale, [axis for axis in node["axes"] if axis in long])
    starts, limits, strides = [0] * scale.rank, [1] * scale.rank, [1] * scale.rank
    for axis in long:
        starts[axis], limits[axis], strides[axis] = (node[name][axis] for name in ("starts", "limits", "strides"))
    return slice_(scale, starts, limits, strides)


def _long(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)


# ── scales of a contraction or a sum ────────────────────────────────────────────────────────────────


def _dot_scale(node: Node, scales: Sequence[Value]) -> Value | None:
    """The product of two scales in the result's axes: batch, free of the left, free of the right."""
    placed = list[Value]()
    for side, scale in zip(("left", "right"), scales, strict=True):
        batch, bound = node[f"{side}_batch"], node[f"{side}_contract"]
        if any(scale.shape[axis] != 1 for axis in bound):
            return None
        free = [axis for axis in range(scale.rank) if axis not in (*batch, *bound)]
        own = [scale.shape[axis] for axis in (*batch, *free)]
        others = [1] * (len(node.types[0].shape) - len(own))
        at = len(batch) if side == "right" else len(own)
        placed.append(reshape(transpose(scale, (*batch, *free, *bound)), (*own[:at], *others, *own[at:])))
    return mul(*broadcast_together(*placed))


def _convolution_scale(_: Node, scales: Sequence[Value]) -> Value | None:
    """One scale for each input and for each output channel."""
    x, w = scales
    if _long((*x.shape[1:], *w.shape[1:])):
        return None
    return mul(*broadcast_together(x, reshape(w, (1, w.shape[0], *(1,) * (w.rank - 2)))))


def _reduce_scale(node: Node, scales: Sequence[Value]) -> Value | None:
    (scale,) = scales
    if node["combiner"] != "add" or any(scale.shape[axis] != 1 for axis in node["axes"]):
        return None
    return reshape(scale, [extent for axis, extent in enumerate(scale.shape) if axis not in node["axes"]])


_SCALES = {"dot": _dot_scale, "convolution": _convolution_scale, "reduce": _reduce_scale}


# ── how large integers are ──────────────────────────────────────────────────────────────────────────


def _range(node: Node, operands: Sequence[_Range]) -> _Range:
    """Of a contraction or a sum of integers."""
    first, *others = (each.shape for each in node.operands)
    if node.op == "convolution":
        return (operands[0] * operands[1]).times(math.prod(others[0][1:]))
    axes = node["left_contract"] if node.op == "dot" else node["axes"]
    term = operands[0] * operands[1] if node.op == "dot" else operands[0]
    return term.times(math.prod(first[axis] for axis in axes))


def _bounds(value: Value) -> _Range:
    """Of stored integers less their zero point: what their type holds, but for zero points and biases (i32) that are
    constants."""
    node = value.node
    if node.op == "sub":
        stored, zero = node.operands
        return _of_type(stored) - (_of_constant(zero) or _of_type(zero))
    return _of_type(value)


def _of_type(value: Value) -> _Range:
    kept = _unconverted(value)
    return (_of_constant(kept) if kept.dtype is I32 else None) or _whole(kept.dtype)


def _of_constant(value: Value) -> _Range | None:
    array = static(_unconverted(value))
    return None if array is None or not array.size else _Range(int(array.min()), int(array.max()))


def _unconverted(value: Value) -> Value:
    """The integers that a value holds in another type, or under another shape."""
    while value.node.op in ("convert", "broadcast", "reshape"):
        (inner,) = value.node.operands
        if not inner.dtype.is_integer or not _whole(inner.dtype).within(_whole(value.dtype)):
            break
        value = inner
    return value


def _whole(dtype: DType) -> _Range:
    info = np.iinfo(dtype.storage)
    return _Range(int(info.min), int(info.max))
