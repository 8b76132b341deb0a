"""Routines by hand: a body around operands in VMEM, run on a chip."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.ir.types import BOOL, DTYPES, Array, DType
from repro.numerics.host_mode import exact_arithmetic
from repro.targets.tpu_sim.chips import chip
from repro.targets.tpu_sim.execution import Execution
from repro.targets.tpu_sim.isa import Dma, Instruction, Wait
from repro.targets.tpu_sim.operands import LANES, Dim, Index, hbm, vmem
from repro.targets.tpu_sim.program import Area, Argument, Routine, Statement, single

V5E = chip("v5e")


def values(dtype: DType, count: int, seed: int) -> Array:
    """Random bits with the troublesome values among them; floats of every magnitude, bools 0 or 1."""
    rng = np.random.default_rng(seed)
    if dtype is BOOL:
        return rng.integers(0, 2, count).astype(np.bool_)
    raw = rng.integers(0, 256, count * dtype.bytes, dtype=np.uint8).view(dtype.storage).copy()
    if dtype.is_float and dtype.computes:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-310 if dtype.bits == 64 else 1e-44, 2.5, 1e30]
        raw[: 8 * len(special) : 8] = np.array(special, dtype.storage)
        ordinary = rng.standard_normal(count).astype(dtype.storage)
        return np.where(np.arange(count) % 3 == 1, ordinary, raw)
    raw[:4] = np.array([0, 1, 2, 3], dtype.storage)
    if dtype.is_integer:
        info = np.iinfo(dtype.storage)
        raw[4:8] = np.array([info.min, info.max, info.max - 1, 7], dtype.storage)
        raw[8:40] = np.arange(32, dtype=dtype.storage)
    return raw


def routine(
    body: Sequence[Statement],
    inputs: Sequence[tuple[DType, int]],
    outputs: Sequence[tuple[DType, int]],
    scratch: Sequence[tuple[DType, int]] = (),
    semaphores: int = 1,
) -> Routine:
    """Area n holds argument n while the body runs: inputs come first, outputs leave at the end, scratch is neither."""
    kinds = [*inputs, *outputs]
    arguments = [Argument(d, n, number >= len(inputs)) for number, (d, n) in enumerate(kinds)]
    areas, address = list[Area](), 0
    for dtype, count in [*kinds, *scratch]:
        areas.append(Area(dtype, -(-count // LANES) * LANES, address))
        address = areas[-1].end
    moves: list[list[Instruction]] = [[], []]
    for number, (dtype, count) in enumerate(kinds):
        leaving = number >= len(inputs)
        ends = (hbm(number), vmem(number)) if leaving else (vmem(number), hbm(number))
        moves[leaving] += [Dma(Index(0), dtype, *ends, (Dim(count, 1, 1),)), Wait(Index(0))]
    whole = (*single(*moves[0]), *body, *single(*moves[1]))
    return Routine("by_hand", tuple(arguments), (), tuple(areas), (), semaphores, whole)


def run(made: Routine, arrays: Sequence[Array]) -> list[Array]:
    """The outputs."""
    outputs = [np.zeros(a.elements, a.dtype.storage) for a in made.arguments if a.writable]
    with exact_arithmetic():
        Execution(made, V5E).run([*arrays, *outputs])
    return outputs


def same_bits(dtype: DType, left: Array, right: Array) -> bool:
    """Equal bits, any NaN for any NaN."""
    if dtype.is_float and dtype.computes:
        both = (left != left) & (right != right)
        left, right = np.where(both, 0, left).astype(left.dtype), np.where(both, 0, right).astype(right.dtype)
    return np.array_equal(left.view(f"u{dtype.bytes}"), right.view(f"u{dtype.bytes}"))


ALL = DTYPES
