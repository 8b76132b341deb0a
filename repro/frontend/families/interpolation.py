"""Where a resized axis takes its elements from, and with which weights: f64 arithmetic at build."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from repro.ir.types import Array

MODES = ("nearest", "linear", "cubic")
_LATER = 1 << 30
TRANSFORMS: dict[str, tuple[int, int]] = {
    "half_pixel": (11, _LATER),
    "half_pixel_symmetric": (19, _LATER),
    "pytorch_half_pixel": (11, _LATER),
    "align_corners": (11, _LATER),
    "asymmetric": (11, _LATER),
    "tf_half_pixel_for_nn": (11, 12),
    "tf_crop_and_resize": (11, _LATER),
}
"""Coordinate transformations, with the opsets that have them."""


@dataclass(frozen=True)
class Sampling:
    """The modes of one Resize."""

    mode: str
    transform: str
    nearest: str
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


@dataclass(frozen=True)
class Axis:
    """One resized axis: `extent` elements become `size`; `scale` may be no quotient of whole numbers."""

    axis: int
    extent: int
    size: int
    scale: float
    region: tuple[float, float] | None = None

    @property
    def stays(self) -> bool:
        return self.scale == 1.0 and self.size == self.extent and self.region in (None, (0.0, 1.0))

    def coordinates(self, transform: str) -> Array:
        """x_original of every result place, by ONNX's formulas; length_resized is extent * scale."""
        i, last, length = np.arange(self.size, dtype=np.float64), self.extent - 1, self.extent * self.scale
        if transform == "align_corners":
            return np.zeros_like(i) if length == 1 else i * last / (length - 1)
        if transform == "asymmetric":
            return i / self.scale
        if transform == "tf_half_pixel_for_nn":
            return (i + 0.5) / self.scale
        if transform == "pytorch_half_pixel" and length <= 1:
            return np.zeros_like(i)
        if transform == "tf_crop_and_resize":
            start, end = self.region or (0.0, 1.0)
            if length <= 1:
                return np.full_like(i, 0.5 * (start + end) * last)
            return start * last + i * (end - start) * last / (length - 1)
        x = (i + 0.5) / self.scale - 0.5
        if transform == "half_pixel_symmetric":
            return self.extent / 2 * (1 - self.size / length) + x
        return x

    def outside(self, transform: str) -> Array:
        """Which result places lie outside the operand."""
        x = self.coordinates(transform)
        return (x < 0) | (x > self.extent - 1)


def nearest_positions(axis: Axis, sampling: Sampling) -> Array:
    """The element that each result place takes, clamped to the axis."""
    x = axis.coordinates(sampling.transform)
    rounded = {
        "round_prefer_floor": np.ceil(x - 0.5),
        "round_prefer_ceil": np.floor(x + 0.5),
        "floor": np.floor(x),
        "ceil": np.ceil(x),
        "simple": np.ceil(x) if axis.scale < 1 else np.floor(x),
    }[sampling.nearest]
    return np.clip(rounded, 0, axis.extent - 1).astype(np.int64)


def tap_count(axis: Axis, sampling: Sampling) -> int:
    """How many elements a result place takes; antialiasing stretches the kernel over more where the axis shrinks."""
    if sampling.mode == "nearest":
        return 1
    reach = 1 if sampling.mode == "linear" else 2
    return 2 - 2 * (math.floor(-reach / (min(axis.scale, 1.0) if sampling.antialias else 1.0)) + 1)


def taps(axis: Axis, sampling: Sampling) -> tuple[Array, Array]:
    """Positions and weights, [size, taps] each: the taps around each coordinate, clamped to the axis.

    At a whole coordinate the element itself is the last but one half of the taps, with ratio 1, as in ONNX's reference.
    """
    x = axis.coordinates(sampling.transform)
    base = np.ceil(x) - 1
    ratio = x - base  # in (0, 1]
    shrink = min(axis.scale, 1.0) if sampling.antialias else 1.0
    first = 1 - tap_count(axis, sampling) // 2
    offsets = np.arange(first, 2 - first)
    places = base[:, None] + offsets
    distance = np.abs((offsets - ratio[:, None]) * shrink)
    weights = np.maximum(1 - distance, 0.0) if sampling.mode == "linear" else _cubic(distance, sampling.cubic_a)
    outside = (places < 0) | (places >= axis.extent)
    if sampling.exclude_outside:
        weights = np.where(outside, 0.0, weights)
    if sampling.antialias or sampling.exclude_outside:
        total = _ascending_sum(weights)
        weights = weights / np.where(total == 0, 1.0, total)[:, None]
    return np.clip(places, 0, axis.extent - 1).astype(np.int64), weights


def _cubic(x: Array, a: float) -> Array:
    """Keys' kernel of |x|."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _ascending_sum(weights: Array) -> Array:
    """Row sums from the left: NumPy's own sum has no fixed order."""
    total = weights[:, 0]
    for tap in range(1, weights.shape[1]):
        total = total + weights[:, tap]
    return total
