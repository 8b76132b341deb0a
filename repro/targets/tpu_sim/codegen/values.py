"""Expressions as vector instructions.

A value is computed once, in the outermost block in which everything that it depends on is known. Lanes stand for digits
of axes (`digits`), loop counters for the rest of them. An offset is split into what the scalar core computes and a
pattern over lanes; where it has no such form the lanes gather.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import (
    TRUE,
    Affine,
    Apply,
    Axis,
    Const,
    Expr,
    IndexOp,
    Load,
    Lookup,
    Rarely,
    Reduce,
    Scalar,
    topological,
)
from repro.ir.loops import Store
from repro.ir.types import BOOL, I32, I64, DType
from repro.numerics import narrow_loops
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.codegen import reductions
from repro.targets.tpu_sim.codegen.orders import fresh_number
from repro.targets.tpu_sim.codegen.places import Places, aligned, fits, is_index
from repro.targets.tpu_sim.codegen.writer import Val, Writer
from repro.targets.tpu_sim.operands import LANES, Index, Pattern, vmem
from repro.targets.tpu_sim.program import Statement

LARGEST = 1 << 22
"""Elements of an area with what lies around its buffer, for loads whose condition does not hold and for idle lanes."""
COMPARES = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


@dataclass
class Level:
    """An open block: its statements, what is known in it, and whether it may be skipped."""

    sink: list[Statement]
    conditional: bool = False
    known: dict[object, Val] = field(default_factory=dict[object, Val])


class Values:
    """The values of one stage. `areas` says which area holds a buffer; `inside` which lanes stand for iterations."""

    def __init__(
        self,
        writer: Writer,
        areas: dict[int, int],
        roots: Sequence[Expr],
        written: frozenset[int],
        known: dict[Axis, Index] | None = None,
        halves: dict[int, Expr] | None = None,
        positions: Set[int] = frozenset(),
    ) -> None:
        """`known`: axes that are values of the scalar core from the start. `halves`: buffers of whose area this stage
        may touch but the half that begins there. `positions`: buffers that hold nothing negative."""
        self.halves, self.positions = halves or {}, positions
        self.writer, self.areas, self.written = writer, areas, written
        self.levels = [Level(writer.sink)]
        self.places = Places(dict(known or {}), {})
        self.depths: dict[Axis, int] = dict.fromkeys(self.places.indices, 0)
        self.inside: Expr = TRUE
        self.pin = 0
        """The level in which what the stage itself writes is read."""
        self._changes: dict[Expr, bool] = {}
        self._fresh = fresh_number(roots)

    # blocks and axes ────────────────────────────────────────────────────────────────────────────────

    def axis(self, extent: int) -> Axis:
        """A new axis."""
        self._fresh += 1
        return ix.axis(self._fresh - 1, extent)

    def fresh(self, count: int) -> int:
        """The first of so many new axis numbers."""
        self._fresh += count
        return self._fresh - count

    def bind(self, axis: Axis, index: Index) -> None:
        """The axis is a value of the scalar core, in the block that is open."""
        self.depths[axis], self.places.indices[axis] = len(self.levels) - 1, index

    def digit(self, axis: Axis, step: int) -> None:
        """The axis is the digit of the lane number that counts in steps."""
        self.depths[axis] = 0
        self.places.digits[axis] = (np.arange(LANES) // step) % axis.extent

    @contextmanager
    def loop(self, count: int, parallel: bool = False) -> Generator[Index]:
        with self.writer.loop(count, parallel) as index:
            self.levels.append(Level(self.writer.sink))
            yield index
            self.levels.pop()

    @contextmanager
    def loops(self, axes: Sequence[Axis]) -> Generator[None]:
        """A nest of loops in order, one for each axis that has more than one value."""
        if not axes:
            yield
            return
        first, rest = axes[0], axes[1:]
        if first.extent == 1:
            self.bind(first, Index())
            with self.loops(rest):
                yield
            return
        with self.loop(first.extent) as index:
            self.bind(first, index)
            with self.loops(rest):
                yield

    @contextmanager
    def at(self, level: int) -> Generator[None]:
        """Statements go to that block for a while."""
        levels, sink = self.levels, self.writer.sink
        self.levels, self.writer.sink = levels[: level + 1], levels[level].sink
        yield
        self.levels, self.writer.sink = levels, sink

    def _levels(self, expr: Expr) -> list[int]:
        """Where a value may be known, outermost first; the last one is where it is computed."""
        base = max((self.depths[axis] for axis in expr.free), default=0)
        if self.written and self._reads_written(expr):
            base = max(base, self.pin)
        found = [base]
        while found[-1] + 1 < len(self.levels) and self.levels[found[-1] + 1].conditional:
            found.append(found[-1] + 1)
        return found

    def _reads_written(self, root: Expr) -> bool:
        for expr in () if root in self._changes else topological([root]):
            if expr not in self._changes:
                own = isinstance(expr, Load) and expr.buffer in self.written
                self._changes[expr] = own or any(self._changes[child] for child in expr.children)
        return self._changes[root]

    def _known(self, expr: Expr, key: object) -> Val | None:
        for level in self._levels(expr):
            found = self.levels[level].known.get(key)
            if found is not None:
                return found
        return None

    # values ─────────────────────────────────────────────────────────────────────────────────────────

    def value(self, root: Expr) -> Val:
        """The register that holds an expression, one value a lane."""
        for expr in self._missing(root):
            level = self._levels(expr)[-1]
            with self.at(level):
                self.levels[level].known[expr] = self._emit(expr)
        found = self._known(root, root)
        if found is None:
            raise InternalError(f"{root!r} was not computed")
        return found

    def _missing(self, root: Expr) -> Iterator[Expr]:
        """What must be computed, operands first: long chains must not recurse."""
        stack = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if self._known(expr, expr) is not None:
                continue
            operands: tuple[Expr, ...] = ()
            if not ready and not is_index(expr):
                match expr:
                    case Apply() if not self._narrow_compare(expr):
                        operands = expr.children
                    case Lookup():
                        operands = expr.children
                    case Rarely():
                        operands = (expr.condition, expr.common)
                    case _:
                        pass
            if ready or not operands:
                yield expr
            else:
                stack.append((expr, True))
                stack.extend((child, False) for child in reversed(operands))

    def _emit(self, expr: Expr) -> Val:
        match expr:
            case Const():
                return self.writer.constant(expr.dtype, expr.bits)
            case Axis() | Scalar() | Affine() | IndexOp():
                return self.index(expr, I64)
            case Apply():
                return self._apply(expr)
            case Rarely():
                return self._rarely(expr)
            case Lookup():
                source, target = self.value(expr.index), self.writer.register(expr.dtype)
                table = self.writer.table(expr.dtype, expr.table)
                self.writer.put(isa.Lookup(target.reg, expr.dtype, table, source.dtype, source.reg))
                return target
            case Load():
                return self._load(expr)
            case Reduce():
                return reductions.emit(self, expr)
            case _:
                raise InternalError(f"no instructions for {expr!r}")

    def _apply(self, expr: Apply) -> Val:
        if narrow_loops.is_narrow(expr):
            return self.value(narrow_loops.legalise(expr, expr.children[0]))
        if self._narrow_compare(expr):
            a, b = (self.index(child, I32) for child in expr.children)
            return self.writer.alu(expr.op, BOOL, a, b)
        return self.writer.alu(expr.op, expr.dtype, *(self.value(child) for child in expr.children))

    def _narrow_compare(self, expr: Apply) -> bool:
        """Whether it compares indices that 32 bits hold."""
        return expr.op in COMPARES and all(is_index(child) and fits(child) for child in expr.children)

    def _rarely(self, expr: Rarely) -> Val:
        condition, common = self.value(expr.condition), self.value(expr.common)
        with self.writer.when_any(condition):
            self.levels.append(Level(self.writer.sink, conditional=True))
            seldom = self.value(expr.seldom)
            self.levels.pop()
        return self.writer.select(condition, seldom, common)

    # indices ────────────────────────────────────────────────────────────────────────────────────────

    def index(self, expr: Expr, dtype: DType) -> Val:
        """An index in every lane, as i32 (which must hold it) or i64."""
        key = (expr, dtype)
        found = self._known(expr, key)
        if found is None:
            level = self._levels(expr)[-1]
            with self.at(level):
                found = self.levels[level].known[key] = self._index(expr, dtype)
        return found

    def _index(self, expr: Expr, dtype: DType) -> Val:
        place = self.places.find(expr)
        if place is not None:
            return self._iota(dtype, *place)
        match expr:
            case Affine():
                return self._affine(expr, dtype)
            case IndexOp():
                return self._index_op(expr, self.index(expr.children[0], dtype), dtype)
            case _:
                return self.value(expr)

    def _iota(self, dtype: DType, start: Index, pattern: Pattern) -> Val:
        target = self.writer.register(dtype)
        self.writer.put(isa.Iota(target.reg, dtype, start, pattern))
        return target

    def _affine(self, expr: Affine, dtype: DType) -> Val:
        """What is a place is one instruction; the rest is added to it."""
        plain, rest = ix.number(expr.constant), list[tuple[Expr, int]]()
        for child, factor in zip(expr.children, expr.coefficients, strict=True):
            more = ix.add(plain, ix.scale(child, factor))
            if self.places.find(more) is None:
                rest.append((child, factor))
            else:
                plain = more
        total = None if isinstance(plain, Const) and plain.bits == 0 else self.index(plain, dtype)
        for child, factor in rest:
            part = self.index(child, dtype)
            if factor != 1:
                part = self.writer.alu("mul", dtype, part, self._number(dtype, factor))
            total = part if total is None else self.writer.alu("add", dtype, total, part)
        if total is None:
            raise InternalError(f"an empty sum {expr!r}")
        return total

    def _number(self, dtype: DType, value: int) -> Val:
        key = ("number", dtype, value)
        known = self.levels[0].known
        if key not in known:
            with self.at(0):
                known[key] = self.writer.constant(dtype, value & ((1 << dtype.bits) - 1))
        return known[key]

    def _index_op(self, expr: IndexOp, operand: Val, dtype: DType) -> Val:
        """Floor division; only an index that may be negative needs more than the truncating one."""
        put, divisor = self.writer.alu, self._number(dtype, expr.divisor)
        negative = self._may_be_negative(expr.children[0])
        if expr.op == "mod":
            rest = put("rem", dtype, operand, divisor)
            if not negative:
                return rest
            below = put("lt", BOOL, rest, self._number(dtype, 0))
            return self.writer.select(below, put("add", dtype, rest, divisor), rest)
        quotient = put("div", dtype, operand, divisor)
        if not negative:
            return quotient
        below = put("lt", BOOL, put("rem", dtype, operand, divisor), self._number(dtype, 0))
        return self.writer.select(below, put("sub", dtype, quotient, self._number(dtype, 1)), quotient)

    def _may_be_negative(self, index: Expr) -> bool:
        if isinstance(index, Load) and index.when is None:
            return index.buffer not in self.positions
        return ix.bounds(index)[0] < 0

    # memory ─────────────────────────────────────────────────────────────────────────────────────────

    def _mask(self, *conditions: Expr | None) -> Val | None:
        condition = ix.both(*conditions)
        return None if condition is TRUE else self.value(condition)

    def _inside_here(self) -> list[Expr]:
        """Which lanes stand for iterations, as far as it is known in this block. What is computed here depends on no
        axis of an inner one: lanes that are idle for some of its values only are right for others."""
        found, open_ones = list[Expr](), [self.inside]
        while open_ones:
            expr = open_ones.pop()
            if all(self.depths[axis] < len(self.levels) for axis in expr.free):
                found.append(expr)
            elif isinstance(expr, Apply) and expr.op == "and":
                open_ones += expr.children
        return found

    def _reaches(self, buffer: int, offset: Expr) -> bool:
        """Whether every lane's element lies in the buffer's area, idle lanes' too; an area may grow for them."""
        area = self.areas[buffer]
        size = self.writer.size(area)
        if buffer in self.halves:
            low, high = ix.bounds(ix.add(offset, ix.scale(self.halves[buffer], -1)))
            return low >= 0 and high < size // 2
        low, high = ix.bounds(offset)
        if low >= 0 and high < size:
            return True
        if high - low >= min(4 * size + 64 * LANES, LARGEST):
            return False
        self.writer.widen(area, high + 1)
        self.writer.lead(area, -low)
        return True

    def _load(self, expr: Load) -> Val:
        area, target = self.areas[expr.buffer], self.writer.register(expr.dtype)
        place = self.places.find(expr.offset)
        if place is not None and self._reaches(expr.buffer, expr.offset):
            start, pattern = place
            self.writer.put(isa.Load(target.reg, expr.dtype, vmem(area, start), aligned(start, pattern)))
            if expr.when is None or expr.when is TRUE:
                return target
            return self.writer.select(self.value(expr.when), target, self.value(_zero(expr.dtype)))
        dtype = I32 if fits(expr.offset) else I64
        index, mask = self.index(expr.offset, dtype), self._mask(expr.when, *self._inside_here())
        where = None if mask is None else mask.reg
        self.writer.put(isa.Gather(target.reg, expr.dtype, vmem(area), index.reg, dtype, where))
        return target

    def store(self, store: Store) -> None:
        self.write(store.buffer, store.offset, self.value(store.value), store.when)

    def write(self, buffer: int, offset: Expr, source: Val, *conditions: Expr | None) -> None:
        """Write from the lanes that stand for iterations, where the conditions hold."""
        area, mask, place = self.areas[buffer], self._mask(*conditions, self.inside), self.places.find(offset)
        where = None if mask is None else mask.reg
        if place is not None and self._reaches(buffer, offset):
            start, pattern = place
            target = vmem(area, start)
            self.writer.put(isa.Store(target, source.dtype, source.reg, aligned(start, pattern), where))
            return
        dtype = I32 if fits(offset) else I64
        index = self.index(offset, dtype)
        self.writer.put(isa.Scatter(vmem(area), source.dtype, index.reg, dtype, source.reg, where))


def _zero(dtype: DType) -> Const:
    return Const(dtype, (0,), ())
