"""Reverse mode: which values get a cotangent, and in which order contributions are added."""

from __future__ import annotations

import numpy as np
import pytest

from repro.autodiff import cotangents, obstacles
from repro.errors import InternalError
from repro.ir.graph import Graph, Value, argument, substitute
from repro.ir.types import BOOL, F16, F32, I64, TensorType
from repro.ops import (
    add,
    broadcast,
    composite,
    convert_to,
    elementwise,
    fill,
    gather,
    mul,
    neg,
    reshape,
    select,
    sub,
    transpose,
)
from repro.ops.record import NotDifferentiable, Step, evaluate, record

KIND = TensorType(F32, (4,))


def arguments(count: int, kind: TensorType = KIND) -> list[Value]:
    return [argument(index, kind) for index in range(count)]


# ── paths ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_value_is_its_own_cotangent_where_it_is_the_result() -> None:
    x, g = arguments(2)
    assert cotangents([(x, g)], [x]) == (g,)


def test_no_path_gives_none() -> None:
    x, y, g = arguments(3)
    assert cotangents([(neg(x), g)], [y, x]) == (None, neg(g))
    assert cotangents([], [x]) == (None,)


def test_integers_have_no_cotangent() -> None:
    x, g = arguments(2)
    points = argument(2, TensorType(I64, (3, 1)))
    whole = convert_to(x, I64)
    assert cotangents([(convert_to(whole, F32), g)], [x, whole]) == (None, None)
    taken = gather(x, points, (0,))
    assert cotangents([(taken, argument(3, taken.type))], [points]) == (None,)
    with pytest.raises(TypeError, match="has the type"):
        cotangents([(x, argument(3, TensorType(F32, (5,))))], [x])


@pytest.mark.parametrize("op", ["floor", "ceil", "trunc", "round"])
def test_an_op_without_a_gradient_passes_nothing_on_and_says_why(op: str) -> None:
    x, g = arguments(2)
    stepped = elementwise(op, neg(x))
    assert cotangents([(stepped, g)], [x]) == (None,)
    assert cotangents([(stepped, g)], [stepped]) == (g,)
    assert cotangents([(add(stepped, x), g)], [x]) == (g,)
    refused = record(stepped.node).gradient
    assert isinstance(refused, NotDifferentiable)
    (found,) = obstacles([stepped], x)
    assert (found.node, found.reason) == (stepped.node, refused.reason)
    assert obstacles([neg(x)], x) == ()


def test_an_obstacle_may_be_an_integer_on_the_way() -> None:
    x, _ = arguments(2)
    (found,) = obstacles([convert_to(convert_to(x, I64), F32)], x)
    assert found.node.op == "convert"
    assert found.reason == "its result is no float"


def test_an_obstacle_may_stand_inside_a_composite() -> None:
    x, _ = arguments(2)
    node = composite("Steps", (x,), lambda a: neg(elementwise("round", neg(a))))
    (found,) = obstacles([neg(node.value)], x)
    assert found.node is node
    assert found.reason == "round in it: piecewise constant: zero wherever it is defined"
    (flat,) = obstacles([composite("Sign", (x,), lambda a: neg(a)).value], x)
    assert flat.reason == "it is piecewise constant"


def test_a_gradient_has_gradients() -> None:
    """tanh'' = -2 y (1 - y^2)."""
    x, g = arguments(2)
    (first,) = cotangents([(elementwise("tanh", x), g)], [x])
    assert first is not None
    (second,) = cotangents([(first, g)], [x])
    assert second is not None
    at = np.array([-1.5, -0.2, 0.3, 2.0], np.float32)
    found = evaluate(Graph((KIND, KIND), (second,)), [at, np.ones(4, np.float32)])[0]
    y = np.tanh(at.astype(np.float64))
    np.testing.assert_allclose(found, -2 * y * (1 - y * y), rtol=1e-5)


def test_a_condition_has_no_cotangent() -> None:
    x, y, g = arguments(3)
    condition = argument(3, TensorType(BOOL, (4,)))
    made = cotangents([(select(condition, x, y), g)], [condition, x, y])
    zero = fill(0, KIND)
    assert made == (None, select(condition, g, zero), select(condition, zero, g))


def test_values_between_may_be_asked_for() -> None:
    x, y, g = arguments(3)
    between = mul(x, y)
    made = cotangents([(neg(between), g)], [between, x])
    assert made == (neg(g), mul(neg(g), y))


def test_a_chain_of_twenty_thousand_nodes() -> None:
    x, g = arguments(2)
    value = x
    for _ in range(20_000):
        value = neg(value)
    (found,) = cotangents([(value, g)], [x])
    assert found is not None
    assert len(Graph((), (found,)).nodes) == 20_001


def test_a_rule_that_gives_another_type_is_an_internal_error() -> None:
    x, g = arguments(2)
    y = neg(x)
    wrong = Step(y, (x,), lambda g: (reshape(g, (2, 2)),))
    with pytest.raises(InternalError, match=r"operand 0 is f32\[4\], its cotangent f32\[2,\s?2\]"):
        cotangents([(y, g)], [x], [wrong])


# ── the order of additions ──────────────────────────────────────────────────────────────────────────


def test_a_diamond_adds_its_sides_in_canonical_order() -> None:
    x, a, b, g = arguments(4)
    left, right = mul(x, a), mul(x, b)
    assert cotangents([(add(left, right), g)], [x]) == (add(mul(g, a), mul(g, b)),)
    assert cotangents([(add(right, left), g)], [x]) == (add(mul(g, b), mul(g, a)),)


def test_the_operands_of_one_consumer_come_in_their_order() -> None:
    x, g = arguments(2)
    assert cotangents([(sub(x, x), g)], [x]) == (add(g, neg(g)),)


def test_order_is_first_visit_not_depth() -> None:
    """x is used by the left side's inner node, by its outer one, which is visited first, and by the right side."""
    x, a, b, c, g = arguments(5)
    inner = mul(x, a)
    outer = mul(inner, x)  # outer is visited before inner
    other = mul(x, c)
    made = cotangents([(add(mul(outer, b), other), g)], [x])
    by_outer = mul(mul(g, b), inner)
    by_inner = mul(mul(mul(g, b), x), a)
    assert made == (add(add(by_outer, by_inner), mul(g, c)),)


def test_a_seed_comes_before_what_consumers_send_and_seeds_in_the_order_of_results() -> None:
    x, a, g, h, k = arguments(5)
    y = mul(x, a)
    assert cotangents([(neg(y), g), (y, h), (y, k)], [y]) == (add(add(h, k), neg(g)),)


def test_another_order_would_be_other_bits() -> None:
    """(1e8 + -1e8) + 1 is 1; 1e8 + (-1e8 + 1) is 0: the order can be seen."""
    x, g = arguments(2)
    sides = [mul(x, fill(factor, KIND)) for factor in (1e8, -1e8, 1.0)]

    def slope(order: tuple[int, int, int]) -> float:
        first, second, third = (sides[place] for place in order)
        (made,) = cotangents([(add(add(first, second), third), g)], [x])
        assert made is not None
        ones = np.ones(4, np.float32)
        return float(evaluate(Graph((KIND, KIND), (made,)), [ones, ones])[0][0])

    assert slope((0, 1, 2)) == 1.0
    assert slope((1, 2, 0)) == 0.0


def test_the_order_knows_no_construction_order() -> None:
    """The same function built in another order is the same graph, and so is its gradient."""
    x, a, b, g = arguments(4)

    def build(first_left: bool) -> Value:
        made = [mul(x, b), mul(x, a)] if first_left else [mul(x, a), mul(x, b)]
        left, right = (made[1], made[0]) if first_left else (made[0], made[1])
        (found,) = cotangents([(add(left, right), g)], [x])
        assert found is not None
        return found

    assert build(True).node.digest == build(False).node.digest


def test_narrow_floats_are_added_in_f32_and_rounded_once() -> None:
    kind = TensorType(F16, (4, 1))
    x = argument(0, kind)
    moved = [transpose(x, (1, 0)), reshape(x, (2, 2)), broadcast(x, (4, 2), (0, 1))]
    seeds = [argument(1 + place, value.type) for place, value in enumerate(moved)]
    (made,) = cotangents(list(zip(moved, seeds, strict=True)), [x])
    assert made is not None
    assert made.type == kind
    parts = zip(seeds, (2048.0, 1.0, 0.5), strict=True)  # the last is summed over two positions
    values = [np.full(value.shape, part, np.float16) for value, part in parts]
    graph = Graph((kind, *(seed.type for seed in seeds)), (made,))
    storage = [array.view(graph.arguments[1].dtype.storage) for array in values]
    empty = np.zeros((4, 1), graph.arguments[0].dtype.storage)
    result = evaluate(graph, [empty, *storage])[0].view(np.float16)
    assert result.tolist() == [[2050.0]] * 4  # in f16 2048 + 1 would stay 2048, twice


# ── steps and regions ───────────────────────────────────────────────────────────────────────────────


def test_a_step_takes_the_place_of_the_paths_below_it() -> None:
    x, g = arguments(2)
    inner = elementwise("exp", x)
    y = mul(inner, x)
    step = Step(y, (x,), lambda g: (mul(g, g),))
    assert cotangents([(y, g)], [x], [step]) == (mul(g, g),)
    assert cotangents([(add(y, x), g)], [x], [step]) == (add(g, mul(g, g)),)


def test_a_composite_used_twice_by_one_value_counts_each_operand_once() -> None:
    x, g = arguments(2)
    y = composite("Product", (x, x), lambda a, b: mul(a, b)).value
    assert cotangents([(y, g)], [x]) == (add(mul(g, x), mul(g, x)),)


def test_an_operand_computed_from_another_is_not_counted_twice() -> None:
    x, g = arguments(2)
    y = composite("Product", (x, neg(x)), lambda a, b: mul(a, b)).value
    made = cotangents([(y, g)], [x])
    assert made == (add(mul(g, neg(x)), neg(mul(g, x))),)


def test_the_gradient_of_a_composite_shares_the_nodes_of_its_expansion() -> None:
    x, g = arguments(2)
    node = composite("Curve", (x,), lambda a: elementwise("tanh", mul(a, a)))
    (made,) = cotangents([(node.value, g)], [x])
    assert made is not None
    (inlined,) = substitute(node.regions[0], (x,))
    assert inlined.node in Graph((), (made,)).nodes


def test_a_result_that_nobody_uses_adds_nothing() -> None:
    x, g = arguments(2)
    node = composite("Two", (x,), lambda a: (neg(a), elementwise("exp", a)))
    assert cotangents([(node.results[0], g)], [x]) == (neg(g),)
