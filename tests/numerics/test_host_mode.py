"""Reference work keeps subnormals and rounds to nearest even where the host process has changed its mode."""

from __future__ import annotations

import ctypes
import platform
import struct

import numpy as np
import pytest

from repro.numerics.contract import LANES_ORDER
from repro.numerics.host_mode import exact_arithmetic, keeps_subnormals
from repro.numerics.sums import reduce_reference

TINY = np.array([2.0**-149, 2.0**-149, 2.0**-140], np.float32)
CONTROL = {"x86_64": (28, 0x8040, 0x6000), "aarch64": (0, 1 << 24, 3 << 22)}
"""Machine: where glibc's fenv_t holds the control word, its flushing bits, its rounding bits."""


@pytest.fixture
def library():
    loaded = ctypes.CDLL(None)
    if platform.machine() not in CONTROL or not hasattr(loaded, "fesetenv"):
        pytest.fail(f"no way to change the floating point mode on {platform.machine()}")
    saved = ctypes.create_string_buffer(128)
    loaded.fegetenv(saved)
    yield loaded
    loaded.fesetenv(saved)


def set_mode(library, bits: int) -> None:
    environment = ctypes.create_string_buffer(128)
    library.fegetenv(environment)
    offset = CONTROL[platform.machine()][0]
    (word,) = struct.unpack_from("<I", environment, offset)
    struct.pack_into("<I", environment, offset, word | bits)
    library.fesetenv(environment)


def test_a_flushing_host_changes_nothing(library):
    expected = reduce_reference("add", LANES_ORDER, [TINY]).tobytes()
    set_mode(library, CONTROL[platform.machine()][1])
    assert not keeps_subnormals()
    got = reduce_reference("add", LANES_ORDER, [TINY]).tobytes()
    assert not keeps_subnormals(), "the host's own mode came back"
    assert got == expected
    with exact_arithmetic():
        assert keeps_subnormals()


def test_a_host_that_rounds_upwards_changes_nothing(library):
    x = np.array([1.0, 2.0**-40], np.float32)
    set_mode(library, 0x4000 if platform.machine() == "x86_64" else 1 << 22)
    assert (x[:1] + x[1:])[0] > 1
    assert reduce_reference("add", LANES_ORDER, [x]) == 1
    assert (x[:1] + x[1:])[0] > 1


def test_no_warning_escapes():
    with np.errstate(all="raise"), exact_arithmetic():
        assert np.isinf(np.array([1e300]) * np.array([1e300]))
