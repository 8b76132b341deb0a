"""Programs run in NumPy, kernel by kernel, straight from the loop IR.

No speed and no code: it says what a program means, so that lowering can be tested without an emitter and
an emitter without lowering.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from repro.errors import InternalError
from repro.ir.expressions import Affine, Apply, Axis, Const, Expr, IndexOp, Load, Lookup, Rarely, Reduce, Scalar
from repro.ir.loops import Kernel
from repro.ir.program import (
    CONSTANT,
    INPUT,
    LOCAL,
    OUTPUT,
    PARAMETER,
    Branch,
    Buffer,
    Call,
    Commit,
    CountedLoop,
    Program,
    RowBlocks,
    Step,
    While,
)
from repro.ir.types import Array
from repro.numerics import numpy_scalars
from repro.numerics.host_mode import exact_arithmetic
from repro.numerics.sums import reduce_reference


class _Frame:
    """Values of expressions over one grid: a dimension for each of the kernel's axes, and one more per open reduction.
    A value has extent 1 along what it does not depend on, so a row's sum is summed once a row."""

    def __init__(self, axes: dict[Axis, Array], depth: int, buffers: Sequence[Array], scalars: Sequence[int]) -> None:
        self.axes, self.depth, self.buffers, self.scalars = axes, depth, buffers, scalars
        self.known: dict[Expr, Array] = {}

    def value(self, expr: Expr) -> Array:
        for needed in self._missing(expr):
            self.known[needed] = self._value(needed)
        return self.known[expr]

    def _missing(self, root: Expr) -> Iterator[Expr]:
        """What must be computed, operands first: long chains must not recurse. A reduction computes its own terms."""
        stack = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if expr in self.known:
                continue
            if ready or isinstance(expr, Reduce):
                yield expr
            else:
                stack.append((expr, True))
                stack.extend((child, False) for child in reversed(expr.children))

    def _value(self, expr: Expr) -> Array:
        match expr:
            case Const():
                raw = np.asarray(expr.bits, dtype=f"u{expr.dtype.bytes}")
                return raw.view(expr.dtype.storage).reshape((1,) * self.depth)
            case Axis():
                return self.axes[expr]
            case Scalar():
                return np.full((1,) * self.depth, self.scalars[expr.position], np.int64)
            case Affine():
                parts = (self.value(child) * k for child, k in zip(expr.children, expr.coefficients, strict=True))
                return np.asarray(sum(parts, np.int64(expr.constant)))
            case IndexOp():
                operand = self.value(expr.children[0])
                return operand // expr.divisor if expr.op == "floordiv" else operand % expr.divisor
            case Apply():
                operands = [self.value(child) for child in expr.children]
                dtypes = [child.dtype for child in expr.children]
                return numpy_scalars.evaluate(expr.op, expr.dtype, dtypes, operands)
            case Rarely():
                condition, seldom, common = (self.value(child) for child in expr.children)
                return np.where(condition, seldom, common)
            case Lookup():
                return numpy_scalars.lookup(expr.table, expr.dtype, self.value(expr.index))
            case Load():
                return self._load(expr)
            case Reduce():
                return self._reduce(expr)
            case _:
                raise InternalError(f"no meaning for {expr!r}")

    def _load(self, expr: Load) -> Array:
        buffer, offset = self.buffers[expr.buffer], self.value(expr.offset)
        if expr.when is None:
            if offset.size and (offset.min() < 0 or offset.max() >= buffer.size):
                raise InternalError(f"load outside buffer {expr.buffer} of {buffer.size}")
            return buffer[offset]
        when, offset = np.broadcast_arrays(self.value(expr.when), offset)
        chosen = offset[when]
        if chosen.size and (chosen.min() < 0 or chosen.max() >= buffer.size):
            raise InternalError(f"conditional load outside buffer {expr.buffer} of {buffer.size}")
        result = np.zeros(offset.shape, buffer.dtype)
        result[when] = buffer[chosen]
        return result

    def _reduce(self, expr: Reduce) -> Array:
        extents = [axis.extent for axis in expr.axes]
        places = np.indices(extents).reshape(len(extents), -1)
        axes = {axis: array[..., None] for axis, array in self.axes.items()}
        for axis, place in zip(expr.axes, places, strict=True):
            axes[axis] = place.reshape((1,) * self.depth + (-1,))
        inner = _Frame(axes, self.depth + 1, self.buffers, self.scalars)
        terms = [inner.value(term) for term in expr.terms]
        present = None if expr.present is None else inner.value(expr.present)
        every = [*terms, *([] if present is None else [present]), axes[expr.axes[0]]]
        shape = np.broadcast_shapes(*(part.shape for part in every))
        full = [np.broadcast_to(term, shape) for term in terms]
        mask = None if present is None else np.broadcast_to(present, shape)
        return np.asarray(reduce_reference(expr.combiner, expr.order, full, mask))


def run_kernel(kernel: Kernel, buffers: Sequence[Array], scalars: Sequence[int] = ()) -> None:
    """Run one kernel on flat storage arrays, in place."""
    parallel = kernel.axes[kernel.serial :]
    extents = [axis.extent for axis in parallel] or [1]
    depth = len(extents)
    along = dict(zip(parallel, np.indices(extents, np.int64, sparse=True), strict=False))
    for point in product(*(range(axis.extent) for axis in kernel.axes[: kernel.serial])):
        axes = along | {axis: np.full((1,) * depth, at) for axis, at in zip(kernel.axes, point, strict=False)}
        frame = _Frame(axes, depth, buffers, scalars)
        found = [[frame.value(expr) for expr in store.expressions] for store in kernel.stores]
        for store, values in zip(kernel.stores, found, strict=True):
            offset, value, *when = (np.broadcast_to(each, extents) for each in values)
            chosen = when[0] if when else np.ones(extents, bool)
            buffers[store.buffer][offset[chosen]] = value[chosen]


def run(program: Program, inputs: Sequence[Array], parameters: Sequence[Array] = ()) -> list[Array]:
    """The outputs (flat storage arrays) of a program. Temporaries start as a pattern that is no zero.

    State is written where it lies, in `parameters`.
    """
    outputs: dict[int, Array] = {}
    arrays: list[Array] = []
    for buffer in program.buffers:
        if buffer.role == INPUT:
            arrays.append(inputs[buffer.position].reshape(-1))
        elif buffer.role == PARAMETER:
            arrays.append(parameters[buffer.position].reshape(-1))
        elif buffer.role == CONSTANT:
            arrays.append(np.frombuffer(program.constants[buffer.position], dtype=buffer.dtype.storage))
        else:
            arrays.append(_junk(buffer))
            if buffer.role == OUTPUT:
                outputs[buffer.position] = arrays[-1]
    with exact_arithmetic():
        _steps(program, (*program.once, *program.steps), arrays, [])
    return [outputs[position] for position in range(len(outputs))]


def _junk(buffer: Buffer) -> Array:
    junk = np.frombuffer(b"\x5a" * max(buffer.nbytes, 1), dtype=np.uint8)[: buffer.nbytes].copy()
    junk = junk & 1 if buffer.dtype.name == "bool" else junk
    return junk.view(buffer.dtype.storage)


def _steps(program: Program, steps: Sequence[Step], arrays: list[Array], counters: list[int]) -> None:
    for step in steps:
        match step:
            case Call():
                kernel = program.kernels[step.kernel]
                run_kernel(kernel, [arrays[b] for b in step.buffers], [counters[depth] for depth in step.scalars])
            case CountedLoop():
                for at in range(step.count):
                    _steps(program, step.body, arrays, [*counters, at])
            case While():
                at = 0
                while at < step.limit and bool(arrays[step.condition][0]):
                    _steps(program, step.body, arrays, [*counters, at])
                    at += 1
            case Branch():
                side = step.then if bool(arrays[step.condition][0]) else step.otherwise
                _steps(program, side, arrays, counters)
            case RowBlocks():
                for digits in product(*(range(extent) for extent in step.extents)):
                    fresh = [_junk(b) if b.role == LOCAL else a for a, b in zip(arrays, program.buffers, strict=True)]
                    _steps(program, step.body, fresh, [*counters, *digits])
            case Commit():
                if step.refused is None or not arrays[step.refused][0]:
                    _steps(program, step.body, arrays, counters)
