"""A program under construction: its buffers, constants and kernels, and the calls that store a value at a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from passes import operands
from passes.calls import checked
from passes.collapse import collapse, roots, split
from passes.loop_bodies import MANY
from passes.rename import renumber_buffers, renumber_scalars
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Expr, Load, Scalar, load, topological
from repro.ir.graph import Value
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import CONSTANT, TEMPORARY, Buffer, Call
from repro.ir.types import I64, DType, TensorType
from repro.ops.record import Axes, Nest


@dataclass(frozen=True)
class Place:
    """Where a stored value lies: a buffer, and for a row of a scanned one the loop whose counter picks it, `backwards`
    from the last row on."""

    buffer: int
    type: TensorType
    loop: int | None = None
    backwards: bool = False


@dataclass
class Builder:
    """The program under construction, shared by all its regions."""

    buffers: list[Buffer] = field(default_factory=list[Buffer])
    kernels: dict[str, int] = field(default_factory=dict[str, int])
    kernel_list: list[Kernel] = field(default_factory=list[Kernel])
    constants: dict[bytes, int] = field(default_factory=dict[bytes, int])
    loops: list[int] = field(default_factory=list[int])
    """Extents of the loops around the step being built."""
    changing: list[tuple[int, frozenset[int]]] = field(default_factory=list[tuple[int, frozenset[int]]])
    """What each of these loops may write: the buffers from a number on, which are made in it, and its results."""

    def buffer(self, dtype: DType, elements: int, role: str, position: int) -> int:
        self.buffers.append(Buffer(dtype, elements, role, position))
        return len(self.buffers) - 1

    def temporary(self, kind: TensorType) -> Place:
        return Place(self.buffer(kind.dtype, kind.elements, TEMPORARY, 0), kind)

    def constant(self, kind: TensorType, data: bytes) -> Place:
        known = self.constants.get(data)
        position = len(self.constants) if known is None else known
        self.constants.setdefault(data, position)
        return Place(self.buffer(kind.dtype, kind.elements, CONSTANT, position), kind)

    def kernel(self, kernel: Kernel) -> int:
        position = self.kernels.setdefault(kernel.digest, len(self.kernel_list))
        if position == len(self.kernel_list):
            self.kernel_list.append(kernel)
        return position


class KernelBuilder:
    """Numbers the buffers and loop counters that one kernel uses, by first use."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.buffers: dict[int, int] = {}
        self.scalars: dict[int, int] = {}
        self.axes = Axes(0)
        self.known: dict[tuple[Value, tuple[Expr, ...]], Expr] = {}

    def local(self, buffer: int) -> int:
        return self.buffers.setdefault(buffer, len(self.buffers))

    def counter(self, loop: int) -> Expr:
        position = self.scalars.setdefault(loop, len(self.scalars))
        return Scalar(I64, (position, self.builder.loops[loop]), ())

    def offset(self, place: Place, offset: Expr) -> Expr:
        if place.loop is None:
            return offset
        row = self.counter(place.loop)
        if place.backwards:
            row = ix.add(ix.number(self.builder.loops[place.loop] - 1), ix.scale(row, -1))
        return ix.add(ix.scale(row, place.type.elements), offset)

    def load(self, place: Place, index: Sequence[Expr]) -> Expr:
        offset = self.offset(place, ix.linear(index, place.type.shape))
        return load(place.type.dtype, self.local(place.buffer), offset)

    def calls(self, nest: Nest, target: Place) -> list[Call]:
        """The call of a nest's kernel, behind those of kernels that compute awkward operands of a contraction."""
        nest = collapse(replace(nest, offset=self.offset(target, nest.offset)))
        found: list[Call] = []
        for side in (0, 1):
            contraction = find(_bare(nest), floats=True)
            if contraction is None or not operands.awkward(contraction, side, self.invariant(contraction.terms[side])):
                continue
            invariant = self.invariant(contraction.terms[side])
            tile = operands.tiled(contraction, side) if invariant else None
            if tile is not None:
                nest = nest if tile.extent == operands.TILE else split(nest, tile, operands.TILE)
                contraction = find(_bare(nest), floats=True) or contraction
            term, axes = contraction.terms[side], operands.places(contraction, side, tile is not None)
            packed = self.builder.temporary(TensorType(term.dtype, tuple(axis.extent for axis in axes)))
            place = ix.linear(axes, packed.type.shape)
            found.append(self._call(collapse(Nest(axes, 0, place, term)), packed))
            read = load(term.dtype, self.local(packed.buffer), place)
            (value,) = operands.with_term([nest.value], contraction, side, read)
            nest = collapse(replace(nest, value=value))
        return [*found, self._call(nest, target)]

    def invariant(self, term: Expr) -> bool:
        """Whether a loop of many iterations stands around the kernel, and all give the term the same value."""
        if not self.builder.changing or self.builder.loops[-1] < MANY:
            return False
        first, written = self.builder.changing[-1]
        numbers = {local: number for number, local in self.buffers.items()}
        parts = list(topological([term]))
        read = [numbers[each.buffer] for each in parts if isinstance(each, Load)]
        counts = any(isinstance(each, Scalar) for each in parts)
        return not counts and all(buffer < first and buffer not in written for buffer in read)

    def _call(self, nest: Nest, target: Place) -> Call:
        """Buffers are renumbered by first use in the nest alone."""
        used = dict.fromkeys(expr.buffer for expr in topological(roots(nest)) if isinstance(expr, Load))
        used.setdefault(self.local(target.buffer))
        renumbered = {local: position for position, local in enumerate(used)}
        stored = renumbered[self.local(target.buffer)]
        numbers = {local: number for number, local in self.buffers.items()}
        buffers = tuple(numbers[local] for local in used)
        owned = [self.builder.buffers[number] for number in buffers]
        parameters = tuple(
            BufferParameter(buffer.dtype, buffer.elements, position == stored) for position, buffer in enumerate(owned)
        )
        loops = list(self.scalars)
        counters = sorted({each.position for each in topological(roots(nest)) if isinstance(each, Scalar)})
        flat = renumber_scalars(roots(nest), {position: number for number, position in enumerate(counters)})
        offset, value, *when = renumber_buffers(flat, renumbered)
        store = Store(stored, offset, value, when[0] if when else None)
        used_loops = tuple(loops[position] for position in counters)
        extents = tuple(self.builder.loops[loop] for loop in used_loops)
        kernel = Kernel(parameters, extents, nest.axes, nest.serial, (store,))
        return Call(self.builder.kernel(checked(kernel)), buffers, used_loops)


def _bare(nest: Nest) -> Kernel:
    """The nest as a kernel without buffers: enough to look at its shape."""
    return Kernel((), (), nest.axes, nest.serial, (Store(0, nest.offset, nest.value, nest.when),))
