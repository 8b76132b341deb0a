"""The window of vectors along pixels in private memory: each place once, a line's by its remainder modulo the stride.

Lines are written from end to end: blanks where places are absent, whole vectors in between, the last of which reaches
back over its neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence

from passes.pixels import bound, conjuncts, everywhere
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Load
from repro.ir.loops import Kernel
from repro.ir.types import I64
from repro.targets.llvm import scalars
from repro.targets.llvm.block import Block
from repro.targets.llvm.body import Body
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, integer
from repro.targets.llvm.tiling import PixelShape, Shape
from repro.targets.llvm.windows import WindowItem

SMALL_BYTES = 4 << 10
"""Of an image, up to which the next one is asked for. Depthwise ones on a Zen 5 took 0.7 of the time with 14 x 14
pixels, 0.8 to 0.9 with 28 x 28, and 1.07 with 56 x 56; their weight gradients 0.7, 0.75 and 1.04."""


class PixelWindow(WindowItem):
    """A work item whose vectors run along pixels: its window."""

    def __init__(self, body: Body, kernel: Kernel, shape: Shape, number: Val) -> None:
        assert isinstance(shape, PixelShape)
        number = _in_order(body.f, shape, number)
        super().__init__(body, kernel, shape, number)
        self.sizes, self.found = shape, shape.found
        self.column0, self.columns = integer(0), integer(self.contraction.extents[2])
        self.lane = self.found.lane
        self.inside = everywhere(self.window.term, self.window.present)
        self.first_unit = integer(0)
        """Of the terms of the panel."""

    # the window ─────────────────────────────────────────────────────────────────────────────────────

    def _places(self, axes: Sequence[Axis], scope: Scope, line: Val) -> None:
        """Places of the last axis by lines, of the others one after another."""
        if len(axes) > 1:
            super()._places(axes, scope, line)
            return
        along = [each for each in conjuncts(self.window.present) if self.lane.axis in each.free]
        whole = ix.both(*(each for each in conjuncts(self.window.present) if each not in along))

        def present() -> Sequence[Val]:
            self._line(along, scope, line)
            return ()

        def absent() -> Sequence[Val]:
            self._blank(line, integer(0), integer(self.found.step * self.sizes.pitch))
            return ()

        if whole is ix.TRUE:
            present()
        else:
            self.f.either(self.body.value(whole, scope), present, absent)

    def _further_axis(self) -> Axis | None:
        """Where an item has whole images, they are the next group's: small ones, which end before a cache has seen that
        they are read one place after another."""
        (_, blocks, _), batch, units = self.sizes.blocks, self.contraction.batch, self.window.row_units
        whole = self.sizes.panels == 1 and units and blocks <= units[0].extent
        small = self.window.rows_per_unit * self.dtype.bytes <= SMALL_BYTES
        return batch[-1] if batch and whole and small else super()._further_axis()

    def _blank(self, line: Val, begin: Val, end: Val) -> None:
        zero = scalars.constant(self.f, self.dtype, 0, self.shape.width)

        def some(at: Val, _: list[Val]) -> Sequence[Val]:
            self.write(self.a, self.f.add(line, at), zero)
            return ()

        self.f.loop(begin, end, self.shape.width, (), some)

    def _line(self, along: Sequence[Expr], scope: Scope, line: Val) -> None:
        """A line's places: blanks before and behind, vectors in between, single places where no whole vector is; a
        short line is one vector, blanks and all."""
        f, width, step = self.f, self.shape.width, self.found.step
        low, high = present_run(self, along, self.lane.axis, scope)
        inner = Scope(scope, {})
        self.body.hoist([self.inside], inner)
        if self._is_short(low, high):
            self._short(low, high, inner, line)
            return
        first, last = self.quotient(f.add(low, integer(step - 1)), step), self.quotient(high, step)
        if along or not self.sizes.whole_vectors:  # whose lanes reach behind the line
            self._border(line, first, f.let(f"and i64 {last.text}, {-width}", I64))
        enough = scalars.compare(f, "ge", last, f.add(first, integer(width)))

        def vectors() -> Sequence[Val]:
            end = f.let(f"sub i64 {last.text}, {width}", I64)
            f.loop(first, last, width, (), lambda at, _: self._vector_run(self.least(at, end), inner, line))
            if step > 1:
                self._single(low, f.scaled(first, step), inner, line)
                self._single(f.scaled(last, step), high, inner, line)
            return ()

        def singles() -> Sequence[Val]:
            self._single(low, high, inner, line)
            return ()

        f.either(enough, vectors, singles)

    def _border(self, line: Val, first: Val, behind: Val) -> None:
        """Blanks in the places of each remainder before one and from another on."""
        for phase in range(self.found.step):
            of_phase = self.f.add(line, integer(phase * self.sizes.pitch))
            self._blank(of_phase, integer(0), first)
            self._blank(of_phase, behind, integer(self.sizes.pitch))

    def _is_short(self, low: Val, high: Val) -> bool:
        """Whether a line is known to have no whole vector, and to lie in one."""
        step, begin, end = self.found.step, low.number, high.number
        if begin is None or end is None:
            return False
        whole = end // step - -(-begin // step) >= self.shape.width
        return not whole and begin < end <= begin // step * step + self.shape.width * step

    def _short(self, low: Val, high: Val, scope: Scope, line: Val) -> None:
        f, width, step = self.f, self.shape.width, self.found.step
        assert low.number is not None, "a short line's ends are known"
        at = low.number // step
        numbers = f.add(f.splat(integer(at * step), width * step), f.lanes(width * step))
        ends = [scalars.constant(f, I64, int(end.text), width * step) for end in (low, high)]
        mask = scalars.binary(
            f, "and", scalars.compare(f, "ge", numbers, ends[0]), scalars.compare(f, "lt", numbers, ends[1])
        )
        self._border(line, integer(at), integer(at + width))
        self._vector_run(integer(at), scope, line, mask)

    def _vector_run(self, at: Val, scope: Scope, line: Val, mask: Val | None = None) -> Sequence[Val]:
        """A vector of places of each remainder, blank where it is masked."""
        f, width, step = self.f, self.shape.width, self.found.step
        lanes = self.body.lane_scope(scope, (self.lane.axis,), f.scaled(at, step), width * step, mask, aligned=False)
        value = f.splat(self.body.value(self.inside, lanes), width * step)
        if mask is not None and not isinstance(self.inside, Load):
            value = scalars.select(f, mask, value, scalars.constant(f, self.dtype, 0, width * step))
        for phase in range(step):
            picks = ", ".join(f"i32 {lane * step + phase}" for lane in range(width))
            mine = value
            if step > 1:
                kind = f"<{width} x i32> <{picks}>"
                mine = f.let(f"shufflevector {value.typed}, {value.type} poison, {kind}", self.dtype, width)
            self.write(self.a, f.add(f.add(line, integer(phase * self.sizes.pitch)), at), mine)
        return ()

    def _single(self, begin: Val, end: Val, scope: Scope, line: Val) -> None:
        f, step = self.f, self.found.step

        def one(at: Val, _: list[Val]) -> Sequence[Val]:
            value = self.body.value(self.inside, Scope(scope, {self.lane.axis: at}))
            phase = f.scaled(self.rem(at, step), self.sizes.pitch)
            self.write(self.a, f.add(f.add(line, phase), self.quotient(at, step)), value)
            return ()

        f.loop(begin, end, 1, (), one)


def _in_order(f: Function, shape: PixelShape, number: Val) -> Val:
    """The number of the item that comes as `number`th: the parts of an image, then its groups, then images, as they
    lie in memory; items are numbered group by group."""
    (batch, blocks, _), units = shape.blocks, shape.found.window.row_units
    images = units[0].extent if units and blocks % units[0].extent == 0 else blocks
    parts = blocks // images
    if batch == 1 or images == 1:
        return number
    part = f.let(f"urem i64 {number.text}, {parts}", I64)
    rest = f.let(f"udiv i64 {number.text}, {parts}", I64)
    group = f.let(f"urem i64 {rest.text}, {batch}", I64)
    image = f.let(f"udiv i64 {rest.text}, {batch}", I64)
    return f.add(f.add(f.scaled(group, blocks), f.scaled(image, parts)), part)


def present_run(block: Block, along: Sequence[Expr], axis: Axis, scope: Scope) -> tuple[Val, Val]:
    """From which to before which of the places along an axis conditions hold, as numbers where the code knows them."""
    low, high = integer(0), integer(axis.extent)
    for condition in along:
        found = bound(condition, axis)
        assert found is not None, "the form asks for it"
        operator, rest, number = found
        end = _difference(block.f, number, block.body.value(rest, scope))
        if operator == "lt":
            high = scalars.least(block.f, end, high)
        else:
            low = scalars.greatest(block.f, end, low)
    high = scalars.greatest(block.f, high, integer(0))
    return scalars.least(block.f, low, high), high


def _difference(f: Function, number: int, value: Val) -> Val:
    if value.number is not None:
        return integer(number - value.number)
    return f.let(f"sub i64 {number}, {value.text}", I64)
