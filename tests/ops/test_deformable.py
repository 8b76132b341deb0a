"""DeformConv against ONNX Runtime, a formula and PyTorch in float64, and the convolution that it is without offsets."""

# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import repro
from repro.artifact.checks import Status
from repro.errors import ReproError
from repro.ir.types import Array
from repro.machines import CPUS
from repro.ops.record import evaluate
from repro.targets.cpu.host import runs_here
from tests.autodiff.differences import gradient_graph, widened
from tests.ops.one_node import (
    FLOAT,
    by_onnxruntime,
    by_reference,
    graph_of_node,
    model_of,
    run_model,
    run_node,
)

RANDOM = np.random.default_rng(6)
PLAIN: dict[str, Any] = {}
MIXED: dict[str, Any] = {
    "group": 2, "offset_group": 3, "strides": [2, 1], "pads": [1, 2, 0, 1], "dilations": [1, 2],
}  # fmt: skip
KERNEL = (3, 2)


def operands(attributes: dict[str, Any], masked: bool = True, spread: float = 1.5) -> dict[str, Any]:
    """For 6 channels of 7 x 6; some of the places lie outside."""
    extents = (7, 6)
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    pads = attributes.get("pads", [0] * 4)
    room = [n + pads[i] + pads[i + 2] - (KERNEL[i] - 1) * dilations[i] - 1 for i, n in enumerate(extents)]
    output = [each // stride + 1 for each, stride in zip(room, strides, strict=True)]
    parts = attributes.get("offset_group", 1) * 6
    given = {
        "x": RANDOM.standard_normal((2, 6, *extents)),
        "w": RANDOM.standard_normal((4, 6 // attributes.get("group", 1), *KERNEL)),
        "offset": RANDOM.uniform(-spread, spread, (2, parts * 2, *output)),
        "b": RANDOM.standard_normal(4),
        **({"mask": RANDOM.uniform(0, 1, (2, parts, *output))} if masked else {}),
    }
    return {name: array.astype(np.float32) for name, array in given.items()}


def formula(given: dict[str, Any], attributes: dict[str, Any]) -> Array:
    """Element by element in float64, for images and volumes."""
    x, w, offset = (given[name].astype(np.float64) for name in ("x", "w", "offset"))
    kernel, output, rank = w.shape[2:], offset.shape[2:], x.ndim - 2
    parts, groups = attributes.get("offset_group", 1), attributes.get("group", 1)
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * 2 * rank)
    offset = offset.reshape(len(x), parts, *kernel, rank, *output)
    mask = given.get("mask", np.ones(1)) * np.ones((len(x), parts * int(np.prod(kernel)), *output))
    mask = mask.reshape(len(x), parts, *kernel, *output)
    columns = np.zeros((*x.shape[:2], *kernel, *output))
    for n, c, *rest in np.ndindex(*columns.shape):
        tap, at, part = tuple(rest[:rank]), tuple(rest[rank:]), c // (x.shape[1] // parts)
        move = offset[(n, part, *tap, slice(None), *at)]
        place = np.array(at) * strides - pads[:rank] + np.array(tap) * dilations + move
        below = np.floor(place).astype(int)
        for corner in product((0, 1), repeat=rank):
            element = below + corner
            if np.all(element >= 0) and np.all(element < x.shape[2:]):
                weight = np.prod(np.where(corner, place - below, 1 - (place - below)))
                columns[(n, c, *rest)] += weight * x[(n, c, *element)] * mask[(n, part, *tap, *at)]
    columns = columns.reshape(len(x), groups, -1, int(np.prod(output)))
    y = np.einsum("ngkp,gok->ngop", columns, w.reshape(groups, len(w) // groups, -1))
    bias = given["b"].reshape(-1, *(1,) * rank) if "b" in given else 0
    return y.reshape(len(x), len(w), *output) + bias


@pytest.mark.parametrize("attributes", [PLAIN, MIXED], ids=["plain", "mixed"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_formula_and_onnxruntime(attributes: dict[str, Any], masked: bool) -> None:
    given = operands(attributes, masked)
    made = model_of("DeformConv", given, ["y"], 19, **attributes)
    (found,) = run_model(made, given)
    np.testing.assert_allclose(found, formula(given, attributes), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(found, by_onnxruntime(made, given)[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("extents", "kernel"), [((9,), (3,)), ((4, 3, 5), (2, 2, 3))], ids=["a line", "a volume"])
def test_other_ranks(extents: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    output = [n - k + 1 for n, k in zip(extents, kernel, strict=True)]
    given: dict[str, Any] = {
        "x": RANDOM.standard_normal((1, 2, *extents)).astype(np.float32),
        "w": RANDOM.standard_normal((3, 2, *kernel)).astype(np.float32),
        "offset": RANDOM.uniform(-1, 1, (1, len(kernel) * int(np.prod(kernel)), *output)).astype(np.float32),
    }
    (found,) = run_node("DeformConv", given, ["y"], 22)
    np.testing.assert_allclose(found, formula(given, {}), rtol=2e-5, atol=2e-5)


def test_without_offsets_it_has_the_bits_of_the_convolution() -> None:
    attributes = {name: value for name, value in MIXED.items() if name != "offset_group"}
    given = operands(attributes, spread=0.0)
    given["mask"][...] = 1
    plain = {name: given[name] for name in ("x", "w", "b")}
    (found,) = run_node("DeformConv", given, ["y"], 19, **attributes)
    assert found.tobytes() == by_reference(model_of("Conv", plain, ["y"], 19, **attributes), plain)[0].tobytes()


def test_places_that_are_far_read_zeros_and_no_numbers_stay_none() -> None:
    given = operands(PLAIN, masked=False)
    given["b"][...] = 0
    given["offset"][:, 0] = 3e38
    given["offset"][:, 2::2] = -np.inf
    given["offset"][1, 1, 0, 0] = np.nan
    (found,) = run_node("DeformConv", given, ["y"], 19)
    assert np.isnan(found[1, :, 0, 0]).all()
    assert np.isnan(found).any()
    given["offset"] = np.full_like(given["offset"], 3e38)
    (found,) = run_node("DeformConv", given, ["y"], 19)
    assert not found.view(np.uint32).any()


def test_halves_compute_in_f32_and_are_rounded_once() -> None:
    given = {name: array.astype(np.float16) for name, array in operands(MIXED).items()}
    wide = {name: array.astype(np.float32) for name, array in given.items()}
    (found,) = run_node("DeformConv", given, ["y"], 19, **MIXED)
    expected = by_reference(model_of("DeformConv", wide, ["y"], 19, **MIXED), wide)[0]
    assert found.tobytes() == expected.astype(np.float16).tobytes()


def test_what_does_not_fit_is_refused() -> None:
    given = operands(MIXED)
    for name in ("offset", "mask"):
        with pytest.raises(ReproError, match=f"the {name} does not fit"):
            run_node("DeformConv", {**given, name: given[name][:, 1:]}, ["y"], 19, **MIXED)
    with pytest.raises(ReproError, match="offset_group does not fit"):
        run_node("DeformConv", given, ["y"], 19, **{**MIXED, "offset_group": 4})


def torch_gradients(given: dict[str, Any], seed: Array, attributes: dict[str, Any]) -> list[Array]:
    """By grid_sample in float64, tap by tap."""
    import torch

    leaves: dict[str, Any] = {
        name: torch.tensor(array, dtype=torch.float64, requires_grad=True) for name, array in given.items()
    }
    x, w, parts = leaves["x"], leaves["w"], attributes["offset_group"]
    output, rows = given["offset"].shape[2:], len(x) * parts
    move = leaves["offset"].reshape(rows, 6, 2, *output)
    mask = leaves["mask"].reshape(rows, 6, 1, *output)
    image = x.reshape(rows, -1, *x.shape[2:])
    columns: list[Any] = []
    for number, tap in enumerate(product(range(KERNEL[0]), range(KERNEL[1]))):
        grid: list[Any] = []
        for i in range(2):
            first = torch.arange(output[i]) * attributes["strides"][i] - attributes["pads"][i]
            place = (first + tap[i] * attributes["dilations"][i]).reshape(-1, *(1,) * (1 - i)) + move[:, number, i]
            grid.append(2 * place / (x.shape[2 + i] - 1) - 1)
        found = torch.nn.functional.grid_sample(image, torch.stack(grid[::-1], -1), align_corners=True)
        columns.append(found * mask[:, number])
    groups = attributes["group"]
    stacked = torch.stack(columns, 2).reshape(len(x), groups, -1, *output)
    y = torch.einsum("ngkij,gok->ngoij", stacked, w.reshape(groups, len(w) // groups, -1))
    y = y.reshape(len(x), len(w), *output) + leaves["b"].reshape(-1, 1, 1)
    y.backward(torch.tensor(seed))
    return [leaf.grad.numpy() for leaf in leaves.values()]


def test_gradients_are_pytorchs() -> None:
    pytest.importorskip("torch")
    given = operands(MIXED)
    graph = widened(graph_of_node("DeformConv", given, ["y"], 19, types=[FLOAT], **MIXED))
    made, reached = gradient_graph(graph, range(5))
    assert reached == [*range(5)]
    seed = RANDOM.standard_normal(graph.results[0].shape)
    found = evaluate(made, [*(array.astype(np.float64) for array in given.values()), seed])
    for mine, theirs in zip(found, torch_gradients(given, seed, MIXED), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-11 * abs(theirs).max())


def test_every_target_has_the_references_bits(tmp_path: Path) -> None:
    given = operands(MIXED)
    model = model_of("DeformConv", given, ["y"], 19, **MIXED)
    targets = ["cpu/x86-64-v3", "cpu/x86-64-v4", "gpu", "tpu-sim"]
    built = repro.build(model, tmp_path / "out", targets=targets, inputs=given)
    run_here = [name for name in targets[:2] if runs_here(CPUS[name]) is None]
    report = repro.verify(built.folder, targets=["reference", *run_here, "gpu/interpreter", "tpu-sim"])
    assert report.exit_code == 0
    ran = [check.name for check in report.checks if check.status is Status.GOOD]
    for target in ("reference", "cpu/", "gpu/interpreter", "tpu-sim/"):
        assert any(name.startswith(f"run {target}") for name in ran), target
