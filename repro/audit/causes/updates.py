"""Updates of plain gradient descent and its momenta: where the other runtime rounds a product and a sum once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from repro.audit.causes.problem import Candidate, NotCoveredError, Problem, Units
from repro.audit.unrolled import scheduled_rate, step_in, update_options
from repro.ir.types import Array
from repro.numerics.numpy_fma import fma_f32
from repro.train_step.optimizers import Momentum, Nesterov, Sgd

Add = Callable[[Array, float, Array], Array]
"""x + factor * y."""


def _rounded_twice(x: Array, factor: float, y: Array) -> Array:
    return x + np.float32(factor) * y


def _fused(x: Array, factor: float, y: Array) -> Array:
    return fma_f32(np.full_like(y, factor), y, x)


def update(problem: Problem) -> Units:
    """Raises NotCoveredError for other optimizers, and for what is no f32."""
    options, step = update_options(problem.node), step_in(problem.node)
    chosen, rate = options.optimizer, scheduled_rate(options, step)
    if not isinstance(chosen, Sgd | Momentum) or problem.golden.dtype != np.float32:
        raise NotCoveredError(f"{type(chosen).__name__} in {problem.golden.dtype}")
    given = [problem.required(position).reshape(-1) for position in range(len(problem.node.input))]

    def results(add: Add, units: Array) -> list[Array]:
        """The new parameter, and the new buffer where there is one."""
        p, g, *buffer = (array[units] for array in given)
        g = add(g, chosen.weight_decay, p) if chosen.weight_decay else g
        if not isinstance(chosen, Momentum):
            return [add(p, -rate, g)]
        kept = np.float32(chosen.momentum) * buffer[0]
        b = g if step == 1 else add(kept, 1.0 - chosen.dampening, g)
        return [add(p, -rate, add(g, chosen.momentum, b) if isinstance(chosen, Nesterov) else b), b]

    golden = problem.golden.reshape(-1)
    every = np.arange(golden.size)
    place = next((i for i, each in enumerate(results(_rounded_twice, every)) if np.array_equal(each, golden)), None)
    if place is None:
        raise NotCoveredError("an update that these formulas do not give")

    def candidates(units: Array) -> Iterator[Candidate]:
        yield Candidate("products fused into sums (fma)", lambda: results(_fused, units)[place])

    return Units(golden, problem.theirs.reshape(-1), candidates, 3)
