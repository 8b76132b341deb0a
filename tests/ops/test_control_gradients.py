"""Gradients of branches and counted loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from repro.autodiff import cotangents
from repro.ir.graph import Graph, Value, argument
from repro.ir.types import F16, F32, I64, TensorType, to_face
from repro.ops import (
    OPS,
    add,
    branch,
    broadcast,
    compare,
    concatenate,
    convert_to,
    dot,
    elementwise,
    evaluate,
    fill,
    loop,
    mul,
    reshape,
    scalar,
    select,
    slice_,
    sub,
    transpose,
)
from tests.ops.gradient_cases import Case, agrees, backward


def both_sides(x: Value, y: Value, condition: Value) -> Value:
    def then(a: Value, b: Value) -> Sequence[Value]:
        return mul(a, b), elementwise("exp", a)

    def otherwise(a: Value, _: Value) -> Sequence[Value]:
        return mul(a, a), a

    product, other = branch(condition, (x, y), then, otherwise)
    return add(product, mul(other, other))


def running_mean(x: Value, rate: Value) -> Value:
    """Carried, scanned and fixed operands, the iteration's number, a result of each kind."""

    def body(i: Value, total: Value, row: Value, rate: Value) -> Sequence[Value]:
        even = compare("eq", elementwise("and", i, scalar(1, I64)), scalar(0, I64))
        step = select(broadcast(even, row.shape, ()), mul(row, rate), mul(row, row))
        after = add(mul(total, total), step)
        return after, mul(after, row)

    total = slice_(x, (0, 0), (1, x.shape[1]))
    last, rows = loop(5, (reshape(total, x.shape[1:]),), (x,), (rate,), body)
    return concatenate((rows, reshape(last, (1, *last.shape))), 0)


def recurrent(x: Value, h: Value, weights: Value, bias: Value) -> Value:
    """h' = tanh(x + h.W + b), every h shown; the weights are read by a second dot and elsewhere too."""

    def body(_: Value, h: Value, row: Value, weights: Value, bias: Value) -> Sequence[Value]:
        product = add(dot(h, weights, ((1,), (0,))), broadcast(bias, h.shape, (1,)))
        after = elementwise("tanh", add(row, product))
        seen = dot(weights, mul(after, h), ((0,), (1,)))
        return after, add(after, transpose(mul(seen, fill(0.1, seen.type)), (1, 0)))

    last, rows = loop(x.shape[0], (h,), (x,), (weights, bias), body)
    return add(rows, broadcast(mul(last, last), rows.shape, (1, 2)))


def nested(x: Value, weights: Value) -> Value:
    """A loop in a loop, around a branch."""

    def inner(i: Value, state: Value, row: Value, weights: Value) -> Sequence[Value]:
        [grown] = branch(
            compare("lt", i, scalar(2, I64)),
            (state, weights),
            lambda a, w: (mul(a, w),),
            lambda a, w: (add(a, elementwise("exp", w)),),
        )
        return (add(grown, mul(row, row)),)

    def outer(_: Value, state: Value, rows: Value, weights: Value) -> Sequence[Value]:
        [after] = loop(4, (state,), (rows,), (weights,), inner)
        return after, mul(after, state)

    return loop(3, (fill(0.5, weights.type),), (x,), (weights,), outer)[1]


def counting(x: Value) -> Value:
    """An integer that is carried decides; the float state passes through unchanged at times."""

    def body(_: Value, left: Value, state: Value) -> Sequence[Value]:
        go = compare("gt", left, scalar(0, I64))
        after = select(broadcast(go, state.shape, ()), mul(state, state), state)
        return sub(left, scalar(1, I64)), after

    return loop(6, (scalar(2, I64), x), (), (), body)[1]


TRUE, FALSE = np.array(True), np.array(False)
CONTROL = {
    "branch, one side": Case(((4,), (4,)), both_sides, (TRUE,)),
    "branch, other side": Case(((4,), (4,)), both_sides, (FALSE,)),
    "loop": Case(((5, 3), (3,)), running_mean, scale=0.5),
    "loop with dots": Case(((6, 4, 5), (4, 5), (5, 5), (5,)), recurrent, scale=0.5),
    "nested loops": Case(((3, 4, 2), (2,)), nested, scale=0.5),
    "an integer is carried": Case(((3,),), counting),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name: str) -> None:
    agrees(CONTROL[name])


def test_uses_of_what_is_fixed_are_added_from_the_last_iteration() -> None:
    def build(x: Value, w: Value) -> Value:
        return loop(3, (), (x,), (w,), lambda _, row, w: (mul(row, w),))[0]

    case = Case(((3, 1), (1,)), build)
    x = np.array([[1e8], [-1e8], [1]], np.float32)
    found = evaluate(backward(case, F32), [x, np.ones(1, np.float32), np.ones((3, 1), np.float32)])[1]
    assert found.tolist() == [np.float32(np.float32(np.float32(1) - np.float32(1e8)) + np.float32(1e8))] == [0]


@pytest.mark.parametrize("count", [0, 1])
def test_loops_of_few_iterations(count: int) -> None:
    def build(h: Value, w: Value) -> Value:
        return loop(count, (h,), (), (w,), lambda _, h, w: (mul(h, w),))[0]

    h, w, g = (np.array([value], np.float32) for value in (2, 3, 5))
    found = evaluate(backward(Case(((1,), (1,)), build), F32), [h, w, g])
    assert [float(array[0]) for array in found] == ([5, 0] if count == 0 else [15, 10])


def test_narrow_floats_are_added_in_f32_and_rounded_once() -> None:
    """2048 contributions of 1 + 2^-10: an f16 total would stop growing at 2048."""

    def body(_: Value, total: Value, w: Value) -> Sequence[Value]:
        return (add(total, convert_to(w, F32)),)

    w = argument(0, TensorType(F16, (1,)))
    total = loop(2048, (fill(0, TensorType(F32, (1,))),), (), (w,), body)[0]
    g = argument(1, total.type)
    [found] = cotangents([(total, g)], [w])
    assert found is not None
    assert found.dtype is F16
    slope = np.array([1 + 2.0**-10], np.float32)
    [bits] = evaluate(Graph((w.type, g.type), (found,)), [np.zeros(1, F16.storage), slope])
    assert to_face(bits, F16).tolist() == [2050]


def test_a_while_has_no_gradient() -> None:
    [sample] = OPS["while"].samples()
    arguments = [argument(n, kind) for n, kind in enumerate(sample.operands)]
    result = sample.build(*arguments)
    assert cotangents([(result, fill(1, result.type))], arguments) == (None, None)
