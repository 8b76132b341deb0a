"""Calls that compute element by element over the same elements, as one: what one writes the next needs not read again.

Of an optimizer's update it makes one kernel for each weight, which reads and writes every element once; of a recurrent
cell's gates, state and outputs one as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from passes.rename import renumber_buffers, renumber_scalars, rewritten
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Load, Reduce, Scalar, load, topological
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import TEMPORARY, Buffer, Call

MOST_EXPRESSIONS = 4000
"""A kernel does not grow beyond it: compiling would take long."""


@dataclass(frozen=True)
class Elementwise:
    """A kernel with the program's numbers of its buffers and loops."""

    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]
    touches: Mapping[int, int] = field(default_factory=dict[int, int])
    """How many of the program's calls that it stands for touch each buffer."""

    @cached_property
    def roots(self) -> tuple[Expr, ...]:
        return tuple(expr for store in self.stores for expr in store.expressions)

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        return tuple(expr for expr in topological(self.roots) if isinstance(expr, Load))

    @cached_property
    def read(self) -> frozenset[int]:
        return frozenset(each.buffer for each in self.loads)

    @cached_property
    def written(self) -> frozenset[int]:
        return frozenset(store.buffer for store in self.stores)


def elementwise(kernel: Kernel, buffers: Sequence[int], loops: Sequence[int] = ()) -> Elementwise | None:
    """A call as such, or None if it sums, runs in an order, or writes elsewhere than it reads.

    `loops`: the depths of the loops whose counters are the kernel's scalars.
    """
    if kernel.serial or any(isinstance(expr, Reduce) for expr in kernel.expressions):
        return None
    if any(store.when is not None for store in kernel.stores):
        return None
    flat = renumber_scalars([e for s in kernel.stores for e in (s.offset, s.value)], dict(enumerate(loops)))
    flat = renumber_buffers(flat, dict(enumerate(buffers)))
    axes = tuple(ix.axis(position, axis.extent) for position, axis in enumerate(kernel.axes))
    flat = rewritten(flat, dict(zip(kernel.axes, axes, strict=True)))
    pairs = zip(kernel.stores, flat[::2], flat[1::2], strict=True)
    stores = tuple(Store(buffers[store.buffer], offset, value) for store, offset, value in pairs)
    made = Elementwise(axes, stores, dict.fromkeys(buffers, 1))
    return made if _in_step(made, made) else None


def _in_step(first: Elementwise, then: Elementwise) -> bool:
    """Whether what the second touches of the first's results, and writes of its operands, is at the same element."""
    places = {store.buffer: store.offset for store in first.stores}
    over = {store.buffer: store.offset for store in then.stores}
    own = all(places.get(each.buffer, each.offset) is each.offset for each in then.loads)
    return own and all(over.get(each.buffer, each.offset) is each.offset for each in first.loads)


def joined(first: Elementwise, then: Elementwise) -> Elementwise | None:
    """Both as one kernel, the second behind the first; None where an iteration would need another one's result."""
    first, then = _over_the_same(first, then)
    if first.axes != then.axes or first.written & then.written or not _in_step(first, then):
        return None
    values = {store.buffer: store.value for store in first.stores}
    known: dict[Expr, Expr] = {}
    for each in then.loads:
        if each.buffer in values:
            if each.when is not None or each.dtype is not values[each.buffer].dtype:
                return None
            known[each] = values[each.buffer]
    behind = tuple(Store(s.buffer, s.offset, v) for s, v in zip(then.stores, _values(then, known), strict=True))
    both = {b: first.touches.get(b, 0) + then.touches.get(b, 0) for b in {**first.touches, **then.touches}}
    made = Elementwise(first.axes, (*first.stores, *behind), both)
    return made if sum(1 for _ in topological(made.roots)) <= MOST_EXPRESSIONS else None


def _over_the_same(first: Elementwise, then: Elementwise) -> tuple[Elementwise, Elementwise]:
    """Both, one that runs over a flat axis being run over the axes of the other."""
    return _spread(first, then.axes), _spread(then, first.axes)


def _spread(body: Elementwise, axes: tuple[Axis, ...]) -> Elementwise:
    extents = [axis.extent for axis in axes]
    if len(body.axes) != 1 or len(axes) < 2 or math.prod(extents) != body.axes[0].extent:
        return body
    flat = rewritten(body.roots, {body.axes[0]: ix.linear(axes, extents)})
    pairs = zip(body.stores, flat[::2], flat[1::2], strict=True)
    return replace(body, axes=axes, stores=tuple(Store(s.buffer, offset, value) for s, offset, value in pairs))


def _values(kernel: Elementwise, known: Mapping[Expr, Expr]) -> list[Expr]:
    return rewritten([store.value for store in kernel.stores], known)


def merge(calls: Sequence[Elementwise]) -> list[Elementwise]:
    """The calls, each joined with an earlier one where it can be, in an order that keeps what each reads."""
    groups: list[Elementwise] = []
    touching: dict[int, set[int]] = {}
    """The groups that touch each buffer: a call has nothing to do with any other."""
    for call in calls:
        near = sorted(set[int]().union(*(touching.get(b, ()) for b in call.read | call.written)), reverse=True)
        place, body = _place(groups, near, call)
        groups[place : place + 1] = [body]
        for buffer in call.read | call.written:
            touching.setdefault(buffer, set()).add(place)
    return groups


def _place(groups: Sequence[Elementwise], near: Sequence[int], call: Elementwise) -> tuple[int, Elementwise]:
    """The last group that the call can join, if no group behind that is one it must follow; or a place at the end.

    `near`: the groups that touch a buffer of the call, the last one first.
    """
    for place in near:
        body = groups[place]
        together = joined(body, call) if body.written & call.read or body.read & (call.read | call.written) else None
        if together is not None:
            return place, together
        if body.written & (call.read | call.written) or body.read & call.written:
            break
    return len(groups), call


def kept(body: Elementwise, buffers: Sequence[Buffer], uses: Mapping[int, int]) -> Elementwise:
    """A kernel without stores that nothing else reads: `uses` counts the program's calls that touch each buffer."""

    def is_read(buffer: int) -> bool:
        own = buffers[buffer].role == TEMPORARY and uses[buffer] == body.touches[buffer]
        return not own or buffer in body.read

    return replace(body, stores=tuple(store for store in body.stores if is_read(store.buffer)))


def copy(kind: Buffer, source: int, target: int) -> Elementwise:
    """A buffer copied to one of the same type."""
    axis = ix.axis(0, kind.elements)
    return Elementwise((axis,), (Store(target, axis, load(kind.dtype, source, axis)),))


def as_call(body: Elementwise, buffers: Sequence[Buffer], number: Callable[[Kernel], int]) -> Call:
    """The kernel and its call; buffers are numbered by first use."""
    used = dict.fromkeys([*(each.buffer for each in body.loads), *(store.buffer for store in body.stores)])
    names = {buffer: position for position, buffer in enumerate(used)}
    parameters = tuple(BufferParameter(buffers[b].dtype, buffers[b].elements, b in body.written) for b in used)
    counters = {each.position: each for each in topological(body.roots) if isinstance(each, Scalar)}
    loops = sorted(counters)
    flat = renumber_scalars(body.roots, {depth: position for position, depth in enumerate(loops)})
    flat = renumber_buffers(flat, names)
    pairs = zip(body.stores, flat[::2], flat[1::2], strict=True)
    stores = tuple(Store(names[store.buffer], offset, value) for store, offset, value in pairs)
    kernel = Kernel(parameters, tuple(counters[depth].extent for depth in loops), body.axes, 0, stores)
    return Call(number(kernel), tuple(used), tuple(loops))
