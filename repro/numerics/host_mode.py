"""The floating point mode of the host thread around reference work (rule 1).

A host process may have switched on flushing of subnormals or another rounding direction; NumPy would follow
it. The C library's default environment is round to nearest with subnormals kept, on every target we know.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from repro.errors import InternalError

_ENVIRONMENT_BYTES = 128
"""More than any fenv_t: 32 on x86-64, 8 on AArch64, 16 on macOS."""


def _load() -> tuple[Any, Any] | None:
    """The C library and its default environment; None where it cannot be had."""
    if sys.platform == "win32":
        return None
    for name in (None, "libm.so.6", "libm.so"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if not (hasattr(library, "fegetenv") and hasattr(library, "fesetenv")):
            continue
        if sys.platform == "darwin":
            return library, ctypes.byref((ctypes.c_char * _ENVIRONMENT_BYTES).in_dll(library, "_FE_DFL_ENV"))
        return library, ctypes.c_void_p(-1)  # FE_DFL_ENV of glibc and musl
    return None


_LIBRARY = _load()


def keeps_subnormals() -> bool:
    """Whether the calling thread keeps subnormal operands and results just now."""
    tiny = np.array([2.0**-1074, 2.0**-1022])
    return bool(np.all(tiny * np.array([1.0, 0.5]) != 0))


@contextmanager
def exact_arithmetic() -> Generator[None]:
    """Round to nearest, subnormals kept, no NumPy warnings; the thread's mode comes back afterwards."""
    with np.errstate(all="ignore"):
        if _LIBRARY is None:
            if not keeps_subnormals():
                raise InternalError("this process flushes subnormals, and this host offers no way to stop it")
            yield
            return
        library, default = _LIBRARY
        saved = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
        library.fegetenv(saved)
        library.fesetenv(default)
        try:
            yield
        finally:
            library.fesetenv(saved)
