"""A load's place as a sum of two: what its line decides, and what its term decides.

A step of K copies a few terms of many lines. Where a load's offset is a sum of a part of the line's axes and a part of
the term's, each part is found once, and an element costs an addition. Its conditions part in the same way: each side
has a word of bits, and an element exists where the words of its line and its term have no bit in common.

For a condition on both sides, such as 0 <= y + ky - 1 < height, one side has few *classes* (here three values of ky).
A word of that side has the one bit of its class, a word of the other the bits of all classes that it may not meet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from repro.ir import index as ix
from repro.ir.expressions import Affine, Apply, Axis, Expr, Load, topological
from repro.ir.types import BOOL, I32, I64, U32
from repro.targets.llvm import scalars
from repro.targets.llvm.body import Body
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Val, integer

LINE, TERM = 0, 1
_FLAGS = (1 << 30, 1 << 31)
"""The bit of a line, of a term, that takes part in nothing: every word of the other side has it."""
_CLASSES = 30


@dataclass(frozen=True)
class Group:
    """Conditions on the same axes of the side with classes; their bits begin at `first`."""

    axes: tuple[Axis, ...]
    conditions: tuple[Expr, ...]
    first: int

    @property
    def classes(self) -> int:
        return math.prod(axis.extent for axis in self.axes)


@dataclass(frozen=True)
class Meeting:
    """Which elements exist: conditions on a line alone, on a term alone, and on both."""

    alone: tuple[tuple[Expr, ...], tuple[Expr, ...]]
    classed: int
    groups: tuple[Group, ...]

    @property
    def classes(self) -> tuple[int, ...]:
        """The words of the side with classes, by number, of what takes part in anything."""
        numbers = itertools.product(*(range(group.classes) for group in self.groups))
        flag = _FLAGS[1 - self.classed]
        return tuple(
            flag | sum(1 << (group.first + own) for group, own in zip(self.groups, each, strict=True))
            for each in numbers
        )

    def number(self, body: Body, scope: Scope, exists: Val) -> Val:
        """Which of the classes (i32) a line or term of that side has; their count where it takes part in nothing."""
        f, number = body.f, integer(0)
        for group in self.groups:
            number = f.add(f.scaled(number, group.classes), _own_number(body, group, scope))
        conditions = [body.value(condition, scope) for condition in self.alone[self.classed]]
        kept = _all(body, [*conditions, exists])
        assert kept is not None
        return scalars.select(f, kept, scalars.convert(f, number, I32), integer(len(self.classes), I32))

    def word(self, body: Body, side: int, scope: Scope, exists: Val | None = None) -> Val:
        """The word (u32) of a line or a term bound in the scope. Without `exists` it meets nothing."""
        f = body.f
        conditions = [body.value(condition, scope) for condition in self.alone[side]]
        kept = _all(body, [*conditions, *([] if exists is None else [exists])])
        word = integer(_FLAGS[1 - side], U32)
        if kept is not None:
            word = scalars.select(f, kept, word, integer(_FLAGS[0] | _FLAGS[1], U32))
        for group in self.groups:
            bits = _own_bit(body, group, scope) if side == self.classed else _barred(body, group, scope)
            word = scalars.binary(f, "or", word, bits)
        return word


@dataclass(frozen=True)
class Separation:
    """Where an operand's elements lie: `line` + `term` elements from the start of the buffer.

    `line_stride`, `term_stride`: elements from one line (term) to the next, by their flattened index, where that is
    one number for all; `line`, `term` are then what is left at index 0. `meeting` is None where every element exists.
    """

    buffer: int
    line: Expr
    term: Expr
    line_stride: int | None
    term_stride: int | None
    meeting: Meeting | None

    @property
    def tabled(self) -> bool:
        """Whether terms are looked up: their offsets follow no stride, or some of them do not meet all lines."""
        return self.term_stride is None or self.meeting is not None


@lru_cache(maxsize=4096)
def separate(load: Load, present: Expr | None, lines: tuple[Axis, ...], terms: tuple[Axis, ...]) -> Separation | None:
    """The load's place in two parts; None where an axis of its lines and one of its terms go into one number, a part
    needs more than 32 bits, or neither side of a condition has few classes."""
    parted = _parts(load.offset, frozenset(lines), frozenset(terms))
    conditions = list(dict.fromkeys([*conjuncts(load.when), *conjuncts(present)]))
    meeting = _meeting(conditions, lines, terms) if conditions else None
    loads = any(isinstance(e, Load) for e in topological([load.offset, *conditions]))
    if parted is None or loads or (conditions and meeting is None) or not all(map(_narrow, parted)):
        return None
    (line, line_stride), (term, term_stride) = _strided(parted[LINE], lines), _strided(parted[TERM], terms)
    if meeting is not None:
        term, term_stride = parted[TERM], None
    return Separation(load.buffer, line, term, line_stride, term_stride, meeting)


@lru_cache(maxsize=4096)
def run_of(offset: Expr, axes: tuple[Axis, ...]) -> tuple[int, Expr]:
    """How many neighbours in memory the last of the axes run through as one, and the offset without those axes."""
    extent = 1
    for axis in reversed(axes):
        if ix.coefficient(offset, axis) != extent:
            break
        offset, extent = ix.add(offset, ix.scale(axis, -extent)), extent * axis.extent
    return extent, offset


# parts ──────────────────────────────────────────────────────────────────────────────────────────────


def _parts(offset: Expr, lines: frozenset[Axis], terms: frozenset[Axis]) -> tuple[Expr, Expr] | None:
    """What is not of the terms, and what is."""
    atoms = zip(offset.children, offset.coefficients, strict=True) if isinstance(offset, Affine) else ((offset, 1),)
    parts: tuple[list[Expr], list[Expr]] = ([ix.number(offset.constant)] if isinstance(offset, Affine) else [], [])
    for atom, factor in atoms:
        if atom.free & terms and atom.free & lines:
            return None
        parts[TERM if atom.free & terms else LINE].append(ix.scale(atom, factor))
    return ix.add(*parts[LINE]), ix.add(*parts[TERM])


def _strided(part: Expr, axes: Sequence[Axis]) -> tuple[Expr, int | None]:
    """What is left of a part at index 0 of flattened axes, and the stride along them; the part itself and None where
    they do not follow one."""
    stride, extent, rest = 0, 1, part
    for axis in reversed(axes):
        if axis.extent == 1:
            continue
        step = ix.coefficient(part, axis)
        if step is None or (extent > 1 and step != stride * extent):
            return part, None
        stride, extent = step if extent == 1 else stride, extent * axis.extent
        rest = ix.add(rest, ix.scale(axis, -step))
    return rest, stride


def _narrow(part: Expr) -> bool:
    low, high = ix.bounds(part)
    return -(1 << 31) <= low and high < 1 << 31


# conditions ─────────────────────────────────────────────────────────────────────────────────────────


def conjuncts(condition: Expr | None) -> Iterator[Expr]:
    """What must all hold for a condition to; nothing where there is none."""
    if condition is None:
        return
    if isinstance(condition, Apply) and condition.op == "and" and condition.dtype is BOOL:
        for child in condition.children:
            yield from conjuncts(child)
        return
    yield condition


def _meeting(conditions: Sequence[Expr], lines: Sequence[Axis], terms: Sequence[Axis]) -> Meeting | None:
    sides = (frozenset(lines), frozenset(terms))
    both = [c for c in conditions if c.free & sides[LINE] and c.free & sides[TERM]]
    single = [c for c in conditions if c not in both]
    on_term = tuple(c for c in single if c.free & sides[TERM])
    on_line = tuple(c for c in single if c not in on_term)
    for side, axes in ((TERM, terms), (LINE, lines)):
        groups = _groups(both, axes)
        if groups is not None:
            return Meeting((on_line, on_term), side, groups)
    return None


def _groups(conditions: Sequence[Expr], axes: Sequence[Axis]) -> tuple[Group, ...] | None:
    """Conditions by the axes of one side that they depend on; None where those have too many values together."""
    found: dict[tuple[Axis, ...], list[Expr]] = {}
    for condition in conditions:
        found.setdefault(tuple(axis for axis in axes if axis in condition.free), []).append(condition)
    groups, first = list[Group](), 0
    for of, members in found.items():
        groups.append(Group(of, tuple(members), first))
        first += math.prod(axis.extent for axis in of)
    return tuple(groups) if first <= _CLASSES else None


def _all(body: Body, conditions: Sequence[Val]) -> Val | None:
    kept: Val | None = None
    for condition in conditions:
        kept = condition if kept is None else scalars.binary(body.f, "and", kept, condition)
    return kept


def _own_number(body: Body, group: Group, scope: Scope) -> Val:
    f, number = body.f, integer(0)
    for axis in group.axes:
        number = f.add(f.scaled(number, axis.extent), body.value(axis, scope))
    return number


def _own_bit(body: Body, group: Group, scope: Scope) -> Val:
    f = body.f
    amount = f.add(scalars.convert(f, _own_number(body, group, scope), I32), integer(group.first, I32))
    return f.let(f"shl i32 1, {amount.text}", U32)


def _barred(body: Body, group: Group, scope: Scope) -> Val:
    f, bits = body.f, integer(0, U32)
    for number, values in enumerate(itertools.product(*(range(axis.extent) for axis in group.axes))):
        bound = {axis: integer(value, I64) for axis, value in zip(group.axes, values, strict=True)}
        kept = _all(body, [body.value(condition, Scope(scope, bound)) for condition in group.conditions])
        assert kept is not None
        bit = scalars.select(f, kept, integer(0, U32), integer(1 << (group.first + number), U32))
        bits = scalars.binary(f, "or", bits, bit)
    return bits
