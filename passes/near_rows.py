"""Rows that are computed again where they are read, instead of being written and read: the deviations of a layer norm.

A row kernel reads the values of its row several times: once for each of its sums, once for its elements. Where another
kernel stores those values, and an element of them takes a few cheap operations on rows that are as near (what a row
alone decides, such as its mean, is computed once a row in any case), the row kernel computes them itself. Then both
are one walk over the rows: of memory, each element is read once and written once, and one row is fetched while another
is computed.

What costs more is taken in too where it is the very term of the row's sum: the exponentials of a softmax. Then the
kernel's code keeps a row of terms until its elements are computed (`kept`).

The bits are those of the two calls: each operation is made on the same values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from passes.calls import Called, call_of, called
from passes.made_again import CHEAP
from passes.plan import if_no_larger
from passes.rename import rewritten, with_axes_from
from passes.sequences import Touched, bodies, touched_itself, touches, with_bodies
from passes.side_by_side import side_by_side
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Apply, Axis, Exact, Expr, Lanes, Load, Lookup, Rarely, Reduce, topological
from repro.ir.loops import Kernel, Store
from repro.ir.program import TEMPORARY, Call, Program, Step, walk

MOST_OPERATIONS = 3
"""For each element, as often as it is read: fewer than a store and its loads would wait for."""
MOST_ROWS = 2
"""Rows that are read in place of the one that is stored."""
SHORTEST_ROW, LONGEST_ROW = 64, 8192
"""Elements of a row that stays in a near cache between its readings, and is worth two loops."""
LONGEST_KEPT = 4096
"""Of one whose terms are kept: two of them at once, beside what they are computed from."""


def near_rows(program: Program) -> Program:
    """The program with such calls made one; itself where there are none, or where memory would grow."""
    made = _NearRows(program)
    return if_no_larger(program, made.sequence(program.steps), made.kernels)


class _NearRows:
    def __init__(self, program: Program) -> None:
        self.program, self.kernels = program, list(program.kernels)
        self.uses = Counter(buffer for step in walk(program.steps) for buffer, _ in touched_itself(program, step))

    def sequence(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        inner = [with_bodies(step, [self.sequence(each) for each, _ in bodies(step)]) for step in steps]
        made: list[Step | None] = [*inner]
        touching = [touches(self.program, step) for step in steps]
        writers = {buffer: place for place, each in enumerate(touching) for buffer in each.written}
        for position, step in enumerate(steps):
            if isinstance(step, Call) and _by_rows(self.kernels[step.kernel]):
                for buffer in step.buffers:
                    before = writers.get(buffer, position)
                    if before < position and self._may_wait(touching[before : position + 1]):
                        self._take_in(made, before, position, buffer)
                        touching[position] |= touching[before]
        return tuple(step for step in made if step is not None)

    def _may_wait(self, touching: Sequence[Touched]) -> bool:
        """Whether the first may run as late as the last: what it reads, none behind it writes."""
        first, *behind = touching
        return not any(first.read & each.written for each in behind)

    def _take_in(self, steps: list[Step | None], before: int, position: int, buffer: int) -> None:
        """Put into a call of rows what an earlier call makes for it alone, and take that away."""
        producer, consumer = steps[before], steps[position]
        alone = self.uses[buffer] == 2 and self.program.buffers[buffer].role == TEMPORARY
        if alone and isinstance(producer, Call) and isinstance(consumer, Call) and self._may_join(producer):
            made = joined(self._called(producer), self._called(consumer), buffer)
            cheap = _is_cheap(self.kernels[producer.kernel])
            if made is not None and (cheap or self._is_kept(consumer, buffer)):
                steps[before], steps[position] = None, call_of(made, self.kernels, self.program.buffers)

    def _may_join(self, call: Call) -> bool:
        kernel = self.kernels[call.kernel]
        plain = len(kernel.stores) == 1 and not kernel.serial and find(kernel) is None
        return plain and _is_in_order(kernel) and not _turns(kernel)

    def _is_kept(self, call: Call, buffer: int) -> bool:
        """Whether a call reads a buffer as the terms of one sum and beside them, and nowhere else."""
        kernel = self.kernels[call.kernel]
        found = _terms_beside(kernel)
        loads = {e for e in kernel.expressions if isinstance(e, Load) and call.buffers[e.buffer] == buffer}
        return found is not None and loads == {found[0].terms[0], found[1]}

    def _called(self, call: Call) -> Called:
        return called(self.kernels[call.kernel], call)


def _by_rows(kernel: Kernel) -> bool:
    """Whether it reduces each row in lanes before it computes the row's elements."""
    if kernel.serial or len(kernel.stores) != 1 or kernel.stores[0].when is not None or len(kernel.axes) < 2:
        return False
    reduces = [expr for expr in kernel.expressions if isinstance(expr, Reduce)]
    rows = frozenset(kernel.axes[:-1])
    along = all(reduce.free <= rows and isinstance(reduce.order, Lanes | Exact) for reduce in reduces)
    return bool(reduces) and along and SHORTEST_ROW <= kernel.axes[-1].extent <= LONGEST_ROW


def _is_in_order(kernel: Kernel) -> bool:
    """Whether its elements lie in the order of its axes."""
    (store,), extents = kernel.stores, [axis.extent for axis in kernel.axes]
    in_order = bool(kernel.axes) and store.offset is ix.linear(kernel.axes, extents) and store.when is None
    return in_order and ix.bounds(store.offset)[1] + 1 == kernel.buffers[store.buffer].elements


def _turns(kernel: Kernel) -> bool:
    """Whether it reads elements that lie apart, to put them side by side."""
    loads, last = (expr for expr in kernel.expressions if isinstance(expr, Load)), kernel.axes[-1]
    return not all(side_by_side(load.offset, last) for load in loads)


def _is_cheap(kernel: Kernel) -> bool:
    """Whether each element is a few operations on what lies beside it."""
    return _costs_little(kernel.stores[0].value, kernel.axes[-1])


def _costs_little(value: Expr, last: Axis) -> bool:
    each = [expr for expr in _outside_sums(value) if last in expr.free]
    operations = [expr for expr in each if isinstance(expr, Apply)]
    loads = [expr for expr in each if isinstance(expr, Load)]
    plain = not any(isinstance(expr, Reduce | Lookup | Rarely) for expr in each)
    beside = all(expr.when is None and ix.coefficient(expr.offset, last) == 1 for expr in loads)
    few = len(operations) <= MOST_OPERATIONS and all(expr.op in CHEAP for expr in operations)
    return plain and beside and few and len(loads) <= MOST_ROWS


def kept(kernel: Kernel) -> tuple[Reduce, Expr] | None:
    """A sum of each row, and what its term is for an element of the row, where that is wanted there too and costs more
    than to be read again."""
    found = _terms_beside(kernel)
    return None if found is None or _costs_little(found[1], kernel.axes[-1]) else found


def _terms_beside(kernel: Kernel) -> tuple[Reduce, Expr] | None:
    if not _by_rows(kernel) or kernel.axes[-1].extent > LONGEST_KEPT:
        return None
    last, outside = kernel.axes[-1], {*_outside_sums(kernel.stores[0].value)}
    sums = [e for e in kernel.expressions if isinstance(e, Reduce) and isinstance(e.order, Lanes) and e.present is None]
    for each in sums:
        along = [axis.extent for axis in each.axes] == [last.extent]
        (element,) = rewritten(each.terms, {each.axes[0]: last} if along else {})
        if along and element in outside:
            return each, element
    return None


def _outside_sums(root: Expr) -> list[Expr]:
    """What the root is computed from, up to reductions."""
    found: dict[Expr, None] = {}
    stack = [root]
    while stack:
        expr = stack.pop()
        if expr not in found:
            found[expr] = None
            stack.extend(() if isinstance(expr, Reduce | Load) else expr.children)
    return list(found)


def joined(producer: Called, consumer: Called, buffer: int) -> Called | None:
    """The consumer with the producer's elements in place of its loads of a buffer; None where what is computed once a
    row would be computed for each element."""
    (store,), extents = producer.stores, [axis.extent for axis in producer.axes]
    first = 1 + max((expr.number for expr in topological(consumer.roots) if isinstance(expr, Axis)), default=0)
    axes = [ix.axis(first + axis.number, axis.extent) for axis in producer.axes]
    value = with_axes_from(first, store.value)
    known: dict[Expr, Expr] = {}
    for expr in topological(consumer.roots):
        if isinstance(expr, Load) and expr.buffer == buffer:
            if expr.when is not None:
                return None
            (offset,) = rewritten([expr.offset], known)
            index = ix.delinear(offset, extents)
            (known[expr],) = rewritten([value], dict(zip(axes, index, strict=True)))
    roots = rewritten(consumer.roots, known)
    rows = frozenset(consumer.axes[:-1])
    if any(isinstance(expr, Reduce) and not expr.free <= rows for expr in topological(roots)):
        return None
    pairs = zip(consumer.stores, roots[::2], roots[1::2], strict=True)
    return Called(consumer.axes, tuple(Store(s.buffer, place, value) for s, place, value in pairs))
