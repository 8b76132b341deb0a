"""Operators of training graphs (ai.onnx.preview.training): Gradient, and one step of Adam, Momentum and Adagrad.

Formulas: the text of each operator in ONNX, in the order of its operations. Numbers that a whole step shares (the
learning rate, powers of coefficients) are computed in f64 and rounded once to the tensors' type, as are differences of
attributes such as 1 - alpha; a regularization whose coefficient is 0 is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro.autodiff import cotangents, left_out, obstacles
from repro.frontend.context import NodeContext
from repro.frontend.registry import onnx_op
from repro.frontend.scope import TRAINING_DOMAIN
from repro.ir.graph import Graph, Node, Value, rewrite
from repro.ir.types import F64, I64
from repro.ops import add, broadcast, compare, convert_to, div, elementwise, fill, mul, reshape, scalar, select, sub

# ── Gradient ────────────────────────────────────────────────────────────────────────────────────────


@onnx_op("Gradient", domain=TRAINING_DOMAIN, moves=True)
def gradient(ctx: NodeContext, *inputs: Value) -> tuple[Value, ...]:
    """The derivatives of y (of the sum of its elements) with respect to the tensors named in `xs`.

    y is a function of `xs` and `zs`: what leads to one of them is cut off there. Input i is the value of the i-th
    name, so that y is taken at these values, whatever the names stand for elsewhere.
    """
    xs, zs, y = ctx.attr_strs("xs"), ctx.attr_strs("zs", ()), ctx.attr_str("y")
    _check_names(ctx, xs, zs, y, inputs)
    values = inputs[: len(xs)]
    variables = tuple(ctx.importer.placeholder(value.type) for value in values)
    given = dict(zip((*xs, *zs), (*variables, *inputs[len(xs) :]), strict=True))
    target = ctx.importer.recompute(ctx.scope, given, y)
    if not isinstance(target, Value) or not target.dtype.is_float:
        found = str(target.type) if isinstance(target, Value) else "no tensor"
        raise ctx.error(f"y ('{y}') cannot be differentiated", found, "a tensor of floats")
    slopes = cotangents([(target, fill(1, target.type))], variables)
    lost = left_out((target,), variables)
    made: list[Value] = []
    for name, variable, slope, part in zip(xs, variables, slopes, lost, strict=True):
        if slope is None:
            why = _obstacle(target, variable)
            ctx.importer.warn(f"Gradient '{ctx.name}': no gradient of '{y}' comes back to '{name}'{why}")
        elif part is not None:
            raise ctx.error(
                f"the gradient of '{y}' by '{name}' would lack a part",
                f"a path through {ctx.importer.locations.get(part.node, part.node.op)}: {part.reason}",
                f"a gradient on every path from '{name}' to '{y}', or on none",
                "give that Loop a condition and a count known at build",
            )
        made.append(fill(0, variable.type) if slope is None else slope)
    return _replaced(ctx, dict(zip(variables, values, strict=True)), made)


def _check_names(ctx: NodeContext, xs: Sequence[str], zs: Sequence[str], y: str, inputs: Sequence[Value]) -> None:
    names = (*xs, *zs)
    if not xs or len(names) != len(inputs) or len(set(names)) != len(names):
        found = f"xs {list(xs)}, zs {list(zs)}, {len(inputs)} inputs"
        raise ctx.error("xs and zs do not fit the inputs", found, "distinct names, one for each input, xs not empty")
    for name in names:
        if not ctx.scope.defines(name) and not ctx.scope.find(name)[0]:
            raise ctx.error("xs or zs name no tensor", f"'{name}'", "names of tensors of the graph around the node")
    if y not in xs and y not in ctx.scope.body.producer:
        raise ctx.error("y names no result of a node", f"'{y}'", "a tensor that a node of the same graph makes")
    for name, value in zip(xs, inputs, strict=False):
        if not value.dtype.is_float:
            raise ctx.error(f"'{name}' of xs cannot vary", str(value.type), "a tensor of floats; name it in zs")


def _obstacle(target: Value, variable: Value) -> str:
    found = obstacles([target], variable)
    return f": {found[0].node.op}: {found[0].reason}" if found else ", which it does not depend on"


def _replaced(ctx: NodeContext, known: dict[Value, Value], made: Sequence[Value]) -> tuple[Value, ...]:
    """Values with others in the place of placeholders."""

    def rule(node: Node, _: tuple[Value, ...]) -> tuple[Value, ...] | None:
        return (known[node.value],) if node.op == "argument" and node.value in known else None

    return rewrite(Graph((), tuple(made)), rule, ctx.importer.locations, regions=False).results


# ── optimizers ──────────────────────────────────────────────────────────────────────────────────────

Update = Callable[..., tuple[Value, ...]]
"""From a tensor, its gradient and its state: the tensor's new value and those of its state."""


def _number(ctx: NodeContext, value: Value, what: str) -> Value:
    """A number of the step as f64[], exactly."""
    if value.type.elements != 1 or (what == "T" and value.dtype is not I64):
        raise ctx.error(f"{what} is not one number", str(value.type), "a scalar" + (" of i64" if what == "T" else ""))
    return convert_to(reshape(value, ()), F64)


def _f64(number: float) -> Value:
    return scalar(number, F64)


def _times(factor: float | Value, x: Value) -> Value:
    """factor * x, a number of the step rounded once to the type of x."""
    if isinstance(factor, Value):
        return mul(broadcast(convert_to(factor, x.dtype), x.shape, ()), x)
    return mul(fill(factor, x.type), x)


def _after_first(count: Value, later: Value, first: Value) -> Value:
    """T > 0 ? later : first."""
    return select(compare("gt", count, _f64(0.0)), later, first)


def _regularized(ctx: NodeContext, x: Value, g: Value) -> Value:
    """norm_coefficient * X + G, or G where the coefficient is 0."""
    coefficient = ctx.attr_float("norm_coefficient", 0.0)
    return add(_times(coefficient, x), g) if coefficient else g


def _each(ctx: NodeContext, tensors: Sequence[Value], parts: int, update: Update) -> tuple[Value, ...]:
    """The update of every optimized tensor. Operands and results: all tensors, then all of each further part."""
    count, rest = divmod(len(tensors), parts)
    if rest or not count:
        raise ctx.error("the number of tensors is wrong", f"{len(tensors)} tensors", f"{parts} for each optimized one")
    groups = [tensors[index::count] for index in range(count)]
    for group in groups:
        if any(value.type != group[0].type for value in group) or not group[0].dtype.is_float:
            found = ", ".join(str(value.type) for value in group)
            raise ctx.error("an optimized tensor, its gradient and its state differ in type", found, "one float type")
    made = [update(*group) for group in groups]
    return tuple(value for part in zip(*made, strict=True) for value in part)


@onnx_op("Adam", domain=TRAINING_DOMAIN)
def adam(ctx: NodeContext, rate: Value, count: Value, *tensors: Value) -> tuple[Value, ...]:
    """G' = norm * X + G; V' = alpha * V + (1 - alpha) * G'; H' = beta * H + ((1 - beta) * G') * G';

    X' = X - (r * V') / (sqrt(H') + epsilon), r = T > 0 ? (R * sqrt(1 - beta^T)) / (1 - alpha^T) : R;
    then (1 - norm_post) * X'.
    """
    alpha, beta = ctx.attr_float("alpha", 0.9), ctx.attr_float("beta", 0.999)
    epsilon, post = ctx.attr_float("epsilon", 1e-6), ctx.attr_float("norm_coefficient_post", 0.0)
    given, t = _number(ctx, rate, "R"), _number(ctx, count, "T")
    corrected = div(mul(given, elementwise("sqrt", _one_minus_power(beta, t))), _one_minus_power(alpha, t))
    adjusted = _after_first(t, corrected, given)

    def update(x: Value, g: Value, v: Value, h: Value) -> tuple[Value, ...]:
        slope = _regularized(ctx, x, g)
        first = add(_times(alpha, v), _times(1.0 - alpha, slope))
        second = add(_times(beta, h), mul(_times(1.0 - beta, slope), slope))
        new = sub(x, div(_times(adjusted, first), _root(second, epsilon)))
        return (_times(1.0 - post, new) if post else new), first, second

    return _each(ctx, tensors, 4, update)


def _one_minus_power(base: float, t: Value) -> Value:
    return sub(_f64(1.0), elementwise("pow", _f64(base), t))


def _root(x: Value, epsilon: float) -> Value:
    return add(elementwise("sqrt", x), fill(epsilon, x.type))


@onnx_op("Momentum", domain=TRAINING_DOMAIN)
def momentum(ctx: NodeContext, rate: Value, count: Value, *tensors: Value) -> tuple[Value, ...]:
    """G' = norm * X + G; V' = alpha * V + b * G', b = T > 0 ? beta : 1, left out where beta is 1;

    standard: X - R * V'; nesterov: X - R * (G' + alpha * V').
    """
    alpha, beta, mode = ctx.attr_float("alpha"), ctx.attr_float("beta"), ctx.attr_str("mode")
    ctx.attr_float("norm_coefficient")  # has to be there
    if mode not in ("standard", "nesterov"):
        raise ctx.error("there is no such momentum", f"mode '{mode}'", "'standard' or 'nesterov'")
    given, t = _number(ctx, rate, "R"), _number(ctx, count, "T")
    damping = _after_first(t, _f64(beta), _f64(1.0))

    def update(x: Value, g: Value, v: Value) -> tuple[Value, ...]:
        slope = _regularized(ctx, x, g)
        new = add(_times(alpha, v), slope if beta == 1.0 else _times(damping, slope))
        direction = add(slope, _times(alpha, new)) if mode == "nesterov" else new
        return sub(x, _times(given, direction)), new

    return _each(ctx, tensors, 3, update)


@onnx_op("Adagrad", domain=TRAINING_DOMAIN)
def adagrad(ctx: NodeContext, rate: Value, count: Value, *tensors: Value) -> tuple[Value, ...]:
    """G' = norm * X + G; H' = H + G' * G'; X - (r * G') / (sqrt(H') + epsilon), r = R / (1 + T * decay)."""
    epsilon, decay = ctx.attr_float("epsilon", 1e-6), ctx.attr_float("decay_factor", 0.0)
    given, t = _number(ctx, rate, "R"), _number(ctx, count, "T")
    decayed = div(given, add(_f64(1.0), mul(t, _f64(decay))))

    def update(x: Value, g: Value, h: Value) -> tuple[Value, ...]:
        slope = _regularized(ctx, x, g)
        total = add(h, mul(slope, slope))
        return sub(x, div(_times(decayed, slope), _root(total, epsilon))), total

    return _each(ctx, tensors, 3, update)
