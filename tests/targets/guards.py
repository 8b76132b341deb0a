"""Memory against pages that nobody may touch: what code reads or writes outside of it ends the process, or is found."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from collections.abc import Generator
from unittest import mock

import numpy as np

from repro.ir.types import Array
from repro.runtime import buffers, session

PAGE, ROOM = mmap.PAGESIZE, 1 << 20
"""Bytes of a page, and of the pages on either side."""
FILL = 0xA5
"""What lies between the memory and those pages."""
GUARDS = sys.platform == "linux"
"""Elsewhere what lies beside is found where it was written, and no page is guarded."""


class Guarded:
    """Memory that begins behind such a page or, if `last`, ends in front of one, as far as its alignment allows."""

    def __init__(self, last: bool) -> None:
        self._last = last
        self._beside: list[Array] = []

    def aligned(self, nbytes: int) -> Array:
        """Bytes, not initialised, that begin with a line: as `repro.runtime.buffers` gives to what code writes."""
        return self._place(nbytes, buffers.ALIGNMENT)

    def copy(self, array: Array) -> Array:
        """An array as callers may give it."""
        made = self._place(array.nbytes, buffers.PROMISED).view(array.dtype).reshape(array.shape)
        made[...] = array
        return made

    def _place(self, nbytes: int, alignment: int) -> Array:
        length = max(1, -(-nbytes // PAGE)) * PAGE
        whole = np.frombuffer(mmap.mmap(-1, length + 2 * ROOM), np.uint8)
        for guard in (whole[:ROOM], whole[ROOM + length :]) if GUARDS else ():
            _forbid(guard)
        room = whole[ROOM : ROOM + length]
        room.fill(FILL)
        start = (length - nbytes) // alignment * alignment if self._last else 0
        self._beside += [room[:start], room[start + nbytes :]]
        return room[start : start + nbytes]

    def check(self) -> None:
        """That nothing was written beside it."""
        assert all((beside == FILL).all() for beside in self._beside), "memory beside a buffer was written"


def _forbid(pages: Array) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.mprotect(pages.ctypes.data, pages.nbytes, 0):
        raise OSError(ctypes.get_errno(), "mprotect")


@contextlib.contextmanager
def guarded(last: bool) -> Generator[Guarded]:
    """The memory that executables take meanwhile, but for outputs (temporaries lie together in one arena); parameters
    that nobody writes are read where they lie."""
    memory = Guarded(last)
    with (
        mock.patch.object(buffers, "aligned", memory.aligned),
        mock.patch.object(session, "aligned", memory.aligned),
        mock.patch.object(buffers, "LARGE_BYTES", 0),
    ):
        yield memory
