"""Vectors along pixels and along groups give the bits of the plain chain: strides, padding, dilation, panels, tails."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from passes.group_lanes import group_lanes
from passes.legality import refusal
from passes.phases import phases
from passes.pixels import pixels, starts
from passes.schedule import along_groups, along_pixels, schedule
from repro.ir import index as ix
from repro.ir.expressions import Chain, Expr, apply, const, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.parse_program import parse_schedule
from repro.ir.schedule import COLUMNS, GROUPS, PIXELS, Schedule
from repro.ir.types import BOOL, F32
from repro.machines import AARCH64, X86_64_V3, X86_64_V4, Machine
from tests.reference import reference
from tests.targets.native import HERE, differences, run_kernel, same
from tests.targets.test_contraction_tiles import filled

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)


@dataclass(frozen=True)
class Case:
    """A grouped convolution of square pictures, or of lines where the kernel has one line."""

    groups: int
    size: int
    kernel: tuple[int, int] = (3, 3)
    stride: int = 1
    pad: int = 1
    dilation: int = 1
    channels: int = 1
    filters: int = 1
    images: int = 2
    panel: int | None = None
    backwards: bool = False

    @property
    def picture(self) -> tuple[int, int]:
        return (1 if self.kernel[0] == 1 else self.size, self.size)

    @property
    def pads(self) -> tuple[int, int]:
        return (0 if self.kernel[0] == 1 else self.pad, self.pad)

    @property
    def output(self) -> tuple[int, ...]:
        each = zip(self.picture, self.pads, self.kernel, strict=True)
        return tuple((size + 2 * pad - self.dilation * (taps - 1) - 1) // self.stride + 1 for size, pad, taps in each)

    def places(self, pixels: tuple[Expr, Expr], taps: tuple[Expr, Expr]) -> tuple[tuple[Expr, ...], Expr | None]:
        """Of the picture, and whether they are inside; taps from the last to the first where they go backwards."""
        found = list[Expr]()
        for pixel, tap, extent, pad in zip(pixels, taps, self.kernel, self.pads, strict=True):
            step = -self.dilation if self.backwards else self.dilation
            away = self.dilation * (extent - 1) if self.backwards else 0
            found.append(ix.add(ix.scale(pixel, self.stride), ix.scale(tap, step), ix.number(away - pad)))
        inside = ix.both(*(ix.inside(place, size) for place, size in zip(found, self.picture, strict=True)))
        return tuple(found), None if inside is ix.TRUE else inside


def forward(case: Case) -> Kernel:
    rows, columns = case.output
    n, f = ix.axis(0, case.images), ix.axis(1, case.groups * case.filters)
    y, x, c = ix.axis(2, rows), ix.axis(3, columns), ix.axis(4, case.channels)
    i, j = ix.axis(5, case.kernel[0]), ix.axis(6, case.kernel[1])
    place, inside = case.places((y, x), (i, j))
    channel = ix.add(ix.scale(ix.floordiv(f, case.filters), case.channels), c)
    shape = (case.images, case.groups * case.channels, *case.picture)
    picture = load(F32, 0, ix.linear((n, channel, *place), shape), inside)
    weights = (case.groups * case.filters, case.channels, *case.kernel)
    unit = case.kernel[0] * case.kernel[1]
    order = Chain(case.panel or max(1, 512 // unit) * unit, 8)
    value = reduce("fma", order, [c, i, j], [load(F32, 1, ix.linear((f, c, i, j), weights)), picture], inside)
    value = apply("add", value, load(F32, 2, f))
    out = (case.images, weights[0], rows, columns)
    sizes = [int(np.prod(each)) for each in (shape, weights, weights[:1])]
    buffers = [*(BufferParameter(F32, size, False) for size in sizes), BufferParameter(F32, int(np.prod(out)), True)]
    return Kernel(tuple(buffers), (), (n, f, y, x), 0, (Store(3, ix.linear((n, f, y, x), out), value),))


def weight_gradient(case: Case) -> Kernel:
    rows, columns = case.output
    c, f = ix.axis(0, case.channels), ix.axis(1, case.groups * case.filters)
    i, j = ix.axis(2, case.kernel[0]), ix.axis(3, case.kernel[1])
    n, y, x = ix.axis(4, case.images), ix.axis(5, rows), ix.axis(6, columns)
    place, inside = case.places((y, x), (i, j))
    channel = ix.add(ix.scale(ix.floordiv(f, case.filters), case.channels), c)
    shape = (case.images, case.groups * case.channels, *case.picture)
    picture = load(F32, 0, ix.linear((n, channel, *place), shape), inside)
    given = (case.images, case.groups * case.filters, rows, columns)
    order = Chain(case.panel or max(1, 512 // columns) * columns, 8)
    value = reduce("fma", order, [n, y, x], [load(F32, 1, ix.linear((n, f, y, x), given)), picture], inside)
    out = (case.groups * case.filters, case.channels, *case.kernel)
    sizes = [int(np.prod(each)) for each in (shape, given)]
    buffers = [*(BufferParameter(F32, size, False) for size in sizes), BufferParameter(F32, int(np.prod(out)), True)]
    return Kernel(tuple(buffers), (), (c, f, i, j), 0, (Store(2, ix.linear((f, c, i, j), out), value),))


PLAIN = Case(groups=3, size=14)
CASES = {
    "plain": PLAIN,
    "shorter than a vector": replace(PLAIN, size=7),
    "no padding": replace(PLAIN, pad=0),
    "stride": replace(PLAIN, size=33, kernel=(7, 7), stride=2, pad=3),
    "stride, short": replace(PLAIN, size=15, stride=2),
    "stride of three": replace(PLAIN, size=31, kernel=(5, 5), stride=3),
    "dilation": replace(PLAIN, dilation=2, pad=2),
    "line": replace(PLAIN, size=40, kernel=(1, 31), pad=15),
    "two filters": replace(PLAIN, size=11, filters=2, kernel=(5, 5), pad=2),
    "groups": replace(PLAIN, size=9, channels=4, filters=4),
    "uneven": replace(PLAIN, size=12, channels=3, filters=5),
    "far padding": replace(PLAIN, size=9, pad=5),
}  # fmt: skip
OF_CASES = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
FORWARD = {
    **CASES,
    "backwards": replace(PLAIN, backwards=True),
    "panels": replace(PLAIN, size=9, channels=60, filters=3),
    "panels, shorter than a vector": replace(PLAIN, size=5, channels=60, filters=3),
    "blocks of panels": replace(PLAIN, size=9, channels=10, filters=2, panel=9),
    "a picture in parts": replace(PLAIN, groups=1, size=70, channels=2),
    "a line in parts": replace(PLAIN, groups=2, size=2100, kernel=(1, 3)),
}
BACKWARD = {
    **CASES,
    "lanes beyond the last group": replace(PLAIN, groups=9),
    "several vectors": replace(PLAIN, groups=32, size=40, kernel=(1, 3)),
    "blocks of panels": replace(PLAIN, images=20, panel=14 * 3),
    "panels across images": replace(PLAIN, images=3, size=10, panel=10 * 7),
    "strips": replace(PLAIN, images=1, size=70, channels=2),
    "channels apart": replace(PLAIN, size=12, channels=3, groups=8),
}


def _with(case: Case) -> Case:
    """Groups enough for a vector of the least machine."""
    return replace(case, groups=max(case.groups, 5))


def agrees(kernel: Kernel, machine: Machine, chosen: Schedule) -> None:
    """With the interpreter of the loop IR. Operands are finite but for the last sixth of each, where there are
    infinities and NaNs: some items meet them beside blanks, and some do not."""
    given = filled(kernel)
    for array in given:
        finite = array[: 5 * array.size // 6]
        np.nan_to_num(finite, copy=False, nan=0.5, posinf=2.0, neginf=-2.0)
    wanted = reference(kernel, given)
    assert np.isfinite(wanted[-1]).any()
    found = run_kernel(kernel, given, machine, chosen, 2)
    assert same(F32, found[-1], wanted[-1]), differences(F32, found[-1], wanted[-1])


@MACHINES
@pytest.mark.parametrize("case", FORWARD.values(), ids=FORWARD.keys())
def test_pixels(machine: Machine, case: Case) -> None:
    kernel = forward(case)
    chosen = schedule(kernel, machine)
    assert chosen.tile is not None and chosen.tile.lanes == PIXELS
    agrees(kernel, machine, chosen)


@MACHINES
@pytest.mark.parametrize("case", BACKWARD.values(), ids=BACKWARD.keys())
def test_groups(machine: Machine, case: Case) -> None:
    kernel = weight_gradient(_with(case))
    chosen = schedule(kernel, machine)
    assert chosen.tile is not None and chosen.tile.lanes == GROUPS
    agrees(kernel, machine, chosen)


@MACHINES
@pytest.mark.parametrize(("width", "rows", "vectors", "columns"), [(4, 1, 1, 1), (8, 2, 3, 2), (16, 5, 1, 3)])
def test_other_tiles(machine: Machine, width: int, rows: int, vectors: int, columns: int) -> None:
    """Shares that differ, columns that are left over, and vectors longer or shorter than a line."""
    case = replace(PLAIN, size=11, groups=5, channels=2, filters=4)
    for kernel, form in ((forward(case), along_pixels), (weight_gradient(case), along_groups)):
        made = form(kernel, machine)
        assert made is not None and made.tile is not None
        tile = replace(made.tile, rows=rows, vectors=vectors, block_n=columns)
        if rows == 2:
            tile = replace(tile, block_m=max(1, tile.block_m // 2))
        chosen = Schedule(None, width, 1, tile)
        assert refusal(kernel, chosen) is None
        assert parse_schedule(chosen.text) == chosen
        agrees(kernel, machine, chosen)


@MACHINES
def test_terms_that_are_computed(machine: Machine) -> None:
    """An operand that a function was fused into, whose blanks are not what it makes of zero; weights that are packed;
    and more behind the sum than is written for each vector."""
    kernel = forward(replace(PLAIN, size=17, channels=2))
    (store,) = kernel.stores
    total = next(expr for expr in kernel.expressions if getattr(expr, "order", None) is not None)
    one = const(F32, 0x3F800000)
    weights, picture = (apply("add", term, one) for term in total.children[:2])
    assert total.children[2].dtype.name == "bool"
    value = reduce("fma", total.order, total.axes, [weights, picture], total.children[2])  # pyright: ignore
    for number in range(12):
        value = apply("add", apply("mul", value, const(F32, 0x3F400000 + number)), one)
    made = replace(kernel, stores=(replace(store, value=value),))
    agrees(made, machine, schedule(made, machine))


@pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4, AARCH64], ids=lambda m: m.name)
@OF_CASES
def test_what_is_chosen_is_legal(machine: Machine, case: Case) -> None:
    for kernel in (forward(case), weight_gradient(_with(case))):
        chosen = schedule(kernel, machine)
        assert chosen.tile is not None and chosen.tile.lanes != COLUMNS
        assert refusal(kernel, chosen) is None
        assert parse_schedule(chosen.text) == chosen


def test_what_has_no_such_form_is_refused() -> None:
    """A chain over one group's pixels has no groups; channels of one pixel have no places; options of other forms."""
    kernel = forward(PLAIN)
    chosen = along_pixels(kernel, X86_64_V3)
    assert chosen is not None and chosen.tile is not None
    alone = weight_gradient(replace(PLAIN, groups=1))
    assert group_lanes(alone) is None
    assert refusal(alone, replace(chosen, tile=replace(chosen.tile, lanes=GROUPS))) is not None
    point = forward(replace(PLAIN, kernel=(1, 1), pad=0))
    assert pixels(point, 1024) is None
    for wrong in ({"lanes": "rows"}, {"window": False}, {"packs": True}, {"unroll": 2}, {"block_n": 200}):
        assert refusal(kernel, replace(chosen, tile=replace(chosen.tile, **wrong))) is not None, wrong
    with pytest.raises(ValueError, match="not a schedule"):
        parse_schedule(chosen.text.replace("pixels", "rows"))


def test_where_vectors_begin() -> None:
    assert starts(16, 8) == [0, 8]
    assert starts(14, 8) == [0, 6], "the last one reaches back"
    assert starts(7, 8) == [0]


# ── pictures put together ───────────────────────────────────────────────────────────────────────────


def put_together(images: int, rows: int, columns: int, count: int) -> Kernel:
    """Each place from the picture of its remainders."""
    i, y, x = ix.axis(0, images), ix.axis(1, rows), ix.axis(2, columns)
    part = (images, -(-rows // count), -(-columns // count))
    value: Expr | None = None
    for number in range(count * count):
        at = divmod(number, count)
        here = ix.both(*(ix.compare("eq", ix.mod(axis, count), r) for axis, r in zip((y, x), at, strict=True)))
        place = (i, ix.floordiv(y, count), ix.floordiv(x, count))
        one = load(F32, number, ix.linear(place, part), here)
        value = one if value is None else apply("select", here, one, value)
    assert value is not None
    buffers = [BufferParameter(F32, int(np.prod(part)), False)] * count**2
    out = BufferParameter(F32, images * rows * columns, True)
    store = Store(count**2, ix.linear((i, y, x), (images, rows, columns)), value)
    return Kernel((*buffers, out), (), (i, y, x), 0, (store,))


@MACHINES
@pytest.mark.parametrize(("columns", "count"), [(4, 2), (7, 2), (31, 4), (32, 2), (55, 2), (40, 4)])
def test_elements_by_remainders(machine: Machine, columns: int, count: int) -> None:
    kernel = put_together(3, 5, columns, count)
    found = phases(kernel, kernel.axes[2])
    assert found is not None and found.count == count
    chosen = schedule(kernel, machine)
    assert chosen.vector_axis == 2
    given = filled(kernel)
    wanted = reference(kernel, given)
    made = run_kernel(kernel, given, machine, chosen, 2)[-1]
    assert same(F32, made, wanted[-1]), differences(F32, made, wanted[-1])


def met(kernel: Kernel) -> Kernel:
    """The pictures put together where another one, as it lies, and flags let them pass."""
    (store,) = kernel.stores
    more = [BufferParameter(kind, kernel.buffers[store.buffer].elements, False) for kind in (F32, BOOL)]
    first = len(kernel.buffers)
    beside, flag = (load(buffer.dtype, first + n, store.offset) for n, buffer in enumerate(more))
    zero = const(F32, 0)
    value = apply("select", apply("or", apply("ge", zero, beside), flag), zero, apply("add", store.value, beside))
    return replace(kernel, buffers=(*kernel.buffers, *more), stores=(replace(store, value=value),))


@MACHINES
@pytest.mark.parametrize(("columns", "count"), [(7, 2), (32, 2), (40, 4)])
def test_remainders_beside_elements_as_they_lie(machine: Machine, columns: int, count: int) -> None:
    alone = put_together(3, 5, columns, count)
    kernel = met(alone)
    found = phases(kernel, kernel.axes[2])
    assert found is not None and found.parts == (alone.stores[0].value,)
    given = filled(kernel)
    wanted = reference(kernel, given)
    written = kernel.stores[0].buffer
    made = run_kernel(kernel, given, machine, schedule(kernel, machine), 2)[written]
    assert same(F32, made, wanted[written]), differences(F32, made, wanted[written])


@MACHINES
@pytest.mark.parametrize("count", [2, 4])
def test_vectors_of_one_element_of_each_remainder(machine: Machine, count: int) -> None:
    """They are no vectors to put together."""
    kernel = put_together(2, 3, 3 * count + 1, count)
    chosen, given = Schedule(2, count, 3 * count + 1), filled(kernel)
    wanted = reference(kernel, given)
    assert same(F32, run_kernel(kernel, given, machine, chosen, 2)[-1], wanted[-1])


def test_no_remainders_where_a_quotient_is_left() -> None:
    """Of two divisors, of a kernel that reads what it writes, of an axis that is not stored side by side."""
    kernel = put_together(3, 6, 8, 2)
    assert phases(kernel, kernel.axes[1]) is None
    (store,) = kernel.stores
    x = kernel.axes[2]
    other = load(F32, 0, ix.floordiv(x, 4))
    assert phases(replace(kernel, stores=(replace(store, value=apply("add", store.value, other)),)), x) is None
    own = load(F32, store.buffer, store.offset)
    assert phases(replace(kernel, stores=(replace(store, value=apply("add", store.value, own)),)), x) is None
