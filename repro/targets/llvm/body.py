"""Expressions, loads and stores of a kernel as LLVM IR.

A scope binds axes to values. Before a loop is opened, whatever its outer scopes decide is computed there
(`hoist`), so what does not change in a loop is computed before it. In a vector scope some axes hold a value per
lane; where they are consecutive, loads and stores along them are contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from repro.errors import InternalError
from repro.ir import index as ix
from repro.ir.expressions import Affine, Apply, Axis, Const, Expr, IndexOp, Load, Lookup, Rarely, Reduce, Scalar
from repro.ir.loops import Kernel
from repro.ir.types import BOOL, I32, I64, DType
from repro.machines import Machine
from repro.numerics import narrow_loops
from repro.targets.llvm import nans, scalars, tables
from repro.targets.llvm.roads import Road, roads
from repro.targets.llvm.text import Function, Val, integer, literal, memory, vector

LINE_BYTES = 64
"""Of a line of caches; a buffer that a program writes begins with one."""


@dataclass
class Scope:
    """Bound axes and the values computed so far here; those of the outer scopes are seen too."""

    outer: Scope | None
    bound: dict[Axis, Val]
    width: int = 1
    run: tuple[tuple[Axis, ...], Val] | None = None
    """Axes whose flattened (row-major) index is consecutive over the lanes, and that index in lane 0."""
    mask: Val | None = None
    """Lanes that exist; loads touch no others."""
    known: dict[Expr, Val] = field(default_factory=dict[Expr, Val])

    @property
    def axes(self) -> frozenset[Axis]:
        own = frozenset(self.bound)
        return own if self.outer is None else own | self.outer.axes

    def lookup(self, axis: Axis) -> Val | None:
        if axis in self.bound:
            return self.bound[axis]
        return None if self.outer is None else self.outer.lookup(axis)

    def find(self, expr: Expr) -> Val | None:
        """The value of an expression that is known here or further out."""
        level: Scope | None = self
        while level is not None:
            found = level.known.get(expr)
            if found is not None:
                return found
            level = level.outer
        return None

    @property
    def vector(self) -> Scope | None:
        """The nearest scope whose axes are lanes."""
        if self.width > 1:
            return self
        return None if self.outer is None else self.outer.vector


ReduceEmitter = Callable[["Body", Reduce, Scope], Val]


class Body:
    """Emits one kernel's expressions into a function."""

    def __init__(self, f: Function, kernel: Kernel, reducer: ReduceEmitter, machine: Machine) -> None:
        self.f, self.kernel, self.reducer, self.machine = f, kernel, reducer, machine
        self.lanes = machine.reduction_lanes
        """Lanes that a reduction along its own axis may use (1: scalar code)."""
        self.serial = frozenset(kernel.axes[: kernel.serial])
        self.changing = _changing(kernel) if self.serial else frozenset[Expr]()
        self.roads = roads(kernel, machine)
        self.ahead: tuple[Axis, int] | None = None
        """An axis and how many steps further along it lies what loads of lanes ask for beforehand."""
        self.writes_ahead = False
        """Whether stores ask for it too."""

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
                operands = (self.roads[expr].operand,) if expr in self.roads else expr.children
                stack.extend((child, False) for child in reversed(operands) if isinstance(child, Apply))

    def hoist(self, roots: Iterable[Expr], scope: Scope) -> None:
        """Compute now every largest part of the roots that the scope's axes decide."""
        axes, seen = scope.axes, set[Expr]()
        changing = frozenset[Expr]() if self.serial <= axes else self.changing
        stack = list(roots)
        while stack:
            expr = stack.pop()
            if expr in seen:
                continue
            seen.add(expr)
            if expr.free <= axes and expr not in changing and not isinstance(expr, Const):
                self.value(expr, scope)
                continue
            stack.extend(expr.children)

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
                return tables.lookup(self.f, expr, self.value(expr.index, scope), self.machine)
            case Load():
                return self._load(expr, scope)
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
        found, count = list[Val](), math.gcd(road.together, len(scopes))
        for first in range(0, len(scopes), count):
            found += self._together(road.value, scopes[first : first + count])
        self.roads = every
        return tables.joined(self.f, found)

    def _together(self, root: Rarely, scopes: Sequence[Scope]) -> Sequence[Val]:
        """The value in each scope, step by step in all of them, so that none waits for its own last step, and with one
        branch round what is seldom in any of them."""
        if len(scopes) == 1:
            return [self.value(root, scopes[0])]
        for expr in _steps([root.condition, root.common], scopes[0]):
            for scope in scopes:
                self.value(expr, scope)
        conditions = [self.value(root.condition, scope) for scope in scopes]
        common = [self.value(root.common, scope) for scope in scopes]
        taken = scalars.any_lane(self.f, reduce(partial(scalars.binary, self.f, "or"), conditions))
        return self.f.either(
            taken, lambda: [self._rarely(root, Scope(scope, {})) for scope in scopes], lambda: common, seldom=True
        )

    def _same_width(self, operands: Sequence[Val]) -> list[Val]:
        width = max(operand.width for operand in operands)
        return [self.f.splat(operand, width) for operand in operands]

    def _apply(self, expr: Apply, scope: Scope) -> Val:
        if narrow_loops.is_narrow(expr):
            return self.value(narrow_loops.legalise(expr, expr.children[0]), scope)
        tested = nans.operand(expr, self.machine)
        if tested is not None:
            return nans.test(self.f, self.value(tested, scope))
        operands = self._same_width([self.value(child, scope) for child in expr.children])
        return scalars.apply(self.f, expr.op, expr.dtype, operands)

    def _rarely(self, expr: Rarely, scope: Scope) -> Val:
        """A branch round the seldom side: lanes share it, so it is skipped only where no lane takes it."""
        condition, common = self.value(expr.condition, scope), self.value(expr.common, scope)
        condition, common = self._same_width([condition, common])

        def seldom() -> Sequence[Val]:
            value = self.value(expr.seldom, Scope(scope, {}))
            return [scalars.select(self.f, condition, self.f.splat(value, condition.width), common)]

        taken, lanes = scalars.any_lane(self.f, condition), condition.width > 1
        return self.f.either(taken, seldom, lambda: [common], seldom=lanes)[0]

    def _affine(self, expr: Affine, scope: Scope) -> Val:
        total = integer(expr.constant)
        for child, factor in zip(expr.children, expr.coefficients, strict=True):
            term = self.f.scaled(self.value(child, scope), factor)
            total, term = self._same_width([total, term]) if total.text != "0" else (total, term)
            total = self.f.add(total, term)
        return total

    def _index_op(self, expr: IndexOp, operand: Val) -> Val:
        """Floor division; an index that cannot be negative takes the unsigned instruction."""
        low, _ = ix.bounds(expr.children[0])
        divisor = scalars.constant(self.f, I64, expr.divisor, operand.width)
        if low >= 0:
            return scalars.binary(self.f, "udiv" if expr.op == "floordiv" else "urem", operand, divisor)
        quotient = scalars.binary(self.f, "sdiv", operand, divisor)
        rest = scalars.binary(self.f, "srem", operand, divisor)
        zero = scalars.constant(self.f, I64, 0, operand.width)
        negative = scalars.compare(self.f, "lt", rest, zero)
        if expr.op == "mod":
            return scalars.select(self.f, negative, scalars.binary(self.f, "add", rest, divisor), rest)
        less = scalars.binary(self.f, "sub", quotient, scalars.constant(self.f, I64, 1, operand.width))
        return scalars.select(self.f, negative, less, quotient)

    # memory ─────────────────────────────────────────────────────────────────────────────────────────

    def pointer(self, buffer: int, offset: Val) -> Val:
        """The address of an element, or of one per lane."""
        kind = memory(self.kernel.buffers[buffer].dtype)
        made = self.f.let(f"getelementptr inbounds {kind}, ptr %b{buffer}, {offset.typed}", I64, offset.width)
        return Val(made.text, I64, offset.width)

    def run_start(self, offset: Expr, scope: Scope) -> Val | None:
        """The offset in lane 0, where the lanes of the scope address consecutive elements."""
        lanes = scope.vector
        if lanes is None or lanes.run is None:
            return None
        axes, first = lanes.run
        if not offset.free & frozenset(lanes.bound) <= frozenset(axes):
            return None
        stride, rest = 1, [offset]
        for axis in reversed(axes):
            if ix.coefficient(offset, axis) != stride:
                return None
            rest.append(ix.scale(axis, -stride))
            stride *= axis.extent
        base = self.value(ix.add(*rest), scope)
        return None if base.width > 1 else self.f.add(base, first)

    def alignment(self, offset: Expr, dtype: DType, lanes: Scope) -> int:
        """Bytes to which the address of a run over the lanes is known to be aligned."""
        return dtype.bytes

    def _from_memory(self, value: Val, dtype: DType) -> Val:
        if dtype is not BOOL:
            return value
        kind = vector("i8", value.width)
        zero = "0" if value.width == 1 else "zeroinitializer"
        return self.f.let(f"icmp ne {kind} {value.text}, {zero}", BOOL, value.width)

    def to_memory(self, value: Val) -> Val:
        """The value as it lies in memory (bool: i8)."""
        if value.dtype is not BOOL:
            return value
        return self.f.let(f"zext {value.typed} to {vector('i8', value.width)}", BOOL, value.width)

    def _load(self, expr: Load, scope: Scope) -> Val:
        lanes = scope.vector
        when = None if expr.when is None else self.value(expr.when, scope)
        varies = lanes is not None and bool(expr.offset.free & _lane_axes(scope))
        if lanes is None or (not varies and (when is None or when.width == 1)):
            return self._scalar_load(expr, when, scope)
        if when is not None and when.width == 1:
            return self._one_for_all(when, expr, scope)
        mask = self._mask(when, lanes)
        start = self.run_start(expr.offset, scope)
        kind = vector(memory(expr.dtype), lanes.width)
        if start is not None:
            address = self.pointer(expr.buffer, start).text
            self._fetch_ahead(expr, start, lanes.width)
            if mask is None:
                aligned = self.alignment(expr.offset, expr.dtype, lanes)
                raw = self.f.let(f"load {kind}, ptr {address}, align {aligned}", expr.dtype, lanes.width)
            else:
                raw = self._masked("load", "ptr", address, mask, expr.dtype)
            return self._from_memory(raw, expr.dtype)
        offset = self.f.splat(self.value(expr.offset, scope), lanes.width)
        address = self.pointer(expr.buffer, offset).text
        full = mask or scalars.constant(self.f, BOOL, 1, lanes.width)
        raw = self._masked("gather", vector("ptr", lanes.width), address, full, expr.dtype)
        return self._from_memory(raw, expr.dtype)

    def _one_for_all(self, when: Val, expr: Load, scope: Scope) -> Val:
        """A load that all lanes make or none: a branch, where masks would cost each access (a masked store takes Zen 4
        a dozen cycles)."""
        always, lanes = Load(expr.dtype, (expr.buffer,), (expr.offset,)), scope.vector
        zero = scalars.constant(self.f, expr.dtype, 0, 1 if lanes is None else lanes.width)
        return self.f.either(when, lambda: [self._load(always, Scope(scope, {}))], lambda: [zero])[0]

    def _fetch_ahead(self, expr: Load, start: Val, width: int) -> None:
        """Ask for what a load of this kind will read later."""
        axes = frozenset(self.kernel.axes)
        if self.ahead is not None and (self.ahead[0] not in axes or expr.free <= axes):
            self._ask_ahead(expr.buffer, expr.offset, start, width)

    def _ask_ahead(self, buffer: int, offset: Expr, start: Val, width: int, write: int = 0) -> None:
        """Ask for what lies steps further along the axis: it may lie anywhere, and nothing is read or written."""
        if self.ahead is None:
            return
        axis, steps = self.ahead
        stride = ix.coefficient(offset, axis) or 0
        for first in range(0, width if stride else 0, max(1, LINE_BYTES // self.kernel.buffers[buffer].dtype.bytes)):
            self.fetch(buffer, self.f.add(start, integer(stride * steps + first)), write=write)

    def fetch(self, buffer: int, place: Val, near: int = 3, write: int = 0) -> None:
        """Ask for the line of an element: 3 for the nearest cache, 2 for the next; 1: to write it. It may lie
        anywhere."""
        kind = memory(self.kernel.buffers[buffer].dtype)
        address = self.f.let(f"getelementptr {kind}, ptr %b{buffer}, {place.typed}", I64)
        arguments = [f"ptr {address.text}", f"i32 {write}", f"i32 {near}", "i32 1"]
        self.f.effect("llvm.prefetch.p0", ["ptr", "i32", "i32", "i32"], arguments)

    def _masked(self, what: str, pointer: str, address: str, mask: Val, dtype: DType) -> Val:
        """llvm.masked.load or .gather: lanes without access are zero bits."""
        width, kind = mask.width, vector(memory(dtype), mask.width)
        name = f"llvm.masked.{what}.v{width}{_short(dtype)}.{'p0' if what == 'load' else f'v{width}p0'}"
        self.f.declared[f"declare {kind} @{name}({pointer}, {mask.type}, {kind})"] = None
        where = f"{pointer} align {dtype.bytes} {address}"
        return self.f.let(f"call {kind} @{name}({where}, {mask.typed}, {kind} zeroinitializer)", dtype, width)

    def _mask(self, when: Val | None, lanes: Scope) -> Val | None:
        if when is None:
            return lanes.mask
        full = self.f.splat(when, lanes.width)
        return full if lanes.mask is None else scalars.binary(self.f, "and", full, lanes.mask)

    def _scalar_load(self, expr: Load, when: Val | None, scope: Scope) -> Val:
        kind, offset = memory(expr.dtype), self.value(expr.offset, scope)

        def read() -> Val:
            address = self.pointer(expr.buffer, offset).text
            return self.f.let(f"load {kind}, ptr {address}, align {expr.dtype.bytes}", expr.dtype)

        if when is None:
            return self._from_memory(read(), expr.dtype)
        zero = literal(expr.dtype, 0)
        return self.f.either(when, lambda: [self._from_memory(read(), expr.dtype)], lambda: [zero])[0]

    def store(
        self, buffer: int, offset: Expr, value: Val, when: Expr | None, scope: Scope, streamed: bool = False
    ) -> None:
        """Write a value, where the condition holds; `streamed`: past the caches, from a multiple of the vector's size
        on."""
        lanes, dtype = scope.vector, self.kernel.buffers[buffer].dtype
        condition = None if when is None else self.value(when, scope)
        if lanes is None:
            place = self.value(offset, scope)
            self._scalar_store(buffer, place, value, condition)
            return
        if condition is not None and condition.width == 1:
            branch = Scope(scope, {})
            self.f.when(condition, lambda: self.store(buffer, offset, value, None, branch, streamed))
            return
        mask = self._mask(condition, lanes)
        raw = self.to_memory(self.f.splat(value, lanes.width))
        kind = vector(memory(dtype), lanes.width)
        start = self.run_start(offset, scope)
        if start is not None and mask is None:
            address = self.pointer(buffer, start).text
            if self.writes_ahead and not streamed:
                self._ask_ahead(buffer, offset, start, lanes.width, write=1)
            self.f.line(f"store {kind} {raw.text}, ptr {address}, {self._access(offset, dtype, lanes, streamed)}")
            return
        short = _short(dtype)
        if start is not None and mask is not None:
            address = self.pointer(buffer, start).text
            name = f"llvm.masked.store.v{lanes.width}{short}.p0"
            arguments = [f"{kind} {raw.text}", f"ptr align {dtype.bytes} {address}", mask.typed]
            self.f.effect(name, [kind, "ptr", mask.type], arguments)
            return
        places = self.f.splat(self.value(offset, scope), lanes.width)
        address = self.pointer(buffer, places).text
        full = mask or scalars.constant(self.f, BOOL, 1, lanes.width)
        pointers = vector("ptr", lanes.width)
        name = f"llvm.masked.scatter.v{lanes.width}{short}.v{lanes.width}p0"
        arguments = [f"{kind} {raw.text}", f"{pointers} align {dtype.bytes} {address}", full.typed]
        self.f.effect(name, [kind, pointers, full.type], arguments)

    def _access(self, offset: Expr, dtype: DType, lanes: Scope, streamed: bool) -> str:
        if not streamed:
            return f"align {self.alignment(offset, dtype, lanes)}"
        self.f.metadata["!0 = !{i32 1}"] = None
        return f"align {min(LINE_BYTES, lanes.width * dtype.bytes)}, !nontemporal !0"

    def _scalar_store(self, buffer: int, place: Val, value: Val, condition: Val | None) -> None:
        dtype = self.kernel.buffers[buffer].dtype
        raw = self.to_memory(value)

        def write() -> None:
            address = self.pointer(buffer, place).text
            self.f.line(f"store {memory(dtype)} {raw.text}, ptr {address}, align {dtype.bytes}")

        if condition is None:
            write()
        else:
            self.f.when(condition, write)

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


def _changing(kernel: Kernel) -> frozenset[Expr]:
    """Expressions that read what the kernel writes: their values last for one serial iteration."""
    found: set[Expr] = set()
    for expr in kernel.expressions:
        own = isinstance(expr, Load) and kernel.buffers[expr.buffer].writable
        if own or any(child in found for child in expr.children):
            found.add(expr)
    return frozenset(found)


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


def _lane_axes(scope: Scope) -> frozenset[Axis]:
    lanes = scope.vector
    return frozenset(lanes.bound) if lanes is not None else frozenset()


def _short(dtype: DType) -> str:
    """The element's name in an overloaded intrinsic."""
    return {"float": "f32", "double": "f64"}.get(memory(dtype), memory(dtype))
