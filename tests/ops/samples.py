"""The sample inputs of every op record, drawn with the values that break things."""

from __future__ import annotations

import hashlib

import numpy as np

from repro.ir.graph import Graph, argument
from repro.ir.types import BOOL, Array, TensorType
from repro.ops import OPS, canonical_nan
from repro.ops.record import Sample

SAMPLES: list[tuple[str, int, Sample]] = [
    (name, number, sample) for name in sorted(OPS) for number, sample in enumerate(OPS[name].samples())
]
IDS = [f"{name}-{number}" for name, number, _ in SAMPLES]

_SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-40, -1e-45, 3e38, 2.5, -2.5)


def graph_of(sample: Sample) -> Graph:
    """The sample as a graph whose outputs carry canonical NaNs."""
    arguments = [argument(index, kind) for index, kind in enumerate(sample.operands)]
    return Graph(sample.operands, (canonical_nan(sample.build(*arguments)),))


def draw(kind: TensorType, limits: tuple[int, int] | None, generator: np.random.Generator) -> Array:
    """A storage array of a type: special values among ordinary ones; any bits for the narrow floats."""
    dtype = kind.dtype
    if dtype is BOOL:
        return generator.integers(0, 2, kind.shape).astype(np.bool_)
    if dtype.is_float and dtype.computes:
        array = np.asarray(generator.standard_normal(kind.shape) * 3, dtype.storage)
        flat = array.reshape(-1)
        for special in _SPECIAL if flat.size > 40 else ():
            flat[generator.integers(flat.size)] = special
        return array
    if limits is not None:
        return generator.integers(*limits, kind.shape).astype(dtype.storage)
    ends = np.iinfo(dtype.storage)
    return generator.integers(ends.min, ends.max, kind.shape, dtype=dtype.storage, endpoint=True)


def operands_of(name: str, number: int, sample: Sample) -> list[Array]:
    """The same operands in every run: the generator's seed is the sample's name."""
    seed = int.from_bytes(hashlib.sha256(f"{name}-{number}".encode()).digest()[:8], "little")
    generator = np.random.default_rng(seed)
    ranges = sample.ranges or (None,) * len(sample.operands)
    return [draw(kind, limits, generator) for kind, limits in zip(sample.operands, ranges, strict=True)]
