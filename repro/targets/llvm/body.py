"""Expressions and loops of a kernel as LLVM IR.

A scope binds axes to values. Before a loop is opened, whatever its outer scopes decide is computed there
(`hoist`), so what does not change in a loop is computed before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial, reduce

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Affine, Apply, Axis, Const, Expr, IndexOp, Load, Lookup, Rarely, Reduce, Scalar
from repro.ir.loops import Kernel
from repro.ir.types import F32, I32, I64
from repro.machines import Machine
from repro.numerics import narrow_loops
from repro.targets.llvm import halves, nans, row_sums, rows_in_memory, scalars, tables
from repro.targets.llvm.memory import Memory
from repro.targets.llvm.quantized import quantized
from repro.targets.llvm.roads import Road, roads
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer, literal

ReduceEmitter = Callable[["Body", Reduce, Scope], Val]


class Body(Memory):
    """Emits one kernel's expressions into a function."""

    def __init__(self, f: Function, kernel: Kernel, reducer: ReduceEmitter, machine: Machine) -> None:
        super().__init__(f, kernel, machine)
        self.reducer = reducer
        self.lanes = machine.reduction_lanes
        """Lanes that a reduction along its own axis may use (1: scalar code)."""
        self.serial = frozenset(kernel.axes[: kernel.serial])
        self.changing = _changing(kernel) if self.serial else frozenset[Expr]()
        self.roads = roads(kernel, machine)
        self.left = dict[str, Val]()
        """By a function's value: whether some lane of it was left to the first road, as every NaN is."""
        self.rows = rows_in_memory.columns(road.value for road in self.roads.values())

    @cached_property
    def needs(self) -> Mapping[Reduce, row_sums.Needs]:
        return row_sums.needs(self.kernel)

    @cached_property
    def quotients(self) -> Mapping[Expr, Reduce]:
        return row_sums.quotients(self.kernel)

    # expressions ────────────────────────────────────────────────────────────────────────────────────

    def value(self, expr: Expr, scope: Scope) -> Val:
        """The expression in the scope being emitted: a scalar, or one value per lane where it depends on them."""
        found = scope.find(expr)
        if found is not None:
            return found
        self._operands_first(expr, scope)
        made = scope.known[expr] = self._emit(expr, scope)
        return made

    def _operands_first(self, root: Expr, scope: Scope) -> None:
        """Compute what scalar operations below a root need, deepest first: long chains must not recurse."""
        stack = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if expr is not root and scope.find(expr) is not None:
                continue
            if ready:
                scope.known[expr] = self._emit(expr, scope)
            elif isinstance(expr, Apply):
                if expr is not root:
                    stack.append((expr, True))
                stack.extend((child, False) for child in reversed(self._operands(expr)) if isinstance(child, Apply))

    def _operands(self, expr: Apply) -> Sequence[Expr]:
        """What an operation's code is made from."""
        if expr in self.roads:
            return (self.roads[expr].operand,)
        value = nans.behind(expr)
        return expr.children if value is None else (value,)

    def hoist(self, roots: Iterable[Expr], scope: Scope) -> None:
        """Compute now every largest part of the roots that the scope's axes decide."""
        for expr in self.decided(roots, scope.axes):
            self.value(expr, scope)

    def decided(self, roots: Iterable[Expr], axes: frozenset[Axis]) -> list[Expr]:
        """The largest parts of the roots that the axes decide, but constants."""
        found, seen = list[Expr](), set[Expr]()
        changing = frozenset[Expr]() if self.serial <= axes else self.changing
        stack = list(roots)
        while stack:
            expr = stack.pop()
            if expr in seen:
                continue
            seen.add(expr)
            if expr.free <= axes and expr not in changing and not isinstance(expr, Const):
                found.append(expr)
                continue
            stack.extend(expr.children)
        return found

    def _emit(self, expr: Expr, scope: Scope) -> Val:
        road = self.roads.get(expr)
        if road is not None:
            operand = self.value(road.operand, scope)
            if operand.width % road.lanes == 0:
                return self._by(road, expr, operand)
        match expr:
            case Const():
                return literal(expr.dtype, expr.bits)
            case Axis():
                bound = scope.lookup(expr)
                if bound is None:
                    raise InternalError(f"axis {expr.number} is not bound")
                return bound
            case Scalar():
                return Val(f"%s{expr.position}", I64)
            case Affine():
                return self._affine(expr, scope)
            case IndexOp():
                operand = self.value(expr.children[0], scope)
                return self._index_op(expr, operand)
            case Apply():
                return self._apply(expr, scope)
            case Rarely():
                return self._rarely(expr, scope)
            case Lookup():
                return self._lookup(expr, scope)
            case Load():
                return self.load(expr, scope)
            case Reduce():
                return self.reducer(self, expr, scope)
            case _:
                raise InternalError(f"no code for {expr!r}")

    def _by(self, road: Road, expr: Expr, operand: Val) -> Val:
        """The expression by another road, on whose seldom side it stands as it is: register by register, so that a
        seldom lane costs its own register alone. Whether there is one is asked of several registers at a time."""
        every, self.roads = self.roads, {other: each for other, each in self.roads.items() if other is not expr}
        starts = range(0, operand.width, road.lanes)
        parts = [tables.lanes_of(self.f, operand, start, road.lanes) for start in starts]
        scopes = [Scope(None, {}, known={road.operand: part}) for part in parts]
        found, seldom, count = list[Val](), list[Val](), math.gcd(road.together, len(scopes))
        for first in range(0, len(scopes), count):
            values, taken = self._together(road.value, scopes[first : first + count])
            found, seldom = [*found, *values], [*seldom, taken]
        self.roads = every
        value = tables.joined(self.f, found)
        self.left[value.text] = reduce(partial(scalars.binary, self.f, "or"), seldom)
        return value

    def _together(self, root: Rarely, scopes: Sequence[Scope]) -> tuple[Sequence[Val], Val]:
        """The value in each scope, step by step in all of them, so that none waits for its own last step, and with one
        branch round what is seldom in any of them; and whether it was taken. What can make it so is asked of all, one
        thing after another: what is known early need not be kept."""
        if len(scopes) == 1:
            values = [self.value(root, scopes[0])]
            return values, scalars.any_lane(self.f, self.value(root.condition, scopes[0]))
        causes = _alternatives(root.condition)
        for expr in _steps([*causes, root.common], scopes[0]):
            for scope in scopes:
                self.value(expr, scope)
        conditions = [self.value(cause, scope) for cause in causes for scope in scopes]
        common = [self.value(root.common, scope) for scope in scopes]
        taken = scalars.any_lane(self.f, reduce(partial(scalars.binary, self.f, "or"), conditions))
        values = self.f.either(
            taken, lambda: [self._rarely(root, Scope(scope, {})) for scope in scopes], lambda: common, seldom=True
        )
        return values, taken

    def _same_width(self, operands: Sequence[Val]) -> list[Val]:
        width = max(operand.width for operand in operands)
        return [self.f.splat(operand, width) for operand in operands]

    def _apply(self, expr: Apply, scope: Scope) -> Val:
        if self.machine.converts_f16 and halves.between(expr):
            return halves.converted(self.f, self.value(expr.children[0], scope))
        if narrow_loops.is_narrow(expr):
            return self.value(narrow_loops.legalise(expr, expr.children[0]), scope)
        value = nans.behind(expr)
        if value is not None:
            found = self.value(value, scope)
            if nans.together(self.machine, found.width):
                return nans.made_one(self.f, found, self.machine.lanes(F32.bits), self._if_any(value, scope))
        tested = nans.operand(expr)
        if tested is not None:
            return nans.test(self.f, self.value(tested, scope))
        rounded = quantized(expr)
        if rounded is not None and (found := self.value(rounded.value, scope)).width > 1:
            zero = None if rounded.zero is None else self.value(rounded.zero, scope)
            return rounded.emit(self.f, found, zero, self.machine)
        operands = self._same_width([self.value(child, scope) for child in expr.children])
        return scalars.apply(self.f, expr.op, expr.dtype, operands)

    def _if_any(self, value: Expr, scope: Scope) -> Val | None:
        """What holds if any of a value's lanes is a NaN, where it is known: the row's sum is unusual, or the function
        that it is made of was left to its first road."""
        if value in self.quotients:
            total = self.value(self.quotients[value], scope)
            return nans.unusual(self.f, total) if total.width == 1 else None
        source = nans.source(value, self.roads)
        computed = None if source is None else scope.find(source)
        return None if computed is None else self.left.get(computed.text)

    def _rarely(self, expr: Rarely, scope: Scope) -> Val:
        """A branch round the seldom side: lanes share it, so it is skipped only where no lane takes it."""
        condition, common = self.value(expr.condition, scope), self.value(expr.common, scope)
        condition, common = self._same_width([condition, common])

        def seldom() -> Sequence[Val]:
            value = self.value(expr.seldom, Scope(scope, {}))
            return [scalars.select(self.f, condition, self.f.splat(value, condition.width), common)]

        taken, lanes = scalars.any_lane(self.f, condition), condition.width > 1
        return self.f.either(taken, seldom, lambda: [common], seldom=lanes)[0]

    def _lookup(self, expr: Lookup, scope: Scope) -> Val:
        """What else is looked up in a row that lies in memory is known then, too."""
        index, row = self.value(expr.index, scope), self.rows.get(expr, ())
        if not row or index.width == 1:
            return tables.lookup(self.f, expr, index, self.machine)
        scope.known |= zip(row, rows_in_memory.looked_up(self.f, row, index), strict=True)
        return scope.known[expr]

    def _affine(self, expr: Affine, scope: Scope) -> Val:
        total = integer(expr.constant)
        for child, factor in zip(expr.children, expr.coefficients, strict=True):
            term = self.f.scaled(self.value(child, scope), factor)
            total, term = self._same_width([total, term]) if total.text != "0" else (total, term)
            total = self.f.add(total, term)
        return total

    def _index_op(self, expr: IndexOp, operand: Val) -> Val:
        """Floor division; an index that cannot be negative takes the unsigned instruction, lanes that fit 32 bits are
        divided in as many."""
        low, high = _bounds(expr.children[0])
        if operand.width > 1 and operand.dtype is I64 and max(-low, high, expr.divisor) < 1 << 31:
            narrow = self._divided(expr, scalars.convert(self.f, operand, I32), low)
            return scalars.convert(self.f, narrow, I64)
        return self._divided(expr, operand, low)

    def _divided(self, expr: IndexOp, operand: Val, low: int) -> Val:
        dtype, width = operand.dtype, operand.width
        divisor = scalars.constant(self.f, dtype, expr.divisor, width)
        if low >= 0:
            return scalars.binary(self.f, "udiv" if expr.op == "floordiv" else "urem", operand, divisor)
        quotient = scalars.binary(self.f, "sdiv", operand, divisor)
        rest = scalars.binary(self.f, "srem", operand, divisor)
        zero = scalars.constant(self.f, dtype, 0, width)
        negative = scalars.compare(self.f, "lt", rest, zero)
        if expr.op == "mod":
            return scalars.select(self.f, negative, scalars.binary(self.f, "add", rest, divisor), rest)
        less = scalars.binary(self.f, "sub", quotient, scalars.constant(self.f, dtype, 1, width))
        return scalars.select(self.f, negative, less, quotient)

    # loops ──────────────────────────────────────────────────────────────────────────────────────────

    def nest(
        self,
        axes: Sequence[Axis],
        scope: Scope,
        roots: Sequence[Expr],
        carried: Sequence[Val],
        body: Callable[[Scope, list[Val]], Sequence[Val]],
    ) -> list[Val]:
        """Loops over whole axes, the last fastest, hoisting what each level decides."""
        self.hoist(roots, scope)
        if not axes:
            return list(body(scope, list(carried)))
        axis, rest = axes[0], axes[1:]

        def inside(counter: Val, state: list[Val]) -> Sequence[Val]:
            return self.nest(rest, Scope(scope, {axis: counter}), roots, state, body)

        return self.f.loop(integer(0), integer(axis.extent), 1, carried, inside)

    # flattened axes ─────────────────────────────────────────────────────────────────────────────────

    def split(self, flat: Val, axes: Sequence[Axis]) -> list[Val]:
        """The values of axes at their flattened (row-major) index."""
        if len(axes) <= 1:
            return [flat] * len(axes)
        count = math.prod(axis.extent for axis in axes)
        if flat.width > 1 and count < 1 << 31:  # division of narrow lanes is far cheaper
            places = self._split(scalars.convert(self.f, flat, I32), axes, count)
            return [scalars.convert(self.f, place, I64) for place in places]
        return self._split(flat, axes, count)

    def _split(self, flat: Val, axes: Sequence[Axis], count: int) -> list[Val]:
        places, step = list[Val](), 1
        for axis in reversed(axes):
            divisor = scalars.constant(self.f, flat.dtype, step, flat.width)
            place = scalars.binary(self.f, "udiv", flat, divisor) if step > 1 else flat
            step *= axis.extent
            if step < count:
                extent = scalars.constant(self.f, flat.dtype, axis.extent, flat.width)
                place = scalars.binary(self.f, "urem", place, extent)
            places.append(place)
        return places[::-1]

    def lane_scope(
        self, scope: Scope, axes: Sequence[Axis], flat: Val, width: int, mask: Val | None, aligned: bool
    ) -> Scope:
        """Lanes hold consecutive flattened indices of axes, from `flat` on; masked lanes stay inside the axes.

        If `flat` is a multiple of the width (`aligned`), the axes before the shortest suffix that holds whole
        vectors have one value for all lanes.
        """
        if not axes:
            return Scope(scope, {}, width, None, mask)
        first = self._aligned_suffix(axes, width) if aligned else 0
        outer, inner = axes[:first], tuple(axes[first:])
        extent = math.prod(axis.extent for axis in inner)
        if outer:
            start = scalars.binary(self.f, "urem", flat, integer(extent))
            rest = scalars.binary(self.f, "udiv", flat, integer(extent))
            scope = Scope(scope, dict(zip(outer, self.split(rest, outer), strict=True)))
            flat = start
        numbers = self.f.add(self.f.splat(flat, width), self.f.lanes(width))
        if mask is not None and len(inner) > 1:
            final = scalars.constant(self.f, I64, extent - 1, width)
            numbers = scalars.select(self.f, mask, numbers, final)
        return Scope(scope, dict(zip(inner, self.split(numbers, inner), strict=True)), width, (inner, flat), mask)

    def _aligned_suffix(self, axes: Sequence[Axis], width: int) -> int:
        extent = 1
        for position in reversed(range(len(axes))):
            extent *= axes[position].extent
            if extent % width == 0:
                return position
        return 0


def _bounds(index: Expr) -> tuple[int, int]:
    """Least and greatest value, inclusive; a place among a reduction's terms is one of them."""
    if isinstance(index, Reduce) and index.combiner.startswith("arg"):
        return 0, max(0, math.prod(axis.extent for axis in index.axes) - 1)
    if isinstance(index, IndexOp) and index.op == "floordiv":
        low, high = _bounds(index.children[0])
        return low // index.divisor, high // index.divisor
    return ix.bounds(index)


def _changing(kernel: Kernel) -> frozenset[Expr]:
    """Expressions that read what the kernel writes: their values last for one serial iteration."""
    found: set[Expr] = set()
    for expr in kernel.expressions:
        own = isinstance(expr, Load) and kernel.buffers[expr.buffer].writable
        if own or any(child in found for child in expr.children):
            found.add(expr)
    return frozenset(found)


def _alternatives(condition: Expr) -> list[Expr]:
    """Of which one must hold."""
    if isinstance(condition, Apply) and condition.op == "or":
        return [each for child in condition.children for each in _alternatives(child)]
    return [condition]


def _steps(roots: Sequence[Expr], scope: Scope) -> Sequence[Expr]:
    """What the roots are computed from in a scope that knows some of it, operands before what needs them."""
    found, stack = dict[Expr, None](), [(root, False) for root in reversed(roots)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            found[expr] = None
        elif expr not in found and scope.find(expr) is None:
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(expr.children))
    return list(found)
