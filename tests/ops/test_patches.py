"""Col2Im against its definition, place by place."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest

from repro.errors import ReproError
from repro.frontend import import_model, load_model
from repro.ir.types import Array
from tests.ops.against_runtime import model_with
from tests.ops.one_node import run_model

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, list[int]]]] = [
    ((5, 5), (1, 5), {}),
    ((6, 6), (2, 2), {"strides": [2, 2]}),
    ((5, 6), (3, 2), {"strides": [2, 1], "pads": [1, 0, 2, 1]}),
    ((7, 5), (2, 3), {"dilations": [3, 2]}),
    ((9,), (4,), {"strides": [2], "pads": [3, 2]}),
    ((3, 4, 3), (2, 1, 2), {"pads": [1, 0, 0, 0, 0, 1]}),
]


def blocks(image: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, list[int]]) -> list[int]:
    rank = len(image)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * (2 * rank))
    return [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]


def put_back(x: Array, image: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, list[int]]) -> Array:
    """Each element added to its place, one by one, taps ascending."""
    rank, counts = len(image), blocks(image, kernel, attributes)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * (2 * rank))
    result = np.zeros((x.shape[0], x.shape[1] // int(np.prod(kernel)), *image), x.dtype)
    parts = x.reshape(*result.shape[:2], *kernel, *counts)
    for tap in itertools.product(*map(range, kernel)):
        for block in itertools.product(*map(range, counts)):
            at = tuple(tap[i] * dilations[i] + block[i] * strides[i] - pads[i] for i in range(rank))
            if all(0 <= place < extent for place, extent in zip(at, image, strict=True)):
                result[(..., *at)] += parts[(..., *tap, *block)]
    return result


def patches(image: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, list[int]]) -> Array:
    shape = (2, 3 * int(np.prod(kernel)), int(np.prod(blocks(image, kernel, attributes))))
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def model(
    x: Array, image: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, list[int]]
) -> onnx.ModelProto:
    fixed = {"image": np.asarray(image, np.int64), "block": np.asarray(kernel, np.int64)}
    return model_with("Col2Im", {"x": x}, fixed, 18, ["y"], **attributes)


@pytest.mark.parametrize(("image", "kernel", "attributes"), CASES)
def test_patches_are_put_back(image: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, Any]) -> None:
    x = patches(image, kernel, attributes)
    [found] = run_model(model(x, image, kernel, attributes), {"x": x})
    assert found.tobytes() == put_back(x, image, kernel, attributes).tobytes()


@pytest.mark.parametrize(
    ("image", "kernel", "shape"),
    [((5, 5), (1, 5), (1, 7, 5)), ((5, 5), (1, 5), (1, 10, 4)), ((5, 5), (6, 1), (1, 6, 1)), ((5,), (2, 2), (1, 4, 4))],
)
def test_patches_that_do_not_fit_are_refused(
    image: tuple[int, ...], kernel: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    x = np.zeros(shape, np.float32)
    with pytest.raises(ReproError, match="do not fit"):
        import_model(load_model(model(x, image, kernel, {})), input_shapes={"x": x.shape})
