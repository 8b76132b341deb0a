"""Loads whose neighbours lie lines apart: the transpose unit lays their elements out first, along the lanes.

Such a load reads one lane's element at a time, eight of them a cycle; a tile of 128 x 128 is transposed in 128 cycles,
beside whatever else runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Load
from repro.ir.types import DType
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.codegen.contractions import flat
from repro.targets.tpu_sim.codegen.matrix import at, each, tiles
from repro.targets.tpu_sim.codegen.writer import Writer
from repro.targets.tpu_sim.operands import COLUMNS, Index, Ref

LEAST = 16
"""Lines and elements of each from which the unit is faster than strided loads: it holds a slot as long for 16 lines of
128 as for 128 of them."""


@dataclass(frozen=True)
class Turn:
    """Elements that lie side by side along `places`, wanted side by side along `lines`, the last of the axes: turned
    they lie in the axes' order."""

    axes: tuple[Axis, ...]
    places: Axis

    @property
    def lines(self) -> Axis:
        return self.axes[-1]

    @property
    def offset(self) -> Expr:
        return flat(self.axes)


def find(load: Load, axes: Sequence[Axis]) -> Turn | None:
    """How a load of a nest with these axes is turned; None where its neighbours are neighbours already, or too few."""
    if load.when is not None or not axes or not load.offset.free >= {axes[-1]}:
        return None
    used = tuple(axis for axis in axes if axis in load.offset.free)
    strides = {axis: ix.coefficient(load.offset, axis) for axis in used}
    beside = [axis for axis in used if strides[axis] == 1]
    if None in strides.values() or len(beside) != 1 or beside[0] is axes[-1]:
        return None
    turn = Turn(used, beside[0])
    return turn if min(turn.places.extent, turn.lines.extent) >= LEAST else None


def emit(writer: Writer, turn: Turn, dtype: DType, source: Ref, target: Ref, strides: Mapping[Axis, int]) -> None:
    """Transposes from the place of the first element on, whose axes have these strides, to the target on. The tiles
    that hold the first of `places` come first: they are read first."""
    lines, places = turn.lines, turn.places
    ends = {axis: ix.coefficient(turn.offset, axis) or 0 for axis in turn.axes}

    def nest(axes: Sequence[Axis], read: Index, written: Index) -> None:
        if axes:
            first, rest = axes[0], axes[1:]
            with each(writer, first.extent) as number:
                nest(rest, read + number * strides[first], written + number * ends[first])
            return

        def column(place: Index, _: Index, columns: int) -> None:
            def row(line: Index, __: Index, rows: int) -> None:
                begin = at(source, read + line * strides[lines] + place)
                end = at(target, written + place * ends[places] + line)
                writer.put(isa.Transpose(end, ends[places], dtype, begin, strides[lines], rows, columns))

            tiles(writer, lines.extent, COLUMNS, row)

        tiles(writer, places.extent, COLUMNS, column)

    nest([axis for axis in turn.axes if axis not in (lines, places)], Index(), Index())
