"""The least time in which a device could do a kernel's work: its bytes, or its operations, whichever takes longer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from repro.ir.expressions import Apply, Axis, Expr, Load, Rarely, Reduce
from repro.ir.loops import Kernel
from repro.ir.types import F32, F64, DType
from repro.ir.work import iterations
from repro.machines.devices import Device
from repro.targets.gpu.steps import Shape

_MOVES = ("select", "bitcast", "convert", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "min", "max")
"""Operations that data sheets do not count."""


@dataclass(frozen=True)
class Work:
    """What a kernel cannot do without: bytes read or written once each, and operations by type; an fma is two."""

    bytes: int
    f32: int
    f64: int

    def seconds(self, device: Device) -> float:
        return max(self.bytes / device.memory, self.f32 / device.f32, self.f64 / device.f64)

    def bound(self, device: Device) -> str:
        """What the floor is made of."""
        times = {"bytes": self.bytes / device.memory, "f32": self.f32 / device.f32, "f64": self.f64 / device.f64}
        return max(times, key=lambda name: times[name])


def work(kernel: Kernel) -> Work:
    """By the kernel's own text: what is seldom computed is left out; a buffer counts no more than its size."""
    expressions = tuple(commonly(kernel))
    counts = {dtype: sum(_operations(e) for e in expressions if _counted(e) is dtype) for dtype in (F32, F64)}
    touched: dict[int, int] = {}
    for expr in expressions:
        if isinstance(expr, Load):
            touched[expr.buffer] = touched.get(expr.buffer, 0) + iterations(expr)
    every = math.prod(axis.extent for axis in kernel.axes)
    written: dict[int, int] = {}
    for store in kernel.stores:
        written[store.buffer] = written.get(store.buffer, 0) + every
    moved = 0
    for accesses in (touched, written):
        for number, count in accesses.items():
            buffer = kernel.buffers[number]
            moved += min(count, buffer.elements) * buffer.dtype.bytes
    return Work(moved, counts[F32], counts[F64])


def work_of_blocks(shape: Shape) -> Work:
    """Of a step over blocks of rows: what is local moves no bytes, and nothing else moves more than once."""
    parts = [work(kernel) for kernel in shape.kernels]
    sizes: dict[int, int] = {}
    for call, kernel in zip(shape.step.body, shape.kernels, strict=True):
        sizes |= {b: p.elements * p.dtype.bytes for b, p in zip(call.buffers, kernel.buffers, strict=True)}
    moved = sum(size for buffer, size in sizes.items() if buffer < shape.arguments)
    f32, f64 = sum(part.f32 for part in parts), sum(part.f64 for part in parts)
    return Work(moved, shape.blocks * f32, shape.blocks * f64)


def commonly(kernel: Kernel) -> Iterator[Expr]:
    """Every expression but those that only a seldom side needs."""
    return commonly_of(root for store in kernel.stores for root in store.expressions)


def commonly_of(roots: Iterable[Expr]) -> Iterator[Expr]:
    """Those that the roots need, in the same way."""
    seen, stack = set[Expr](), list(roots)
    while stack:
        expr = stack.pop()
        if expr in seen:
            continue
        seen.add(expr)
        yield expr
        stack.extend((expr.condition, expr.common) if isinstance(expr, Rarely) else expr.children)


def _counted(expr: Expr) -> DType | None:
    if isinstance(expr, Apply) and expr.op not in _MOVES:
        return expr.dtype
    if isinstance(expr, Reduce) and expr.combiner in ("fma", "add", "mul"):
        return expr.dtype
    return None


def _operations(expr: Expr) -> int:
    if isinstance(expr, Reduce):
        axes: tuple[Axis, ...] = expr.axes
        terms = math.prod(axis.extent for axis in axes)
        return iterations(expr) * terms * (2 if expr.combiner == "fma" else 1)
    assert isinstance(expr, Apply)
    return iterations(expr) * (2 if expr.op == "fma" else 1)
