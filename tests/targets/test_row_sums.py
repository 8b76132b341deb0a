"""What the sum of a row tells: maxima need not find NaN, or order zeros, and quotients need not be searched for NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passes.schedule import schedule
from repro.ir import index as ix
from repro.ir.expressions import Exact, Expr, Lanes, Reduce, apply, bitcast, const, load, reduce
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import BOOL, F32, U32, Array
from repro.machines import CPUS, Machine
from repro.numerics.elementary import FUNCTIONS
from repro.ops.elementwise import canonical_nan_expr
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm.row_sums import Needs, needs, quotients
from tests.reference import reference
from tests.targets.native import HERE, run_kernel, same

MACHINES = pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
Made = Callable[[Expr, Expr, Expr], list[Expr]]
"""What is stored of x, the row's maximum m, and the sum of e^(x - m)."""

exp, log = FUNCTIONS["exp"], FUNCTIONS["log"]
HALF, ZERO = const(F32, 0x3F000000), const(F32, 0)


def is_nan(value: Expr) -> Expr:
    return apply("ne", value, value)


def above(term: Expr) -> Expr:
    """A term of which NaN makes 0."""
    return apply("select", apply("gt", term, ZERO), term, ZERO)


SHOW = {
    "softmax": (Needs(False, False), lambda x, m, s: [apply("div", exp(apply("sub", x, m)), s)]),
    "with the canonical NaN": (
        Needs(False, False),
        lambda x, m, s: [canonical_nan_expr(apply("div", exp(apply("sub", x, m)), s))],
    ),
    "0 where it is a NaN": (
        Needs(False, False),
        lambda x, m, s: [
            apply("select", is_nan(y := apply("div", exp(apply("sub", x, m)), s)), ZERO, y),
        ],
    ),
    "log-softmax": (Needs(False, True), lambda x, m, s: [apply("sub", apply("sub", x, m), log(s))]),
    "of a sum beside it": (Needs(False, False), lambda x, m, s: [s]),
    "the maximum itself": (Needs(), lambda x, m, s: [m]),
    "beside a softmax": (Needs(), lambda x, m, s: [apply("div", exp(apply("sub", x, m)), s), m]),
    "differences": (Needs(True, True), lambda x, m, s: [apply("sub", x, m)]),
    "exponentials": (Needs(True, False), lambda x, m, s: [exp(apply("sub", x, m))]),
    "taken the other way round": (Needs(False, True), lambda x, m, s: [apply("div", exp(apply("sub", m, x)), s)]),
    "added": (Needs(False, True), lambda x, m, s: [apply("div", exp(apply("add", x, m)), s)]),
    "twice": (Needs(False, True), lambda x, m, s: [apply("div", exp(apply("sub", m, m)), s)]),
    "a sum chosen by the maximum": (
        Needs(False, True),
        lambda x, m, s: [apply("mul", apply("select", apply("gt", m, ZERO), HALF, x), s)],
    ),
    "where the sum is a NaN, the maximum": (
        Needs(True, True),
        lambda x, m, s: [apply("select", is_nan(s), m, s)],
    ),
    "its bits": (Needs(True, True), lambda x, m, s: [bitcast(apply("or", bitcast(m, U32), bitcast(s, U32)), F32)]),
}  # fmt: skip


def rows(
    made: Made, shape: tuple[int, int], across: bool = False, shift: int = 0, terms: int | None = None,
    of: Callable[[Expr], Expr] = lambda term: term,
) -> Kernel:  # fmt: skip
    """Of rows, or columns: the sum's terms may be of a later row, so many of them, and something of each."""
    count, length = shape
    r, c, t, u = ix.axis(0, count), ix.axis(1, length), ix.axis(2, length), ix.axis(3, terms or length)

    def at(place: Expr, row: int = 0) -> Expr:
        here = ix.add(r, ix.number(row))
        pair = [ix.scale(place, count), here] if across else [ix.scale(here, length), place]
        return load(F32, 0, ix.add(*pair))

    most = reduce("max", Exact(), [t], [at(t)])
    total = reduce("add", Lanes(32, 4096), [u], [exp(apply("sub", of(at(u, shift)), most))])
    stored = made(at(c), most, total)
    place = ix.add(ix.scale(c, count), r) if across else ix.add(ix.scale(r, length), c)
    axes = (c, r) if across else (r, c)
    given = BufferParameter(F32, (count + shift) * length, False)
    outs = [BufferParameter(F32, count * length, True) for _ in stored]
    return Kernel((given, *outs), (), axes, 0, tuple(Store(n, place, v) for n, v in enumerate(stored, 1)))


def needed(kernel: Kernel) -> Needs:
    """Of its maximum."""
    (most,) = (each for each in kernel.expressions if isinstance(each, Reduce) and each.combiner == "max")
    return needs(kernel)[most]


@pytest.mark.parametrize("name", SHOW)
def test_what_shows(name: str) -> None:
    wanted, made = SHOW[name]
    assert needed(rows(made, (3, 64))) == wanted
    assert needed(rows(made, (3, 64), across=True)) == wanted


def test_the_sum_must_be_of_the_same_terms() -> None:
    _, softmax = SHOW["softmax"]
    assert needed(rows(softmax, (3, 64), shift=1)).nan
    assert needed(rows(softmax, (3, 64), terms=63)).nan
    assert needed(rows(softmax, (3, 64), of=above)).nan
    assert not needed(rows(softmax, (3, 64), of=lambda term: apply("mul", term, HALF))).nan


def diagonal(size: int) -> Kernel:
    """The sum over rows of an element on the diagonal and the row's maximum: one of its terms is of that row alone."""
    u, t = ix.axis(0, size), ix.axis(1, size)
    most = reduce("max", Exact(), [t], [load(F32, 0, ix.add(ix.scale(u, size), t))])
    total = reduce("add", Lanes(32, 4096), [u], [apply("add", load(F32, 0, ix.scale(u, size + 1)), most)])
    buffers = (BufferParameter(F32, size * size, False), BufferParameter(F32, 1, True))
    return Kernel(buffers, (), (), 0, (Store(1, ix.number(0), total),))


@MACHINES
def test_a_maximum_inside_the_sum_is_another_one_for_each_term(machine: Machine) -> None:
    kernel, x = diagonal(64), np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)
    assert needed(kernel) == Needs()
    x[3, 10] = np.nan
    check(kernel, x, machine)
    assert np.isnan(run_kernel(kernel, [x.reshape(-1), np.zeros(1, np.float32)], machine)[1]).all()


def test_only_floats_of_all_terms_are_asked() -> None:
    """A maximum of some terms has its own way to leave others out, and integers have neither."""
    r, t = ix.axis(0, 4), ix.axis(1, 64)
    some = reduce("max", Exact(), [t], [load(F32, 0, t)], apply("lt", t, ix.number(3)))
    other = reduce("max", Exact(), [t], [load(BOOL, 1, t)])
    buffers = [
        BufferParameter(d, n, out)
        for d, n, out in ((F32, 64, False), (BOOL, 64, False), (F32, 4, True), (BOOL, 4, True))
    ]
    assert needs(Kernel(tuple(buffers), (), (r,), 0, (Store(2, r, some), Store(3, r, other)))) == {}


def test_a_softmax_has_no_test_for_nan_among_its_terms() -> None:
    """What is left is those of the sequence of exp."""
    machine = next(each for each in CPUS.values() if not each.ordered_extremes)

    def tests(name: str) -> int:
        made = rows(SHOW[name][1], (8, 1024))
        return kernels.emit(made, schedule(made, machine), machine).count("fcmp uno")

    assert tests("exponentials") > tests("softmax")


SHARES = {
    "x": lambda x: x,
    "x^2": lambda x: apply("mul", x, x),
    "e^x": exp,
    "1 or NaN": lambda x: apply("div", x, x),
}


def shares(of: Callable[[Expr], Expr], shape: tuple[int, int], logarithm: bool = False, shift: int = 0) -> Kernel:
    """Of each row, what its terms are of their sum, with the canonical NaN; or that of exponentials, as its logarithm.
    The sum may be of a later row."""
    count, length = shape
    r, c, t = ix.axis(0, count), ix.axis(1, length), ix.axis(2, length)
    x, y = load(F32, 0, ix.linear((r, c), shape)), load(F32, 0, ix.linear((ix.add(r, ix.number(shift)), t), shape))
    total = reduce("add", Lanes(32, 4096), [t], [of(y)])
    value = apply("sub", x, log(total)) if logarithm else apply("div", of(x), total)
    buffers = (BufferParameter(F32, (count + shift) * length, False), BufferParameter(F32, count * length, True))
    return Kernel(buffers, (), (r, c), 0, (Store(1, ix.linear((r, c), shape), canonical_nan_expr(value)),))


@pytest.mark.parametrize("name", SHARES)
def test_quotients_of_terms_and_their_sum(name: str) -> None:
    kernel = shares(SHARES[name], (3, 64))
    ((value, total),) = quotients(kernel).items()
    assert value is apply("div", value.children[0], total)
    assert not quotients(shares(SHARES[name], (3, 64), shift=1)), "of another row"
    logarithms = quotients(shares(SHARES[name], (3, 64), logarithm=True))
    assert len(logarithms) == (name == "e^x")


@MACHINES
@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("shift", [0, 1])
def test_nan_is_one_whatever_the_sum_is(machine: Machine, name: str, logarithm: bool, shift: int) -> None:
    """Sums of 0, of more than there is, of infinities, of NaN, of numbers below 0; bits are compared, NaN's too."""
    shape = (40, 256)
    x = special(np.random.default_rng(8), (shape[0] + shift, shape[1]))
    for row, value in enumerate((0.0, -0.0, 3e38, -3e38, np.inf, -np.inf, -200.0, 2.0**-149, 90.0, np.nan)):
        x[3 * row] = value
    x[1, 1::2], x[1, ::2] = 1.0, -1.0
    x[4, 1::2], x[4, ::2] = np.inf, -np.inf
    kernel = shares(SHARES[name], shape, logarithm, shift)
    buffers = [x.reshape(-1), np.zeros(shape[0] * shape[1], np.float32)]
    wanted = reference(kernel, buffers)
    found = run_kernel(kernel, buffers, machine)[1]
    assert np.array_equal(found.view(np.uint32), wanted[1].view(np.uint32))
    assert np.isnan(found).any()
    assert (found.view(np.uint32)[np.isnan(found)] == 0x7FC00000).all()


def special(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Rows of numbers, with a NaN, with infinities, of zeros, all of NaN; and single ones among others."""
    x = random.standard_normal(shape).astype(np.float32) * np.float32(9)
    flat = x.reshape(-1)
    for value in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
        flat[random.integers(0, flat.size, 1 + flat.size // 300)] = value
    kinds = random.integers(0, 6, shape[0])
    x[kinds == 1] = -np.abs(x[kinds == 1])
    x[kinds == 2] = random.choice(np.array([0.0, -0.0, -1.0], np.float32), (int((kinds == 2).sum()), shape[1]))
    x[kinds == 3] = np.nan
    x[kinds == 4] = -np.inf
    x[kinds == 5, random.integers(0, shape[1])] = np.nan
    return x


def check(kernel: Kernel, x: Array, machine: Machine) -> None:
    buffers = [x.reshape(-1), *(np.zeros(each.elements, np.float32) for each in kernel.buffers[1:])]
    wanted = reference(kernel, buffers)
    found = run_kernel(kernel, buffers, machine)
    for left, right in zip(found[1:], wanted[1:], strict=True):
        assert same(F32, left, right)


@MACHINES
@pytest.mark.parametrize("name", SHOW)
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
@pytest.mark.parametrize("lengths", [(77, 5), pytest.param((128,), marks=pytest.mark.full)], ids=str)
def test_nothing_shows_that_does_not(machine: Machine, name: str, across: bool, lengths: tuple[int, ...]) -> None:
    """All special rows, of whole vectors, of some lanes over, and of less than a vector."""
    for shape in ((24, length) for length in lengths):
        x = special(np.random.default_rng(shape[1]), shape)
        check(rows(SHOW[name][1], shape, across), x.T.copy() if across else x, machine)


@MACHINES
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(SHOW)),
    shift=st.integers(0, 1),
    terms=st.sampled_from([None, 63, 31]),
)
def test_nothing_shows_in_rows_of_any_numbers(
    machine: Machine, seed: int, name: str, shift: int, terms: int | None
) -> None:
    """Also where the sum is not of the same terms."""
    kernel = rows(SHOW[name][1], (6, 64), shift=shift, terms=terms)
    check(kernel, special(np.random.default_rng(seed), (6 + shift, 64)), machine)
