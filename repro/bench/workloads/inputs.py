"""What workloads are given: seeded numbers, the same for every side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from repro.ir.types import Array


def drawn(shapes: dict[str, tuple[int, ...]], dtype: type[np.generic] = np.float32) -> Callable[[], dict[str, Array]]:
    def of(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        if issubclass(dtype, np.integer):
            return random.integers(0, np.iinfo(dtype).max, shape, dtype)
        return random.standard_normal(shape).astype(dtype)

    def draw() -> dict[str, Array]:
        random = np.random.default_rng(1)
        return {name: of(random, shape) for name, shape in shapes.items()}

    return draw


def integers(shape: tuple[int, ...], below: int) -> Callable[[], Array]:
    return lambda: np.random.default_rng(1).integers(0, below, shape)
