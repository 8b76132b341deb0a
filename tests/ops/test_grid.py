"""GridSample and AffineGrid against ONNX Runtime and the identity."""

from __future__ import annotations

import numpy as np
import pytest

from repro.errors import ReproError
from tests.ops.against_runtime import agrees, model_with
from tests.ops.one_node import by_onnxruntime, by_reference, model_of, run_model, run_node

RANDOM = np.random.default_rng(4)
X = RANDOM.standard_normal((2, 3, 5, 4)).astype(np.float32)
GRID = RANDOM.uniform(-1.9, 1.9, (2, 6, 7, 2)).astype(np.float32)
"""Half of the points lie outside, some as far as an image away: reflected twice."""


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_as_onnxruntime_does(mode: str, padding: str, corners: int) -> None:
    inputs = {"x": X, "grid": GRID}
    made = model_of("GridSample", inputs, ["y"], 20, mode=mode, padding_mode=padding, align_corners=corners)
    found = by_reference(made, inputs)[0]
    np.testing.assert_allclose(found, by_onnxruntime(made, inputs)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("mode", "padding"), [("nearest", "border"), ("linear", "zeros"), ("linear", "reflection")])
def test_compiled(mode: str, padding: str) -> None:
    agrees("GridSample", 20, X, GRID, tolerance=1e-5, mode=mode, padding_mode=padding)


def test_names_of_opset_16() -> None:
    inputs = {"x": X, "grid": GRID}
    for mode in ("bilinear", "bicubic"):
        made = model_of("GridSample", inputs, ["y"], 16, mode=mode)
        found = by_reference(made, inputs)[0]
        np.testing.assert_allclose(found, by_onnxruntime(made, inputs)[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(ReproError, match="mode is not known"):
        run_node("GridSample", {"x": X, "grid": GRID}, ["y"], 16, mode="linear")


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_points_that_are_far_or_no_numbers_read_nothing_else(padding: str) -> None:
    """Indices are never out of range, whatever the point; what is finite and inside is not touched."""
    grid = np.zeros((2, 1, 4, 2), np.float32)
    grid[:, 0, 1:] = [[[3e38, -3e38], [np.inf, 0], [np.nan, np.nan]]]
    (found,) = run_node("GridSample", {"x": X, "grid": grid}, ["y"], 20, padding_mode=padding)
    inputs = {"x": X, "grid": grid[:, :, :1]}
    (alone,) = by_reference(model_of("GridSample", inputs, ["y"], 20, padding_mode=padding), inputs)
    np.testing.assert_array_equal(found[..., :1], alone)
    assert np.isnan(found[..., 3]).all()


def test_an_axis_of_one_element() -> None:
    image = X[:, :, :1]
    for padding in ("border", "reflection"):
        inputs = {"x": image, "grid": GRID}
        made = model_of("GridSample", inputs, ["y"], 20, padding_mode=padding, align_corners=1)
        (found,) = by_reference(made, inputs)
        assert np.isfinite(found).all()


def test_volumes_take_their_axes_backward() -> None:
    """The last number of a point belongs to the first axis, to one corner of eight here."""
    volume = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 2, 2)
    points = np.array([[-1, -1, 1], [1, -1, -1], [0, 0, 0]], np.float32).reshape(1, 1, 1, 3, 3)
    inputs = {"x": volume, "grid": points}
    (found,) = by_reference(model_of("GridSample", inputs, ["y"], 20, align_corners=1), inputs)
    np.testing.assert_array_equal(found.ravel(), [4, 1, 3.5])


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("places", [(5, 4), (1, 3), (2, 3, 4)])
def test_the_identity_samples_the_image_itself(places: tuple[int, ...], corners: int) -> None:
    rank = len(places)
    theta = np.broadcast_to(np.eye(rank, rank + 1, dtype=np.float32), (2, rank, rank + 1)).copy()
    image = RANDOM.standard_normal((2, 3, *places)).astype(np.float32)
    model = model_with(
        "AffineGrid", {"theta": theta}, {"size": np.array(image.shape)}, 20, ["y"], align_corners=corners
    )
    (grid,) = by_reference(model, {"theta": theta})
    inputs = {"x": image, "grid": grid}
    (found,) = by_reference(model_of("GridSample", inputs, ["y"], 20, align_corners=corners), inputs)
    np.testing.assert_allclose(found, image, atol=1e-5)


@pytest.mark.parametrize("corners", [0, 1])
def test_affine_grid_as_onnxruntime_does(corners: int) -> None:
    theta = RANDOM.standard_normal((2, 2, 3)).astype(np.float32)
    agrees("AffineGrid", 20, theta, fixed=[np.array([2, 3, 5, 4])], align_corners=corners)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ReproError, match="grid does not fit"):
        run_node("GridSample", {"x": X, "grid": GRID[:1]}, ["y"], 20)
    with pytest.raises(ReproError, match="not interpolated"):
        run_node("GridSample", {"x": X.astype(np.int32), "grid": GRID}, ["y"], 20)
    model = model_with("AffineGrid", {"theta": GRID}, {"size": np.array([2, 3, 5, 4])}, 20, ["y"])
    with pytest.raises(ReproError, match="theta and size do not fit"):
        run_model(model, {"theta": GRID})
