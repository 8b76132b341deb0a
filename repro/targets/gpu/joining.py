"""The second entry of a contraction whose K is shared out: totals added in their order, and what is stored."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.expressions import Axis
from repro.ir.loops import Kernel
from repro.ir.types import BOOL
from repro.machines import Machine
from repro.targets.gpu.body import Entry, GpuBody, blocks_for, global_thread
from repro.targets.gpu.finish import store_output, store_value
from repro.targets.gpu.launch import Launch
from repro.targets.gpu.tiles import Plan
from repro.targets.gpu.totals import workspace_element
from repro.targets.llvm import scalars
from repro.targets.llvm.kernel import symbol
from repro.targets.llvm.scope import Scope
from repro.targets.llvm.text import Function, Val, element, integer

BLOCK = 256


def joining_entry(kernel: Kernel, plan: Plan, machine: Machine) -> tuple[Entry, Launch]:
    """One thread for each output."""
    f = Function()
    made = Joining(GpuBody(f, kernel, machine), kernel, plan)
    number = global_thread(f, BLOCK, made.outputs)
    f.when(scalars.compare(f, "lt", number, integer(made.outputs)), lambda: made.output(number))
    f.line("ret void")
    name = f"{symbol(kernel)}_join"
    return Entry(name, f, BLOCK), Launch(name, blocks_for(made.outputs, BLOCK), BLOCK)


class Joining:
    """Each output from its totals, of panels or of blocks of them."""

    def __init__(self, body: GpuBody, kernel: Kernel, plan: Plan) -> None:
        self.body, self.f, self.kernel, self.plan = body, body.f, kernel, plan
        self.contraction, self.reduce = plan.contraction, plan.contraction.reduce
        batches, rows, columns, _ = plan.contraction.extents
        self.outputs = batches * rows * columns

    def output(self, number: Val) -> None:
        """One of them, by its number."""
        _, rows, columns, _ = self.contraction.extents
        rest, column = self._divide(number, columns)
        batch, row = self._divide(rest, rows)
        self._output(batch, row, column)

    def _divide(self, value: Val, by: int) -> tuple[Val, Val]:
        quotient, rest = (scalars.binary(self.f, how, value, integer(by)) for how in ("udiv", "urem"))
        return quotient, rest

    def _output(self, batch: Val, row: Val, column: Val) -> None:
        f, c = self.f, self.contraction
        bound: dict[Axis, Val] = {}
        for axes, place in ((c.batch, batch), (c.rows, row), (c.columns, column)):
            bound.update(zip(axes, self.body.split(place, axes) if axes else (), strict=True))
        scope = Scope(None, bound)

        total = self._total(batch, row, column)

        def joined() -> Sequence[Val]:
            store_output(self.body, self.kernel, self.reduce, total, Scope(scope, {}))
            return ()

        def exact() -> Sequence[Val]:
            with f.rolled():
                store_value(self.body, self.kernel, Scope(scope, {}))
            return ()

        if not c.guards:
            joined()
        else:
            f.either(f.let(f"fcmp uno {total.typed}, {total.text}", BOOL), exact, joined)

    def _total(self, batch: Val, row: Val, column: Val) -> Val:
        """Panels summed in blocks, blocks summed; each sum starts from its first."""
        f, dtype, (height, width) = self.f, self.reduce.dtype, self.plan.padded
        sums, together = self.plan.sums, self.contraction.chain.panels_per_block // self.plan.together
        place = f.add(f.scaled(row, width), column)
        first = f.scaled(batch, sums)

        def read(number: Val) -> Val:
            at = f.add(f.scaled(f.add(first, number), height * width), place)
            return f.let(f"load {element(dtype)}, ptr {workspace_element(f, at, dtype)}, align {dtype.bytes}", dtype)

        def block(start: Val, end: Val) -> Val:
            def longer(number: Val, state: list[Val]) -> Sequence[Val]:
                return [scalars.apply(f, "add", dtype, [state[0], read(number)])]

            return f.loop(f.add(start, integer(1)), end, 1, [read(start)], longer)[0]

        def limit(start: Val) -> Val:
            end, last = f.add(start, integer(together)), integer(sums)
            return scalars.select(f, scalars.compare(f, "lt", end, last), end, last)

        total = block(integer(0), integer(min(together, sums)))

        def blocks(start: Val, state: list[Val]) -> Sequence[Val]:
            return [scalars.apply(f, "add", dtype, [state[0], block(start, limit(start))])]

        return f.loop(integer(together), integer(sums), together, [total], blocks)[0]
