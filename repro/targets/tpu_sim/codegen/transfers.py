"""Copies between HBM and VMEM that lay elements out anew on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from passes.rename import settled
from repro.ir import index as ix
from repro.ir.expressions import Affine, Axis, Const, Expr, Load, Scalar
from repro.targets.tpu_sim.codegen.contractions import Matrix
from repro.targets.tpu_sim.operands import Dim, Index, counter


@dataclass(frozen=True)
class Copy:
    """Between `start` of a buffer in HBM, where a dimension's strides are `source`, and a place in VMEM (`target`)."""

    buffer: int
    start: Index
    dims: tuple[Dim, ...]

    def outwards(self) -> tuple[Dim, ...]:
        """The dimensions of the copy from VMEM to HBM."""
        return tuple(Dim(dim.count, dim.target, dim.source) for dim in self.dims)


def direct(term: Expr, laid: Matrix, known: dict[Axis, Index]) -> Copy | None:
    """The copy that lays a term out as the matrix, if it is one: a plain load whose runs are kept."""
    if not isinstance(term, Load) or term.when is not None:
        return None
    copy = between(term.buffer, term.offset, laid.offset, (*laid.batch, *laid.lines, *laid.places), known)
    return copy if copy is not None and (copy.dims[-1].source, copy.dims[-1].target) == (1, 1) else None


def pieces(term: Expr, laid: Matrix, axis: Axis, size: int, known: dict[Axis, Index]) -> list[tuple[int, Copy]]:
    """The same in copies of so many values of an axis each, and where each of them goes; none if it is no copy."""
    if not isinstance(term, Load) or direct(term, laid, known) is None:
        return []
    far, near = ix.coefficient(term.offset, axis) or 0, ix.coefficient(laid.offset, axis) or 0
    made = list[tuple[int, Copy]]()
    for first in range(0, axis.extent, size):
        part = ix.axis(axis.number, min(size, axis.extent - first))
        axes = [part if each is axis else each for each in (*laid.batch, *laid.lines, *laid.places)]
        offsets = settled([term.offset, laid.offset], {axis: part})
        copy = between(term.buffer, offsets[0], offsets[1], axes, known)
        assert copy is not None
        made.append((first * near, Copy(copy.buffer, copy.start + first * far, copy.dims)))
    return made


def between(buffer: int, far: Expr, near: Expr, axes: Sequence[Axis], known: dict[Axis, Index]) -> Copy | None:
    """The copy of all elements that the axes number, `far` in HBM and `near` in VMEM, where both have strides."""
    strides = [ix.coefficient(far, axis) for axis in axes]
    rest = ix.add(far, *(ix.scale(a, -s) for a, s in zip(axes, strides, strict=True) if s is not None))
    start = _start(rest, known)
    if start is None or None in strides:
        return None
    targets = [ix.coefficient(near, axis) or 0 for axis in axes]
    dims = [
        Dim(axis.extent, source or 0, target)
        for axis, source, target in zip(axes, strides, targets, strict=True)
        if axis.extent > 1
    ]
    return Copy(buffer, start, tuple(_merged(sorted(dims, key=lambda dim: -dim.target))) or (Dim(1, 1, 1),))


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


def _start(offset: Expr, known: dict[Axis, Index]) -> Index | None:
    """What is left of an offset without its axes, as a value of the scalar core."""
    match offset:
        case Const():
            return Index(offset.bits - (1 << 64) if offset.bits >> 63 else offset.bits)
        case Axis():
            return known.get(offset)
        case Scalar():
            return counter(f"s{offset.position}")
        case Affine():
            total = Index(offset.constant)
            for child, factor in zip(offset.children, offset.coefficients, strict=True):
                part = _start(child, known)
                if part is None:
                    return None
                total = total + part * factor
            return total
        case _:
            return None
