"""Clipping of gradients by their global norm."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.graph import Value
from repro.ir.types import F32, F64
from repro.ops import add, convert_to, div, elementwise, fill, minimum, mul, scalar
from repro.train_step.losses import everything
from repro.train_step.optimizers import shared

SMALLEST_NORM = 1e-6
"""What is added to the norm before it divides, as in PyTorch."""


def clipped(gradients: Sequence[Value], greatest: float) -> list[Value]:
    """g * c, c = min(greatest / (n + 1e-6), 1), n = sqrt(s).

    s adds sum(g * g) (rule 10) of each gradient in the order given, from the first; s, n and c are f64 if any gradient
    is, else f32, and c is rounded once to a gradient's own type.
    """
    wide = F64 if any(gradient.dtype is F64 for gradient in gradients) else F32
    total: Value | None = None
    for gradient in gradients:
        square = convert_to(everything("add", mul(gradient, gradient)), wide)
        total = square if total is None else add(total, square)
    if total is None:
        return []
    norm = add(elementwise("sqrt", total), fill(SMALLEST_NORM, total.type))
    factor = minimum(div(scalar(greatest, wide), norm), scalar(1, wide))
    return [mul(gradient, shared(factor, gradient)) for gradient in gradients]
