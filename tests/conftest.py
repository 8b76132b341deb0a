"""What every test relies on."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest

from repro.artifact import workers

CACHE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """One build cache for all processes of this session, and not the user's: tests plant faults. Beside it, the objects
    that tests share (compiled.py).

    Ctrl-C means KeyboardInterrupt, here and in child processes, even if a shell started this one in the background,
    where it lets that signal be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.stash[CACHE] = folder = tempfile.mkdtemp(prefix="repro-tests-")
        os.environ["REPRO_CACHE"], os.environ["REPRO_TEST_OBJECTS"] = f"{folder}/builds", f"{folder}/objects"


@pytest.fixture(autouse=True, scope="session")
def compiling_in_this_process() -> Iterator[None]:
    """The processes of this session have the cores to themselves already: a worker's start takes the time of many
    kernels of a small model. Workers are tested by themselves, and in what tests run as commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "JOBS_PER_WORKER", 10**6)
        yield


def pytest_unconfigure(config: pytest.Config) -> None:
    """The session's cache goes with it."""
    if CACHE in config.stash:
        shutil.rmtree(config.stash[CACHE], ignore_errors=True)
