"""Loads and stores of a kernel as LLVM IR.

In a vector scope some axes hold a value per lane; where they are consecutive, loads and stores along them are
contiguous, else they are gathered and scattered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from passes.vectors import MOST_APART
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Load, topological
from repro.ir.loops import Kernel
from repro.ir.types import BOOL, F32, F64, I64, DType
from repro.machines import Machine
from repro.machines.machine import LINE_BYTES, line_elements
from repro.targets.llvm import scalars
from repro.targets.llvm.scope import Scope, lane_axes
from repro.targets.llvm.text import Function, Val, element, integer, literal, memory, vector

FAR_BYTES = 16 << 10
"""Ahead in runs that are long, or follow each other: a sum of 32 MiB on a Zen 5 took 0.69 ms with none, 0.56 with 4
KiB, 0.47 with 16, 0.48 with 32."""
FENCED_BYTES = 4
"""Of an element that can be fenced: an f32's, whatever its bits mean."""


class Memory(ABC):
    """How a kernel's code reaches its buffers."""

    def __init__(self, f: Function, kernel: Kernel, machine: Machine) -> None:
        self.f, self.kernel, self.machine = f, kernel, machine
        self.ahead: tuple[Axis, int] | None = None
        """An axis and how many steps further along it lies what loads of lanes ask for beforehand."""
        self.terms_ask = False
        """Whether it is loads of a reduction's terms that ask for what the axis of a kernel leads to, or others."""
        self.far = frozenset[Load]()
        """Loads of lanes that ask for what they read so many bytes later."""
        self.writes_ahead = False
        """Whether stores ask for it too."""

    @abstractmethod
    def value(self, expr: Expr, scope: Scope) -> Val:
        """The expression in the scope being emitted: a scalar, or one value per lane where it depends on them."""

    def pointer(self, buffer: int, offset: Val) -> Val:
        """The address of an element, or of one per lane."""
        kind = memory(self.kernel.buffers[buffer].dtype)
        made = self.f.let(f"getelementptr inbounds {kind}, ptr %b{buffer}, {offset.typed}", I64, offset.width)
        return Val(made.text, I64, offset.width)

    def run_start(self, offset: Expr, scope: Scope, step: int = 1) -> Val | None:
        """The offset in lane 0, where the lanes of the scope address elements so many apart."""
        lanes = scope.vector
        if lanes is None or lanes.run is None:
            return None
        axes, first = lanes.run
        if not offset.free & frozenset(lanes.bound) <= frozenset(axes):
            return None
        stride, rest = step, [offset]
        for axis in reversed(axes):
            if ix.coefficient(offset, axis) != stride:
                return None
            rest.append(ix.scale(axis, -stride))
            stride *= axis.extent
        base = self.value(ix.add(*rest), scope)
        return None if base.width > 1 else self.f.add(base, self.f.scaled(first, step))

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

    def load(self, expr: Load, scope: Scope) -> Val:
        lanes = scope.vector
        when = None if expr.when is None else self.value(expr.when, scope)
        varies = lanes is not None and bool(expr.offset.free & lane_axes(scope))
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
                raw = self.masked("load", "ptr", address, mask, expr.dtype)
            return self._from_memory(raw, expr.dtype)
        return self._apart(expr, scope, lanes, mask)

    def _apart(self, expr: Load, scope: Scope, lanes: Scope, mask: Val | None) -> Val:
        """Lanes that do not lie beside each other, where all are there: whole vectors, of which every so manieth is
        taken, if they lie as far apart, or a load for each; gathered elsewhere."""
        steps = range(2, MOST_APART + 1)
        found = ((step, self.run_start(expr.offset, scope, step)) for step in steps if lanes.width % 2 == 0)
        step, start = next((each for each in found if each[1] is not None), (0, None))

        def together(within: Scope) -> Val:
            if start is None:
                return self._one_by_one(expr, within, lanes)
            return self._every(step, expr, start, lanes.width)

        if mask is None:
            return together(scope)

        def gathered() -> Sequence[Val]:
            if start is not None:
                return [self._every(step, expr, start, lanes.width, mask)]
            return [self._gathered(expr, Scope(scope, {}), lanes, mask)]

        for index in _at_loaded_places(expr.offset):  # once, not on both sides, where both would double again
            self.value(index, scope)
        every = scalars.all_lanes(self.f, mask)
        return self.f.either(every, lambda: [together(Scope(scope, {}))], gathered)[0]

    def _gathered(self, expr: Load, scope: Scope, lanes: Scope, mask: Val) -> Val:
        offset = self.f.splat(self.value(expr.offset, scope), lanes.width)
        address = self.pointer(expr.buffer, offset).text
        raw = self.masked("gather", vector("ptr", lanes.width), address, mask, expr.dtype)
        return self._from_memory(raw, expr.dtype)

    def _one_by_one(self, expr: Load, scope: Scope, lanes: Scope) -> Val:
        """A load for each lane: gathers took a Zen 4 1.3 to 2 times as long; elsewhere it was not measured."""
        kind, width = vector(memory(expr.dtype), lanes.width), lanes.width
        offsets, made = self.f.splat(self.value(expr.offset, scope), width), "poison"
        for lane in range(width):
            place = self.f.let(f"extractelement {offsets.typed}, i64 {lane}", I64)
            address = self.pointer(expr.buffer, place).text
            one = self.f.let(f"load {memory(expr.dtype)}, ptr {address}, align {expr.dtype.bytes}", expr.dtype)
            text = f"insertelement {kind} {made}, {memory(expr.dtype)} {one.text}, i64 {lane}"
            made = self.f.let(text, expr.dtype, width).text
        return self._from_memory(Val(made, expr.dtype, width), expr.dtype)

    def _every(self, step: int, expr: Load, start: Val, width: int, mask: Val | None = None) -> Val:
        """So many elements, each `step` behind the one before, from whole vectors that end with the last of them; of
        those that are masked off nothing is read."""
        kind, starts = (
            vector(memory(expr.dtype), width),
            [min(n * width, (width - 1) * (step - 1)) for n in range(step)],
        )
        parts = list[Val]()
        for first in starts:
            address = self.pointer(expr.buffer, self.f.add(start, integer(first))).text
            if mask is None:
                parts.append(self.f.let(f"load {kind}, ptr {address}, align {expr.dtype.bytes}", expr.dtype, width))
                continue
            parts.append(self.masked("load", "ptr", address, self._wanted(step, first, mask), expr.dtype))
        found = parts[0]
        for number, part in enumerate(parts[1:], 1):
            here = [lane * step for lane in range(width)]
            before = [at if number == 1 else lane for lane, at in enumerate(here[: -(-starts[number] // step)])]
            until = -(-starts[number + 1] // step) if number + 1 < step else width
            picks = [*before, *(width + at - starts[number] for at in here[len(before) : until])]
            found = self._picked(found, part, picks + [0] * (width - len(picks)))
        return self._from_memory(found, expr.dtype)

    def _wanted(self, step: int, first: int, mask: Val) -> Val:
        """Which elements of a vector that begins so far behind the first lane's are read: those of lanes that exist."""
        nothing, places = scalars.constant(self.f, BOOL, 0, mask.width), range(first, first + mask.width)
        lanes = [at // step if at % step == 0 else mask.width for at in places]
        picks = ", ".join(f"i32 {min(lane, mask.width)}" for lane in lanes)
        text = f"shufflevector {mask.typed}, {nothing.typed}, <{mask.width} x i32> <{picks}>"
        return self.f.let(text, BOOL, mask.width)

    def _picked(self, a: Val, b: Val, lanes: list[int]) -> Val:
        kind, picks = vector(memory(a.dtype), a.width), ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {kind} {a.text}, {kind} {b.text}, <{len(lanes)} x i32> <{picks}>"
        return self.f.let(text, a.dtype, len(lanes))

    def _one_for_all(self, when: Val, expr: Load, scope: Scope) -> Val:
        """A load that all lanes make or none: a branch, where masks would cost each access (a masked store takes Zen 4
        a dozen cycles)."""
        always, lanes = Load(expr.dtype, (expr.buffer,), (expr.offset,)), scope.vector
        zero = scalars.constant(self.f, expr.dtype, 0, 1 if lanes is None else lanes.width)
        return self.f.either(when, lambda: [self.load(always, Scope(scope, {}))], lambda: [zero])[0]

    def _fetch_ahead(self, expr: Load, start: Val, width: int) -> None:
        """Ask for what a load of this kind will read later."""
        if expr in self.far:
            later = self.f.add(start, integer(FAR_BYTES // len(self.far) // expr.dtype.bytes))
            for first in range(0, width, line_elements(expr.dtype.bytes)):
                self.fetch(expr.buffer, self.f.add(later, integer(first)))
            return
        axes = frozenset(self.kernel.axes)
        if self.ahead is not None and (self.ahead[0] not in axes or (expr.free <= axes) != self.terms_ask):
            self._ask_ahead(expr.buffer, expr.offset, start, width)

    def _ask_ahead(self, buffer: int, offset: Expr, start: Val, width: int, write: int = 0) -> None:
        """Ask for what lies steps further along the axis: it may lie anywhere, and nothing is read or written."""
        if self.ahead is None:
            return
        axis, steps = self.ahead
        stride = ix.coefficient(offset, axis) or 0
        for first in range(0, width if stride else 0, line_elements(self.kernel.buffers[buffer].dtype.bytes)):
            self.fetch(buffer, self.f.add(start, integer(stride * steps + first)), write=write)

    def is_far(self, buffer: int) -> bool:
        """Whether a buffer is larger than the second-level cache."""
        return self.machine.is_far(self.kernel.buffers[buffer].nbytes)

    def fetch(self, buffer: int, place: Val, near: int = 3, write: int = 0) -> None:
        """Ask for the line of an element: 3 for the nearest cache, 2 for the next; 1: to write it. It may lie
        anywhere."""
        kind = memory(self.kernel.buffers[buffer].dtype)
        address = self.f.let(f"getelementptr {kind}, ptr %b{buffer}, {place.typed}", I64)
        arguments = [f"ptr {address.text}", f"i32 {write}", f"i32 {near}", "i32 1"]
        self.f.effect("llvm.prefetch.p0", ["ptr", "i32", "i32", "i32"], arguments)

    def held(self, row: Val, at: Val, dtype: DType, width: int) -> Val:
        """Values of a row in private memory."""
        kind, place = vector(element(dtype), width), self._place(row, at, dtype)
        return self.f.let(f"load {kind}, ptr {place}, align {dtype.bytes}", dtype, width)

    def hold(self, row: Val, at: Val, value: Val) -> None:
        """Put values there."""
        self.f.line(f"store {value.typed}, ptr {self._place(row, at, value.dtype)}, align {value.dtype.bytes}")

    def _place(self, row: Val, at: Val, dtype: DType) -> str:
        return self.f.let(f"getelementptr inbounds {element(dtype)}, ptr {row.text}, {at.typed}", I64).text

    def masked(self, what: str, pointer: str, address: str, mask: Val, dtype: DType) -> Val:
        """llvm.masked.load or .gather: lanes without access are zero bits."""
        width, kind = mask.width, vector(memory(dtype), mask.width)
        name = f"llvm.masked.{what}.v{width}{_short(dtype)}.{'p0' if what == 'load' else f'v{width}p0'}"
        self.f.declared[f"declare {kind} @{name}({pointer}, {mask.type}, {kind})"] = None
        where = f"{pointer} align {dtype.bytes} {address}"
        found = self.f.let(f"call {kind} @{name}({where}, {mask.typed}, {kind} zeroinitializer)", dtype, width)
        return self._fenced(found, dtype) if what == "load" and self.machine.masks and dtype in (F32, F64) else found

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
        if start is not None and mask is not None:
            self._masked_store(buffer, start, raw, mask)
            return
        if mask is None and self._spread(buffer, offset, raw, scope):
            return
        short = _short(dtype)
        places = self.f.splat(self.value(offset, scope), lanes.width)
        address = self.pointer(buffer, places).text
        full = mask or scalars.constant(self.f, BOOL, 1, lanes.width)
        pointers = vector("ptr", lanes.width)
        name = f"llvm.masked.scatter.v{lanes.width}{short}.v{lanes.width}p0"
        arguments = [f"{kind} {raw.text}", f"{pointers} align {dtype.bytes} {address}", full.typed]
        self.f.effect(name, [kind, pointers, full.type], arguments)

    def _masked_store(self, buffer: int, start: Val, raw: Val, mask: Val) -> None:
        dtype = self.kernel.buffers[buffer].dtype
        kind, address = vector(memory(dtype), raw.width), self.pointer(buffer, start).text
        if self.machine.masks and raw.width * dtype.bytes < FENCED_BYTES:
            for lane in range(raw.width):
                there = self.f.let(f"extractelement {mask.typed}, i32 {lane}", BOOL)
                one = self.f.let(f"extractelement {kind} {raw.text}, i32 {lane}", raw.dtype)
                place = self.f.add(start, integer(lane))
                self.f.when(there, lambda one=one, place=place: self._write_raw(buffer, place, one))
            return
        name = f"llvm.masked.store.v{raw.width}{_short(dtype)}.p0"
        raw = self._fenced(raw, dtype) if self.machine.masks and dtype not in (F32, F64) else raw
        arguments = [f"{kind} {raw.text}", f"ptr align {dtype.bytes} {address}", mask.typed]
        self.f.effect(name, [kind, "ptr", mask.type], arguments)

    def _fenced(self, raw: Val, dtype: DType) -> Val:
        """The vector, for LLVM to join with no instruction on the other side. Its code for AVX-512 (LLVM 22) is wrong
        in two such: integers that are truncated and then stored where one lane is there are stored with all bytes that
        they had; and a masked load becomes one without a mask if what a product takes of it is selected by the mask and
        something else reads it too."""
        f = self.f
        if dtype in (F32, F64):
            return scalars.intrinsic(f, "arithmetic.fence", raw)
        kind, words = vector(memory(dtype), raw.width), raw.width * dtype.bytes // FENCED_BYTES
        whole = f.let(f"bitcast {kind} {raw.text} to {vector('float', words)}", F32, words)
        return f.let(f"bitcast {scalars.intrinsic(f, 'arithmetic.fence', whole).typed} to {kind}", raw.dtype, raw.width)

    def _spread(self, buffer: int, offset: Expr, raw: Val, scope: Scope) -> bool:
        """Store lanes that lie some elements apart by whole vectors of which those between are masked, which takes a
        Zen 5 a fifth of the time of a scatter; where masks are slow one by one, from one address. Whether they lie
        so."""
        width, kind = raw.width, memory(self.kernel.buffers[buffer].dtype)
        found = ((step, self.run_start(offset, scope, step)) for step in range(2, MOST_APART + 1))
        step, start = next((each for each in found if each[1] is not None), (0, None))
        if start is None:
            return False
        if not self.machine.masks:
            for lane in range(width):
                one = self.f.let(f"extractelement {vector(kind, width)} {raw.text}, i32 {lane}", raw.dtype)
                self._write_raw(buffer, self.f.add(start, integer(lane * step)), one)
            return True
        for first in range(0, (width - 1) * step + 1, width):
            lanes = ", ".join(f"i32 {min((first + n) // step, width - 1)}" for n in range(width))
            given = f"{vector(kind, width)} {raw.text}, {vector(kind, width)} poison"
            part = self.f.let(f"shufflevector {given}, <{width} x i32> <{lanes}>", raw.dtype, width)
            there = ", ".join(f"i1 {int((first + n) % step == 0)}" for n in range(width))
            self._masked_store(buffer, self.f.add(start, integer(first)), part, Val(f"<{there}>", BOOL, width))
        return True

    def _access(self, offset: Expr, dtype: DType, lanes: Scope, streamed: bool) -> str:
        if not streamed:
            return f"align {self.alignment(offset, dtype, lanes)}"
        self.f.metadata["!0 = !{i32 1}"] = None
        return f"align {min(LINE_BYTES, lanes.width * dtype.bytes)}, !nontemporal !0"

    def _scalar_store(self, buffer: int, place: Val, value: Val, condition: Val | None) -> None:
        raw = self.to_memory(value)
        if condition is None:
            self._write_raw(buffer, place, raw)
        else:
            self.f.when(condition, lambda: self._write_raw(buffer, place, raw))

    def _write_raw(self, buffer: int, place: Val, raw: Val) -> None:
        dtype, address = self.kernel.buffers[buffer].dtype, self.pointer(buffer, place).text
        self.f.line(f"store {memory(dtype)} {raw.text}, ptr {address}, align {dtype.bytes}")


def _short(dtype: DType) -> str:
    """The element's name in an overloaded intrinsic."""
    return {"float": "f32", "double": "f64"}.get(memory(dtype), memory(dtype))


def _at_loaded_places(offset: Expr) -> list[Load]:
    """The indices in an offset that are loaded at an index that is loaded itself, the innermost first."""
    found, holding = list[Load](), set[Expr]()
    for expr in topological([offset]):
        if isinstance(expr, Load) and expr.offset in holding:
            found.append(expr)
        if isinstance(expr, Load) or any(child in holding for child in expr.children):
            holding.add(expr)
    return found
