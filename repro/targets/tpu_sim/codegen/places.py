"""Offsets as places: a value of the scalar core and a pattern over lanes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from repro.ir import index as ix
from repro.ir.expressions import Affine, Axis, Const, Expr, IndexOp, Scalar, topological
from repro.ir.types import I64, Array
from repro.targets.tpu_sim.operands import COLUMNS, LANES, LINEAR, Index, Pattern, Term, counter

UNALIGNED = Pattern(((LANES // COLUMNS, COLUMNS), (COLUMNS, 1)))
"""Consecutive elements from anywhere."""


@dataclass
class Places:
    """What axes stand for: values of the scalar core, and digits of the lane number (their value in each lane)."""

    indices: dict[Axis, Index]
    digits: dict[Axis, Array]

    def scalar(self, expr: Expr) -> Index | None:
        """The expression as a value of the scalar core, if it is one."""
        match expr:
            case Const():
                return Index(signed(expr))
            case Axis():
                return self.indices.get(expr)
            case Scalar():
                return counter(f"s{expr.position}")
            case Affine():
                total = Index(expr.constant)
                for child, factor in zip(expr.children, expr.coefficients, strict=True):
                    part = self.scalar(child)
                    if part is None:
                        return None
                    total = total + part * factor
                return total
            case IndexOp():
                inner = self.scalar(expr.children[0])
                return None if inner is None else _digit_of(inner, expr.op, expr.divisor)
            case _:
                return None

    def find(self, offset: Expr) -> tuple[Index, Pattern] | None:
        """The offset as a scalar value and a pattern over lanes, if it has that form."""
        constant, terms = _sum_of(offset)
        start, lanes = Index(constant), np.zeros(LANES, np.int64)
        for atom, factor in terms:
            table = self.over_lanes(atom)
            if table is not None:
                lanes = lanes + factor * table
                continue
            part = self.scalar(atom)
            if part is None:
                return None
            start = start + part * factor
        pattern = pattern_of(lanes)
        return None if pattern is None else (start + int(lanes[0]), pattern)

    def over_lanes(self, expr: Expr) -> Array | None:
        """The index in each lane, where it depends on nothing else."""
        if not expr.free or not expr.free <= self.digits.keys():
            return None
        match expr:
            case Axis():
                return self.digits[expr]
            case Affine():
                total = np.full(LANES, expr.constant, np.int64)
                for child, factor in zip(expr.children, expr.coefficients, strict=True):
                    part = self.over_lanes(child)
                    if part is None:
                        return None
                    total = total + factor * part
                return total
            case IndexOp():
                part = self.over_lanes(expr.children[0])
                if part is None:
                    return None
                return part // expr.divisor if expr.op == "floordiv" else part % expr.divisor
            case _:
                return None


def is_index(expr: Expr) -> bool:
    return isinstance(expr, Axis | Scalar | Affine | IndexOp) or (isinstance(expr, Const) and expr.dtype is I64)


def fits(expr: Expr) -> bool:
    """Whether 32 bits hold an index and everything that it is computed from."""
    for each in topological([expr]):
        if not is_index(each):
            return False
        low, high = ix.bounds(each)
        if low < -(1 << 30) or high >= 1 << 30:
            return False
    return True


def signed(expr: Const) -> int:
    return expr.bits - (1 << 64) if expr.bits >> 63 else expr.bits


def _sum_of(offset: Expr) -> tuple[int, list[tuple[Expr, int]]]:
    match offset:
        case Const():
            return signed(offset), []
        case Affine():
            return offset.constant, list(zip(offset.children, offset.coefficients, strict=True))
        case _:
            return 0, [(offset, 1)]


def _digit_of(index: Index, op: str, divisor: int) -> Index | None:
    """The quotient or remainder of a digit of a counter, where that is a digit again."""
    if index.constant or len(index.terms) != 1 or index.terms[0].coefficient != 1:
        return None
    term = index.terms[0]
    if term.modulus % divisor:
        return None
    if op == "mod":
        return Index(0, (Term(term.counter, 1, term.divisor, divisor),))
    return Index(0, (Term(term.counter, 1, term.divisor * divisor, term.modulus // divisor),))


def pattern_of(lanes: Array) -> Pattern | None:
    """Offsets of the lanes as digits with strides, if each bit of the lane number adds a fixed amount."""
    first = int(lanes[0])
    strides = [int(lanes[1 << bit]) - first for bit in reversed(range(LANES.bit_length() - 1))]
    digits = [(2, stride) for stride in strides]
    number = np.arange(LANES)
    straight = np.full(LANES, first, np.int64)
    for bit, stride in enumerate(reversed(strides)):
        straight = straight + ((number >> bit) & 1) * stride
    if not np.array_equal(straight, lanes):
        return None
    merged = digits[:1]
    for _, (count, stride) in pairwise(digits):
        outer, step = merged[-1]
        if step == stride * count:
            merged[-1] = (outer * count, stride)
        else:
            merged.append((count, stride))
    return Pattern(tuple(merged))


def aligned(start: Index, pattern: Pattern) -> Pattern:
    """Consecutive elements that may not start at a row of the area are read row by row."""
    if pattern != LINEAR:
        return pattern
    whole = start.constant % COLUMNS == 0 and all(term.coefficient % COLUMNS == 0 for term in start.terms)
    return pattern if whole else UNALIGNED
