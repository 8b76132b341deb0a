"""Rows of Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def head(*cells: str) -> Iterator[str]:
    """The first row, and the one under it."""
    yield line(*cells)
    yield f"|{'---|' * len(cells)}"
