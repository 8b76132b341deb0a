"""Elements at computed places of pictures, several of each channel: from a copy with the channels last.

Channels beside each other are one vector, and what is computed of a place (its address, which elements are there, their
weights) is computed once for all of them. A first call copies the picture, a second computes the outputs with channels
last, and a third puts these where they belong; where the last two run in blocks of rows, what is between them stays
near.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from passes.calls import Called, call_of, called
from passes.collapse import collapse
from passes.plan import with_steps
from passes.rename import rewritten
from passes.sequences import with_calls
from repro.ir import contraction
from repro.ir import index as ix
from repro.ir.dependence import reads_its_output
from repro.ir.expressions import Axis, Expr, Load, load, topological
from repro.ir.loops import Store
from repro.ir.program import TEMPORARY, Buffer, Call, Program, Step
from repro.ir.types import BOOL
from repro.ir.work import iterations
from repro.ops.record import Nest

WORTH = 1 << 16
"""Elements read at computed places from which on two calls more are worth it."""
READS = 1
"""How often as many as are copied: of the picture and, where channels are not last in them, of the outputs. Sampling a
picture of 64 channels of 56 x 56 took a busy Zen 5 0.65 of the time at 2.0, 0.65 at 1.3, 0.56 at 0.8, and 0.83 at 0.5
(tenth percentiles); larger pictures, which come from memory, were not measured."""


def channels_last(program: Program, lanes: int) -> Program:
    """The program with such calls cut, for vectors of so many lanes; itself where there are none, or no memory for the
    copies."""
    made = _ChannelsLast(program, lanes)
    steps = with_calls(program.steps, made.call)
    if steps == program.steps:
        return program
    found = with_steps(program, steps, made.kernels, made.buffers)
    return found if program.most_bytes is None or found.arena_bytes <= program.most_bytes else program


class _ChannelsLast:
    def __init__(self, program: Program, lanes: int) -> None:
        self.kernels, self.buffers, self.lanes = list(program.kernels), list(program.buffers), lanes

    def call(self, step: Call) -> Sequence[Step]:
        kernel = self.kernels[step.kernel]
        plain = not kernel.serial and not reads_its_output(kernel) and contraction.find(kernel) is None
        if not plain or len(kernel.stores) != 1 or kernel.stores[0].when is not None:
            return (step,)
        whole = called(kernel, step)
        found = next((each for axis in kernel.axes if (each := self._of(whole, axis)) and each.pays(self.lanes)), None)
        return (step,) if found is None else [call_of(part, self.kernels, self.buffers) for part in self._parts(found)]

    def _of(self, kernel: Called, channel: Axis) -> _Sampling | None:
        """What a call reads of one picture at computed places, if it reads anything else beside each other, or the same
        for all channels."""
        loads = [expr for expr in topological([kernel.stores[0].value]) if isinstance(expr, Load)]
        apart = [expr for expr in loads if ix.coefficient(expr.offset, channel) not in (0, 1)]
        if not apart or len({expr.buffer for expr in apart}) != 1 or apart[0].dtype is BOOL:
            return None
        stride = ix.coefficient(apart[0].offset, channel)
        if not stride or not channel.extent or self.buffers[apart[0].buffer].elements % (stride * channel.extent):
            return None
        found = _Sampling(kernel, channel, tuple(apart), stride, self.buffers[apart[0].buffer].elements)
        return found if all(map(found.stays, apart)) else None

    def _parts(self, sampling: _Sampling) -> Sequence[Called]:
        copy = self._temporary(sampling.loads[0].buffer, sampling.elements)
        (store,) = sampling.kernel.stores
        if not sampling.is_turned:
            return sampling.copied(copy), sampling.sampled(copy, store.buffer, store.offset)
        samples = self._temporary(store.buffer, sampling.outputs)
        place = sampling.place
        read = Store(store.buffer, store.offset, load(self.buffers[store.buffer].dtype, samples, place))
        return sampling.copied(copy), sampling.sampled(copy, samples, place), _collapsed(sampling.kernel.axes, read)

    def _temporary(self, like: int, elements: int) -> int:
        self.buffers.append(Buffer(self.buffers[like].dtype, elements, TEMPORARY, 0))
        return len(self.buffers) - 1


@dataclass(frozen=True)
class _Sampling:
    """A call that reads a picture, [images, channels, places], at computed places."""

    kernel: Called
    channel: Axis
    loads: tuple[Load, ...]
    """Of the picture."""
    stride: int
    """From one channel to the next: the places."""
    elements: int
    """Of the picture."""

    @property
    def image(self) -> int:
        return self.stride * self.channel.extent

    @property
    def outputs(self) -> int:
        return math.prod(axis.extent for axis in self.kernel.axes)

    @property
    def is_turned(self) -> bool:
        """Whether the channels are not last in the outputs."""
        return ix.coefficient(self.kernel.stores[0].offset, self.channel) != 1

    @property
    def _axes(self) -> tuple[Axis, ...]:
        return *(axis for axis in self.kernel.axes if axis is not self.channel), self.channel

    @property
    def place(self) -> Expr:
        """Of an output among those with channels last."""
        return ix.linear(self._axes, [axis.extent for axis in self._axes])

    def pays(self, lanes: int) -> bool:
        """Whether channels fill vectors, and more is read at computed places than the calls beside it copy."""
        computed = (load for load in self.loads if any(isinstance(e, Load) for e in topological([load.offset])))
        reads, copied = sum(map(iterations, computed)), self.elements + self.is_turned * self.outputs
        return self.channel.extent >= lanes and reads >= max(WORTH, READS * copied)

    def _split(self, expr: Load) -> tuple[Expr, Expr]:
        """Its offset without the channel's part: images, and the rest."""
        return ix.split(ix.add(expr.offset, ix.scale(self.channel, -self.stride)), self.image)

    def stays(self, expr: Load) -> bool:
        """Whether a load is known to stay in its channel, whatever places are computed."""
        low, high = ix.bounds_where(self._split(expr)[1], expr.when)
        return ix.coefficient(expr.offset, self.channel) == self.stride and low >= 0 and high < self.stride

    def copied(self, copy: int) -> Called:
        """The picture with channels last."""
        extents = self.elements // self.image, self.stride, self.channel.extent
        image, place, channel = axes = tuple(ix.axis(number, extent) for number, extent in enumerate(extents))
        read = ix.linear((image, channel, place), (extents[0], extents[2], extents[1]))
        picture = self.loads[0]
        return _collapsed(axes, Store(copy, ix.linear(axes, extents), load(picture.dtype, picture.buffer, read)))

    def sampled(self, copy: int, buffer: int, offset: Expr) -> Called:
        """The outputs, from the copy."""
        known: dict[Expr, Expr] = {}
        for each in self.loads:
            image, place = self._split(each)
            at = ix.linear((image, place, self.channel), (0, self.stride, self.channel.extent))
            known[each] = load(each.dtype, copy, at, each.when)
        (value,) = rewritten([self.kernel.stores[0].value], known)
        return _collapsed(self._axes, Store(buffer, offset, value))


def _collapsed(axes: tuple[Axis, ...], store: Store) -> Called:
    made = collapse(Nest(axes, 0, store.offset, store.value))
    return Called(made.axes, (Store(store.buffer, made.offset, made.value),))
