"""Contractions on the matrix unit: operands and their valid bits laid out, chains run, sums put where they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir import index as ix
from repro.ir.expressions import Expr
from repro.ir.loops import Store
from repro.ir.types import F32
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.codegen import matrix
from repro.targets.tpu_sim.codegen.contractions import Contraction, Matrix, layouts
from repro.targets.tpu_sim.codegen.feeding import Feeding
from repro.targets.tpu_sim.codegen.held import Held
from repro.targets.tpu_sim.codegen.stages import Stage
from repro.targets.tpu_sim.operands import Index, Ref


class Products:
    """Writes contractions; `compute` writes a stage that makes an operand no copy laid out."""

    def __init__(self, held: Held, feeding: Feeding, chip: Chip, compute: Callable[[Stage], None]) -> None:
        self.held, self.writer, self.moving, self.chip = held, held.writer, held.moving, chip
        self.feeding, self.compute = feeding, compute

    def emit(self, c: Contraction, result: int) -> None:
        (_, given), (_, held) = layouts(c)
        wanted = Matrix(c.batch, c.rows, c.terms)
        valid, data = self._with_valid_bits(c, given)
        weights = self._laid(c.weights, held)
        varies = self.held.varies([c.reduce])
        if varies:
            self.held.varying.add(result)
        if given != wanted:
            data = self._turned(c.data, data, given, wanted)
            if valid is not None and c.reduce.present is not None:
                valid = self._turned(c.reduce.present, valid, given, wanted)
        with self.held.once_if(not varies):
            total = self.held.half_of(result, c.result.elements)
            sums = self.held.room(F32, c.sums.elements, varies)[0] if c.turned else total
            arriving = [
                self.feeding.pieces[each.number] for each in (data, weights) if each.number in self.feeding.pieces
            ]

            def arrived(start: Index) -> None:
                for semaphore in arriving:
                    self.moving.wait_for_piece(matrix.divided(start, self.chip.array) + semaphore)

            chains = matrix.Chains(self.writer, self.chip, c, arrived)
            chains.emit(sums, data, weights, held.places == c.terms, valid)
            if c.turned:
                matrix.turn(self.writer, F32, sums, total, c.sums, c.result)

    def _turned(self, term: Expr, source: Ref, given: Matrix, wanted: Matrix) -> Ref:
        with self.held.once_if(not self.held.varies([term])):
            turned = self.held.room(term.dtype, wanted.elements, self.held.varies([term]))[0]
            matrix.turn(self.writer, term.dtype, source, turned, given, wanted)
        return turned

    def _with_valid_bits(self, c: Contraction, given: Matrix) -> tuple[Ref | None, Ref]:
        """Valid bits, where some terms are absent, and the data: computed side by side, they share their conditions."""
        present = c.reduce.present
        if present is None:
            return None, self._laid(c.data, given)
        if (c.data, given) in self.feeding.copied or self.held.varies([c.data]) != self.held.varies([present]):
            return self._laid(present, given), self._laid(c.data, given)
        bits, data = self._made([present, c.data], given)
        return bits, data

    def _laid(self, term: Expr, laid: Matrix) -> Ref:
        """The term's values as a matrix in VMEM."""
        known = self.feeding.copied.get((term, laid))
        if known is not None:
            with self.held.once_if(True):
                self.moving.wait_for({known.number})
            return known
        return self._made([term], laid)[0]

    def _made(self, terms: Sequence[Expr], laid: Matrix) -> list[Ref]:
        """The terms' values, computed by a stage."""
        places, stores = list[Ref](), list[Store]()
        for term in terms:
            place, begin = self.held.room(term.dtype, laid.elements, self.held.varies([term]))
            number = self.held.unused()
            self.held.areas[number] = place.number
            if begin.free:
                self.held.halves[number] = begin
            places.append(place)
            stores.append(Store(number, ix.add(laid.offset, begin), term))
        self.compute(Stage((*laid.batch, *laid.lines, *laid.places), 0, tuple(stores)))
        return places
