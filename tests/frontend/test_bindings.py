"""Dimensions and values that the user fixes: what each word means, and what is said of those that do not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from repro.frontend import import_model, load_model
from repro.frontend.bindings import set_value
from repro.ir.types import to_face
from tests.frontend.models import Shape, model, node, relu_model, value
from tests.frontend.test_bad_input import refused, refused_import


@pytest.mark.parametrize("name", ["", "?", "-1"])
def test_unbound_dimensions_are_listed_with_the_line_that_would_do(name: str) -> None:
    proto = model(
        [node("MatMul", "x w", "y")],
        [value("x", ("N", 1, 4)), value("w", ("N", 4, 3))],
    )
    proto.graph.input[1].type.tensor_type.shape.dim[2].Clear()
    if name:
        proto.graph.input[1].type.tensor_type.shape.dim[2].dim_param = name
    error = refused_import(proto)
    assert "N" in str(error.found)
    assert "w[2]" in str(error.found)
    assert str(error.next).startswith("--bind N=INT --bind w[2]=INT")


def test_a_negative_extent_is_an_open_dimension() -> None:
    proto = relu_model((-1, 3))
    assert "--bind x[0]=INT" in str(refused_import(proto).next)
    assert import_model(load_model(proto), bind={"x[0]": 5}).inputs[0].type.shape == (5, 3)


def test_a_binding_of_nothing_is_refused() -> None:
    assert "M" in str(refused_import(relu_model(("N", 3)), bind={"N": 2, "M": 3}).found)


def test_bindings_that_conflict() -> None:
    assert "3" in str(refused_import(relu_model((3,)), bind={"x[0]": 4}).expected)
    error = refused_import(relu_model(("N", "N")), input_shapes={"x": (2, 3)})
    assert "N=2" in str(error.expected)
    assert refused_import(relu_model((3,)), input_shapes={"x": (3, 1)}).expected
    assert refused_import(relu_model((3,)), input_shapes={"z": (3,)}).found == "z"


def relus(**shapes: Shape | None) -> onnx.ModelProto:
    """A model that has an output for each of these inputs."""
    nodes = [node("Relu", name, f"{name}_out") for name in shapes]
    return model(nodes, [value(*item) for item in shapes.items()], [f"{name}_out" for name in shapes])


def shapes_of(proto: onnx.ModelProto, **options: Any) -> list[tuple[int, ...]]:
    return [port.type.shape for port in import_model(load_model(proto), **options).inputs]


@pytest.mark.parametrize("bind", [
    {"x[0]": 4}, {"x[-2]": 4}, {"N": 4}, {"N": 4, "x[0]": 4}, {"x[0]": 4, "x[-2]": 4}, {"x[-2]": 4, "x[1]": 3, "N": 4},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("shapes", [{}, {"x": (4, 3)}], ids=["alone", "with inputs"])
def test_bindings_that_agree(bind: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> None:
    assert shapes_of(relus(x=("N", 3)), bind=bind, input_shapes=shapes) == [(4, 3)]


@pytest.mark.parametrize("bind", [{"N": 4, "x[0]": 5}, {"x[0]": 5, "N": 4}, {"x[0]": 4, "x[-2]": 5}], ids=str)
@pytest.mark.parametrize("others", [{}, {"z": ("N",)}], ids=["alone", "beside another of the name"])
def test_bindings_that_contradict_each_other_are_told_together(
    bind: Mapping[str, int], others: Mapping[str, Shape]
) -> None:
    error = refused_import(relus(x=("N", 3), **others), bind=bind)
    assert error.what == "the shape of input 'x' conflicts"
    assert sorted(str(error.found).split(" and ")) == sorted(f"{word}={extent}" for word, extent in bind.items())
    assert error.next


@pytest.mark.parametrize("bind", [{"x[0]": 5}, {"x[-2]": 5}, {"x[-1]": 5}, {"x[0]": 4, "x[-2]": 5}], ids=str)
def test_a_binding_that_contradicts_a_given_input(bind: Mapping[str, int]) -> None:
    error = refused_import(relus(x=("N", 4)), bind=bind, input_shapes={"x": (4, 4)})
    assert "extent 4 on axis" in str(error.found)
    assert error.expected == f"{list(bind)[-1]}=5 as bound"


def test_a_symbol_that_looks_like_an_axis() -> None:
    assert shapes_of(relus(x=("seq[0]", 3)), bind={"seq[0]": 2}) == [(2, 3)]
    assert "--bind seq[0]=INT" in str(refused_import(relus(x=("seq[0]", 3))).next)


def test_an_axis_comes_before_a_symbol_of_its_name() -> None:
    proto = relus(x=("seq[0]", 3), seq=("N", 3))
    assert shapes_of(proto, bind={"seq[0]": 2, "x[0]": 5}) == [(5, 3), (2, 3)]
    assert str(refused_import(proto, bind={"seq[0]": 2}).next).startswith("--bind x[0]=INT  ")


@pytest.mark.parametrize("bind", [{}, {"x[0]": 2}], ids=str)
def test_an_input_without_a_declared_shape_takes_that_of_the_given_one(bind: Mapping[str, int]) -> None:
    proto = relus(x=None, z=("N",))
    error = refused_import(proto, bind=bind)
    assert error.found == "x"
    assert "--inputs FILE.npz" in str(error.next)
    assert shapes_of(proto, input_shapes={"x": (2, 5), "z": (1,)}) == [(2, 5), (1,)]


@pytest.mark.parametrize("given", ["text", [1, [2]], 0.5])
def test_set_values_have_to_fit(given: object) -> None:
    proto = model([node("Relu", "x", "y")], [value("x", (), TensorProto.INT32)])
    assert refused_import(proto, set_values={"x": given}).what.startswith("--set x")


FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN)


@pytest.mark.parametrize("kind", FLOATS, ids=TensorProto.DataType.Name)
def test_a_finite_value_is_rounded_but_never_to_infinity(kind: int) -> None:
    item = value("x", (2,), kind)
    error = refused(lambda: set_value(item, [1.0, -1e300]))
    assert error.what == "--set x: the value does not fit the input's type"
    dtype, array = set_value(item, [0.1, math.inf])
    rounded, infinite = to_face(array, dtype)
    assert abs(float(rounded) - 0.1) < 0.01
    assert not np.isfinite(infinite)


def test_set_names_an_input() -> None:
    assert refused_import(relu_model(), set_values={"z": 1}).found == "z"
