"""Operands of the matrix unit that a copy brings from HBM in the layout in which they are wanted."""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir import index as ix
from repro.ir.loops import Affine, Const, Expr, Load, Scalar
from repro.targets.tpu_sim.codegen.contractions import Matrix
from repro.targets.tpu_sim.operands import Dim, Index, counter


@dataclass(frozen=True)
class Copy:
    """From `start` of a buffer in HBM to the beginning of an area."""

    buffer: int
    start: Index
    dims: tuple[Dim, ...]


def direct(term: Expr, laid: Matrix) -> Copy | None:
    """The copy that lays a term out as the matrix, if it is one: a plain load whose runs are kept."""
    if not isinstance(term, Load) or term.when is not None:
        return None
    axes = (*laid.batch, *laid.lines, *laid.places)
    strides = [ix.coefficient(term.offset, axis) for axis in axes]
    start = _start(ix.add(term.offset, *(ix.scale(a, -s) for a, s in zip(axes, strides, strict=True) if s is not None)))
    if start is None or None in strides:
        return None
    targets = [ix.coefficient(laid.offset, axis) or 0 for axis in axes]
    dims = [
        Dim(axis.extent, source or 0, target)
        for axis, source, target in zip(axes, strides, targets, strict=True)
        if axis.extent > 1
    ]
    dims = _merged(sorted(dims, key=lambda dim: -dim.target))
    if dims and (dims[-1].source, dims[-1].target) != (1, 1):
        return None
    return Copy(term.buffer, start, tuple(dims) or (Dim(1, 1, 1),))


def _merged(dims: list[Dim]) -> list[Dim]:
    """Neighbours that are one run on both sides become one."""
    made = list[Dim]()
    for dim in dims:
        last = made[-1] if made else None
        if last is not None and (last.source, last.target) == (dim.source * dim.count, dim.target * dim.count):
            made[-1] = Dim(last.count * dim.count, dim.source, dim.target)
        else:
            made.append(dim)
    return made


def _start(offset: Expr) -> Index | None:
    """What is left of an offset without its axes, as a value of the scalar core."""
    match offset:
        case Const():
            return Index(offset.bits - (1 << 64) if offset.bits >> 63 else offset.bits)
        case Scalar():
            return counter(f"s{offset.position}")
        case Affine():
            total = Index(offset.constant)
            for child, factor in zip(offset.children, offset.coefficients, strict=True):
                part = _start(child)
                if part is None:
                    return None
                total = total + part * factor
            return total
        case _:
            return None
