"""MatMul, Gemm, Conv and the reductions: the terms of single elements, and the known orders of adding them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from onnx import NodeProto

from repro.audit.causes.epilogue import Finish, at, epilogue
from repro.audit.causes.problem import Candidate, NotCoveredError, Problem, Units, attribute
from repro.audit.causes.sums import dots, mean_f64, orders_for, sums, total
from repro.audit.probes.steps import Order, Step
from repro.audit.probes.words import tap_by_tap
from repro.ir.types import Array

Gathered = tuple[Array, Array]
"""Terms and factors of some elements, [terms, elements] each."""

CHANNEL_BLOCKS = (16, 8)


def by_element(problem: Problem, candidates: Callable[[Array], Iterator[Candidate]], terms: int) -> Units:
    return Units(problem.golden.reshape(-1), problem.theirs.reshape(-1), candidates, terms, by_place=True)


# ── dots ────────────────────────────────────────────────────────────────────────────────────────────


def _dot_candidates(gathered: Gathered, addend: Array | None, finish: Finish) -> Iterator[Candidate]:
    """Every known order, the addend last, then the addend first."""
    terms, factors = gathered
    for name, compute in dots(terms, factors):
        yield Candidate(name, lambda compute=compute: finish(compute() if addend is None else compute() + addend))
    if addend is None:
        return
    for name, order in orders_for(len(terms)):
        if order.steps == (Step(len(terms), 1),) or (len(order.steps) == 1 and order.steps[0].stride == 1):
            for fused in (True, False):
                words = f"{name}, {'fma' if fused else 'products rounded'}, starting from the bias"
                yield Candidate(words, _from(order, gathered, addend, fused, finish))


def _from(order: Order, gathered: Gathered, start: Array, fused: bool, finish: Finish) -> Callable[[], Array]:
    """One chain grows from `start`; sums of blocks are added to it."""
    terms, factors = gathered
    block = order.steps[0].count

    def compute() -> Array:
        if block >= len(terms):
            ones = np.ones((1, *factors.shape[1:]), np.float32)
            whole = Order((Step(len(terms) + 1, 1),), backwards=order.backwards)
            at = len(terms) if order.backwards else 0
            extended = np.insert(terms, at, start, axis=0), np.insert(factors, at, ones, axis=0)
            return finish(total(whole, *extended, fused))
        result = start
        for at in range(0, len(terms), block):
            part = terms[at : at + block], factors[at : at + block]
            result = result + total(Order((Step(len(part[0]), 1),)), *part, fused)
        return finish(result)

    return compute


def matmul(problem: Problem) -> Units:
    left, right = problem.required(0), problem.required(1)
    return _matmul(problem, left, right, lambda units: epilogue(problem, units))


def _matmul(
    problem: Problem, left: Array, right: Array, behind: Callable[[Array], tuple[Array | None, Finish]]
) -> Units:
    rows = left[None, :] if left.ndim == 1 else left
    columns = right[:, None] if right.ndim == 1 else right
    batch = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    shape = (*batch, rows.shape[-2], columns.shape[-1])
    rows = np.broadcast_to(rows, (*batch, *rows.shape[-2:]))
    columns = np.broadcast_to(columns, (*batch, *columns.shape[-2:])).swapaxes(-1, -2)

    def candidates(units: Array) -> Iterator[Candidate]:
        *outer, row, column = np.unravel_index(units, shape)
        gathered = (_columns(rows[(*outer, row)]), _columns(columns[(*outer, column)]))
        return _dot_candidates(gathered, *behind(units))

    return by_element(problem, candidates, rows.shape[-1])


def _columns(rows: Array) -> Array:
    return np.ascontiguousarray(rows.T)


def gemm(problem: Problem) -> Units:
    left, right, addend = problem.required(0), problem.required(1), problem.input(2)
    left = left.T if problem.attribute("transA", 0) else left
    right = right.T if problem.attribute("transB", 0) else right
    alpha, beta = (np.float32(problem.attribute(name, 1.0)) for name in ("alpha", "beta"))

    def behind(units: Array) -> tuple[Array | None, Finish]:
        fused, finish = epilogue(problem, units)
        own = None if addend is None else at(addend, problem.golden.shape, units)
        own = own if own is None or beta == 1 else beta * own
        if own is None or fused is None:
            return (fused if own is None else own), finish
        return own, lambda x: finish(x + fused)

    if alpha == 1:
        return _matmul(problem, left, right, behind)
    return _matmul(problem, left, right, lambda units: _scaled(alpha, *behind(units)))


def _scaled(alpha: np.float32, addend: Array | None, finish: Finish) -> tuple[Array | None, Finish]:
    """alpha * sum first: the addend cannot start the chain."""
    return None, lambda x: finish(alpha * x if addend is None else alpha * x + addend)


# ── convolutions ────────────────────────────────────────────────────────────────────────────────────


def convolution(problem: Problem) -> Units:
    image, weight, own = problem.required(0), problem.required(1), problem.input(2)
    if problem.after and problem.after[0].op_type == "BatchNormalization":
        weight, own = _folded(problem, weight, own)
        normalized = replace_output(problem.node, problem.after[0].output[0])
        problem = replace(problem, node=normalized, after=problem.after[1:])
    channels, taps = weight.shape[1], int(np.prod(weight.shape[2:]))

    def candidates(units: Array) -> Iterator[Candidate]:
        gathered = _gather_convolution(problem, image, weight, units)
        late, finish = epilogue(problem, units)
        addend = late if own is None else own[np.unravel_index(units, problem.golden.shape)[1]]
        if own is None or late is None:
            yield from _convolved(gathered, channels, taps, addend, finish)
            return
        yield from _convolved(gathered, channels, taps, addend, lambda x: finish(x + late))
        for each in _convolved(gathered, channels, taps, late, lambda x: finish(x + addend)):
            yield Candidate(f"{each.name.replace('the bias', 'what is added')}, the bias last", each.compute)

    return by_element(problem, candidates, channels * taps)


def _folded(problem: Problem, weight: Array, own: Array | None) -> tuple[Array, Array]:
    """A convolution's weight and bias with a BatchNormalization behind it folded in, as runtimes do when they load."""
    scale, bias, mean, variance = (problem.arrays[name] for name in problem.after[0].input[1:5])
    factor = scale / np.sqrt(variance + np.float32(attribute(problem.after[0], "epsilon", 1e-5)))
    given = np.zeros_like(mean) if own is None else own
    return weight * factor.reshape(-1, *([1] * (weight.ndim - 1))), (given - mean) * factor + bias


def replace_output(node: NodeProto, name: str) -> NodeProto:
    """The node with another name for its result."""
    made = NodeProto()
    made.CopyFrom(node)
    made.output[0] = name
    return made


def _convolved(
    gathered: Gathered, channels: int, taps: int, addend: Array | None, finish: Finish
) -> Iterator[Candidate]:
    yield from _dot_candidates(gathered, addend, finish)
    if taps > 1 and channels > 1:
        yield from _in_blocks("channel by channel", taps, gathered, addend, finish)
    yield from _tap_by_tap(gathered, channels, taps, addend, finish)


def _in_blocks(words: str, size: int, gathered: Gathered, addend: Array | None, finish: Finish) -> Iterator[Candidate]:
    """Blocks of `size` in a row, the addend last and first."""
    order = Order((Step(size, 1),))
    for fused in (True, False):
        name = f"{words}, {'fma' if fused else 'products rounded'}"
        yield Candidate(name, _plain(order, gathered, addend, fused, finish))
        if addend is not None:
            yield Candidate(f"{name}, starting from the bias", _from(order, gathered, addend, fused, finish))


def _tap_by_tap(
    gathered: Gathered, channels: int, taps: int, addend: Array | None, finish: Finish
) -> Iterator[Candidate]:
    """Blocks of channels, in each tap by tap: the orders of layouts that keep some channels together."""
    if taps == 1 or channels == 1:
        return
    for block in dict.fromkeys((channels, *(size for size in CHANNEL_BLOCKS if size < channels))):
        order = tap_by_tap(channels, taps, block)
        moved = gathered[0][order], gathered[1][order]
        words = f"tap by tap in blocks of {block} channels" if block < channels else "tap by tap"
        steps = [("in one row", len(order)), ("blocks in a row", block * taps), ("taps in a row", block)]
        for how, size in steps:
            if size < len(order) or how == "in one row":
                yield from _in_blocks(f"{words}, {how}", size, moved, addend, finish)


def _plain(order: Order, gathered: Gathered, addend: Array | None, fused: bool, finish: Finish) -> Callable[[], Array]:
    def compute() -> Array:
        result = total(order, *gathered, fused)
        return finish(result if addend is None else result + addend)

    return compute


def _gather_convolution(problem: Problem, image: Array, weight: Array, units: Array) -> Gathered:
    """Terms (channel, taps in storage order) of each element; padding is zeros, which change no sum."""
    extents = weight.shape[2:]
    rank = len(extents)
    strides = problem.attribute("strides", [1] * rank)
    dilations = problem.attribute("dilations", [1] * rank)
    begins, ends = _pads(problem, image.shape[2:], extents, strides, dilations)
    padded = np.pad(image, [(0, 0), (0, 0), *zip(begins, ends, strict=True)])
    item, channel, *place = np.unravel_index(units, problem.golden.shape)
    group = channel // (weight.shape[0] // problem.attribute("group", 1))
    index = [_open(item, rank + 1), _open(group * weight.shape[1], rank + 1) + _axis(weight.shape[1], 0, rank + 1)]
    for axis in range(rank):
        tap = _axis(extents[axis], axis + 1, rank + 1) * dilations[axis]
        index.append(_open(place[axis] * strides[axis], rank + 1) + tap)
    patches, taps = padded[tuple(index)], weight[channel]
    return _columns(patches.reshape(len(units), -1)), _columns(taps.reshape(len(units), -1))


def _open(values: Array, axes: int) -> Array:
    return values.reshape(-1, *([1] * axes))


def _axis(extent: int, position: int, axes: int) -> Array:
    shape = [1] * (axes + 1)
    shape[position + 1] = extent
    return np.arange(extent).reshape(shape)


def _pads(
    problem: Problem, sizes: Sequence[int], extents: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Elements put before and after each axis: explicit ones, or those that keep ceil(size / stride) places."""
    rank = len(sizes)
    automatic = problem.attribute("auto_pad", b"NOTSET").decode()
    if automatic in ("NOTSET", "VALID"):
        pads = problem.attribute("pads", [0] * (2 * rank)) if automatic == "NOTSET" else [0] * (2 * rank)
        return list(pads[:rank]), list(pads[rank:])
    begins: list[int] = []
    ends: list[int] = []
    for size, extent, stride, dilation in zip(sizes, extents, strides, dilations, strict=True):
        needed = max(0, (-(-size // stride) - 1) * stride + (extent - 1) * dilation + 1 - size)
        small = needed // 2
        begins.append(small if automatic == "SAME_UPPER" else needed - small)
        ends.append(needed - begins[-1])
    return begins, ends


# ── reductions ──────────────────────────────────────────────────────────────────────────────────────

BEFORE: dict[str, Callable[[Array], Array]] = {
    "ReduceL1": np.abs,
    "ReduceSumSquare": lambda x: x * x,
    "ReduceL2": lambda x: x * x,
}


def reduction(problem: Problem) -> Units:
    data = problem.required(0)
    operator = problem.node.op_type
    axes = _axes(problem, data.ndim)
    kept = [axis for axis in range(data.ndim) if axis not in axes]
    rows = np.transpose(data, [*kept, *axes]).reshape(-1, int(np.prod([data.shape[axis] for axis in axes])))
    before = BEFORE.get(operator, lambda x: x)
    mean = operator in ("ReduceMean", "GlobalAveragePool")
    count = np.float32(rows.shape[1])

    def candidates(units: Array) -> Iterator[Candidate]:
        terms = _columns(before(rows[units]))
        addend, finish = epilogue(problem, units)
        if addend is not None:
            raise NotCoveredError("Add fused behind it")
        for name, compute in sums(terms):
            if not mean:
                root = np.sqrt if operator == "ReduceL2" else (lambda x: x)
                yield Candidate(name, lambda compute=compute, root=root: finish(root(compute())))
                continue
            yield Candidate(name, lambda compute=compute: finish(compute() / count))
            yield Candidate(f"{name}, times 1 / count", lambda c=compute: finish(c() * (np.float32(1) / count)))
            yield Candidate(f"{name}, of terms / count", _of_quotients(terms / count, name, finish))
        if mean:
            yield Candidate("f64 throughout", lambda: finish(mean_f64(terms)))

    return Units(problem.golden.reshape(-1), problem.theirs.reshape(-1), candidates, rows.shape[1])


def _of_quotients(terms: Array, name: str, finish: Finish) -> Callable[[], Array]:
    return lambda: finish(dict(sums(terms))[name]())


def _axes(problem: Problem, rank: int) -> list[int]:
    if problem.node.op_type == "GlobalAveragePool":
        return list(range(2, rank))
    given = problem.input(1)
    axes = problem.attribute("axes", None) if given is None else given.reshape(-1).tolist()
    if not axes:
        return list(range(rank))
    return sorted(axis % rank for axis in axes)
