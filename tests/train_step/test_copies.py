"""Random nodes of a copy draw for its step and microbatch, wherever they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from repro.ir.graph import Graph, Value, argument
from repro.ir.types import BOOL, I64, U32, Array, TensorType
from repro.numerics.random_bits import philox_words
from repro.ops import add, branch, compare, composite, loop, mul, random_bits, scalar, while_
from repro.ops.record import evaluate
from repro.train_step.copies import Moment, copy_of

SEED, NODE, WORDS = 77, 2, 6
COUNTER = TensorType(I64, ())


def words(first: Value | int = 0) -> Value:
    start = scalar(first, I64) if isinstance(first, int) else first
    return random_bits(NODE, SEED, (WORDS,), scalar(0, I64), start)


def in_composite(_: Value) -> Value:
    return composite("Drawn", (), lambda: words()).value


def in_branch(flag: Value) -> Value:
    return branch(flag, (), lambda: (words(),), lambda: (words(1000),))[0]


def in_loop(_: Value) -> Value:
    return loop(3, (), (), (), lambda i: (words(mul(i, scalar(WORDS, I64))),))[0]


def in_nested_loops(_: Value) -> Value:
    def outer(i: Value) -> Sequence[Value]:
        def inner(j: Value, around: Value) -> Sequence[Value]:
            return (words(mul(add(mul(around, scalar(2, I64)), j), scalar(WORDS, I64))),)

        return loop(2, (), (), (i,), inner)

    return loop(3, (), (), (), outer)[0]


def in_while(_: Value) -> Value:
    def body(i: Value, go: Value, last: Value) -> Sequence[Value]:
        return compare("lt", i, scalar(1, I64)), words(mul(i, scalar(WORDS, I64)))

    return while_((scalar(True, BOOL), words()), (), body)[1]


def drawn(build: Callable[[Value], Value], moment: Sequence[int]) -> Array:
    flag = argument(0, TensorType(BOOL, ()))
    graph = Graph((flag.type,), (build(flag),))
    counters = tuple(argument(1 + index, COUNTER) for index in range(len(moment)))
    results = copy_of(graph, (flag,), (), Moment(*counters))
    given = [np.asarray(True), *(np.asarray(number, np.int64) for number in moment)]
    (found,) = evaluate(Graph((flag.type, *(COUNTER,) * len(moment)), results), given)
    assert results[0].dtype is U32
    return found.reshape(-1)


@pytest.mark.parametrize(
    ("build", "iterations", "drawn_iterations"),
    [
        (lambda _: words(), 1, (0,)),
        (in_composite, 1, (0,)),
        (in_branch, 1, (0,)),
        (in_loop, 3, (0, 1, 2)),
        (in_nested_loops, 6, range(6)),
        (in_while, 1 << 32, (1,)),
    ],
    ids=["entry", "composite", "branch", "loop", "nested loops", "while"],
)
@pytest.mark.parametrize("moment", [(0,), (5,), (5, 0), (5, 3)])
def test_words_of_a_moment(
    build: Callable[[Value], Value], iterations: int, drawn_iterations: Sequence[int], moment: Sequence[int]
) -> None:
    step, microbatch = (*moment, 0)[:2]
    starts = [(microbatch * iterations + number) * WORDS for number in drawn_iterations]
    expected = np.concatenate([philox_words(SEED, NODE, step, WORDS, start) for start in starts])
    assert drawn(build, moment).tobytes() == expected.tobytes()
