"""Einsum: operands from left to right, each pair one contraction (rules 7 and 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ops import broadcast, dot, reduce_axes, reshape, slice_, transpose

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Term:
    """A value and the label of each of its axes. Ellipsis axes are labelled '.1', '.2' … from the last one."""

    value: Value
    labels: Labels

    def axes(self, labels: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.labels.index(label) for label in labels)


@onnx_op("Einsum", since=12)
def einsum(ctx: NodeContext, *inputs: Value) -> Value:
    """(((t1 t2) t3) …), then sums and a transposition.

    A label that only one operand of a pair has and nothing later needs is summed first (rule 10); the other
    labels that nothing later needs are the pair's K, in the axis order of its left operand.
    """
    terms, output = _parse(ctx, inputs)
    terms = [_diagonals(ctx, term) for term in terms]
    extents = _extents(ctx, terms)
    result = terms[0]
    for position, term in enumerate(terms[1:], start=1):
        later = {label for other in terms[position + 1 :] for label in other.labels} | set(output)
        result = _pair(_unstretched(result, extents), _unstretched(term, extents), later)
    result = _sum_out(_unstretched(result, extents), set(output))
    order = [result.labels.index(label) for label in output if label in result.labels]
    placed = transpose(result.value, order)
    axes = [axis for axis, label in enumerate(output) if label in result.labels]
    return broadcast(placed, tuple(extents[label] for label in output), axes)


# ── the equation ────────────────────────────────────────────────────────────────────────────────────


def _labels(ctx: NodeContext, text: str, ellipsis: int) -> Labels:
    """The labels of one term; its ellipsis stands for that many axes."""
    head, dots, tail = text.partition("...")
    letters = head + tail
    if not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise ctx.error("the equation does not parse", f"the term '{text}'", "letters and at most one '...'")
    middle = tuple(f".{place}" for place in range(ellipsis, 0, -1)) if dots else ()
    return (*head, *middle, *tail)


def _parse(ctx: NodeContext, inputs: Sequence[Value]) -> tuple[list[Term], Labels]:
    equation = ctx.attr_str("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(inputs) or not inputs:
        raise ctx.error("the equation does not fit the operands", equation, f"{len(inputs)} terms")
    terms = list[Term]()
    for text, value in zip(texts, inputs, strict=True):
        named = len(text.replace("...", ""))
        if value.rank < named or ("..." not in text and value.rank != named):
            raise ctx.error("a term does not fit its operand", f"'{text}' for {value.type}", "a label for each axis")
        terms.append(Term(value, _labels(ctx, text, value.rank - named)))
    widest = max(sum(label.startswith(".") for label in term.labels) for term in terms)
    if arrow:
        output = _labels(ctx, right, widest)
    else:
        once = Counter(label for term in terms for label in term.labels if not label.startswith("."))
        output = (*_labels(ctx, "...", widest), *sorted(label for label, count in once.items() if count == 1))
    known = {label for term in terms for label in term.labels}
    if len(set(output)) != len(output) or any(label not in known for label in output):
        raise ctx.error("the equation's result does not parse", equation, "labels of the terms, each at most once")
    return terms, output


def _extents(ctx: NodeContext, terms: Sequence[Term]) -> dict[str, int]:
    """The extent of each label; 1 stretches."""
    extents = dict[str, int]()
    for term in terms:
        for label, extent in zip(term.labels, term.value.shape, strict=True):
            known = extents.setdefault(label, extent)
            if known == 1:
                extents[label] = extent
            elif extent not in (1, known):
                raise ctx.error("extents do not fit", f"'{label}' is {known} and {extent}", "one extent for a label")
    return extents


# ── one operand ─────────────────────────────────────────────────────────────────────────────────────


def _diagonals(ctx: NodeContext, term: Term) -> Term:
    """Axes of one label become one axis, the diagonal."""
    repeated = next((label for label, count in Counter(term.labels).items() if count > 1), None)
    if repeated is None:
        return term
    first, second = [axis for axis, label in enumerate(term.labels) if label == repeated][:2]
    extent = term.value.shape[first]
    if term.value.shape[second] != extent:
        raise ctx.error("a diagonal is not square", f"'{repeated}' of {term.value.type}", "equal extents")
    rest = [axis for axis in range(term.value.rank) if axis not in (first, second)]
    front = transpose(term.value, (first, second, *rest))
    others = front.shape[2:]
    flat = reshape(front, (extent * extent, *others))
    # The diagonal of a square matrix in row-major order: every (extent + 1)th element.
    line = slice_(flat, (0,) * flat.rank, flat.shape, (extent + 1, *(1 for _ in others)))
    return _diagonals(ctx, Term(line, (repeated, *(term.labels[axis] for axis in rest))))


def _unstretched(term: Term, extents: dict[str, int]) -> Term:
    """Axes that would stretch are left out: what lacks a label is constant along it."""
    kept = [axis for axis, label in enumerate(term.labels) if term.value.shape[axis] == extents[label]]
    if len(kept) == term.value.rank:
        return term
    shape = tuple(term.value.shape[axis] for axis in kept)
    return Term(reshape(term.value, shape), tuple(term.labels[axis] for axis in kept))


def _sum_out(term: Term, needed: set[str]) -> Term:
    summed = tuple(axis for axis, label in enumerate(term.labels) if label not in needed)
    if not summed:
        return term
    return Term(reduce_axes("add", term.value, summed), tuple(label for label in term.labels if label in needed))


# ── two operands ────────────────────────────────────────────────────────────────────────────────────


def _pair(left: Term, right: Term, later: set[str]) -> Term:
    left = _sum_out(left, later | set(right.labels))
    right = _sum_out(right, later | set(left.labels))
    shared = [label for label in left.labels if label in right.labels]
    batch = [label for label in shared if label in later]
    contract = [label for label in shared if label not in later]
    value = dot(
        left.value,
        right.value,
        (left.axes(contract), right.axes(contract)),
        (left.axes(batch), right.axes(batch)),
    )
    own = [label for label in left.labels if label not in shared]
    return Term(value, (*batch, *own, *(label for label in right.labels if label not in shared)))
