"""Candidates tried on a sample of the elements: first few, then, where those fit, thousands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from onnx import NodeProto, helper

from repro.audit.causes import contractions, elementwise, rows, updates
from repro.audit.causes.problem import Candidate, NotCoveredError, Problem, Units
from repro.audit.records import Cause
from repro.ir.types import Array
from repro.numerics.host_mode import exact_arithmetic

FIRST_UNITS = 48
LEAST_UNITS = 4
FIRST_TERMS = 1 << 13
"""A first sample of so many units, or fewer long ones, rejects most candidates."""
MOST_UNITS = 4096
MOST_TERMS = 1 << 20
"""Of the sample, rows counted by their elements, and operands by theirs."""

Family = Callable[[Problem], Units]

FAMILIES: Mapping[str, Family] = {
    "MatMul": contractions.matmul,
    "Gemm": contractions.gemm,
    "Conv": contractions.convolution,
    **dict.fromkeys(
        ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "GlobalAveragePool"),
        contractions.reduction,
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax"), rows.softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), rows.normalization),
    "InstanceNormalization": rows.instance_normalization,
    "BatchNormalization": elementwise.batch_normalization,
    **dict.fromkeys(elementwise.FORMULAS, elementwise.formula),
    "Update": updates.update,
}
"""By operator, what cuts its result into units and knows candidates for them."""

LIKELY, LIKELY_PAIRS = 10, 3
ENOUGH = 8
"""Elements below which one of many candidates may fit by chance."""
CHANCE = 1e-3
MOST_TOGETHER = 2
"""Orders that may share a result: with more, chance would do."""
NOT_COVERED = "not covered"
UNKNOWN = "order or rounding not among the known"


def causes(
    node: NodeProto,
    arrays: Mapping[str, Array],
    golden: Array,
    theirs: Array,
    after: Sequence[NodeProto] = (),
) -> tuple[Cause, ...]:
    """What gives `theirs` where golden has other bits: the first known candidate that fits all of a sample, or what
    can be said where none does. Empty where nothing differs, or the operator has no candidates.

    `arrays` are what the node reads, by name; `after` are nodes that were fused into it, in order, the results of the
    last one being compared.
    """
    if golden.dtype != np.float32 or theirs.dtype != golden.dtype or theirs.shape != golden.shape:
        return ()
    different = _different(golden, theirs)
    if not different.any():
        return ()
    with exact_arithmetic(), np.errstate(all="ignore"):
        plain = _zeros_and_subnormals(golden, theirs, different)
        return plain or _sought((node, *after), arrays, golden, theirs)


def _sought(nodes: Sequence[NodeProto], arrays: Mapping[str, Array], golden: Array, theirs: Array) -> tuple[Cause, ...]:
    """What the node that computes most is sought for; those before it are taken to give what golden has."""
    spelled = _one_operator(nodes, arrays, golden)
    if spelled is not None:
        nodes = (spelled,)
    covered = [position for position, node in enumerate(nodes) if node.op_type in FAMILIES]
    if not covered:
        return ()
    core = next((at for at in covered if nodes[at].op_type not in elementwise.FORMULAS), covered[0])
    try:
        problem = Problem(nodes[core], arrays, golden, theirs, _behind(nodes, core, arrays))
        _check_chain(problem)
        return _fitting(FAMILIES[problem.node.op_type](problem))
    except NotCoveredError as reason:
        return (Cause(NOT_COVERED, str(reason)),)


SPELLED: tuple[tuple[str, frozenset[str], str], ...] = (
    ("Erf", frozenset({"Erf", "Add", "Mul", "Div"}), "Gelu"),
    ("Tanh", frozenset({"Tanh", "Add", "Mul", "Div", "Pow"}), "Gelu"),
    ("Sigmoid", frozenset({"Sigmoid", "Mul"}), "Swish"),
    ("HardSigmoid", frozenset({"HardSigmoid", "Mul"}), "HardSwish"),
)
"""Groups that exporters write for one operator: the node that tells, all that may be there, the operator."""
SPELLED_WITHIN = 1e-5
"""How near golden has to be to the operator's exact value, relative to 1 or greater ones, for a group to be it."""


def _one_operator(nodes: Sequence[NodeProto], arrays: Mapping[str, Array], golden: Array) -> NodeProto | None:
    """The one operator of one operand that a fused group spells out; None where it is none."""
    types = {node.op_type for node in nodes}
    made = {name for node in nodes for name in node.output}
    read = dict.fromkeys(name for node in nodes for name in node.input if name in arrays and name not in made)
    operands = [name for name in read if arrays[name].shape == golden.shape and arrays[name].size > 1]
    if len(nodes) == 1 or len(operands) != 1:
        return None
    for telling, allowed, operator in SPELLED:
        exact = elementwise.FUNCTIONS[operator].exact
        if telling in types and types <= allowed and exact is not None:
            value = exact(arrays[operands[0]].astype(np.float64))
            if (np.abs(value - golden) <= SPELLED_WITHIN * np.maximum(np.abs(value), 1)).all():
                return helper.make_node(operator, operands, list(nodes[-1].output), name=nodes[-1].name)
    return None


def _behind(nodes: Sequence[NodeProto], core: int, arrays: Mapping[str, Array]) -> tuple[NodeProto, ...]:
    """The nodes that come after the core; those beside it, whose results are known, are no part of it."""
    reached = set(nodes[core].output)
    behind: list[NodeProto] = []
    value = nodes[core].output[0]
    for node in nodes[core + 1 :]:
        if node.op_type == "Identity" and node is nodes[-1] and not behind and value in node.input:
            break
        if reached & set(node.input) or node.output[0] not in arrays:
            behind.append(node)
            reached.update(node.output)
    return tuple(behind)


def _check_chain(problem: Problem) -> None:
    """Raises NotCoveredError unless each node behind reads the one before, and none of them moves elements."""
    value = problem.node.output[0]
    for node in problem.after:
        if value not in node.input:
            raise NotCoveredError(f"fused nodes that are no chain: {node.name} ({node.op_type})")
        value = node.output[0]
    missing = [name for node in (problem.node, *problem.after) for name in node.input if name]
    made = {node.output[0] for node in (problem.node, *problem.after)}
    missing = [name for name in missing if name not in problem.arrays and name not in made]
    if missing:
        raise NotCoveredError(f"the values of {', '.join(missing)} were not kept")


def _fitting(units: Units) -> tuple[Cause, ...]:
    first = _sample(units, min(FIRST_UNITS, max(LEAST_UNITS, FIRST_TERMS // units.terms)))
    sample = _sample(units, min(MOST_UNITS, max(FIRST_UNITS, MOST_TERMS // units.terms)))
    tried: list[_Tried] = []
    for position, candidate in enumerate(units.candidates(first)):
        each = _Tried(position, candidate.name, _matches(candidate, units.theirs[first]))
        if each.matched.all():
            matched = _matches(_again(units, sample, each), units.theirs[sample])
            if matched.all():
                words = candidate.name if matched.size >= ENOUGH else f"possibly {candidate.name}"
                return (Cause(words, f"{matched.size} of {matched.size} sampled elements"),)
        tried.append(each)
    remarks = tuple(Cause(name, evidence) for name, evidence in units.remarks(sample))
    return remarks or _together(units, sample, tried)


@dataclass(frozen=True, eq=False)
class _Tried:
    """A candidate by its place, and which elements of the first sample it gives."""

    position: int
    name: str
    matched: Array


def _again(units: Units, sample: Array, tried: _Tried) -> Candidate:
    return next(islice(units.candidates(sample), tried.position, None))


def _likely(tried: Sequence[_Tried]) -> list[_Tried]:
    """The candidates that give most of the first sample, and those that give most of what these leave."""
    found = sorted(tried, key=lambda each: -int(each.matched.sum()))[:LIKELY]
    for best in found[:LIKELY_PAIRS]:
        found += sorted(tried, key=lambda each: -int((each.matched & ~best.matched).sum()))[:LIKELY_PAIRS]
    return [each for each in dict.fromkeys(found) if each.matched.any()]


def _together(units: Units, sample: Array, tried: Sequence[_Tried]) -> tuple[Cause, ...]:
    """Some libraries add in one order in the middle of a matrix and in another at its edges, or by the column: a few
    orders that give all elements between them. Where they do not, what comes nearest."""
    likely = _likely(tried)
    matched = {each.name: _matches(_again(units, sample, each), units.theirs[sample]) for each in likely}
    if not matched:
        return (Cause(UNKNOWN, f"{len(tried)} candidates tried, none gives a sampled element"),)
    open_still = np.ones_like(next(iter(matched.values())))
    parts: list[tuple[str, int]] = []
    while open_still.any() and len(parts) < MOST_TOGETHER:
        name = max(matched, key=lambda each: int((matched[each] & open_still).sum()))
        parts.append((name, int((matched[name] & open_still).sum())))
        open_still &= ~matched[name]
    if units.by_place and not open_still.any() and _told_apart(matched, parts):
        counts = ", ".join(f"{count}" for _, count in parts)
        words = " or ".join(name for name, _ in parts)
        return (Cause(f"by place, {words}", f"{counts} of {open_still.size} sampled elements"),)
    name, count = parts[0]
    nearest = f"the nearest, {name}, gives {count} of {open_still.size} sampled elements"
    return (Cause(UNKNOWN, f"{len(tried)} candidates tried; {nearest}"),)


def _told_apart(matched: Mapping[str, Array], parts: Sequence[tuple[str, int]]) -> bool:
    """Whether an order gives what the one before leaves by more than chance: it gives some of the rest by chance too,
    and there were many orders to take it from."""
    by_chance = float((matched[parts[-1][0]] & matched[parts[0][0]]).sum() / matched[parts[0][0]].sum())
    return len(matched) * by_chance ** parts[-1][1] < CHANCE


def _matches(candidate: Candidate, theirs: Array) -> Array:
    result = candidate.compute()
    return ~_different(result.astype(np.float32), theirs)


def _sample(units: Units, count: int) -> Array:
    """Units spread evenly: some of those that differ, and some of all."""
    different = _different(units.golden, units.theirs).reshape(len(units.golden), -1).any(axis=1)
    chosen = _spread(np.flatnonzero(different), count - count // 3)
    return np.union1d(chosen, _spread(np.arange(len(units.golden)), count // 3))


def _spread(values: Array, count: int) -> Array:
    return values if len(values) <= count else values[np.linspace(0, len(values) - 1, count).astype(np.int64)]


def _different(left: Array, right: Array) -> Array:
    """Elements with other bits; all NaNs are one value."""
    bits = np.not_equal(left.view(np.uint32), right.view(np.uint32))
    return np.asarray(bits & ~(np.isnan(left) & np.isnan(right)))


def _zeros_and_subnormals(golden: Array, theirs: Array, different: Array) -> tuple[Cause, ...]:
    """What needs no formula: zeros of the other sign, and subnormal results that were flushed to zero."""
    left, right = golden[different], theirs[different]
    words = f"all {left.size} elements that differ"
    if ((left == 0) & (right == 0)).all():
        return (Cause("sign of zero", words),)
    if ((np.abs(left) < np.finfo(np.float32).tiny) & (right == 0)).all():
        return (Cause("subnormals flushed to zero", words),)
    return ()
