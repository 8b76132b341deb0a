"""Orders of addition are read off results alone: planted ones of every kind, random trees, repro's own."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.audit.probes import known, words
from repro.audit.probes.known import KNOWN
from repro.audit.probes.own import own_adders
from repro.audit.probes.probing import probe
from repro.audit.probes.reveal import NotATreeError, Prober, reveal
from repro.audit.probes.steps import Order, Step, read
from repro.audit.probes.tree import Builder, Tree
from repro.audit.probes.words import UNKNOWN, describe
from repro.targets import cpu

F32 = np.float32


def planted(tree: Tree, fused: bool = False, wide: bool = False):
    """A dot that adds by `tree`, in Python's own scalars; nodes of several children as a matrix unit adds them."""

    def add(parts):
        if len(parts) > 2:
            return at_once(parts)
        left, right = parts
        return float(left) + float(right) if wide else F32(left) + F32(right)

    def dot(a, b):
        values: list = [F32(x) * F32(y) for x, y in zip(a, b, strict=True)]
        if wide:
            values = [float(x) * float(y) if fused else float(F32(x) * F32(y)) for x, y in zip(a, b, strict=True)]
        for children in tree.nodes:
            leaf = children[-1] if children[-1] < tree.leaves else children[0]
            if fused and not wide and leaf < tree.leaves and len(children) == 2:
                other = sum(children) - leaf
                exact = Fraction(float(a[leaf])) * Fraction(float(b[leaf])) + Fraction(float(values[other]))
                values.append(rounded(exact))
            else:
                values.append(add([values[child] for child in children]))
        return float(F32(values[-1]))

    return dot


def rounded(exact: Fraction) -> np.float32:
    """To f32, ties to even; exponents in the middle of its range."""
    if not exact:
        return F32(0)
    exponent = math.floor(math.log2(abs(exact)))
    unit = Fraction(2) ** (exponent - 23)
    return F32(float(round(exact / unit) * unit))


def at_once(parts) -> np.float32:
    """Terms cut to the greatest one's last place, then added exactly, then cut to f32."""
    greatest = max(abs(float(part)) for part in parts)
    if not greatest:
        return F32(0)
    unit = Fraction(2) ** (math.frexp(greatest)[1] - 24)
    total = sum(int(Fraction(float(part)) / unit) for part in parts) * unit
    return F32(float(total))


@st.composite
def trees(draw, most_children: int = 2) -> Tree:
    leaves = draw(st.integers(1, 40))
    builder = Builder(leaves)
    parts = draw(st.permutations(range(leaves)))
    while len(parts) > 1:
        count = draw(st.integers(2, min(most_children, len(parts))))
        at = draw(st.integers(0, len(parts) - count))
        parts = [*parts[:at], *parts[at + count :], builder.join(*parts[at : at + count])]
    return builder.finish(parts[0])


@given(trees(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_random_binary_trees_are_recovered(tree: Tree, seed: int) -> None:
    assert reveal(Prober(planted(tree), tree.leaves), seed) == tree


@given(trees(most_children=6))
@settings(max_examples=60, deadline=None)
def test_random_multiway_trees_are_recovered(tree: Tree) -> None:
    assert reveal(Prober(planted(tree), tree.leaves)) == tree


@pytest.mark.parametrize("terms", [1, 2, 3, 7, 31, 100, 140])
@pytest.mark.parametrize("order", KNOWN, ids=lambda order: order.name.split(" (")[0])
def test_known_orders_are_recovered(order, terms: int) -> None:
    tree = order.build(terms)
    assert reveal(Prober(planted(tree), terms)) == tree
    assert known.named(tree) is not None or terms < order.least


@pytest.mark.parametrize(
    ("order", "terms", "name"),
    [
        (known.sequential, 1000, "sequential"),
        (known.backwards, 1000, "sequential, backwards"),
        (known.numpy_pairwise, 1000, "pairwise (NumPy's: 8 lanes up to 128, then halves)"),
        (known.contract_sum, 10000, "repro's sum (32 lanes, leaves of 4096)"),
        (known.contract_dot, 5000, "repro's dot (panels of 512)"),
        (known.halves, 77, "pairwise by halves"),
    ],
)
def test_known_orders_have_their_names(order, terms: int, name: str) -> None:
    assert describe(order(terms))[0] == name


@pytest.mark.parametrize(
    ("steps", "tail", "terms", "name"),
    [
        ([Step(256, 1)], 0, 1024, "blocks of 256, blocks in a row"),
        ([Step(256, 1), Step(2, 1), Step(2, 1)], 0, 1024, "blocks of 256, blocks pairwise"),
        ([Step(13, 8), Step(2, 4), Step(2, 2), Step(2, 1)], 0, 104, "lanes(8), fold halves"),
        ([Step(4, 16), Step(2, 1), Step(2, 1), Step(2, 1), Step(2, 1)], 0, 64, "lanes(16), fold neighbours"),
        ([Step(12, 8), Step(8, 1)], 3, 99, "lanes(8), lanes in a row, then the last 3 one by one"),
        ([Step(4, 32), Step(4, 8), Step(8, 1)], 0, 128, "lanes(32), fold by 8 (4 in a row) 1 (8 in a row)"),
        ([Step(8, 4), Step(2, 2), Step(2, 1)], 0, 96, "lanes(4), fold halves, in blocks of 32, blocks in a row"),
        ([Step(64, 1, together=4)], 0, 64, "sequential, 4 at once"),
    ],
)
def test_steps_have_their_words(steps, tail, terms, name) -> None:
    assert words.in_words(Order(tuple(steps), tail).build(terms)) == name


@st.composite
def orders(draw) -> tuple[Order, int]:
    steps = [
        Step(draw(st.integers(2, 6)), draw(st.sampled_from([1, 2, 3, 4, 8]))) for _ in range(draw(st.integers(1, 3)))
    ]
    order = Order(tuple(steps), draw(st.integers(0, 2)), draw(st.booleans()))
    return order, draw(st.integers(max(3, order.tail + 1), 150))


@given(orders())
@settings(max_examples=150, deadline=None)
def test_what_is_said_of_an_order_builds_it(case: tuple[Order, int]) -> None:
    """Steps are read back as some steps of the same tree, or, where short blocks hide them, not at all."""
    order, terms = case
    tree = order.build(terms)
    found = read(tree)
    assert found is None or found.build(terms) == tree


def test_whole_steps_are_always_read_back() -> None:
    counted = 0
    for width in (1, 2, 4, 8, 16, 32):
        for count in (2, 3, 16):
            for blocks in (1, 2, 5):
                steps = [Step(count, width)] + [Step(2, width >> k) for k in range(1, width.bit_length())]
                assert read(Order(tuple(steps)).build(width * count * blocks)) is not None
                counted += 1
    assert counted == 54


def test_runs_with_orders_of_their_own() -> None:
    builder = Builder(70)
    runs = [builder.chain(range(30)), builder.chain(range(30, 60)), builder.chain(range(60, 70))]
    tree = builder.finish(builder.chain(runs))
    assert words.in_words(tree) == "blocks of 30, blocks in a row"
    builder = Builder(80)
    sizes = ((0, 30), (30, 50))
    lanes = [[builder.chain(range(at + lane, at + size, 2)) for lane in range(2)] for at, size in sizes]
    tree = builder.finish(builder.join(*(builder.join(*pair) for pair in lanes)))
    assert words.in_words(tree) == "runs: 30, 50 terms, each lanes(2), fold; the runs in a row"


def test_an_unknown_tree_is_shown_in_brackets() -> None:
    builder = Builder(6)
    tree = builder.finish(builder.join(builder.join(builder.join(0, 5), 3), builder.join(builder.join(1, 4), 2)))
    assert describe(tree) == (UNKNOWN, "(((0 + 5) + 3) + ((1 + 4) + 2))")


# ── rounding ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("order", [known.sequential, known.backwards, known.numpy_pairwise])
@pytest.mark.parametrize("fused", [False, True])
def test_fused_products_are_seen(order, fused: bool) -> None:
    found = probe("planted", "dot", planted(order(50), fused=fused), 50)
    assert (found.fused, found.precision, found.confirmed) == (fused, 24, True)


@pytest.mark.parametrize("fused", [False, True])
def test_wide_accumulators_are_seen(fused: bool) -> None:
    found = probe("planted", "dot", planted(known.sequential(60), fused=fused, wide=True), 60)
    assert (found.fused, found.precision, found.confirmed) == (fused, 53, True)


def test_a_sum_has_no_products() -> None:
    dot = planted(known.contract_sum(150))
    found = probe("planted", "sum", lambda a, b: dot(a, np.ones_like(a)), 150)
    assert (found.fused, found.precision, found.confirmed) == (None, 24, True)
    assert found.order == "repro's sum (32 lanes, leaves of 4096)"


def test_a_tree_that_does_not_give_the_bits_is_not_confirmed() -> None:
    """A sum that changes its order with its values: masks show one, random terms get another."""
    one, other = planted(known.sequential(50)), planted(known.backwards(50))
    found = probe("planted", "dot", lambda a, b: (one if a.max() >= 1 else other)(a, b), 50)
    assert found.order == "sequential"
    assert found.confirmed is False


def test_an_exact_sum_is_no_tree() -> None:
    found = probe("planted", "sum", lambda a, b: math.fsum(a), 20)
    assert found.order == UNKNOWN
    assert found.tree.startswith("no tree: ")


def test_narrow_accumulators_do_not_pass_for_a_tree() -> None:
    """2^100 is infinite in f16: masks do not cancel."""
    with pytest.raises(NotATreeError), np.errstate(all="ignore"):
        reveal(Prober(lambda a, b: float(np.add.reduce(a.astype(np.float16))), 20))


def test_calls_grow_little_faster_than_terms() -> None:
    """Worst orders of a fixed choice of terms included: the last term first."""
    for order in (known.sequential, known.backwards, known.contract_sum, known.numpy_pairwise):
        for terms in (64, 160):
            prober = Prober(planted(order(terms)), terms)
            reveal(prober)
            assert prober.calls <= 2 * terms * math.log2(terms)


@pytest.mark.parametrize(
    ("operation", "length", "threads", "order", "fused"),
    [
        ("sum", 100, 1, "repro's sum (32 lanes, leaves of 4096)", None),
        ("sum", 4200, 1, "repro's sum (32 lanes, leaves of 4096)", None),
        ("dot", 300, 2, "sequential", True),
        ("dot", 1100, 1, "repro's dot (panels of 512)", True),
    ],
)
def test_repros_own_kernels_have_the_contracts_order(operation, length, threads, order, fused) -> None:
    machine = cpu.best_machine()
    if machine is None:
        pytest.fail("this host runs none of the CPU targets")
    found = probe("repro", operation, own_adders(machine.name, threads)[operation], length)
    assert (found.order, found.fused, found.precision, found.confirmed) == (order, fused, 24, True)


def test_a_convolution_that_takes_tap_after_tap() -> None:
    builder = Builder(36 * 2)
    order = words.tap_by_tap(18, 4, 6)
    blocks = [builder.chain(order[start : start + 24]) for start in range(0, 72, 24)]
    tree = builder.finish(builder.chain(blocks))
    assert tree.renumbered(order) == Order((Step(24, 1),)).build(72)
    assert words.in_words(tree) is None, "blocks of 6 channels are not asked about"
    order = words.tap_by_tap(16, 9, 4)
    tree = Tree.renumbered(known.sequential(144), np.argsort(order).tolist())
    assert words.in_words(tree) == "9 taps one by one in blocks of 4 channels: sequential"
