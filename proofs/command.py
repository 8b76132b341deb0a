"""The end of a command: its exit code, and an error as the user is told it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from repro.errors import ReproError
from repro.tables import console, show_error


def run(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a command with the words of the command line, and leave the process."""
    try:
        sys.exit(main(sys.argv[1:]))
    except ReproError as error:
        show_error(console(stderr=True), error)
        sys.exit(error.exit_code)
