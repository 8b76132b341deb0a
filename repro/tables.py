"""How commands show things: rich tables and lines. Names out of a model are shown as inert text."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from repro.errors import ReproError

WIDTH_OF_A_PIPE = 160


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Left to the command line, which has an exit code for it: rich's is that of a mismatch."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console(stderr: bool = False) -> Console:
    made = _Console(stderr=stderr, highlight=False, emoji=False)
    if not made.is_terminal:
        made = _Console(stderr=stderr, highlight=False, emoji=False, width=WIDTH_OF_A_PIPE)
    return made


def inert(text: object, style: str = "") -> Text:
    """Text with control characters escaped, so that a name in a model cannot steer a terminal."""
    return Text("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)), style)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = ()) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        justify = "right" if position in right else "left"
        made.add_column(column, justify=justify, overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else inert(cell) for cell in row))
    return made


def line(to: Console, text: object, style: str = "") -> None:
    """One line, never wrapped."""
    to.print(inert(text, style), soft_wrap=True)


def show_error(to: Console, error: ReproError) -> None:
    first, *rest = str(error).splitlines()
    line(to, f"error: {first}", "bold red")
    for text in rest:
        line(to, text)


def size(count: int) -> str:
    """Bytes for people: 1,024 B, 12.3 kB, 4.5 MB."""
    if count < 10_000:
        return f"{count:,} B"
    power = min((len(str(count)) - 1) // 3, 4)
    return f"{count / 1000**power:.1f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def with_interval(value: float, low: float, high: float) -> str:
    """A ratio with its interval."""
    return f"{value:.2f} ({low:.2f} to {high:.2f})"
