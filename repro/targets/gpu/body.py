"""What GPU code shares: the kernel's expressions with the GPU's ways, thread numbers, and an entry's frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from repro.ir import index as ix
from repro.ir.expressions import Affine, Apply, Axis, Expr, IndexOp, Load, Lookup, Rarely
from repro.ir.loops import Kernel
from repro.ir.types import BOOL, F32, F64, I32, I64, U32, DType
from repro.machines import Machine
from repro.targets.gpu import gate, table_rows
from repro.targets.gpu.lane import Lane, every_lane
from repro.targets.gpu.remainder import remainder
from repro.targets.llvm import reductions, scalars
from repro.targets.llvm.body import Body, ReduceEmitter
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer
from repro.targets.llvm.toolchain import assembly

WARP = 32


@dataclass(frozen=True)
class Seat:
    """Where tiles run that share a block of threads with other kernels: as block `number` of a grid of their own, by
    `threads` threads side by side, with their operands' steps at an address in shared memory. `over`: what is stored at
    the end may lie there too."""

    number: Val
    threads: int
    steps: str
    over: bool = False


class GpuBody(Body):
    """Expressions of a kernel; a remainder of floats is computed exactly."""

    def __init__(
        self,
        f: Function,
        kernel: Kernel,
        machine: Machine,
        reducer: ReduceEmitter = reductions.emit,
        seat: Seat | None = None,
    ) -> None:
        super().__init__(f, kernel, reducer, machine)
        self.seat = seat
        """None: the block of threads is the kernel's alone."""
        self.table_rows = table_rows.rows(kernel.expressions)

    def split(self, flat: Val, axes: Sequence[Axis]) -> list[Val]:
        """Division of 32 bits costs a fraction of that of 64."""
        count = math.prod(axis.extent for axis in axes)
        if len(axes) <= 1 or count >= 1 << 31:
            return super().split(flat, axes)
        return [self._wide(place) for place in self._split(scalars.convert(self.f, flat, I32), axes, count)]

    def _affine(self, expr: Affine, scope: Scope) -> Val:
        """A sum whose value fits 32 bits is summed in 32 bits: wrapping on the way does no harm."""
        if not _narrow(expr):
            return super()._affine(expr, scope)
        f = self.f
        terms = [scalars.convert(f, self.value(child, scope), I32) for child in expr.children]
        total = integer(expr.constant, I32)
        for term, factor in zip(self._same_width(terms), expr.coefficients, strict=True):
            total = f.splat(total, term.width) if total.text != "0" else total
            total = f.add(total, f.scaled(term, factor))
        return scalars.convert(f, total, I64)

    def _rarely(self, expr: Rarely, scope: Scope) -> Val:
        """Behind a branch that threads take of which some lane needs it, another for each lane."""
        condition, common = self._same_width([self.value(each, scope) for each in (expr.condition, expr.common)])
        if common.width == 1:
            return super()._rarely(expr, scope)

        def seldom() -> Sequence[Val]:
            lanes = [Lane(scope, {}, f=self.f, number=number) for number in range(common.width)]
            return [table_rows.of_lanes(self.f, [super(GpuBody, self)._rarely(expr, lane) for lane in lanes])]

        taken = reduce(partial(scalars.binary, self.f, "or"), every_lane(self.f, condition))
        return self.f.either(taken, seldom, lambda: [common], seldom=True)[0]

    def _lookup(self, expr: Lookup, scope: Scope) -> Val:
        """By a load, where the table is one of a row; what is read with it is known then, too."""
        row = self.table_rows.get(expr)
        if row is None:
            return super()._lookup(expr, scope)
        scope.known |= table_rows.looked_up(self.f, row, expr, self.value(expr.index, scope))
        return scope.known[expr]

    def _index_op(self, expr: IndexOp, operand: Val) -> Val:
        low, high = ix.bounds(expr.children[0])
        if low < 0 or high >= 1 << 31:
            return super()._index_op(expr, operand)
        narrow = scalars.convert(self.f, operand, I32)
        divisor = scalars.constant(self.f, I32, expr.divisor, operand.width)
        return self._wide(scalars.binary(self.f, "udiv" if expr.op == "floordiv" else "urem", narrow, divisor))

    def _wide(self, value: Val) -> Val:
        """An i32 that is not negative, as i64."""
        return scalars.convert(self.f, Val(value.text, U32, value.width), I64)

    def lane_width(self, axis: Axis) -> int:
        """How many neighbours along an axis a thread takes; 1 where the axis does not hold whole runs."""
        width = run_width(self.kernel, axis)
        return width if axis.extent % width == 0 else 1

    def alignment(self, offset: Expr, dtype: DType, lanes: Scope) -> int:
        """Vectors begin at multiples of their width here, so an offset is aligned if what is beside the run is."""
        assert lanes.run is not None
        axes, _ = lanes.run
        stride, rest = 1, [offset]
        for axis in reversed(axes):
            rest.append(ix.scale(axis, -stride))
            stride *= axis.extent
        together = lanes.width
        while together > 1 and not ix.divisible(ix.add(*rest), together):
            together //= 2
        return together * dtype.bytes

    def _apply(self, expr: Apply, scope: Scope) -> Val:
        if expr.op == "rem" and expr.dtype in (F32, F64):
            return remainder(self.f, *self._same_width([self.value(child, scope) for child in expr.children]))
        if expr.op in ("shl", "shr") and expr.dtype.bits == 64:
            return self._shift(expr.op, *self._same_width([self.value(child, scope) for child in expr.children]))
        return super()._apply(expr, scope)

    def _shift(self, op: str, a: Val, amount: Val) -> Val:
        """A shift of 64 bits by its amount modulo 64, and 0 where that is not the amount. LLVM takes the plain form for
        PTX's own clamped shift, whose amount is 32 bits wide, and loses an amount's upper half."""
        f = self.f
        bits = scalars.constant(f, amount.dtype, 64, a.width)
        beyond = f.let(f"icmp uge {amount.typed}, {bits.text}", BOOL, a.width)
        inside = scalars.binary(f, "and", amount, scalars.constant(f, amount.dtype, 63, a.width))
        instruction = "shl" if op == "shl" else "ashr" if a.dtype.is_signed else "lshr"
        shifted = scalars.binary(f, instruction, a, inside)
        return scalars.select(f, beyond, scalars.constant(f, a.dtype, 0, a.width), shifted)


def run_width(kernel: Kernel, axis: Axis) -> int:
    """How many neighbours along an axis fill 16 bytes of the widest elements that lie side by side along it; 1 where a
    store does not put them side by side and aligned."""
    loads = [(e.buffer, e.offset) for e in kernel.expressions if isinstance(e, Load)]
    stores = [(store.buffer, store.offset) for store in kernel.stores]
    beside = [(buffer, offset) for buffer, offset in [*loads, *stores] if ix.coefficient(offset, axis) == 1]
    width = min(4, 16 // max((kernel.buffers[buffer].dtype.bytes for buffer, _ in beside), default=16))
    for _, offset in stores:
        if ix.coefficient(offset, axis) != 1 or not ix.divisible(ix.add(offset, ix.scale(axis, -1)), width):
            return 1
    return width


def _narrow(expr: Expr) -> bool:
    low, high = ix.bounds(expr)
    return -(1 << 31) <= low and high < 1 << 31


def special(f: Function, name: str) -> Val:
    """A thread's own number: tid, ctaid, ntid, nctaid; as i64, and known to be small."""
    return scalars.convert(f, f.call(f"llvm.nvvm.read.ptx.sreg.{name}.x", (U32, 1), []), I64)


def barrier(f: Function) -> None:
    """All threads of the block meet."""
    f.effect("llvm.nvvm.barrier.cta.sync.aligned.all", ["i32"], ["i32 0"])


def global_thread(f: Function, block: int, threads: int, apart: int | None = None) -> Val:
    """The thread's number in a grid of at least so many; 32 bits wide before it is widened, where they hold it. Blocks
    begin `apart` from each other, if that is not what they hold."""
    apart = apart or block
    kind = U32 if blocks_for(threads, apart) * apart < 1 << 32 else I64
    number, thread = (scalars.convert(f, special(f, name), kind) for name in ("ctaid", "tid"))
    first = f.let(f"mul nuw {number.typed}, {apart}", kind)
    return scalars.convert(f, f.let(f"add nuw {first.typed}, {thread.text}", kind), I64)


MOST_PARAMETERS = 544
"""Of 64 bits each: 4352 bytes."""
MANY_PARAMETERS = "+ptx81"
"""The first PTX with room for 32764 bytes of them, which chips take from sm_70 on and drivers since CUDA 12.1 (PTX ISA,
"Kernel Function Parameters")."""


@dataclass(frozen=True)
class Entry:
    """One entry of a module: its name, body, threads per block, and how many blocks a multiprocessor is to hold at
    least, from which the assembler takes its bound on registers."""

    symbol: str
    function: Function
    block: int
    resident: int = 1


def assemble(kernel: Kernel, entries: Sequence[Entry], machine: Machine, workspace: bool = False) -> str:
    """The PTX of a kernel's entries. Raises InternalError where it breaks a rule of the contract."""
    parameters = len(kernel.buffers) + len(kernel.scalars) + workspace
    ptx, llvm = assembly_of(_module(kernel, entries, machine, workspace), parameters, machine)
    gate.check(kernel, ptx, llvm)
    return ptx


def assembly_of(text: str, parameters: int, machine: Machine) -> tuple[str, str]:
    """The PTX of entries with so many parameters at most, and the optimised LLVM code that it is of."""
    if parameters > MOST_PARAMETERS:
        machine = replace(machine, features=MANY_PARAMETERS)
    return assembly(text, machine)


def _module(kernel: Kernel, entries: Sequence[Entry], machine: Machine, workspace: bool) -> str:
    declared: dict[str, None] = {}
    for entry in entries:
        declared |= entry.function.declared
    once = dict.fromkeys(line for text in declared for line in pieces(text))
    parameters = [_pointer(number, buffer.writable) for number, buffer in enumerate(kernel.buffers)]
    parameters += [f"i64 %s{number}" for number in range(len(kernel.scalars))]
    if workspace:
        parameters.append("ptr noalias %workspace")
    lines = [f'target triple = "{machine.triple}"', *once]
    for entry in entries:
        limits = f'nounwind "nvvm.maxntid"="{entry.block}" "nvvm.minctasm"="{entry.resident}"'
        lines += [f"define ptx_kernel void @{entry.symbol}({', '.join(parameters)}) {limits} {{", "entry:"]
        lines += [*entry.function.entry, *entry.function.lines, "}"]
    return "\n".join(lines) + "\n"


def pieces(text: str) -> list[str]:
    """A definition comes with the declarations it needs, which others may need too."""
    head, found, rest = text.partition("define ")
    return [*head.splitlines(), *([found + rest] if found else [])]


def _pointer(number: int, writable: bool) -> str:
    """A buffer's parameter. Its alignment is written on the accesses that rest on it: told of it here, LLVM would widen
    loads beyond a buffer's end."""
    return f"ptr noalias {'' if writable else 'readonly '}%b{number}"


def workspace_as_buffer(f: Function, kernel: Kernel) -> None:
    """For a kernel whose last buffer is no argument of its own but the workspace."""
    f.line(f"%b{len(kernel.buffers) - 1} = getelementptr i8, ptr %workspace, i64 0")


def blocks_for(threads: int, block: int) -> int:
    return -(-threads // block)


def block_size(threads: int, most: int = 256) -> int:
    """Threads of a block, whole warps, no more than needed."""
    return min(most, math.ceil(threads / WARP) * WARP)
