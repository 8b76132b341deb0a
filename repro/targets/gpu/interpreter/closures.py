"""What instructions are decoded to: functions that change the registers of a group of threads.

A register holds an array of one value for each thread of a group, or of one value that all of them share (shape [1]),
so that loop counters and addresses of parameters cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from repro.ir.types import Array
from repro.targets.gpu.interpreter import arithmetic
from repro.targets.gpu.interpreter.memory import FaultError, for_each
from repro.targets.gpu.interpreter.threads import Group

Closure = Callable[[Group], None]
Source = tuple[int, np.dtype[Any], bool]
"""A register, the type to read it as, and whether upper bits are dropped first."""
RAW = {1: np.dtype(np.bool_), 8: np.dtype("u1"), 16: np.dtype("u2"), 32: np.dtype("u4"), 64: np.dtype("u8")}
"""The type of a register by its bits."""


def read(registers: list[Array], source: Source) -> Array:
    slot, kind, drop = source
    value = registers[slot]
    if value.dtype is kind:
        return value
    if drop:
        return value.view(f"u{value.dtype.itemsize}").astype(f"u{kind.itemsize}").view(kind)
    return value.view(kind)


def applied(
    found: arithmetic.Operation,
    target: int,
    raw: np.dtype[Any],
    sources: Sequence[Source],
) -> Closure:
    function = found.function
    widen = None if found.result.itemsize == raw.itemsize else raw
    signed = np.dtype(f"{'i' if found.result.kind == 'i' else 'u'}{raw.itemsize}")
    if widen is None and len(sources) == 2 and not sources[0][2] and not sources[1][2]:
        (a, kind_a, _), (b, kind_b, _) = sources

        def two(group: Group) -> None:
            r = group.r
            x, y = r[a], r[b]
            if x.dtype is not kind_a:
                x = x.view(kind_a)
            if y.dtype is not kind_b:
                y = y.view(kind_b)
            r[target] = function(x, y)

        return two

    def run(group: Group) -> None:
        r = group.r
        result = function(*[read(r, source) for source in sources])
        r[target] = result if widen is None else result.astype(signed)

    return run


def together(function: arithmetic.Function, targets: Sequence[int], sources: Sequence[Sequence[Source]]) -> Closure:
    """Instructions that need none of each other's results, by one application to the operands of all of them: what
    NumPy takes for a call of few threads is mostly its own."""
    columns = list(zip(*sources, strict=True))

    def run(group: Group) -> None:
        r, count = group.r, group.count
        step = max(1, _TOGETHER // count)
        for first in range(0, len(targets), step):
            some = slice(first, first + step)
            operands = [[for_each(read(r, source), count) for source in column[some]] for column in columns]
            result = function(*map(np.concatenate, operands))
            for number, target in enumerate(targets[some]):
                r[target] = result[number * count : (number + 1) * count]

    return run


_TOGETHER = 1 << 15
"""Values of one application: more leave the near caches."""


def copied(target: int, source: int) -> Closure:
    def run(group: Group) -> None:
        group.r[target] = group.r[source]

    return run


def global_address(target: int, number: int) -> Closure:
    def run(group: Group) -> None:
        group.r[target] = np.array([group.run.global_address(number)], np.uint64)

    return run


def packed(target: int, parts: Sequence[int], bits: int) -> Closure:
    whole = RAW[bits]
    width = bits // len(parts)
    raw = RAW[width]

    def run(group: Group) -> None:
        values = [group.r[part].view(raw).astype(whole) << whole.type(width * k) for k, part in enumerate(parts)]
        result = values[0]
        for value in values[1:]:
            result = result | value
        group.r[target] = result

    return run


def unpacked(targets: Sequence[int], source: int, bits: int) -> Closure:
    raw = RAW[bits]

    def run(group: Group) -> None:
        value = group.r[source]
        value = value.view(f"u{value.dtype.itemsize}")
        for k, target in enumerate(targets):
            if target >= 0:
                group.r[target] = (value >> value.dtype.type(bits * k)).astype(raw)

    return run


def extension(kind: str, bits: int) -> Callable[[Array], Array] | None:
    """From what is loaded to the register's width."""
    size = int(kind[1:])
    if size == bits:
        return None
    if size > bits:
        raise FaultError(f"a load of {size} bits into a register of {bits}")
    signed, wide = kind[0] == "s", RAW[bits]
    narrow = np.dtype(f"i{size // 8}")
    return (lambda value: value.view(narrow).astype(f"i{bits // 8}")) if signed else (lambda value: value.astype(wide))
