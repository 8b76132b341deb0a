"""ONNX's own node models, damaged at random: an import or our error, nothing else, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from tests.conformance.runner import cases

MUTANTS = 4000
PATIENCE = 5.0
"""Seconds of CPU time for one mutant; what is hostile by design has the second of test_bad_input."""

_INTEGERS = (0, -1, 1, 2, 3, 7, -2, 64, 1 << 20, 1 << 31, 1 << 40, 1 << 62, -(1 << 63), (1 << 63) - 1)
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e30)
_EXTENTS = (0, 1, 2, 3, 5, 1 << 16, 1 << 40)
_TYPES = (1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 16, 17)
Damage = Callable[[Random, onnx.GraphProto, onnx.NodeProto], None]


def change_attribute(random: Random, _: onnx.GraphProto, node: onnx.NodeProto) -> None:
    for attribute in random.sample(list(node.attribute), min(1, len(node.attribute))):
        if attribute.type == onnx.AttributeProto.INT:
            attribute.i = random.choice(_INTEGERS)
        elif attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f = random.choice(_FLOATS)
        elif attribute.type == onnx.AttributeProto.INTS:
            attribute.ints[:] = [random.choice(_INTEGERS) for _ in range(random.randrange(6))]


def drop_attribute(random: Random, _: onnx.GraphProto, node: onnx.NodeProto) -> None:
    if node.attribute:
        del node.attribute[random.randrange(len(node.attribute))]


def change_input(random: Random, graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    if node.input:
        node.input[random.randrange(len(node.input))] = random.choice(["", *(item.name for item in graph.input)])


def drop_input(_: Random, __: onnx.GraphProto, node: onnx.NodeProto) -> None:
    if node.input:
        del node.input[-1]


def change_extent(random: Random, graph: onnx.GraphProto, _: onnx.NodeProto) -> None:
    dims = [dim for item in graph.input for dim in item.type.tensor_type.shape.dim]
    if dims:
        random.choice(dims).dim_value = random.choice(_EXTENTS)


def change_rank(random: Random, graph: onnx.GraphProto, _: onnx.NodeProto) -> None:
    for item in random.sample(list(graph.input), min(1, len(graph.input))):
        dims = item.type.tensor_type.shape.dim
        if dims and random.random() < 0.5:
            del dims[-1]
        else:
            dims.add().dim_value = random.choice(_EXTENTS[:4])


def change_type(random: Random, graph: onnx.GraphProto, _: onnx.NodeProto) -> None:
    for item in random.sample(list(graph.input), min(1, len(graph.input))):
        item.type.tensor_type.elem_type = random.choice(_TYPES)


DAMAGES: tuple[Damage, ...] = (
    change_attribute,
    drop_attribute,
    change_input,
    drop_input,
    change_extent,
    change_rank,
    change_type,
)


def settings_of(random: Random, case: Any) -> dict[str, Any]:
    """Small integer inputs at the case's own value, or damaged too: shapes, axes, counts."""
    found: dict[str, Any] = {}
    for item, array in zip(case.model.graph.input, case.data_sets[0][0], strict=False):
        if (
            not isinstance(array, np.ndarray)
            or array.size > 16
            or array.dtype.kind not in "iub"
            or random.random() < 0.2
        ):
            continue
        array = array.copy()
        if array.size and array.dtype == np.int64 and random.random() < 0.4:
            array.reshape(-1)[random.randrange(array.size)] = random.choice(_INTEGERS)
        found[item.name] = array
    return found


@pytest.mark.full
def test_a_damaged_model_is_imported_or_refused() -> None:
    random = Random(2)
    pool = [case for case in cases().values() if case.model is not None and case.model.graph.node]
    outcomes = {"import": 0, "refusal": 0}
    for _ in range(MUTANTS):
        case = random.choice(pool)
        proto = onnx.ModelProto()
        proto.CopyFrom(case.model)
        for damage in random.choices(DAMAGES, k=random.choice((1, 1, 2, 3))):
            damage(random, proto.graph, random.choice(proto.graph.node))
        chosen = settings_of(random, case)
        started = time.process_time()
        try:
            import_model(load_model(proto), set_values=chosen)
            outcomes["import"] += 1
        except ReproError:
            outcomes["refusal"] += 1
        assert time.process_time() - started < PATIENCE, case.name
    assert min(outcomes.values()) > MUTANTS // 10
