"""Convolutions with holes are computed without them: the bits of the convolution as it is stated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from passes.prepare import expand
from repro.ir.graph import Graph, argument
from repro.ir.types import F32, TensorType
from repro.ops.convolutions import convolution
from repro.ops.record import evaluate
from tests.running import run_on_cpu
from tests.targets.native import HERE, same

Shape = tuple[int, ...]


def graph_of(x: Shape, w: Shape, **given) -> Graph:
    kinds = TensorType(F32, x), TensorType(F32, w)
    a, b = (argument(number, kind) for number, kind in enumerate(kinds))
    return Graph(kinds, (convolution(a, b, **given),))


def operands(x: Shape, w: Shape, edges: bool = False) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    made = [random.standard_normal(shape).astype(np.float32) for shape in (x, w)]
    if edges:
        for each in made:
            flat = each.reshape(-1)
            flat[::61] = np.array([np.inf, -0.0, 1e-42, np.nan, 0.0], np.float32)[np.arange(flat[::61].size) % 5]
    return made


def holes_left(graph: Graph) -> list[Sequence[int]]:
    return [node["input_dilations"] for node in graph.nodes if node.op == "convolution"]


def check(x: Shape, w: Shape, edges: bool = False, whole: bool = True, **given) -> None:
    """`whole`: whether no hole is left."""
    stated = graph_of(x, w, **given)
    without = expand(stated)
    left = holes_left(without)
    assert left and left != holes_left(stated)
    assert all(hole == 1 for holes in left for hole in holes) == whole
    arrays = operands(x, w, edges)
    (wanted,), (found,) = evaluate(stated, arrays, []), evaluate(without, arrays, [])
    assert same(F32, found, wanted)


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("taps", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed(stride: int, taps: int, groups: int) -> None:
    channels = 300 if taps < 3 else 60
    for pad in (0, 1, 2):
        output = [max(1, (extent - 1) * stride + taps - 2 * pad) for extent in (5, 4)]
        check(
            (2, channels, 5, 4), (4, channels // groups, taps, taps), edges=pad == 1, output=output, strides=(1, 1),
            tap_steps=(-1, -1), offsets=(pad, pad), input_dilations=(stride, stride), groups=groups,
        )  # fmt: skip


def test_of_other_ranks_steps_and_strides() -> None:
    line: dict[str, Any] = {"strides": (1,), "offsets": (4,), "input_dilations": (8,)}
    check((2, 40, 9), (6, 40, 16), output=(72,), tap_steps=(-1,), **line)
    check((2, 40, 9), (6, 40, 16), output=(80,), tap_steps=(-3,), **line)
    check((2, 40, 9), (6, 40, 5), output=(72,), tap_steps=(-4,), **line)  # most outputs meet holes alone
    check((2, 4, 9), (6, 4, 3), output=(9,), strides=(2,), tap_steps=(1,), offsets=(-1,), input_dilations=(2,))
    check(
        (2, 4, 3, 4, 5), (6, 4, 2, 3, 3), output=(6, 7, 9), strides=(1, 1, 1), tap_steps=(-1, -2, -1),
        offsets=(0, 1, 1), input_dilations=(2, 2, 2),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("height", "width", "rows", "whole"),
    [(28, 28, 18, True), (14, 28, 7, False), (14, 128, 4, True), (15, 128, 4, False)],
)
def test_weight_gradients_keep_holes_that_panels_count(height: int, width: int, rows: int, whole: bool) -> None:
    """Along lines, holes go wherever a panel does not hold as many lines of each phase as any other."""
    check(
        (2, 2, height // 2, width // 2), (2, 2, height, width), whole=whole, output=(4, 4), strides=(-1, -1),
        tap_steps=(1, 1), offsets=(1, 1), input_dilations=(2, 2), panel=rows * width,
    )  # fmt: skip


def test_phases_that_read_the_same_places_are_one_convolution() -> None:
    graph = graph_of((1, 8, 6, 6), (4, 8, 2, 2), output=(12, 12), strides=(1, 1), tap_steps=(-1, -1), offsets=(0, 0),
                     input_dilations=(2, 2))  # fmt: skip
    assert len(holes_left(expand(graph))) == 1


@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
@pytest.mark.parametrize(("taps", "pad"), [(2, 0), (4, 1)])
def test_as_compiled_code(machine, taps: int, pad: int) -> None:
    x, w = (2, 6, 9, 17), (5, 6, taps, taps)
    output = [(extent - 1) * 2 + taps - 2 * pad for extent in x[2:]]
    graph = graph_of(
        x, w, output=output, strides=(1, 1), tap_steps=(-1, -1), offsets=(pad, pad), input_dilations=(2, 2)
    )  # fmt: skip
    arrays = operands(x, w, edges=True)
    (wanted,), (found, *_) = evaluate(graph, arrays, []), run_on_cpu(graph, arrays, [], machine, 2)
    assert same(F32, found, wanted)


# ── taps that only ever meet padding ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("extents", "taps", "left", "given"),
    [
        ((1, 1), (3, 3), (1, 1), {"strides": (1, 1), "tap_steps": (1, 1), "offsets": (-1, -1)}),
        ((1, 4), (3, 3), (1, 3), {"strides": (1, 1), "tap_steps": (1, 1), "offsets": (-1, -1)}),
        ((4, 4), (3, 3), (1, 1), {"strides": (1, 1), "tap_steps": (12, 12), "offsets": (-12, -12)}),
        ((2, 3), (5, 3), (2, 2), {"strides": (2, 1), "tap_steps": (1, 1), "offsets": (-2, -1)}),
        ((1, 5), (3, 2), (1, 2), {"strides": (1, 1), "tap_steps": (-1, -1), "offsets": (1, 1)}),
        ((2, 2), (4, 3), (2, 1), {"strides": (1, 3), "tap_steps": (1, 3), "offsets": (-1, -3)}),
    ],
)
def test_taps_that_only_meet_padding(extents: Shape, taps: Shape, left: Shape, given: Any, groups: int) -> None:
    x, w = (2, 300, *extents), (4, 300 // groups, *taps)
    given = {"output": (1, 1) if taps[0] > 3 else extents, "groups": groups, **given}
    stated = graph_of(x, w, **given)
    without = expand(stated)
    (found,) = [node for node in without.nodes if node.op == "convolution"]
    assert found.operands[1].shape[2:] == left
    arrays = operands(x, w, edges=True)
    (wanted,), (cut,) = evaluate(stated, arrays, []), evaluate(without, arrays, [])
    assert same(F32, cut, wanted)


def test_a_convolution_of_padding_alone_is_zero() -> None:
    stated = graph_of((1, 2, 3), (4, 2, 2), output=(2,), strides=(1,), tap_steps=(1,), offsets=(-9,))
    (found,) = evaluate(expand(stated), operands((1, 2, 3), (4, 2, 2), edges=True), [])
    assert found.tobytes() == bytes(found.nbytes)
