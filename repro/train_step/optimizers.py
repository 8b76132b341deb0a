"""Optimizers: PyTorch's update formulas with the order of every operation fixed.

Each class is an optimizer and its options. `update` gives the new value of one parameter and of its state tensors.
Notation: p the parameter, g its gradient, r the scheduled learning rate, t the number of this step, counted from 1.

An operation on tensors is rounded in the parameter's computing type (f32 for f16 and bf16, whose new value is rounded
once at the end; their state is f32). Numbers that a whole step shares (r, bias corrections) are computed in f64 and
rounded once to that type, as PyTorch computes them in Python's floats; so are differences of options such as 1 - beta.

Sources: the formulas in the documentation of torch.optim; Kingma and Ba, arXiv:1412.6980 (Adam); Loshchilov and
Hutter, arXiv:1711.05101 (AdamW); Duchi, Hazan and Singer, JMLR 12 (2011) (Adagrad); Hinton's lecture 6e (RMSprop);
Sutskever et al., ICML 2013 (Nesterov).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from repro.errors import ReproError
from repro.ir.graph import Value
from repro.ir.types import F64, I64
from repro.ops import add, broadcast, compare, convert_to, div, elementwise, fill, maximum, mul, scalar, select, sub
from repro.train_step.options import check_range


@dataclass(frozen=True)
class StateSlot:
    """A state tensor of the shape of its parameter: the end of its name, and the number it starts with."""

    suffix: str
    initial: float = 0.0


Updated = tuple[Value, tuple[Value, ...]]
"""The parameter's new value, and those of its state tensors."""


def shared(number: Value, like: Value) -> Value:
    """A f64[] number of the step, rounded to the type of a tensor and stretched to its shape."""
    return broadcast(convert_to(number, like.dtype), like.shape, ())


def _times(factor: float, x: Value) -> Value:
    return mul(fill(factor, x.type), x)


def _f64(number: float) -> Value:
    return scalar(number, F64)


@dataclass(frozen=True)
class Optimizer(ABC):
    """What all optimizers have. g' below is g + weight_decay * p, or g where the decay is 0."""

    default_rate: ClassVar[float] = 1e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_range("weight_decay", self.weight_decay, 0.0)

    @property
    @abstractmethod
    def slots(self) -> tuple[StateSlot, ...]:
        """The state tensors of each parameter."""

    @abstractmethod
    def update(self, p: Value, g: Value, state: Sequence[Value], rate: Value, step: Value) -> Updated:
        """New values from p, g and the state (one computing type), the rate (f64[]) and t (i64[])."""

    def decayed(self, p: Value, g: Value) -> Value:
        """g + weight_decay * p."""
        return add(g, _times(self.weight_decay, p)) if self.weight_decay else g


def _stepped(p: Value, rate: Value, direction: Value) -> Value:
    """p - r * direction."""
    return sub(p, mul(shared(rate, p), direction))


@dataclass(frozen=True)
class Sgd(Optimizer):
    """g' = g + weight_decay * p;  p - r * g'."""

    @property
    def slots(self) -> tuple[StateSlot, ...]:
        return ()

    def update(self, p: Value, g: Value, state: Sequence[Value], rate: Value, step: Value) -> Updated:
        return _stepped(p, rate, self.decayed(p, g)), ()


@dataclass(frozen=True)
class Momentum(Optimizer):
    """b' = momentum * b + (1 - dampening) * g';  p - r * b'. With dampening, b' = g' in the first step."""

    momentum: float = 0.9
    dampening: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("momentum", self.momentum, 0.0)
        check_range("dampening", self.dampening, 0.0, 1.0)

    @property
    def slots(self) -> tuple[StateSlot, ...]:
        return (StateSlot("momentum_buffer"),)

    def buffered(self, g: Value, buffer: Value, step: Value) -> Value:
        """The new buffer b'; with dampening 0 the factor 1 is left out."""
        kept = _times(self.momentum, buffer)
        if not self.dampening:
            return add(kept, g)
        damped = add(kept, _times(1.0 - self.dampening, g))
        first = broadcast(compare("eq", step, scalar(1, I64)), g.shape, ())
        return select(first, g, damped)

    def update(self, p: Value, g: Value, state: Sequence[Value], rate: Value, step: Value) -> Updated:
        buffer = self.buffered(self.decayed(p, g), state[0], step)
        return _stepped(p, rate, buffer), (buffer,)


@dataclass(frozen=True)
class Nesterov(Momentum):
    """b' = momentum * b + g';  p - r * (g' + momentum * b')."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dampening or not self.momentum:
            raise ReproError(
                "Nesterov momentum needs a momentum and no dampening",
                found=f"momentum {self.momentum}, dampening {self.dampening}",
                expected="momentum above 0 and dampening 0",
            )

    def update(self, p: Value, g: Value, state: Sequence[Value], rate: Value, step: Value) -> Updated:
        g = self.decayed(p, g)
        buffer = self.buffered(g, state[0], step)
        return _stepped(p, rate, add(g, _times(self.momentum, buffer))), (buffer,)


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """s' = s + g' * g';  p - c * (g' / (sqrt(s') + epsilon)), c = r / (1 + (t - 1) * lr_decay)."""

    default_rate: ClassVar[float] = 1e-2
    lr_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    epsilon: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lr_decay", "initial_accumulator_value", "epsilon"):
            check_range(name, getattr(self, name), 0.0)

    @property
    def slots(self) -> tuple[StateSlot, ...]:
        return (StateSlot("sum", self.initial_accumulator_value),)

    def update(self, p: Value, g: Value, state: Sequence[Value], rate: Value, step: Value) -> Updated:
        g = self.decayed(p, g)
        total = add(state[0], mul(g, g))
        if self.lr_decay:
            before = convert_to(sub(step, scalar(1, I64)), F64)
            rate = div(rate, add(_f64(1.0), mul(before, _f64(self.lr_decay))))
        return _stepped(p, rate, div(g, _root(total, self.epsilon))), (total,)


def _root(x: Value, epsilon: float) -> Value:
    """sqrt(x) + epsilon."""
    return add(elementwise("sqrt", x), fill(epsilon, x.type))


def _mean_square(average: Value, g: Value, decay: float) -> Value:
    """decay * average + ((1 - decay) * g) * g."""
    return add(_times(decay, average), mul(_times(1.0 - decay, g), g))


def _toward(average: Value, g: Value, decay: float) -> Value:
    """average + (1 - decay) * (g - average)."""
    return add(average, _times(1.0 - decay, sub(g, average)))


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """v' = alpha * v + ((1 - alpha) * g') * g';  d = g' / (sqrt(v') + epsilon);  p - r * d.

    `centered`: a' = a + (1 - alpha) * (g' - a) and sqrt(v' - a' * a') in place of sqrt(v').
    With momentum: b' = momentum * b + d;  p - r * b'.
    """

    default_rate: ClassVar[float] = 1e-2
    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("alpha", self.alpha, 0.0, 1.0, open_end=True)
        check_range("epsilon", self.epsilon, 0.0)
        check_range("momentum", self.momentum, 0.0)

    @property
    def slots(self) -> tuple[StateSlot, ...]:
        names = ["square_avg"]
        if self.centered:
            names.append("grad_avg")
        if self.momentum:
            names.append("momentum_buffer")
        return tuple(StateSlot(name) for name in names)

    def update(self, p: Value, g: Value, state: Sequence[Value], rate: Value, step: Value) -> Updated:
        g = self.decayed(p, g)
        old = dict(zip((slot.suffix for slot in self.slots), state, strict=True))
        new = {"square_avg": _mean_square(old["square_avg"], g, self.alpha)}
        spread = new["square_avg"]
        if self.centered:
            center = new["grad_avg"] = _toward(old["grad_avg"], g, self.alpha)
            spread = sub(spread, mul(center, center))
        direction = div(g, _root(spread, self.epsilon))
        if self.momentum:
            direction = add(_times(self.momentum, old["momentum_buffer"]), direction)
            new["momentum_buffer"] = direction
        return _stepped(p, rate, direction), tuple(new.values())


@dataclass(frozen=True)
class Adam(Optimizer):
    """m' = m + (1 - beta1) * (g' - m);  v' = beta2 * v + ((1 - beta2) * g') * g';

    p - (r / (1 - beta1^t)) * (m' / (sqrt(v') / sqrt(1 - beta2^t) + epsilon)), the powers by pow in f64.
    `amsgrad`: u' = max(u, v') in place of v' under the root.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    amsgrad: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("beta1", self.beta1, 0.0, 1.0, open_end=True)
        check_range("beta2", self.beta2, 0.0, 1.0, open_end=True)
        check_range("epsilon", self.epsilon, 0.0)

    @property
    def slots(self) -> tuple[StateSlot, ...]:
        names = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if self.amsgrad else ()))
        return tuple(StateSlot(name) for name in names)

    def update(self, p: Value, g: Value, state: Sequence[Value], rate: Value, step: Value) -> Updated:
        g = self.decayed(p, g)
        first = _toward(state[0], g, self.beta1)
        second = _mean_square(state[1], g, self.beta2)
        top = (maximum(state[2], second),) if self.amsgrad else ()
        spread = elementwise("sqrt", (*top, second)[0])
        root = elementwise("sqrt", _correction(self.beta2, step))
        denominator = add(div(spread, shared(root, p)), fill(self.epsilon, p.type))
        size = div(rate, _correction(self.beta1, step))
        return _stepped(p, size, div(first, denominator)), (first, second, *top)


def _correction(beta: float, step: Value) -> Value:
    """1 - beta^t, f64[]."""
    power = elementwise("pow", _f64(beta), convert_to(step, F64))
    return sub(_f64(1.0), power)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam, whose weight decay is p * (1 - r * weight_decay) before all else and never enters the gradient."""

    weight_decay: float = 1e-2

    def decayed(self, p: Value, g: Value) -> Value:
        return g

    def update(self, p: Value, g: Value, state: Sequence[Value], rate: Value, step: Value) -> Updated:
        if self.weight_decay:
            p = mul(p, shared(sub(_f64(1.0), mul(rate, _f64(self.weight_decay))), p))
        return super().update(p, g, state, rate, step)


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": Sgd,
    "momentum": Momentum,
    "nesterov": Nesterov,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "adam": Adam,
    "adamw": AdamW,
}
