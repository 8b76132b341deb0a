"""What every test relies on."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Ctrl-C means KeyboardInterrupt, here and in child processes, even if a shell started this one in the background,
    where it lets that signal be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
