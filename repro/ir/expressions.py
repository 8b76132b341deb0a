"""Expressions over loop axes, and the orders of their reductions.

An expression is an interned DAG: constants, axis variables, scalar operations, loads, affine index sums
and ordered reductions. A reduction is an expression too, with axes of its own and its order as data; so
fusion is substitution, and a row kernel is an inner reduction that does not depend on the inner axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from repro.ir.scalars import SCALARS
from repro.ir.types import BOOL, I64, DType

# ── orders of reduction ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Chain:
    """Rule 7: ascending fma chains over panels, panels summed within blocks, blocks summed, then + 0.0.

    Both count terms of the flattened reduction index: a new panel begins at each multiple of `panel`, a
    new block at each multiple of `panel * panels_per_block`.
    """

    panel: int
    panels_per_block: int


@dataclass(frozen=True)
class Lanes:
    """Rule 10: value i goes to lane i mod `lanes`; lanes fold by halves; leaves of `leaf` values nest."""

    lanes: int
    leaf: int


@dataclass(frozen=True)
class Sequential:
    """One accumulator, starting from the first term, ascending."""


@dataclass(frozen=True)
class Exact:
    """The combiner is associative and commutative on bits (min, max, integers, booleans): any order."""


Order = Chain | Lanes | Sequential | Exact

COMBINERS = ("fma", "add", "mul", "min", "max", "and", "or", "argmax", "argmin")
"""`fma` takes two terms (products under Chain); `argmax`/`argmin` give the i64 flattened index of the
first greatest/least term by rule 5 (NaN greatest for both; -0 equals +0); the rest take one."""


# ── expressions ─────────────────────────────────────────────────────────────────────────────────────


class Expr:
    """An interned expression. Equal expressions are one object, so `is` compares them."""

    __slots__ = ("__weakref__", "children", "dtype", "free", "fields")
    _interned: ClassVar[WeakValueDictionary[tuple[Any, ...], Expr]] = WeakValueDictionary()

    dtype: DType
    children: tuple[Expr, ...]
    fields: tuple[Any, ...]
    free: frozenset[Axis]
    """Axis variables it depends on, those bound by reductions inside left out."""

    def __new__(cls, dtype: DType, fields: tuple[Any, ...], children: tuple[Expr, ...]) -> Any:
        key = (cls, dtype.name, fields, children)
        found = Expr._interned.get(key)
        if found is not None:
            return found
        made = object.__new__(cls)
        made.dtype, made.fields, made.children = dtype, fields, children
        made.free = made._free()
        Expr._interned[key] = made
        return made

    def _free(self) -> frozenset[Axis]:
        return frozenset().union(*(child.free for child in self.children))

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.fields}:{self.dtype.name}"


class Const(Expr):
    """A constant: dtype and raw bits."""

    __slots__ = ()

    @property
    def bits(self) -> int:
        return self.fields[0]


class Axis(Expr):
    """An axis variable (i64), running over 0..extent-1. Numbers are unique in a kernel."""

    __slots__ = ()

    @property
    def number(self) -> int:
        return self.fields[0]

    @property
    def extent(self) -> int:
        return self.fields[1]

    def _free(self) -> frozenset[Axis]:
        return frozenset((self,))


class Scalar(Expr):
    """A run-time i64 argument of the kernel (a program's loop counter), in 0..extent-1."""

    __slots__ = ()

    @property
    def position(self) -> int:
        return self.fields[0]

    @property
    def extent(self) -> int:
        return self.fields[1]


class Apply(Expr):
    """A scalar operation of `repro.ir.scalars`."""

    __slots__ = ()

    @property
    def op(self) -> str:
        return self.fields[0]


class Rarely(Expr):
    """`select(condition, seldom, common)`, where the condition seldom holds: a target may skip computing
    `seldom` where no lane takes it."""

    __slots__ = ()

    @property
    def condition(self) -> Expr:
        return self.children[0]

    @property
    def seldom(self) -> Expr:
        return self.children[1]

    @property
    def common(self) -> Expr:
        return self.children[2]


class Lookup(Expr):
    """`table[index mod n]`: a small table of constants; n is a power of two, the index an integer of the
    entries' width."""

    __slots__ = ()

    @property
    def table(self) -> tuple[int, ...]:
        """Raw bits of the entries."""
        return self.fields

    @property
    def index(self) -> Expr:
        return self.children[0]


class Affine(Expr):
    """An i64 index sum: constant + sum of coefficient * child. Built only by `repro.ir.index`."""

    __slots__ = ()

    @property
    def constant(self) -> int:
        return self.fields[0]

    @property
    def coefficients(self) -> tuple[int, ...]:
        return self.fields[1]


class IndexOp(Expr):
    """`floordiv` or `mod` of an index by a positive constant. Built only by `repro.ir.index`."""

    __slots__ = ()

    @property
    def op(self) -> str:
        return self.fields[0]

    @property
    def divisor(self) -> int:
        return self.fields[1]


class Load(Expr):
    """`buffer[offset]`; with a condition, zero bits and no access where it is false."""

    __slots__ = ()

    @property
    def buffer(self) -> int:
        return self.fields[0]

    @property
    def offset(self) -> Expr:
        return self.children[0]

    @property
    def when(self) -> Expr | None:
        return self.children[1] if len(self.children) > 1 else None


class Reduce(Expr):
    """An ordered reduction of terms over its own axes (row-major, the last fastest).

    `present`, where given, says which terms exist: an absent one takes part in no operation, but counts
    as a position. A target may let an absent term of a Chain be +0 * finite instead (rule 7), and gives
    an absent term of Lanes the combiner's identity (-0.0 for add, 1 for mul).
    """

    __slots__ = ()

    @property
    def combiner(self) -> str:
        return self.fields[0]

    @property
    def order(self) -> Order:
        return self.fields[1]

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.fields[2]

    @property
    def has_present(self) -> bool:
        return self.fields[3]

    @property
    def terms(self) -> tuple[Expr, ...]:
        return self.children[:-1] if self.has_present else self.children

    @property
    def present(self) -> Expr | None:
        return self.children[-1] if self.has_present else None

    def _free(self) -> frozenset[Axis]:
        return super()._free() - frozenset(self.axes)


def const(dtype: DType, bits: int) -> Const:
    return Const(dtype, (bits & ((1 << dtype.bits) - 1),), ())


def apply(op: str, *operands: Expr) -> Expr:
    """A scalar operation on expressions of one type (see SCALARS)."""
    entry = SCALARS[op]
    if len(operands) != entry.arity:
        raise TypeError(f"{op} takes {entry.arity} operands, not {len(operands)}")
    dtypes = [operand.dtype for operand in operands]
    if op != "select" and dtypes[0].kind not in entry.kinds:
        raise TypeError(f"{op} is not defined on {dtypes[0]}")
    return Apply(entry.result(dtypes), (op,), operands)


def convert(operand: Expr, dtype: DType) -> Expr:
    return operand if operand.dtype is dtype else Apply(dtype, ("convert",), (operand,))


def bitcast(operand: Expr, dtype: DType) -> Expr:
    if operand.dtype.bits != dtype.bits:
        raise TypeError(f"bitcast from {operand.dtype} to {dtype}")
    return operand if operand.dtype is dtype else Apply(dtype, ("bitcast",), (operand,))


def rarely(condition: Expr, seldom: Expr, common: Expr) -> Expr:
    if condition.dtype is not BOOL or seldom.dtype is not common.dtype:
        raise TypeError(f"rarely on {condition.dtype}, {seldom.dtype}, {common.dtype}")
    return Rarely(common.dtype, (), (condition, seldom, common))


def lookup(dtype: DType, table: Sequence[int], index: Expr) -> Expr:
    if len(table) & (len(table) - 1) or len(table) < 2:
        raise TypeError(f"a table of {len(table)} entries: not a power of two")
    if index.dtype.is_float or index.dtype is BOOL or index.dtype.bits != dtype.bits:
        raise TypeError(f"an index of {index.dtype} into entries of {dtype}")
    return Lookup(dtype, tuple(table), (index,))


def load(dtype: DType, buffer: int, offset: Expr, when: Expr | None = None) -> Expr:
    children = (offset,) if when is None else (offset, when)
    return Load(dtype, (buffer,), children)


def reduce(
    combiner: str, order: Order, axes: Sequence[Axis], terms: Sequence[Expr], present: Expr | None = None
) -> Expr:
    if combiner not in COMBINERS:
        raise TypeError(f"unknown combiner {combiner}")
    dtype = I64 if combiner.startswith("arg") else terms[0].dtype
    children = tuple(terms) if present is None else (*terms, present)
    return Reduce(dtype, (combiner, order, tuple(axes), present is not None), children)


TRUE = const(BOOL, 1)
FALSE = const(BOOL, 0)


def topological(roots: Iterable[Expr]) -> Iterator[Expr]:
    """Every reachable expression once, operands before users, in a fixed order."""
    seen: set[Expr] = set()
    for root in roots:
        stack = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if ready:
                yield expr
                continue
            if expr in seen:
                continue
            seen.add(expr)
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(expr.children) if child not in seen)
            if isinstance(expr, Reduce):
                stack.extend((axis, False) for axis in reversed(expr.axes) if axis not in seen)
