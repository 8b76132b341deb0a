"""python -m proofs.before_rounding [NAME...]: how far the f64 value that a function rounds lies from the true one.

The relative error, as a power of two, over random f32 arguments of the screen's domain: the greatest that was met.
An f32 function ends in one conversion; the value before it is what is measured. Seldom-taken sides are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from proofs.native import Elementwise
from proofs.screens import SCREENS
from repro import ending
from repro.ir.expressions import Apply, Expr, Rarely
from repro.ir.types import F32, F64, Array
from repro.numerics.elementary import FUNCTIONS
from repro.numerics.elementary.value import Value, select
from repro.tables import console
from repro.targets import cpu

COUNT = 1 << 16
BLOCKS = 64
GREATEST = {
    "exp": 88.0, "exp2": 126.0, "expm1": 24.0, "sinh": 88.0, "cosh": 88.0, "tanh": 9.0, "erf": 3.9, "erfc": 9.0,
    "sin": 2.0**23, "cos": 2.0**23, "tan": 2.0**23,
}  # fmt: skip
"""Magnitude of arguments from which the result is clamped, saturated, or computed on the seldom side. Subnormal
arguments are left out: some functions take them there too."""


def rounded_value(root: Expr) -> Expr:
    """The f64 that the function's last conversion rounds."""
    stack, found, seen = [root], list[Expr](), set[Expr]()
    while stack:
        expr = stack.pop()
        if expr in seen:
            continue
        seen.add(expr)
        if isinstance(expr, Apply) and expr.op == "convert" and expr.dtype is F32 and expr.children[0].dtype is F64:
            found.append(expr.children[0])
            continue
        stack.extend((expr.condition, expr.common) if isinstance(expr, Rarely) else expr.children)
    if len(found) != 1:
        raise ValueError(f"{len(found)} conversions from f64 to f32, not one")
    return found[0]


def arguments(name: str, seed: int) -> Array:
    """Random f32 bits, and as many values up to 128."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, COUNT // 2, np.uint32).view(np.float32)
    usual = rng.standard_normal(COUNT // 2) * 2.0 ** rng.integers(-6, 6, COUNT // 2)
    drawn = np.concatenate([bits, usual.astype(np.float32)])
    drawn = np.where(np.isfinite(drawn), drawn, 0.0).astype(np.float64)
    low, high = SCREENS[name].domain[0]
    inside = (
        (drawn > low) & (drawn < high) & (np.abs(drawn) < GREATEST.get(name, np.inf)) & (np.abs(drawn) >= 2.0**-126)
    )
    return np.where(inside, drawn, 0.75 if high <= 1.0 else 1.75).astype(np.float32)


def measure(name: str) -> tuple[float, float]:
    """(greatest relative error, argument where it was met), f64."""

    def pair(x: Expr) -> Sequence[Expr]:
        true = SCREENS[name].function(Value(x).to(F64))
        value = Value(rounded_value(FUNCTIONS[name](x)))
        size = select(true.high < 0.0, -true.low, true.low)  # a sign may be set after the rounding
        error = ((abs(value) - abs(true.high)) - size) / abs(true.high)
        kept = (abs(true.high) > 2.0**-149).expr
        return [Value(x).to(F64).expr, error.expr, kept]

    machine = cpu.best_machine()
    if machine is None:
        raise SystemExit("this host runs none of the CPU machines")
    run = Elementwise(pair, [F32], machine, COUNT)
    worst = (0.0, 0.0)
    for seed in range(BLOCKS):
        given, error, kept = run.block(arguments(name, seed))
        size = np.where(kept & np.isfinite(error), np.abs(error), 0.0)
        at = int(size.argmax())
        worst = max(worst, (float(size[at]), float(given[at])))
    return worst


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m proofs.before_rounding", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[*FUNCTIONS])
    table = Table("function", "relative error", "at", title=f"before rounding, {COUNT * BLOCKS} arguments")
    for name in parser.parse_args(words).names:
        error, at = measure(name)
        table.add_row(name, f"2^{np.log2(error):.2f}" if error else "0", at.hex())
    console().print(table)


if __name__ == "__main__":
    ending.run(main)
