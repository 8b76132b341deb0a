"""What no PTX of ours may hold. Every kernel passes here before its code leaves the compiler.

The contract rounds each operation once. In PTX that is the `.rn` forms: a bare `add.f32` or `mul.f32` may be fused by
the assembler, `.approx` and `.full` are not correctly rounded, `.ftz` flushes subnormals, and atomics take effect in
the order in which threads come. An fma stands only where the kernel has one. Instruction selection computes once what
it finds to be equal, such as a vector's lanes, and so may have less of everything than the optimised LLVM code. It has
more of nothing: of no fma, as if it made one of a product and a sum, nor of products or roundings in all, as if one
came apart. Counts are exact where nothing is equal; where lanes are, they leave room for as many as were saved.
"""

from __future__ import annotations

import re
from collections import Counter

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
    (r"\.f32x2\b", "an instruction for two numbers"),
    (r"\b(ex2|lg2|sin|cos|tanh|rsqrt)\.", "a hardware approximation"),
)
_ROUNDED = re.compile(r"\b(fma|mad|add|sub|mul|div|sqrt)\.rn\.(f32|f64)\b")
_LLVM_ROUNDED = re.compile(
    r"= (?:f(add|sub|mul|div)|(?:tail )?call(?=[^@\n]*@llvm\.(fma|sqrt)\.)) (?:<(\d+) x )?(float|double)\b"
)
_TYPES = {"float": F32, "double": F64, "f32": F32, "f64": F64}
_CALLED = re.compile(r"\bcall(?:\.uni)?\s*(?:\([^)]*\),\s*)?(\w+)", re.DOTALL)
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
    _check_roundings(name, fma, ptx, llvm)


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


def _check_roundings(name: str, stated: frozenset[DType], ptx: str, llvm: str) -> None:
    in_ptx, in_llvm = _in_ptx(ptx), _in_llvm(llvm)
    for dtype in (F32, F64):
        found, made = in_ptx[dtype], in_llvm[dtype]
        if found["fma"] and dtype not in stated:
            raise InternalError(f"{name} has {found['fma']} fma of {dtype}, and the kernel none")
        if found["fma"] > made["fma"] or (made["fma"] and not found["fma"]):
            raise InternalError(f"{name} has {found['fma']} fma of {dtype} in PTX, and {made['fma']} in LLVM code")
        if found.total() > made.total():
            raise InternalError(
                f"{name} rounds {found.total()} times to {dtype} in PTX, and {made.total()} in LLVM code"
            )
        if found["mul"] > made["mul"] + made["div"]:  # by a power of two, which is a product
            raise InternalError(f"{name} has {found['mul']} mul of {dtype} in PTX, and fewer in LLVM code")


def _in_ptx(ptx: str) -> dict[DType, Counter[str]]:
    """How many instructions round, by type and operation."""
    found = {F32: Counter[str](), F64: Counter[str]()}
    for operation, kind in _ROUNDED.findall(ptx):
        found[_TYPES[kind]]["fma" if operation == "mad" else operation] += 1
    return found


def _in_llvm(llvm: str) -> dict[DType, Counter[str]]:
    """The same; an instruction for each lane."""
    found = {F32: Counter[str](), F64: Counter[str]()}
    for operation, called, lanes, kind in _LLVM_ROUNDED.findall(llvm):
        found[_TYPES[kind]][called or operation] += int(lanes or 1)
    return found
