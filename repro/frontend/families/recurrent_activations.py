"""The activation functions that LSTM, GRU and RNN may name: the formulas of the operators of those names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from repro.frontend.context import NodeContext, float_bits
from repro.frontend.families.activation import hard_sigmoid_of, sigmoid_of, softplus_of, softsign_of
from repro.ir.graph import Value
from repro.ops import add, compare, composite, concatenate, elementwise, fill, maximum, minimum, mul, select, slice_


def _like(number: float, x: Value) -> Value:
    return fill(number, x.type)


def _affine(x: Value, alpha: float, beta: float) -> Value:
    return add(mul(_like(alpha, x), x), _like(beta, x))


def _elu(x: Value, alpha: float) -> Value:
    return select(compare("lt", x, _like(0, x)), mul(_like(alpha, x), elementwise("expm1", x)), x)


def _named(name: str, body: Callable[[Value], Value], x: Value, **attributes: float) -> Value:
    """The operator's composite: a gradient by its own formula, which does not overflow where the function saturates."""
    return composite(name, (x,), body, **{key: float_bits(value) for key, value in attributes.items()}).value


_FORMULAS: dict[str, Callable[[Value, float, float], Value]] = {
    "relu": lambda x, _, __: maximum(_like(0, x), x),
    "tanh": lambda x, _, __: elementwise("tanh", x),
    "sigmoid": lambda x, _, __: _named("Sigmoid", sigmoid_of, x),
    "affine": _affine,
    "leakyrelu": lambda x, alpha, _: select(compare("lt", x, _like(0, x)), mul(_like(alpha, x), x), x),
    # not the operator's formula: ONNX's text on the recurrent cells says >=
    "thresholdedrelu": lambda x, alpha, _: select(compare("ge", x, _like(alpha, x)), x, _like(0, x)),
    "scaledtanh": lambda x, alpha, beta: mul(_like(alpha, x), elementwise("tanh", mul(_like(beta, x), x))),
    "hardsigmoid": hard_sigmoid_of,
    "elu": lambda x, alpha, _: _named("Elu", lambda x: _elu(x, alpha), x, alpha=alpha),
    "softsign": lambda x, _, __: _named("Softsign", softsign_of, x),
    "softplus": lambda x, _, __: _named("Softplus", softplus_of, x),
}

_ALPHA = {"affine": 1.0, "leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0, "hardsigmoid": 0.2, "elu": 1.0}
_BETA = {"affine": 0.0, "scaledtanh": 1.0, "hardsigmoid": 0.5}
"""Which functions take one, and what they take if the node has none left: the defaults of the ONNX operators."""


@dataclass(frozen=True)
class Activation:
    """A function with its constants."""

    name: str
    alpha: float
    beta: float

    @property
    def text(self) -> str:
        """For a composite's attributes: the name, and the bits of the constants it has."""
        bits = [np.float32(self.alpha).tobytes()[::-1].hex()] if self.name in _ALPHA else []
        bits += [np.float32(self.beta).tobytes()[::-1].hex()] if self.name in _BETA else []
        return ":".join((self.name, *bits))

    def __call__(self, x: Value) -> Value:
        return _FORMULAS[self.name](x, self.alpha, self.beta)


def parse_activations(ctx: NodeContext, defaults: Sequence[str], directions: int) -> tuple[tuple[Activation, ...], ...]:
    """For each direction its functions. alpha and beta are handed, in order, to the functions that take one."""
    wanted = len(defaults) * directions
    names = tuple(name.lower() for name in ctx.attr_strs("activations", tuple(defaults) * directions))
    if len(defaults) == 1:  # RNN's own default names two, for either number of directions
        names = names[:wanted]
    if len(names) != wanted:
        raise ctx.error("the number of activations is wrong", f"{len(names)} names", f"{wanted} names")
    unknown = [name for name in names if name not in _FORMULAS]
    if unknown:
        raise ctx.error("an activation is unknown", unknown[0], ", ".join(sorted(_FORMULAS)))
    alphas, betas = list(ctx.attr_floats("activation_alpha", ())), list(ctx.attr_floats("activation_beta", ()))

    def take(name: str, left: list[float], known: dict[str, float]) -> float:
        if name not in known:
            return 0.0
        return left.pop(0) if left else float(np.float32(known[name]))

    made = [Activation(name, take(name, alphas, _ALPHA), take(name, betas, _BETA)) for name in names]
    each = len(defaults)
    return tuple(tuple(made[first : first + each]) for first in range(0, wanted, each))


def clipped(x: Value, threshold: float | None) -> Value:
    """min(max(x, -threshold), threshold)."""
    if threshold is None:
        return x
    return minimum(maximum(x, _like(-threshold, x)), _like(threshold, x))


def per_direction(functions: Sequence[Activation], x: Value) -> Value:
    """Function d on x[d]."""
    if len(set(functions)) == 1:
        return functions[0](x)
    sides = [slice_(x, (d, *(0,) * (x.rank - 1)), (d + 1, *x.shape[1:])) for d in range(len(functions))]
    return concatenate([function(side) for function, side in zip(functions, sides, strict=True)], 0)
