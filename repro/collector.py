"""Python's collector of reference cycles, paused while what is made has none."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def paused() -> Generator[None]:
    """No search for cycles inside it, and behind it as before; also a decorator.

    Graphs, kernels and programs are trees of immutable values: they go when nothing refers to them. Searching through
    all of them again and again, as their number grows, takes a sixth of the time of importing and lowering a model, and
    finds a few small functions that call themselves.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
