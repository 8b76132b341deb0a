"""How a command ends: its exit code, and what went wrong as a user is told it; no traceback reaches a user.

Every command, of the package and beside it, ends here. Exit codes: 0 good; 1 a mismatch was found; 2 wrong use,
unreadable input or a system that refuses; 3 incomplete (something required did not run); 4 an internal error of ours,
with a file to attach to a report; 130 ended by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

from rich.console import Console

from repro import tables
from repro.errors import EXIT_GOOD, EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_USAGE, ReproError
from repro.version import VERSION

Command = Callable[[list[str]], int | None]
"""From the words of a command line to an exit code; None: good."""

_REFUSED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
) | {errno.EPIPE, errno.EAGAIN, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP}
"""What no fault of ours makes a system answer: a disk is full, say, nobody reads, or a folder is another user's."""
_WANTS = "the system refuses what this command needs"
_NO_THREAD = "can't start new thread"
"""What Python says, with no number, where a limit of processes is reached."""


def run(command: Command) -> NoReturn:
    """Run a command with the words of this process's command line, and leave the process."""
    heed_sigterm()
    sys.exit(ended(command, sys.argv[1:]))


def heed_sigterm() -> None:
    """SIGTERM ends a command as Ctrl-C does: what is temporary goes, and so do the processes that it started."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def ended(command: Command, words: Sequence[str]) -> int:
    """Run a command; returns the exit code and never raises."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, io.StringIO())
    if isinstance(sys.stdout, io.TextIOWrapper):  # as stderr does: a name that its encoding has not is still told
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _told(command, words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to say to it
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        with contextlib.suppress(OSError):
            tables.show_error(tables.console(stderr=True), _refused(error))
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        return EXIT_USAGE
    _discard(sys.stderr)
    return EXIT_USAGE


def _told(command: Command, words: Sequence[str]) -> int:
    """Run a command; returns the exit code. Raises OSError where output cannot be written."""
    errors = tables.console(stderr=True)
    try:
        return command(list(words)) or EXIT_GOOD
    except ReproError as error:
        tables.show_error(errors, error)
        return error.exit_code
    except KeyboardInterrupt:
        tables.line(errors, "interrupted")
        return EXIT_INTERRUPTED
    except MemoryError as error:
        next_step = "bind smaller dimensions, build with --memory-budget, or run where there is more"
        tables.show_error(errors, ReproError("there is too little memory", found=str(error), next=next_step))
        return EXIT_USAGE
    except SystemExit as stop:
        return _of_exit(errors, stop.code)
    except Exception as error:  # the last line of defence
        if isinstance(error, OSError) and error.errno in _REFUSED:
            raise
        if str(error) == _NO_THREAD:
            tables.show_error(errors, ReproError(_WANTS, found=_NO_THREAD, next="raise its limit of processes"))
            return EXIT_USAGE
        if isinstance(error, FileNotFoundError) and _nowhere():
            tables.show_error(errors, ReproError("the current folder is gone", next="change to one that is there"))
            return EXIT_USAGE
        if isinstance(error, ModuleNotFoundError) and (missing := _not_installed(error)):
            what = f"this needs the package '{missing}', which is not installed"
            next_step = f"install it ({missing} may be one of repro's extras: pip install 'repro[{missing}]')"
            tables.show_error(errors, ReproError(what, next=next_step))
            return EXIT_USAGE
        return _internal_error(errors, error, words)


def _not_installed(error: ModuleNotFoundError) -> str:
    """The package that a module is missing from, if that is missing as a whole."""
    package = (error.name or "").partition(".")[0]
    return package if package not in ("", *sys.modules) and importlib.util.find_spec(package) is None else ""


def _nowhere() -> bool:
    """Whether the current folder was removed."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _of_exit(errors: Console, code: str | int | None) -> int:
    """What Python makes of `sys.exit`'s argument; a text is told."""
    if isinstance(code, str):
        tables.line(errors, code)
        return EXIT_USAGE
    return code or EXIT_GOOD


def _refused(error: OSError) -> ReproError:
    where = "" if error.filename is None else f"{error.filename}: "
    return ReproError(_WANTS, found=f"{where}{error.strerror}")


def _discard(stream: TextIO) -> None:
    """What is still to be written goes nowhere, so that the interpreter does not complain of it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _internal_error(errors: Console, error: Exception, words: Sequence[str]) -> int:
    lines = [f"repro {VERSION}", f"python {sys.version}", f"platform {sys.platform}", f"arguments {list(words)}", ""]
    report = "\n".join(lines) + "".join(traceback.format_exception(error))
    tables.line(errors, f"internal error: {type(error).__name__}: {error}", "bold red")
    with contextlib.suppress(OSError):
        descriptor, path = tempfile.mkstemp(prefix="repro-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(report)
        tables.line(errors, f"  this is a fault of repro, not yours; please attach this file to a report: {path}")
    return EXIT_INTERNAL
