"""DFT, STFT and their windows: products with tables of cosines and sines, which are made at build."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.positions import check_count, take
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value, constant
from repro.ir.types import F32, F64, Array
from repro.ops import broadcast, convert_to, div, dot, elementwise, fill, mul, reshape, slice_, transpose

# ── tables ──────────────────────────────────────────────────────────────────────────────────────────


def _circle(ctx: NodeContext, steps: Array, around: int) -> tuple[Array, Array]:
    """cos and sin, f64, of 2 pi * step / around, for whole steps.

    A step is folded into the first eighth of the circle by whole numbers, the angle there is (pi / 2 * rest) / around,
    and f64's cos and sin (rule 14) give the rest by symmetry: so quarters of the circle are exact.
    """
    quarter, rest = np.divmod(4 * (steps % around), around)
    swapped = 2 * rest > around
    angles = np.arange(around // 2 + 1, dtype=np.float64) * (math.pi / 2) / around
    near = np.where(swapped, around - rest, rest)
    cosine, sine = (_function(ctx, name, angles)[near] for name in ("cos", "sin"))
    cosine, sine = np.where(swapped, sine, cosine), np.where(swapped, cosine, sine)
    turned = ((cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine))
    pairs = ([pair[part] for pair in turned] for part in (0, 1))
    real, imaginary = (np.choose(quarter, [each + 0.0 for each in parts]) for parts in pairs)
    return real, imaginary


def _function(ctx: NodeContext, name: str, angles: Array) -> Array:
    found = ctx.static_value(elementwise(name, constant(angles, F64)))
    assert found is not None, "a function of a constant is known at build"
    return found


def _table(ctx: NodeContext, rows: int, columns: int, length: int, inverse: bool) -> tuple[Array, Array]:
    """cos and sin [rows, columns] of 2 pi * row * column / length, sines of the opposite sign unless `inverse`."""
    check_count(ctx, rows * columns)
    real, imaginary = _circle(ctx, np.arange(rows)[:, None] * np.arange(columns), length)
    return real, imaginary if inverse else 0.0 - imaginary


# ── transforms ──────────────────────────────────────────────────────────────────────────────────────


@onnx_op("DFT", since=17, until=19)
def dft_17(ctx: NodeContext, x: Value, _: Value | None = None) -> Value:
    return _dft(ctx, x, ctx.attr_int("axis", 1))


@onnx_op("DFT", since=20)
def dft(ctx: NodeContext, x: Value, _: Value | None = None, __: Value | None = None) -> Value:
    """One product (rule 8), K running over (place, real and imaginary part), with the table; the inverse / length."""
    return _dft(ctx, x, ctx.static_int(2) if ctx.given(2) else -2)


def _dft(ctx: NodeContext, x: Value, axis: int) -> Value:
    axis, inverse, onesided = ctx.axis(axis, x.rank), ctx.attr_bool("inverse"), ctx.attr_bool("onesided")
    if x.shape[-1] not in (1, 2) or axis == x.rank - 1:
        raise ctx.error("the input does not fit", f"{x.type}, axis {axis}", "a last axis of 1 or 2, none of the axes")
    if onesided and not inverse and x.shape[-1] == 2:
        raise ctx.error("a complex signal has no one-sided transform", str(x.type), "a last axis of 1, or onesided=0")
    standard = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    length = ctx.static_int(1) if ctx.given(1) else standard
    if length < 1:
        raise ctx.error("the length of the transform does not fit", str(length), "1 or more")
    return _transformed(ctx, x, axis, length, inverse, onesided)


def _transformed(ctx: NodeContext, x: Value, axis: int, length: int, inverse: bool, onesided: bool) -> Value:
    """Elements beyond the length are left out; fewer than the length are as if zeros followed."""
    half = length // 2 + 1
    used = min(x.shape[axis], half if inverse and onesided else length)
    columns = half if onesided and not inverse else length
    parts = 1 if inverse and onesided else 2
    ctx.check_size((*x.shape[:axis], columns, *x.shape[axis + 1 : -1], parts), x.dtype)
    real, imaginary = _table(ctx, used, columns, length, inverse)
    table = np.empty((used, x.shape[-1], columns, parts))
    table[:, 0, :, 0] = real
    if parts == 2:
        table[:, 0, :, 1] = imaginary
    if x.shape[-1] == 2:
        table[:, 1, :, 0] = 0.0 - imaginary
    if x.shape[-1] == parts == 2:
        table[:, 1, :, 1] = real
    if parts == 1:
        table *= _times(used, length)[:, None, None, None]
    factors = constant(np.ascontiguousarray(table.astype(x.dtype.storage)), x.dtype)

    def body(x: Value) -> Value:
        limits = [used if at == axis else extent for at, extent in enumerate(x.shape)]
        found = dot(slice_(x, [0] * x.rank, limits), factors, ((axis, x.rank - 1), (0, 1)))
        free = found.rank - 2  # axes: the others of x, columns, parts
        found = transpose(found, (*range(axis), free, *range(axis, free), free + 1))
        return div(found, fill(float(length), found.type)) if inverse else found

    kept = {"axis": axis, "length": length, "inverse": inverse, "onesided": onesided}
    return ctx.composite("DFT", (x,), body, **kept).value


def _times(used: int, length: int) -> Array:
    """How often a place of a one-sided spectrum stands in the whole one: its mirror image is left out."""
    twice = np.arange(used)
    return np.where((twice == 0) | (2 * twice == length), 1.0, 2.0)


@onnx_op("STFT", since=17)
def stft(ctx: NodeContext, x: Value, _: Value, window: Value | None = None, __: Value | None = None) -> Value:
    """Frames times the window, each product rounded, then DFT. A real signal may be [batch, length], as PyTorch's
    exporter writes it and ONNX Runtime takes it."""
    if x.rank == 2:
        x = reshape(x, (*x.shape, 1))
    if x.rank != 3:
        raise ctx.error("the signal does not fit", str(x.type), "[batch, length] or [batch, length, 1 (2 if complex)]")
    step = ctx.static_int(1)
    size = ctx.static_int(3) if ctx.given(3) else window.shape[0] if window is not None and window.rank else x.shape[1]
    onesided = ctx.attr_bool("onesided", True)
    fits = x.shape[2] in (1, 2) and 0 < size <= x.shape[1] and step > 0
    if not fits or (window is not None and window.shape != (size,)) or (onesided and x.shape[2] == 2):
        found = f"{x.type}, step {step}, frames of {size}" + ("" if window is None else f", window {window.type}")
        raise ctx.error(
            "the signal does not fit", found, "[batch, length, 1 (2 if complex)], a window as long as a frame"
        )
    frames = (x.shape[1] - size) // step + 1
    check_count(ctx, frames * size)
    ctx.check_size((x.shape[0], frames, size, x.shape[2]), x.dtype)
    positions = (np.arange(frames)[:, None] * step + np.arange(size)).reshape(-1)
    cut = reshape(take(x, 1, positions), (x.shape[0], frames, size, x.shape[2]))
    if window is not None:
        cut = mul(cut, broadcast(window, cut.shape, (2,)))
    return _transformed(ctx, cut, 2, size, False, onesided)


# ── windows ─────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("HannWindow", since=17)
def hann_window(ctx: NodeContext, _: Value) -> Value:
    """0.5 - 0.5 * cos(2 pi i / n), in f64, rounded once."""
    return _window(ctx, (0.5, -0.5))


@onnx_op("HammingWindow", since=17)
def hamming_window(ctx: NodeContext, _: Value) -> Value:
    """a - (1 - a) * cos(2 pi i / n) with a = 25 / 46, in f64, rounded once."""
    a = 25.0 / 46.0
    return _window(ctx, (a, a - 1.0))


@onnx_op("BlackmanWindow", since=17)
def blackman_window(ctx: NodeContext, _: Value) -> Value:
    """(0.42 - 0.5 * cos(2 pi i / n)) + 0.08 * cos(4 pi i / n), in f64, rounded once."""
    return _window(ctx, (0.42, -0.5, 0.08))


def _window(ctx: NodeContext, factors: Sequence[float]) -> Value:
    """The sum of factor k * cos(2 pi k i / n), ascending; n is the size, or the size - 1 where it is not periodic."""
    size, target = ctx.static_int(0), ctx.attr_dtype("output_datatype", F32)
    if size < 0:
        raise ctx.error("the size of the window does not fit", str(size), "0 or more")
    ctx.check_size((size,), target)
    check_count(ctx, size)
    around = size if ctx.attr_bool("periodic", True) else size - 1
    places = np.arange(size)
    total = np.full(size, factors[0])
    for order, factor in enumerate(factors[1:], 1):
        total = total + factor * _circle(ctx, order * places, around)[0] if around > 0 else np.ones(size)
    return convert_to(constant(total, F64), target)
