"""Schedules: the factor on the learning rate, as graph ops of the step counter, in f64.

With n = the number of finished steps, w = `warmup_steps`, T = `total_steps`, s = `warmup_start`, e = `end_factor`,
each operation rounded in the order written:

    n < w      s * (1 - n / w) + n / w
    constant   1
    linear     (1 - p) + e * p                       p = min(max(n - w, 0), T - w) / (T - w)
    cosine     c + e * (1 - c)                       c = 0.5 * (1 + cos(pi * p)), pi the nearest f64

From step T on, linear and cosine stay at e, whose bits they reach exactly. These are the closed forms of PyTorch's
LinearLR and CosineAnnealingLR behind a linear warm-up; the cosine does not rise again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from repro.errors import ReproError
from repro.ir.graph import Value
from repro.ir.types import F64, I64
from repro.ops import add, compare, convert_to, div, elementwise, maximum, minimum, mul, scalar, select, sub
from repro.train_step.options import check_count, check_range


def _number(value: float) -> Value:
    return scalar(value, F64)


def _constant(_: Value, __: float) -> Value:
    return _number(1.0)


def _linear(p: Value, end: float) -> Value:
    return add(sub(_number(1.0), p), mul(_number(end), p))


def _cosine(p: Value, end: float) -> Value:
    wave = elementwise("cos", mul(_number(math.pi), p))
    c = mul(_number(0.5), add(_number(1.0), wave))
    return add(c, mul(_number(end), sub(_number(1.0), c)))


SHAPES: dict[str, Callable[[Value, float], Value]] = {"constant": _constant, "linear": _linear, "cosine": _cosine}
"""Kind -> factor of the part p in [0, 1] of the decay that is behind, and the factor at its end."""


@dataclass(frozen=True)
class Schedule:
    """A warm-up of `warmup_steps` from `warmup_start`, then a decay until `total_steps`, the warm-up counted in."""

    kind: str = "constant"
    total_steps: int | None = None
    end_factor: float = 0.0
    warmup_steps: int = 0
    warmup_start: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in SHAPES:
            raise ReproError("there is no schedule of this name", found=f"'{self.kind}'", expected=", ".join(SHAPES))
        check_count("warmup_steps", self.warmup_steps, 0)
        check_range("warmup_start", self.warmup_start, 0.0, 1.0)
        check_range("end_factor", self.end_factor, 0.0)
        if self.kind == "constant":
            if self.total_steps is not None or self.end_factor != 0.0:
                raise ReproError(
                    "a constant schedule has no end",
                    found=f"total_steps {self.total_steps}, end_factor {self.end_factor}",
                    expected="neither, or the kind linear or cosine",
                )
        elif self.total_steps is None or self.total_steps <= self.warmup_steps:
            raise ReproError(
                f"a {self.kind} schedule must know where it ends",
                found=f"total_steps {self.total_steps}, warmup_steps {self.warmup_steps}",
                expected="total_steps greater than warmup_steps",
            )

    def factor(self, finished: Value) -> Value:
        """f64[]: the factor for the step that follows `finished` (i64[]) steps."""
        shape = SHAPES[self.kind](self._progress(finished), self.end_factor)
        if not self.warmup_steps:
            return shape
        ratio = div(convert_to(finished, F64), _number(float(self.warmup_steps)))
        rising = add(mul(_number(self.warmup_start), sub(_number(1.0), ratio)), ratio)
        return select(compare("lt", finished, scalar(self.warmup_steps, I64)), rising, shape)

    def _progress(self, finished: Value) -> Value:
        """p of the formulas above."""
        extent = (self.total_steps or 1) - self.warmup_steps if self.kind != "constant" else 1
        behind = maximum(sub(finished, scalar(self.warmup_steps, I64)), scalar(0, I64))
        return div(convert_to(minimum(behind, scalar(extent, I64)), F64), _number(float(extent)))
