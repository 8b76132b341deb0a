"""Contractions on the matrix unit: chains of a panel each from operands in VMEM, panels and blocks added in order."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from repro.ir.types import F32, DType
from repro.targets.tpu_sim import isa
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen.contractions import Contraction, Matrix, extent_of
from repro.targets.tpu_sim.codegen.writer import Writer
from repro.targets.tpu_sim.operands import COLUMNS, LANES, Index, Ref, Term, vmem


def tiles(writer: Writer, extent: int, size: int, body: Callable[[Index, Index, int], None]) -> None:
    """body(start, number, length) for pieces of `size`, in a loop, and for what is left of them."""
    whole, rest = divmod(extent, size)
    if whole == 1:
        body(Index(), Index(), size)
    elif whole:
        with writer.loop(whole) as number:
            body(number * size, number, size)
    if rest:
        body(Index(whole * size), Index(whole), rest)


@contextmanager
def each(writer: Writer, count: int) -> Generator[Index]:
    """The block once for each number below the count."""
    if count == 1:
        yield Index()
        return
    with writer.loop(count) as number:
        yield number


def at(place: Ref, index: Index) -> Ref:
    """So many elements further."""
    return Ref(place.space, place.number, place.offset + index)


def turn(writer: Writer, dtype: DType, source: Ref, target: Ref, matrix: Matrix, turned: Matrix) -> None:
    """Lines become places: `turned` from the target on is the transpose of `matrix` from the source on."""
    lines, places = extent_of(matrix.lines), extent_of(matrix.places)
    with each(writer, extent_of(matrix.batch)) as batch:

        def row(start: Index, _: Index, rows: int) -> None:
            def tile(column: Index, __: Index, columns: int) -> None:
                read = at(source, batch * matrix.stride + start * matrix.pitch + column)
                written = at(target, batch * turned.stride + column * turned.pitch + start)
                writer.put(isa.Transpose(written, turned.pitch, dtype, read, matrix.pitch, rows, columns))

            tiles(writer, places, COLUMNS, tile)

        tiles(writer, lines, COLUMNS, row)


class Chains:
    """The matrix unit's part of one contraction. In VMEM: data [batch, row, k], weights [batch, column, k] if `turned`,
    else [batch, k, column], valid bits as the data; sums [batch, row, column] are an area of their own."""

    def __init__(self, writer: Writer, chip: Chip, contraction: Contraction) -> None:
        self.writer, self.chip, self.contraction = writer, chip, contraction
        self.k = extent_of(contraction.terms)
        self.rows, self.columns = extent_of(contraction.rows), extent_of(contraction.columns)
        self.sums = contraction.sums

    def emit(self, total: int, data: Ref, weights: Ref, turned: bool, valid: Ref | None) -> None:
        """The whole contraction into the area `total`, but for the last + 0.0."""
        self.data, self.weights, self.turned, self.valid = data, weights, turned, valid
        c, order = self.contraction, self.contraction.chain
        self.layout = Matrix(c.batch, c.rows, c.terms)
        self.held = Matrix(c.batch, c.columns, c.terms) if turned else Matrix(c.batch, c.terms, c.columns)
        block = order.panel * order.panels_per_block
        self._scratch = None if self.k <= order.panel else self._area()
        blocks = None if self.k <= block else self._area()
        self._block(total, Index(), min(self.k, block))
        whole, rest = divmod(self.k, block)
        if blocks is not None and whole > 1:
            with each(self.writer, whole - 1) as number:
                self._block(blocks, (number + 1) * block, block)
                self._add(total, blocks)
        if blocks is not None and rest:
            self._block(blocks, Index(whole * block), rest)
            self._add(total, blocks)

    def _area(self) -> int:
        return self.writer.area(F32, self.sums.elements)

    def _block(self, target: int, start: Index, terms: int) -> None:
        """The sum of a block's panels, in order, from the first."""
        size = self.contraction.chain.panel
        whole, rest = divmod(terms, size)
        self._panel(target, start, size if whole else rest)
        if whole > 1 and self._scratch is not None:
            with each(self.writer, whole - 1) as number:
                self._panel(self._scratch, start + (number + 1) * size, size)
                self._add(target, self._scratch)
        if whole and rest and self._scratch is not None:
            self._panel(self._scratch, start + whole * size, rest)
            self._add(target, self._scratch)

    def _add(self, total: int, part: int) -> None:
        """total += part, element by element."""
        writer = self.writer
        with writer.loop(writer.size(total) // LANES, parallel=True) as number:
            a, b = writer.register(F32), writer.register(F32)
            writer.put(isa.Load(a.reg, F32, vmem(total, number * LANES)))
            writer.put(isa.Load(b.reg, F32, vmem(part, number * LANES)))
            writer.put(isa.Store(vmem(total, number * LANES), F32, writer.alu("add", F32, a, b).reg))

    def _panel(self, target: int, start: Index, terms: int) -> None:
        """One chain for each output: k in tiles of the array, columns in tiles inside, so that a unit works on other
        columns while the last sums of these are still on their way."""
        side = self.chip.array
        whole, rest = divmod(terms, side)
        first = min(terms, side)
        self._tiles(target, start, Index(), first, fresh=True)
        if whole > 1:
            with each(self.writer, whole - 1) as number:
                self._tiles(target, start + (number + 1) * side, number + 1, side)
        if whole and rest:
            self._tiles(target, start + whole * side, Index(whole), rest)

    def _tiles(self, target: int, k: Index, step: Index, depth: int, fresh: bool = False) -> None:
        """One tile of terms for every column, row and batch. Tiles of columns are dealt to the units; where there is
        one such tile, batches are, or parts of the rows."""
        writer, side, units = self.writer, self.chip.array, self.chip.matrix_units
        batches = extent_of(self.contraction.batch)
        alone = self.columns <= side
        parts = max(1, min(units, self.rows // (2 * side))) if alone and batches == 1 else 1
        with each(writer, batches) as batch:

            def row(first_row: Index, part: Index, rows: int) -> None:
                def column(first: Index, number: Index, width: int) -> None:
                    unit = _digit(batch if alone and batches > 1 else part if alone else number, 1, units)
                    slot = _digit(step, 1, 2) if alone else _digit(number, units, 2)
                    if alone and batches > 1:
                        slot = _digit(batch, units, 2)
                    tile = _Tile(unit, slot, k, depth, first, width, first_row, rows, fresh)
                    self._tile(target, batch, tile)

                tiles(writer, self.columns, side, column)

            tiles(writer, self.rows, -(-self.rows // parts), row)

    def _tile(self, target: int, batch: Index, t: _Tile) -> None:
        """Weights into one slot while the other may be at work, then the rows through them."""
        line = t.column * self.held.pitch + t.k if self.turned else t.k * self.held.pitch + t.column
        weights = at(self.weights, batch * self.held.stride + line)
        self.writer.put(isa.Push(t.unit, t.slot, F32, weights, self.held.pitch, t.depth, t.width, self.turned))
        place = batch * self.layout.stride + t.row * self.layout.pitch + t.k
        valid = None if self.valid is None else at(self.valid, place)
        data, sums = at(self.data, place), batch * self.sums.stride + t.row * self.sums.pitch + t.column
        self.writer.put(
            isa.Matmul(
                t.unit,
                t.slot,
                F32,
                vmem(target, sums),
                self.sums.pitch,
                t.fresh,
                data,
                self.layout.pitch,
                t.rows,
                valid,
            )
        )


@dataclass(frozen=True)
class _Tile:
    """Weights of a tile of terms and columns, and the rows that go through them."""

    unit: Index
    slot: Index
    k: Index
    depth: int
    column: Index
    width: int
    row: Index
    rows: int
    fresh: bool


def _digit(index: Index, divisor: int, modulus: int) -> Index:
    """(index // divisor) mod modulus, of a number that is a counter, or one more, or constant."""
    if not index.terms:
        return Index(index.constant // divisor % modulus)
    (term,) = index.terms
    digit = Index(0, (Term(term.counter, 1, divisor, modulus),))
    return digit if index.constant == 0 else digit * -1 + 1
