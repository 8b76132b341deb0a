"""Compiled helpers: one instruction each, from its meaning in loop IR by the LLVM emitter, for this host.

A helper does one instruction for many iterations of a loop: operands are arrays of iterations x 1024 lanes, or
one row of 1024 that all iterations share.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import llvmlite.binding as llvm

from repro.ir import index as ix
from repro.ir.expressions import Apply, Expr, Lookup, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import Schedule
from repro.ir.types import DType
from repro.machines import AARCH64, X86_64_V3, X86_64_V4, Machine
from repro.targets.llvm import toolchain
from repro.targets.llvm.kernel import emit, symbol
from repro.targets.tpu_sim.isa import FAR, chain
from repro.targets.tpu_sim.operands import LANES

Helper = Callable[..., None]
"""helper(address of each operand..., iterations)."""

_WIDE = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


@cache
def host() -> Machine:
    """The widest machine description that fits this host."""
    if platform.machine() in ("aarch64", "arm64"):
        return AARCH64
    features = dict(llvm.get_host_cpu_features())
    return X86_64_V4 if all(features.get(name) for name in _WIDE) else X86_64_V3


def _compile(kernel: Kernel, vector_axis: int, width: int, block: int) -> Helper:
    machine = replace(host(), fence="")  # nothing is written past caches: operands are small and begin anywhere
    code = toolchain.object_code(emit(kernel, Schedule(vector_axis, width, block), machine), machine)
    loaded = toolchain.Loaded([code], symbol(kernel))
    count = len(kernel.buffers)
    prototype = ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * count), *([ctypes.c_int64] * 2), ctypes.c_void_p)
    function = prototype(loaded.addresses[0])

    def call(*arguments: int) -> None:
        _ = loaded  # whose memory the function lies in
        *addresses, items = arguments
        function(*addresses, 0, items, None)

    return call


@cache
def lanewise(value: Expr, shared: tuple[bool, ...]) -> Helper:
    """The helper of a meaning whose value depends on its operands' own lanes: `b<n>[l]`, all of them of 1024 elements.

    `shared[n]`: operand n is one row for all iterations.
    """
    row, lane = ix.axis(1, FAR // LANES), ix.axis(0, LANES)
    whole = ix.add(ix.scale(row, LANES), lane)
    target = len(shared)
    dtypes = dict[int, DType]()

    def place(expr: Expr) -> Expr:
        match expr:
            case Apply():
                return Apply(expr.dtype, expr.fields, tuple(place(child) for child in expr.children))
            case Lookup():
                return Lookup(expr.dtype, expr.fields, tuple(place(child) for child in expr.children))
            case _:
                number = expr.fields[0]
                dtypes[number] = expr.dtype
                return load(expr.dtype, number, lane if shared[number] else whole)

    store = Store(target, whole, place(value))
    buffers = [BufferParameter(dtypes[number], FAR, False) for number in range(target)]
    kernel = Kernel((*buffers, BufferParameter(value.dtype, FAR, True)), (), (row, lane), 0, (store,))
    widest = max(dtype.bits for dtype in [value.dtype, *dtypes.values()])
    return _compile(kernel, 1, host().lanes(max(widest, 32)), LANES)


@cache
def rows_through(dtype: DType, depth: int, width: int, checked: bool) -> Helper:
    """The matrix unit's fma chains on dense operands; its iterations are rows."""
    kernel = chain(dtype, FAR // (depth * width), depth, width, checked)
    return _compile(kernel, 2, min(host().lanes(dtype.bits), width), width)
