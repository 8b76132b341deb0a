"""python -m proofs.report: what the records say, as the tables of docs/elementary.md, between its markers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proofs.records import FOLDER
from repro import ending
from repro.ir.expressions import Const, Expr, Load, Rarely, topological
from repro.ir.types import F32, F64, DType
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS
from repro.numerics.interpret import argument

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "elementary.md"
BEGIN, END = "<!-- records: python -m proofs.report -->", "<!-- end of records -->"


def record(name: str) -> dict[str, Any] | None:
    """The record of this file name; None where there is none."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def operations(name: str, dtype: DType) -> tuple[int, int]:
    """Scalar operations of a function: those of every argument, and all of them."""
    operands = [argument(dtype, position) for position in range(1 + (name in BINARY_FUNCTIONS))]
    return counted({**FUNCTIONS, **BINARY_FUNCTIONS}[name](*operands), operands)


def counted(root: Expr, operands: Sequence[Expr]) -> tuple[int, int]:
    """Scalar operations of a sequence: those that every argument takes, and all of them."""
    everything = sum(not isinstance(expr, Const | Load) for expr in topological([root]))
    common, seen, stack = 0, {*operands}, [root]
    while stack:
        expr = stack.pop()
        if expr in seen or isinstance(expr, Const):
            continue
        seen.add(expr)
        common += 1
        stack.extend((expr.condition, expr.common) if isinstance(expr, Rarely) else expr.children)
    return common, everything


def _cost(name: str, dtype: DType) -> str:
    common, everything = operations(name, dtype)
    return f"{common}" if common == everything else f"{common} ({everything})"


def f32_table() -> Iterator[str]:
    yield "| f32 | operations | by rule | by screen | by MPFR | hard cases | misrounded | results, sha256 |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in FUNCTIONS:
        found = record(name)
        if found is None:
            yield f"| {name} | {_cost(name, F32)} | | | | | no record | |"
            continue
        counts = found["counts"]
        numbers = " | ".join(f"{counts[key]:,}" for key in ("rule", "screen", "mpfr", "hard", "misroundings"))
        yield f"| {name} | {_cost(name, F32)} | {numbers} | `{found['results'][:16]}` |"


def pairs_table() -> Iterator[str]:
    yield "| f32 pairs | operations | pairs | misrounded | results, sha256 |"
    yield "|---|---|---|---|---|"
    for name in BINARY_FUNCTIONS:
        found = record(name)
        if found is None:
            yield f"| {name} | {_cost(name, F32)} | no record | | |"
            continue
        counts = found["counts"]
        total, wrong = f"{counts['pairs']:,}", f"{counts['misroundings']:,}"
        yield f"| {name} | {_cost(name, F32)} | {total} | {wrong} | `{found['results'][:16]}` |"


def f64_table() -> Iterator[str]:
    yield "| f64 | operations | greatest error, ulp | at | points |"
    yield "|---|---|---|---|---|"
    for name in (*FUNCTIONS, *BINARY_FUNCTIONS):
        found = record(f"{name}.f64")
        if found is None:
            yield f"| {name} | {_cost(name, F64)} | no record | | |"
            continue
        worst, points = found["worst"], found["points"]
        at = ", ".join(f"`{bits}`" for bits in ([worst["argument"]] if "argument" in worst else worst["arguments"]))
        yield f"| {name} | {_cost(name, F64)} | {float(worst['ulps']):.3f} | {at} | {points['asked']:,} |"


def text() -> str:
    """The tables."""
    return "\n\n".join("\n".join(table) for table in (f32_table(), pairs_table(), f64_table()))


def document(old: str) -> str:
    """The document with today's tables between the markers."""
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text()}\n{END}{after}"


def main(_: list[str]) -> None:
    DOCUMENT.write_text(document(DOCUMENT.read_text()))
    sys.stdout.write(f"wrote the tables of {DOCUMENT.name}\n")


if __name__ == "__main__":
    ending.run(main)
