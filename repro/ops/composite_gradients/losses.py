"""Gradients of softmaxes, of attention and of the losses over class labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.ir.graph import Node, Value
from repro.ops.arithmetic import compare, elementwise, mul, select, sub
from repro.ops.composite_gradients.reading import (
    nodes_of,
    number,
    only,
    operand,
    own_argument,
    own_result,
    sum_along,
    through,
)
from repro.ops.movement import broadcast, broadcast_to
from repro.ops.record import Step
from repro.ops.structure import iota

# ── softmaxes: the maximum that is subtracted has no path ───────────────────────────────────────────


def _softmax_cotangent(y: Value, g: Value, axes: Sequence[int]) -> Value:
    """y * (g - sum(g * y))."""
    return mul(y, sub(g, sum_along(mul(g, y), axes)))


def _softmax(node: Node) -> Sequence[Step]:
    x, y, axes = own_argument(node), own_result(node), node["axes"]
    return (Step(y, (x,), lambda g: (_softmax_cotangent(y, g, axes),)),)


def selected_softmaxes(selection: Node) -> Sequence[Step]:
    """Of each Softmax that a selection reads."""
    sides = (through(side, "convert") for side in selection.operands[1:])
    return [_without_nans(y) for y in sides if y.node.op == "composite" and y.node["name"] == "Softmax"]


def _without_nans(y: Value) -> Step:
    """z = (y is a NaN ? +0 : y); z * (g - sum(g * z)).

    A row of -inf throughout is one of NaN, which a selection leaves out, as exporters write attention: g is +0 there,
    and has to stay so.
    """
    z, node = select(compare("ne", y, y), number(0, y), y), y.node
    return Step(y, node.operands, lambda g: (_softmax_cotangent(z, g, node["axes"]),))


def _log_softmax_step(x: Value, y: Value, axes: Sequence[int]) -> Step:
    """g - exp(y) * sum(g)."""
    return Step(y, (x,), lambda g: (sub(g, mul(elementwise("exp", y), sum_along(g, axes))),))


def _log_softmax(node: Node) -> Sequence[Step]:
    return (_log_softmax_step(own_argument(node), own_result(node), node["axes"]),)


def _attention(node: Node) -> Sequence[Step]:
    """From the probabilities p to the scores with their bias: p * (g - sum(g * p)), so +0 in a row of p that is +0."""
    product = through(own_result(node), "reshape")
    p = through(operand(product, "dot"), "reshape")
    inner = through(p.node.operands[2] if p.node.op == "select" else p, "convert")
    scores = through(operand(operand(operand(inner, "div"), "exp"), "sub"), "convert")
    return (Step(p, (scores,), lambda g: (_softmax_cotangent(p, g, (3,)),)),)


# ── losses: k is the cotangent of the loss of each label, before weights and reduction ──────────────


def _pick(node: Node, logarithms: Value) -> tuple[Node, Callable[[Value], Value]]:
    """The gather of a label's logarithm, and for a tensor of scores where its class is the label."""
    picks = [pick for pick in nodes_of(node, "gather") if pick.operands[0] == logarithms]
    pick = only(picks, "the gather of labels")
    labels = operand(operand(pick.operands[1], "concatenate", 1), "reshape")

    def is_label(scores: Value) -> Value:
        return compare("eq", iota(scores.shape, 1), broadcast_to(labels, scores.shape))

    return pick, is_label


def _negative_log_likelihood(node: Node) -> Sequence[Step]:
    """Of x[label], whose cotangent is -k: class = label ? -k : +0."""
    x = own_argument(node)
    pick, is_label = _pick(node, x)

    def rule(g: Value) -> tuple[Value]:
        return (select(is_label(x), broadcast_to(g, x.shape), number(0, x)),)

    return (Step(pick.value, (x,), rule),)


def _softmax_cross_entropy(node: Node) -> Sequence[Step]:
    """Of -logsoftmax(x)[label]: p = exp(y), (class = label ? p - 1 : p) * k; of y itself, LogSoftmax's."""
    x, y = own_argument(node), own_result(node, 1)
    pick, is_label = _pick(node, y)
    losses = only([each for each in nodes_of(node, "neg") if through(each.operands[0], "reshape") == pick.value], "neg")

    def rule(k: Value) -> tuple[Value]:
        p = elementwise("exp", y)
        spread = broadcast(k, x.shape, (0, *range(2, x.rank)))
        return (mul(select(is_label(x), sub(p, number(1, p)), p), spread),)

    return Step(losses.value, (x,), rule), _log_softmax_step(x, y, (1,))


STEPS: dict[str, Callable[[Node], Sequence[Step]]] = {
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Attention": _attention,
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
}
