"""What no PTX of ours may hold. Every kernel passes here before its code leaves the compiler.

The contract rounds each operation once. In PTX that is the `.rn` forms: a bare `add.f32` or `mul.f32` may be fused by
the assembler, `.approx` and `.full` are not correctly rounded, `.ftz` flushes subnormals, and atomics take effect in
the order in which threads come. An fma stands only where the kernel has one, and as often as the optimised LLVM code
has one: instruction selection makes none of its own. It may compute one of a vector's lanes for all, where LLVM found
these to be equal.
"""

from __future__ import annotations

import re
from collections.abc import Set

from repro.errors import InternalError
from repro.ir.expressions import Apply, Reduce
from repro.ir.loops import Kernel
from repro.ir.types import F32, F64, DType

_FORBIDDEN: tuple[tuple[str, str], ...] = (
    (r"(?<![\w.])(atom|red|multimem)\.", "an atomic"),
    (r"\.approx", "an approximate instruction"),
    (r"\.full", "a division that is not correctly rounded"),
    (r"\.ftz", "an instruction that flushes subnormals"),
    (r"\b(add|sub|mul|fma|mad|div|rcp|sqrt)(\.sat)?\.b?f(16|32|64)", "an operation without a rounding of its own"),
    (r"\b(add|sub|mul|fma|mad|div|rcp|sqrt)\.(rz|rm|rp)\b", "a directed rounding"),
    (r"\b(ex2|lg2|sin|cos|tanh|rsqrt)\.", "a hardware approximation"),
)
_ROUNDED = re.compile(r"\b(?:fma|mad)\.rn\.(f32|f64)\b")
_CALLED = re.compile(r"\bcall(?:\.uni)?\s*(?:\([^)]*\),\s*)?(\w+)", re.DOTALL)
_LLVM_FMA = re.compile(r"call (?:<(\d+) x (?:float|double)>|float|double) @llvm\.fma\.(?:v\d+)?(f32|f64)")
_DEFINED = re.compile(r"\s*(%[\w.]+) = (?:tail )?(\w+)(.*)")
_WIDTHS = re.compile(r"<(\d+) x ")
_MAKES_LANES = re.compile(r"insertelement|load|phi|<(?:float|double|i\d+) |@llvm\.masked")
"""What makes lanes that may differ of anything."""
_FLAGS = re.compile(r"\bf(?:add|sub|mul|div|rem|neg|cmp|ma)\b.*?\b(fast|reassoc|contract|afn|arcp)\b")


def check(kernel: Kernel, ptx: str, llvm: str) -> None:
    """Raises InternalError that names the kernel, where its PTX breaks a rule; `llvm` is the code it was made of."""
    check_code(f"GPU kernel k_{kernel.digest[:16]}", fma_types(kernel), ptx, llvm)


def check_code(name: str, fma: frozenset[DType], ptx: str, llvm: str) -> None:
    """The same for code of several kernels, which have an fma in the types given."""
    for pattern, what in _FORBIDDEN:
        found = re.search(pattern, ptx)
        if found:
            raise InternalError(f"{name} holds {what}: {_line(ptx, found.start())}")
    ptx = re.sub(r"//.*", "", ptx)
    for called in _CALLED.findall(ptx):
        if ".func" not in ptx or not re.search(rf"\.func\s*(?:\([^)]*\)\s*)?{called}\b", ptx):
            raise InternalError(f"{name} calls {called}, which is not in it")
    flag = _FLAGS.search(llvm)
    if flag:
        raise InternalError(f"{name} has a fast-math flag: {flag.group(0)}")
    _check_fma(name, fma, ptx, llvm)


def _line(text: str, place: int) -> str:
    """The line that holds a place of the text."""
    return text[text.rfind("\n", 0, place) + 1 :].partition("\n")[0].strip()


def fma_types(kernel: Kernel) -> frozenset[DType]:
    """Types in which the kernel has an fma."""
    found: set[DType] = set()
    for expr in kernel.expressions:
        if (isinstance(expr, Apply) and expr.op == "fma") or (isinstance(expr, Reduce) and expr.combiner == "fma"):
            found.add(expr.dtype)
    return frozenset(found)


def _check_fma(name: str, stated: frozenset[DType], ptx: str, llvm: str) -> None:
    lanes = _lanes(llvm)
    for dtype in (F32, F64):
        found = _ROUNDED.findall(ptx).count(dtype.name)
        least, most = (sum(each) for each in zip((0, 0), *lanes.get(dtype.name, ()), strict=True))
        if found and dtype not in stated:
            raise InternalError(f"{name} has {found} fma of {dtype}, and the kernel none")
        if not least <= found <= most:
            raise InternalError(f"{name} has {found} fma of {dtype} in PTX, and {most} in LLVM code")


def _lanes(llvm: str) -> dict[str, list[tuple[int, int]]]:
    """Of each fma in LLVM code, by type: how many of its lanes may differ, and how many there are.

    Lanes are equal in what is spread over a vector, and in what is computed from nothing but that.
    """
    found, differing = dict[str, list[tuple[int, int]]](), set[str]()
    for line in llvm.splitlines():
        apart = False
        if defined := _DEFINED.match(line):
            name, operation, rest = defined.groups()
            apart = _differs(operation, rest, differing)
            if apart:
                differing.add(name)
        for width, kind in _LLVM_FMA.findall(line):
            every = int(width or 1)
            found.setdefault(kind, []).append((every if apart else 1, every))
    return found


def _differs(operation: str, rest: str, differing: Set[str]) -> bool:
    """Whether lanes of a vector may differ, by its operation and what else defines it."""
    widths = _WIDTHS.findall(rest)
    if not widths:
        return False
    if operation == "shufflevector":
        return not rest.endswith("zeroinitializer")
    made = _MAKES_LANES.search(operation + rest) or (operation == "bitcast" and len({*widths}) > 1)
    return bool(made) or not differing.isdisjoint(re.findall(r"%[\w.]+", rest))
