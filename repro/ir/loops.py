"""The loop IR: a kernel is parallel axes, and stores of scalar expressions over them.

    kernel = axes x stores,   store = buffer[offset] <- value  (when a condition holds)

What is computed ends here. How it is scheduled (loop order, tiles, vectors, threads) is a separate value,
`repro.ir.schedule.Schedule`, that can realise an order and never change one.

Iterations over the axes are independent and may run in any order, except the axes named in
`Kernel.serial`: those run one after another, ascending, outermost first. An iteration computes the values of all its
stores before it makes any.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from repro.ir.expressions import (
    Affine,
    Apply,
    Axis,
    Chain,
    Const,
    Exact,
    Expr,
    IndexOp,
    Lanes,
    Load,
    Lookup,
    Order,
    Rarely,
    Reduce,
    Scalar,
    Sequential,
    topological,
)
from repro.ir.types import DType


@dataclass(frozen=True)
class Store:
    """`buffer[offset] <- value`, where `when` (if any) holds."""

    buffer: int
    offset: Expr
    value: Expr
    when: Expr | None = None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.offset, self.value) if self.when is None else (self.offset, self.value, self.when)


@dataclass(frozen=True)
class BufferParameter:
    """A kernel's buffer argument: dense elements; buffers never overlap unless they are one argument."""

    dtype: DType
    elements: int
    writable: bool

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.bytes


@dataclass(frozen=True, eq=False)
class Kernel:
    """A loop nest: see the module's text. `axes` is in nest order; `serial` is a prefix count of it."""

    buffers: tuple[BufferParameter, ...]
    scalars: tuple[int, ...]
    """Extent of each run-time i64 argument."""
    axes: tuple[Axis, ...]
    serial: int
    stores: tuple[Store, ...]

    @cached_property
    def text(self) -> str:
        return "\n".join(_print_kernel(self)) + "\n"

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) of the text form: equal kernels share code."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def nbytes(self) -> int:
        """Of all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)

    @cached_property
    def expressions(self) -> tuple[Expr, ...]:
        """Every expression once, operands before users."""
        return tuple(topological(root for store in self.stores for root in store.expressions))


# ── text form ───────────────────────────────────────────────────────────────────────────────────────


def order_text(order: Order) -> str:
    match order:
        case Chain(panel, panels_per_block):
            return f"chain({panel},{panels_per_block})"
        case Lanes(lanes, leaf):
            return f"lanes({lanes},{leaf})"
        case Sequential():
            return "sequential"
        case Exact():
            return "exact"


def _print_kernel(kernel: Kernel) -> Iterator[str]:
    yield "kernel {"
    for number, buffer in enumerate(kernel.buffers):
        mode = "out" if buffer.writable else "in"
        yield f"  buffer b{number}: {buffer.dtype.name}[{buffer.elements}] {mode}"
    for number, extent in enumerate(kernel.scalars):
        yield f"  scalar s{number}: {extent}"
    names: dict[Expr, str] = {}
    for position, axis in enumerate(kernel.axes):
        names[axis] = f"i{axis.number}"
        order = "serial" if position < kernel.serial else "parallel"
        yield f"  {order} i{axis.number}: {axis.extent}"
    count = 0
    for expr in kernel.expressions:
        if expr in names:
            continue
        if isinstance(expr, Axis):
            names[expr] = f"i{expr.number}"
            yield f"  bound i{expr.number}: {expr.extent}"
            continue
        names[expr] = f"%{count}"
        count += 1
        yield f"  {names[expr]} = {_print_expr(expr, names)} : {expr.dtype.name}"
    for store in kernel.stores:
        when = f" when {names[store.when]}" if store.when is not None else ""
        yield f"  b{store.buffer}[{names[store.offset]}] <- {names[store.value]}{when}"
    yield "}"


def _print_expr(expr: Expr, names: dict[Expr, str]) -> str:
    arguments = [names[child] for child in expr.children]
    match expr:
        case Const():
            return f"const 0x{expr.bits:0{expr.dtype.bits // 4}x}"
        case Scalar():
            return f"scalar s{expr.position}"
        case Apply():
            return f"{expr.op} {' '.join(arguments)}"
        case Rarely():
            return f"rarely {' '.join(arguments)}"
        case Lookup():
            return f"lookup {arguments[0]} {' '.join(f'0x{bits:0{expr.dtype.bits // 4}x}' for bits in expr.table)}"
        case Affine():
            terms = [f"{k}*{name}" for k, name in zip(expr.coefficients, arguments, strict=True)]
            return "affine " + " ".join([str(expr.constant), *terms])
        case IndexOp():
            return f"{expr.op} {arguments[0]} {expr.divisor}"
        case Load():
            when = f" when {arguments[1]}" if expr.when is not None else ""
            return f"load b{expr.buffer}[{arguments[0]}]{when}"
        case Reduce():
            axes = ",".join(f"{names[axis]}<{axis.extent}" for axis in expr.axes)
            terms = arguments[:-1] if expr.has_present else arguments
            present = f" present {arguments[-1]}" if expr.has_present else ""
            return f"reduce {expr.combiner} {order_text(expr.order)} [{axes}] {' '.join(terms)}{present}"
        case _:
            raise TypeError(f"no text form for {expr!r}")
