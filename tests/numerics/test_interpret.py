"""Running scalar expressions on arrays."""

from __future__ import annotations

import numpy as np
import pytest

from repro.ir import index
from repro.ir.expressions import apply, const, convert, load
from repro.ir.types import BOOL, F32, I64
from repro.numerics.interpret import BLOCK, argument, constant_array, evaluate, run_scalars


def test_roots_share_their_work_and_bindings_may_be_inner():
    x, y = argument(F32, 0), argument(F32, 1)
    total = apply("add", x, y)
    square = apply("mul", total, total)
    a, b = np.array([1.0, 2.0], np.float32), np.array([[3.0], [4.0]], np.float32)
    got_total, got_square = run_scalars([total, square], {x: a, y: b})
    assert got_total.tolist() == [[4.0, 5.0], [5.0, 6.0]]
    assert (got_square == got_total**2).all()
    assert run_scalars([square], {total: np.array(3, np.float32)})[0] == 9


def test_index_expressions():
    i = index.axis(0, 100)
    values = np.arange(100)
    expr = index.add(index.scale(index.floordiv(i, 7), 3), index.mod(i, 5), index.number(2))
    assert (run_scalars([expr], {i: values})[0] == values // 7 * 3 + values % 5 + 2).all()


def test_unbound_leaves_are_refused():
    with pytest.raises(KeyError):
        run_scalars([load(F32, 3, index.number(1))], {})


def test_constants():
    assert constant_array(const(BOOL, 1)) == np.True_
    assert constant_array(const(I64, -5)) == -5
    assert constant_array(const(F32, 0x80000000)).tobytes() == np.float32(-0.0).tobytes()


def test_evaluate_over_blocks_and_shapes():
    def formula(x, n):
        return apply("add", x, convert(n, F32))

    x = np.arange(3 * BLOCK + 5, dtype=np.float32).reshape(1, -1)
    n = np.array([[1], [2]])
    assert (evaluate(formula, [x, n], [F32, I64]) == x + n).all()
    assert evaluate(formula, [np.array(1, np.float32), np.array(2)], [F32, I64]) == 3
    assert evaluate(formula, [x[:, :0], n], [F32, I64]).shape == (2, 0)
