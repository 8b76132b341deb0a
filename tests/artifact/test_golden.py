from __future__ import annotations

import numpy as np
import pytest

from repro.artifact.golden import draw, index_limits
from repro.ir.graph import Graph, argument
from repro.ir.types import BOOL, DTYPES, F32, I8, I64, TensorType
from repro.ops import add, broadcast_to, compare, composite, gather, reshape, scalar, select

IDS = TensorType(I64, (6,))
TABLE = TensorType(F32, (10, 3))


def pick(table, ids):
    """A gather as ONNX means it: negative indices count from the end."""
    zero, ten = (broadcast_to(scalar(value, I64), (6,)) for value in (0, 10))
    wrapped = select(compare("lt", ids, zero), add(ids, ten), ids)
    return gather(table, reshape(wrapped, (6, 1)), (0,))


def test_an_index_is_limited_by_what_it_indexes() -> None:
    table, ids, other = argument(0, TABLE), argument(1, IDS), argument(2, IDS)
    graph = Graph((TABLE, IDS, IDS), (pick(table, ids), other))
    assert index_limits(graph) == {1: 10}


def test_limits_reach_through_regions() -> None:
    table, ids = argument(0, TABLE), argument(1, IDS)
    node = composite("Pick", (table, ids), pick)
    assert index_limits(Graph((TABLE, IDS), node.results)) == {1: 10}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_is_drawn(dtype) -> None:
    kind = TensorType(dtype, (100,))
    first, second = draw((kind, kind), {}, seed=1)
    assert first.dtype == dtype.face
    assert first.tobytes() != second.tobytes()
    assert first.tobytes() == draw((kind,), {}, seed=1)[0].tobytes()
    assert first.tobytes() != draw((kind,), {}, seed=2)[0].tobytes()
    values = np.asarray(first).astype(np.float64)
    low, high = (-1.0, 1.0) if dtype.is_float else (0, 1 if dtype is BOOL else 15)
    assert values.min() >= low
    assert values.max() <= high


def test_the_first_draws_are_these() -> None:
    """Written down, so that golden inputs never change by accident."""
    floats, indices = draw((TensorType(F32, (3,)), TensorType(I64, (4,))), {1: 96}, seed=0)
    assert [hex(word) for word in floats.view(np.uint32)] == ["0x3f192f9c", "0x3f7477f8", "0xbf6a8e10"]
    assert indices.tolist() == [5, 64, 58, 46]


def test_a_limit_beyond_the_type_stays_inside_it() -> None:
    (values,) = draw((TensorType(I8, (1000,)),), {0: 1000}, seed=0)
    assert values.min() >= 0
