"""Integer contractions whose terms are bytes less zero points, as byte dots of quads.

A term is x - z, of a byte x in memory and a zero point z, in i32. With u and s the same bytes counted as unsigned and
as signed numbers, by moving their zero points with them where that takes 128,

    sum of (u - zu) (s - zs) = sum of u s - zu * sum of (s - zs) - zs * (sum of (u - zu) + terms * zu),

in which every sum wraps as i32 does, so that both sides are the same bits. Calls of their own put four terms of each
operand into a quad; the contraction multiplies quads (repro.ir.byte_dot), and corrects its sum by those of the
operands. Weights are signed: their quads and their sum are then made when the program is loaded (passes/at_load.py),
and a zero point of 0, which they usually have, leaves nothing to correct for the other operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from passes.at_load import constant_buffers
from passes.calls import Called, call_of, called
from passes.plan import with_steps
from passes.rename import rewritten
from passes.sequences import bodies, with_bodies
from repro.ir import index as ix
from repro.ir.byte_dot import BYTES, byte_dot
from repro.ir.contraction import find
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import (
    TRUE,
    Apply,
    Axis,
    Const,
    Exact,
    Expr,
    Load,
    Reduce,
    apply,
    bitcast,
    const,
    convert,
    load,
    reduce,
    topological,
)
from repro.ir.loops import Store
from repro.ir.program import TEMPORARY, Buffer, Call, Commit, Program, RowBlocks, Step, touched
from repro.ir.types import I8, I32, U8

FEW = 8
"""Products that each byte of what is no constant takes part in, below which it is not worth making quads of it."""
HALF = 128
"""What the zero points of a byte that is counted as signed and as unsigned differ by."""

Making = Callable[[int], Called]
"""The call that writes a buffer."""
ANY = -1
"""A buffer that is none of the program's."""


def byte_products(program: Program) -> Program:
    """The program with such contractions of quads; itself where there are none, or no memory for the quads."""
    made = _ByteProducts(program)
    steps = made.steps(program.steps)
    if steps == program.steps:
        return program
    found = with_steps(program, steps, made.kernels, made.buffers)
    return found if program.most_bytes is None or found.arena_bytes <= program.most_bytes else program


@dataclass(frozen=True)
class _Bytes:
    """An operand of a contraction, x - z: the load of bytes x, the zero point z, and whether bytes are to be counted as
    unsigned numbers."""

    term: Expr
    load: Load
    zero: Expr
    unsigned: bool

    @property
    def moved(self) -> bool:
        """Whether bytes are counted otherwise than they are meant."""
        return self.unsigned is not (self.load.dtype is U8)

    @property
    def counted_zero(self) -> Expr:
        """The zero point of the bytes as they are counted."""
        by = (HALF if self.unsigned else -HALF) if self.moved else 0
        return _sum(self.zero, _i32(by))


@dataclass(frozen=True)
class _Cut:
    """An operand's buffer as [outer][terms][inner], along an axis of the terms; and where its quads lie in a buffer
    [outer][quads][inner], by that axis with a quarter of its extent."""

    extents: tuple[int, int, int]
    index: Expr

    @property
    def quads(self) -> tuple[int, int, int]:
        """The extents of the buffer of quads; the last one along the terms is filled up with zeros."""
        outer, terms, inner = self.extents
        return outer, -(-terms // BYTES), inner


class _ByteProducts:
    def __init__(self, program: Program) -> None:
        self.program, self.constants = program, constant_buffers(program)
        self.kernels, self.buffers = list(program.kernels), list(program.buffers)
        self.made: dict[Called, int] = {}
        """The buffers that the sequence of steps at hand has made so far, by the call that writes buffer `ANY`."""

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        outside, self.made = self.made, {}
        found = list[Step]()
        for step in steps:
            match step:
                case Call():
                    found += self.call(step)
                case Commit() | RowBlocks():
                    found.append(step)
                case _:
                    found.append(with_bodies(step, [self.steps(body) for body, _ in bodies(step)]))
            written = {buffer for buffer, writes in touched(self.program, step) if writes}
            self.made = {call: made for call, made in self.made.items() if not _reads(call) & written}
        self.made = outside
        return tuple(found)

    def call(self, step: Call) -> Sequence[Step]:
        """The calls in place of one."""
        kernel = self.program.kernels[step.kernel]
        if find(kernel) is None or reads_its_output(kernel):
            return (step,)
        whole = called(kernel, step)
        (total,) = (e for e in topological(whole.roots) if isinstance(e, Reduce))
        operands = _operands(total, self.constants)
        if operands is None or not self._pays(whole, total, operands):
            return (step,)
        for axis in sorted(total.axes, key=lambda axis: (axis.extent % BYTES != 0, -axis.extent)):
            cuts = [_cut(each.load, axis, self.buffers[each.load.buffer].elements) for each in operands]
            given = [cut for cut in cuts if cut is not None]
            if len(given) == len(operands) and axis.extent >= BYTES - 1:
                return self._calls(whole, total, operands, axis, given)
        return (step,)

    def _pays(self, whole: Called, total: Reduce, operands: Sequence[_Bytes]) -> bool:
        """Whether making quads costs little beside the products."""
        products = math.prod(axis.extent for axis in (*whole.axes, *total.axes))
        made = (self.buffers[each.load.buffer] for each in operands if each.load.buffer not in self.constants)
        return all(products >= FEW * buffer.elements for buffer in made)

    def _calls(
        self, whole: Called, total: Reduce, operands: Sequence[_Bytes], axis: Axis, cuts: Sequence[_Cut]
    ) -> Sequence[Step]:
        """Those that make quads and sums of what was not made yet, and the contraction."""
        steps, quads, present = list[Step](), list[Expr](), total.present
        fresh = 1 + max(e.number for e in (*topological(whole.roots), *whole.axes) if isinstance(e, Axis))
        quarter = ix.axis(fresh, cuts[0].quads[1])
        for each, cut in zip(operands, cuts, strict=True):
            buffer = self._once(_quads(each, cut), math.prod(cut.quads), steps)
            (index,) = rewritten([cut.index], {axis: quarter})
            quad = load(I32, buffer, index, each.load.when)
            blank = _blank(each.counted_zero)
            if each.load.when is not None and _number(blank) != 0:
                quad, present = apply("select", each.load.when, quad, blank), None
            quads.append(quad)
        axes = [quarter if each is axis else each for each in total.axes]
        result = reduce("add", Exact(), axes, [byte_dot(*quads)], present)
        terms = math.prod(each.extent for each in total.axes)
        unsigned, signed = operands
        for each, other, more in ((unsigned, signed, None), (signed, unsigned, terms)):
            zero = each.counted_zero
            if _number(zero) == 0:
                continue
            beside = self._sum_of(whole, total, other, steps)
            if more is not None:
                beside = _sum(beside, _product(_i32(more), other.counted_zero))
            result = apply("sub", result, _product(zero, beside))
        values = rewritten([store.value for store in whole.stores], {total: result})
        stores = tuple(Store(s.buffer, s.offset, value) for s, value in zip(whole.stores, values, strict=True))
        return (*steps, call_of(Called(whole.axes, stores), self.kernels, self.buffers))

    def _sum_of(self, whole: Called, total: Reduce, operand: _Bytes, steps: list[Step]) -> Expr:
        """The sum of an operand's terms for each output, from a buffer."""
        axes = tuple(axis for axis in whole.axes if axis in operand.term.free)
        present = operand.load.when if total.present is operand.load.when else None
        value = reduce("add", Exact(), total.axes, [operand.term], present)
        place = ix.linear(axes, [axis.extent for axis in axes])
        elements = math.prod(axis.extent for axis in axes)

        def made(buffer: int) -> Called:
            return Called(axes, (Store(buffer, place, value),))

        return load(I32, self._once(made, elements, steps), place)

    def _once(self, made: Making, elements: int, steps: list[Step]) -> int:
        """The buffer that a call writes; the call is among the steps if nobody made the same before."""
        key = made(ANY)
        if key not in self.made:
            self.made[key] = len(self.buffers)
            self.buffers.append(Buffer(I32, elements, TEMPORARY, 0))
            steps.append(call_of(made(self.made[key]), self.kernels, self.buffers))
        return self.made[key]


def _reads(call: Called) -> set[int]:
    return {e.buffer for e in topological(call.roots) if isinstance(e, Load)}


def _operands(total: Reduce, constants: frozenset[int]) -> tuple[_Bytes, _Bytes] | None:
    """The operand to count as unsigned, and the one to count as signed: a constant if there is one."""
    term = total.terms[0]
    if total.dtype is not I32 or total.combiner != "add" or not isinstance(term, Apply) or term.op != "mul":
        return None
    sides = [found for each in term.children if (found := _bytes(each, total)) is not None]
    if len(sides) < len(term.children):
        return None
    sides.sort(key=lambda each: (each.load.buffer in constants, each.load.dtype is I8))
    unsigned, signed = sides
    absent = {each.load.when for each in sides} - {None}
    if absent != {total.present} - {None} or None not in {each.load.when for each in sides}:
        return None
    return replace(unsigned, unsigned=True), signed


def _bytes(term: Expr, total: Reduce) -> _Bytes | None:
    """A factor as bytes less a zero point that is the same for all terms."""
    zero: Expr = _i32(0)
    if isinstance(term, Apply) and term.op == "sub":
        wide, zero = term.children
    else:
        wide = term
    match wide:
        case Apply(op="convert", children=(Load() as found,)) if found.dtype in (I8, U8):
            pass
        case _:
            return None
    zero = _anywhere(zero, found.when)
    same = not zero.free & set(total.axes)
    return _Bytes(term, found, zero, False) if same and (found.when is None or _is_byte(zero, found)) else None


def _anywhere(zero: Expr, when: Expr | None) -> Expr:
    """A zero point without the condition of the bytes beside it: the one number of a buffer can be read anywhere."""
    guarded = [e for e in topological([zero]) if isinstance(e, Load) and when is not None and e.when is when]
    plain: dict[Expr, Expr] = {e: load(e.dtype, e.buffer, e.offset) for e in guarded if not e.offset.free}
    return rewritten([zero], plain)[0]


def _is_byte(zero: Expr, found: Load) -> bool:
    """Whether a zero point is a number that its bytes can be: blanks are such bytes."""
    if _number(zero) is not None:
        low, high = (0, 255) if found.dtype is U8 else (-HALF, HALF - 1)
        return low <= (_number(zero) or 0) <= high
    return isinstance(zero, Apply) and zero.op == "convert" and zero.children[0].dtype is found.dtype


def _cut(found: Load, axis: Axis, elements: int) -> _Cut | None:
    """The operand's buffer cut along an axis of the terms; None where it does not lie there so, or where whether a term
    is there depends on it."""
    inner = ix.coefficient(found.offset, axis)
    if not inner or inner < 0 or (found.when is not None and axis in found.when.free):
        return None
    run = inner * axis.extent
    if elements % run:
        return None
    outside, inside = ix.split(ix.add(found.offset, ix.scale(axis, -inner)), run)
    for back in (0, 1):  # an offset before the buffer's beginning, where no term is there
        first, rest = ix.add(outside, ix.number(back)), ix.add(inside, ix.number(-back * run))
        within = _lies_in(first, elements // run, found.when) and _lies_in(rest, inner, found.when)
        if within and axis not in first.free | rest.free:
            extents = (elements // run, axis.extent, inner)
            quads = -(-axis.extent // BYTES) * inner
            return _Cut(extents, ix.add(ix.scale(first, quads), ix.scale(axis, inner), rest))
    return None


def _lies_in(index: Expr, extent: int, when: Expr | None) -> bool:
    low, high = ix.bounds_where(index, when)
    return low >= 0 and high < extent


def _quads(operand: _Bytes, cut: _Cut) -> Making:
    """Four terms of an operand in each element."""
    _, terms, inner = cut.extents
    every = [ix.axis(number, extent) for number, extent in enumerate(cut.quads)]
    outer, quad, beside = every
    value: Expr = _i32(0)
    for number in range(BYTES):
        term = ix.add(ix.scale(quad, BYTES), ix.number(number))
        there = ix.compare("lt", term, terms)
        place = ix.add(ix.scale(outer, terms * inner), ix.scale(term, inner), beside)
        byte = bitcast(load(operand.load.dtype, operand.load.buffer, place, None if there is TRUE else there), U8)
        if operand.moved:
            byte = apply("xor", byte, const(U8, HALF))
            byte = byte if there is TRUE else apply("select", there, byte, const(U8, 0))
        wide = convert(byte, I32)
        value = apply("or", value, apply("shl", wide, _i32(8 * number))) if number else wide
    place = ix.linear(every, cut.quads)
    axes = tuple(axis for axis in every if axis.extent > 1)
    return lambda buffer: Called(axes, (Store(buffer, place, value),))


def _blank(zero: Expr) -> Expr:
    """A zero point in each byte of a quad."""
    known = _number(zero)
    byte = apply("and", zero, _i32(0xFF)) if known is None else _i32(known & 0xFF)
    return _product(byte, _i32(0x01010101))


# numbers, as far as they are known ──────────────────────────────────────────────────────────────────


def _i32(value: int) -> Const:
    return const(I32, value)


def _number(expr: Expr) -> int | None:
    """The number that an integer is, or is converted from."""
    match expr:
        case Const():
            bits, size = expr.bits, expr.dtype.bits
            return bits - (1 << size) if expr.dtype.is_signed and bits >> (size - 1) else bits
        case Apply(op="convert", children=(Const() as inside,)) if not inside.dtype.is_float:
            return _number(inside)
        case _:
            return None


def _sum(a: Expr, b: Expr) -> Expr:
    left, right = _number(a), _number(b)
    if left is not None and right is not None:
        return _i32(left + right)
    return b if left == 0 else a if right == 0 else apply("add", a, b)


def _product(a: Expr, b: Expr) -> Expr:
    left, right = _number(a), _number(b)
    if left is not None and right is not None:
        return _i32(left * right)
    return b if left == 1 else a if right == 1 else apply("mul", a, b)
