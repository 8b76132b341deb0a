"""Code reads nothing outside of its buffers, and stores no wider elements than they have."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys

import numpy as np
import pytest

from repro.machines import Machine
from tests.targets.guards import GUARDS, Guarded
from tests.targets.native import HERE

_READS = """
import ctypes, sys
import numpy as np
from tests.targets.guards import Guarded

last = sys.argv[1] == "last"
found = Guarded(last).copy(np.arange(100, dtype=np.float32))  # a multiple of 16 bytes
print(found[-1], flush=True)
ctypes.string_at(found.ctypes.data + (found.nbytes if last else -1), 1)
"""


@pytest.mark.skipif(not GUARDS, reason="no page is guarded here")
@pytest.mark.parametrize("end", ["first", "last"])
def test_a_byte_read_beside_a_buffer_ends_the_process(end: str) -> None:
    done = subprocess.run([sys.executable, "-c", _READS, end], capture_output=True)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, b"99.0\n")


@pytest.mark.parametrize(("last", "place"), [(True, -1), (False, 100)])
def test_a_byte_written_beside_a_buffer_is_found(last: bool, place: int) -> None:
    memory = Guarded(last)
    buffer = memory.aligned(100)
    buffer[:] = 0
    memory.check()
    ctypes.memset(buffer.ctypes.data + place, 7, 1)
    with pytest.raises(AssertionError, match="beside a buffer"):
        memory.check()
    assert not np.any(buffer)


@pytest.mark.skipif(not GUARDS, reason="no page is guarded here")
@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
def test_inputs_between_pages_that_nobody_may_read(machine: Machine) -> None:
    run = [sys.executable, "-m", "tests.targets.guarded", machine.name]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"
