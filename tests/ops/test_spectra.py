"""DFT, STFT and windows against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repro.errors import ReproError
from repro.ir.types import Array
from tests.ops.against_runtime import agrees, model_with
from tests.ops.one_node import FLOAT, by_reference, run_node

RANDOM = np.random.default_rng(8)


def drawn(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run(op: str, x: Array, fixed: dict[str, Array], opset: int = 20, **attributes: Any) -> Array:
    """By the reference; compiled code is run below."""
    return by_reference(model_with(op, {"x": x}, fixed, opset, ["y"], types=[FLOAT], **attributes), {"x": x})[0]


def parts(complex_numbers: Array) -> Array:
    return np.stack([np.real(complex_numbers), np.imag(complex_numbers)], -1)


def close(found: Array, expected: Array) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-6 * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("length", [1, 2, 7, 12, 15])
@pytest.mark.parametrize("axis", [1, -2, 0])
@pytest.mark.parametrize("inverse", [0, 1])
def test_of_complex_numbers(length: int, axis: int, inverse: int) -> None:
    """Lengths below, at and above the signal's, 12."""
    x = drawn(12, 12, 2)
    given = x[..., 0].astype(np.float64) + 1j * x[..., 1]
    expected = (np.fft.ifft if inverse else np.fft.fft)(given, length, axis % 3)
    found = run("DFT", x, {"n": np.array(length), "axis": np.array(axis)}, inverse=inverse)
    close(found, parts(expected))


@pytest.mark.parametrize("length", [1, 8, 9, 12])
def test_one_sided_and_back(length: int) -> None:
    x = drawn(3, length, 1)
    half = run("DFT", x, {}, onesided=1)
    close(half, parts(np.fft.rfft(x[..., 0].astype(np.float64))))
    back = run("DFT", half, {"n": np.array(length)}, inverse=1, onesided=1)
    close(back, x)


def test_quarters_of_the_circle_are_exact() -> None:
    x = np.array([[[1], [0], [0], [0]], [[0], [1], [0], [0]]], np.float32)
    expected = [[[1, 0]] * 4, [[1, 0], [0, -1], [-1, 0], [0, 1]]]
    np.testing.assert_array_equal(run("DFT", x, {}), expected)


def test_axis_of_opset_17_is_an_attribute() -> None:
    x = drawn(2, 5, 6, 1)
    close(run("DFT", x, {}, 17, axis=2), parts(np.fft.fft(x[..., 0].astype(np.float64), axis=2)))
    close(run("DFT", x, {}, 19), parts(np.fft.fft(x[..., 0].astype(np.float64), axis=1)))


@pytest.mark.parametrize("step", [3, 8, 11])
@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("onesided", [0, 1])
def test_short_times(step: int, windowed: bool, onesided: int) -> None:
    x, size = drawn(2, 40, 1), 8
    window = RANDOM.uniform(0.1, 1, size).astype(np.float32) if windowed else np.ones(size, np.float32)
    frames = np.stack([x[:, start : start + size, 0] for start in range(0, 40 - size + 1, step)], 1) * window
    expected = (np.fft.rfft if onesided else np.fft.fft)(frames.astype(np.float64))
    fixed = {"step": np.array(step), "window": window}
    close(run("STFT", x, fixed, onesided=onesided), parts(expected))


def test_a_real_signal_may_come_without_a_last_axis() -> None:
    x, fixed = drawn(2, 40, 1), {"step": np.array(3), "window": np.ones(8, np.float32)}
    assert run("STFT", x[..., 0], fixed).tobytes() == run("STFT", x, fixed).tobytes()


@pytest.mark.parametrize("onesided", [0, 1])
def test_compiled(onesided: int) -> None:
    window = RANDOM.uniform(0.1, 1, 8).astype(np.float32)
    agrees("STFT", 17, drawn(2, 40, 1), fixed=[np.array(3), window, np.array(8)], tolerance=1e-5, onesided=onesided)
    agrees("DFT", 17, drawn(2, 12, 2 - onesided), tolerance=1e-5, onesided=onesided)


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(op: str, periodic: int) -> None:
    for size in (2, 9, 16):
        angle = 2 * np.pi * np.arange(size) / (size if periodic else size - 1)
        expected = {
            "HannWindow": np.sin(angle / 2) ** 2,
            "HammingWindow": 25 / 46 - 21 / 46 * np.cos(angle),
            "BlackmanWindow": 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle),
        }[op]
        made = model_with(op, {}, {"size": np.array(size)}, 17, ["y"], types=[FLOAT], periodic=periodic)
        np.testing.assert_allclose(by_reference(made, {})[0], expected.astype(np.float32), rtol=1e-6, atol=1e-9)


def test_a_window_of_one_element_is_one() -> None:
    made = model_with("HannWindow", {}, {"size": np.array(1)}, 17, ["y"], types=[FLOAT], periodic=0)
    np.testing.assert_array_equal(by_reference(made, {})[0], [1])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ReproError, match="no one-sided transform"):
        run_node("DFT", {"x": drawn(2, 4, 2)}, ["y"], 20, onesided=1)
    with pytest.raises(ReproError, match="length of the transform"):
        run("DFT", drawn(2, 4, 1), {"n": np.array(0)})
    with pytest.raises(ReproError, match="signal does not fit"):
        run("STFT", drawn(2, 4, 1), {"step": np.array(1), "window": np.ones(5, np.float32)})
    for shape in ((4,), (2, 4, 3), (2, 4, 1, 1)):
        with pytest.raises(ReproError, match="signal does not fit"):
            run("STFT", drawn(*shape), {"step": np.array(1), "window": np.ones(2, np.float32)})
