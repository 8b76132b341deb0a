"""Contractions on the matrix unit: chains of a panel each from operands in VMEM, panels and blocks added in order."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

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


def divided(index: Index, divisor: int) -> Index:
    """The quotient of an index all of whose parts are multiples of the divisor."""
    terms = (replace(term, coefficient=term.coefficient // divisor) for term in index.terms)
    return Index(index.constant // divisor, tuple(terms))


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

    def __init__(self, writer: Writer, chip: Chip, contraction: Contraction, arrived: Callable[[Index], None]) -> None:
        """`arrived(k)` is called before the code of each tile of terms, with its first."""
        self.writer, self.chip, self.contraction, self.arrived = writer, chip, contraction, arrived
        self.k = extent_of(contraction.terms)
        self.rows, self.columns = extent_of(contraction.rows), extent_of(contraction.columns)
        self.sums = contraction.sums

    def emit(self, total: Ref, data: Ref, weights: Ref, turned: bool, valid: Ref | None) -> None:
        """The whole contraction to `total`, but for the last + 0.0."""
        self.data, self.weights, self.turned, self.valid = data, weights, turned, valid
        c, order = self.contraction, self.contraction.chain
        self.layout = Matrix(c.batch, c.rows, c.terms)
        self.held = Matrix(c.batch, c.columns, c.terms) if turned else Matrix(c.batch, c.terms, c.columns)
        self.partial = None if self.k <= order.panel else vmem(self._area())
        block = order.panel * order.panels_per_block
        if self.k <= block:
            self._block(total, Index(), self.k)
        else:
            self._blocks(total, block)

    def _area(self) -> int:
        return self.writer.area(F32, self.sums.elements)

    def _blocks(self, total: Ref, size: int) -> None:
        """Blocks onto the total, each while the next one is in the array."""
        half = -(-self.sums.elements // LANES) * LANES
        parts = vmem(self.writer.area(F32, 2 * half))
        whole, rest = divmod(self.k, size)
        self._block(total, Index(), size)
        self._block(at(parts, Index(half)), Index(size), size if whole > 1 else rest)
        if whole > 2:
            with each(self.writer, whole - 2) as number:
                even = _digit(number, 1, 2) * half
                self._block(at(parts, even), (number + 2) * size, size)
                self._add(total, at(parts, even * -1 + half))
        if whole > 1 and rest:
            self._block(at(parts, Index(whole % 2 * half)), Index(whole * size), rest)
            self._add(total, at(parts, Index((whole - 1) % 2 * half)))
        self._add(total, at(parts, Index((whole + (rest > 0) - 1) % 2 * half)))

    def _block(self, target: Ref, start: Index, terms: int) -> None:
        """The sum of a block's panels, in order, from the first: later ones are added as they leave the array."""
        size = self.contraction.chain.panel
        whole, rest = divmod(terms, size)
        self._panel(target, start, size if whole else rest, onto=False)
        if whole > 1:
            with each(self.writer, whole - 1) as number:
                self._panel(target, start + (number + 1) * size, size, onto=True)
        if whole and rest:
            self._panel(target, start + whole * size, rest, onto=True)

    def _add(self, total: Ref, part: Ref) -> None:
        """total += part, element by element."""
        writer = self.writer
        with writer.loop(-(-self.sums.elements // LANES), parallel=True) as number:
            a, b = writer.register(F32), writer.register(F32)
            writer.put(isa.Load(a.reg, F32, at(total, number * LANES)))
            writer.put(isa.Load(b.reg, F32, at(part, number * LANES)))
            writer.put(isa.Store(at(total, number * LANES), F32, writer.alu("add", F32, a, b).reg))

    def _panel(self, target: Ref, start: Index, terms: int, onto: bool) -> None:
        """One chain for each output: k in tiles of the array, columns in tiles inside, so that a unit works on other
        columns while the last sums of these are still on their way."""
        side, last = self.chip.array, -(-terms // self.chip.array) - 1
        sums = self.partial if onto and last and self.partial is not None else target
        self._tiles(_Step(sums, start, Index(), min(terms, side), True, target if onto and not last else None))
        if last > 1:
            with each(self.writer, last - 1) as number:
                self._tiles(_Step(sums, start + (number + 1) * side, number + 1, side))
        if last:
            step = Index(last)
            final = target if onto else None
            self._tiles(_Step(sums, start + last * side, step, terms - last * side, False, final))

    def _tiles(self, step: _Step) -> None:
        """One tile of terms for every column, row and batch. Tiles of columns are dealt to the units; where there is
        one such tile, batches are, or parts of the rows. Each unit takes its two slots in turn."""
        writer, side, units = self.writer, self.chip.array, self.chip.matrix_units
        batches, columns = extent_of(self.contraction.batch), -(-self.columns // side)
        alone = columns == 1
        parts = max(1, min(units, self.rows // (2 * side))) if alone and batches == 1 else 1
        in_turn = -(-batches // units) if alone else batches * -(-columns // units)
        self.arrived(step.k)
        with each(writer, batches) as batch:

            def row(first_row: Index, part: Index, rows: int) -> None:
                def column(first: Index, number: Index, width: int) -> None:
                    dealt = number if not alone else batch if batches > 1 else part
                    turn = _digit(dealt, units) + (Index() if alone else batch * -(-columns // units))
                    tile = _Tile(_digit(dealt, 1, units), step.number * in_turn + turn, first, width, first_row, rows)
                    self._tile(step, batch, tile)

                tiles(writer, self.columns, side, column)

            tiles(writer, self.rows, -(-self.rows // parts), row)

    def _tile(self, s: _Step, batch: Index, t: _Tile) -> None:
        """Weights into one slot while the other may be at work, then the rows through them."""
        line = t.column * self.held.pitch + s.k if self.turned else s.k * self.held.pitch + t.column
        weights = at(self.weights, batch * self.held.stride + line)
        self.writer.put(isa.Push(t.unit, t.slot, F32, weights, self.held.pitch, s.depth, t.width, self.turned))
        place = batch * self.layout.stride + t.row * self.layout.pitch + s.k
        valid = None if self.valid is None else at(self.valid, place)
        line = batch * self.sums.stride + t.row * self.sums.pitch + t.column
        onto = None if s.onto is None else at(s.onto, line)
        data, pitches = at(self.data, place), (self.sums.pitch, self.layout.pitch)
        sums = at(s.sums, line)
        self.writer.put(
            isa.Matmul(t.unit, t.slot, F32, sums, pitches[0], s.fresh, data, pitches[1], t.rows, valid, onto)
        )


@dataclass(frozen=True)
class _Step:
    """A tile of `depth` terms from `k` on, the `number`th of its panel. Sums go on where they lie, and at last onto
    others."""

    sums: Ref
    k: Index
    number: Index
    depth: int
    fresh: bool = False
    onto: Ref | None = None


@dataclass(frozen=True)
class _Tile:
    """Columns, and the rows that go through their weights."""

    unit: Index
    slot: Index
    column: Index
    width: int
    row: Index
    rows: int


def _digit(index: Index, divisor: int, modulus: int = 0) -> Index:
    """(index // divisor) mod modulus, of a number that is a counter or constant."""
    if not index.terms:
        return Index(index.constant // divisor % (modulus or 1 << 62))
    (term,) = index.terms
    return Index(0, (Term(term.counter, 1, divisor, modulus),))
