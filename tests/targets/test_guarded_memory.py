"""Code reads nothing outside of its buffers, and stores no wider elements than they have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from repro.machines import Machine
from tests.targets.native import HERE


@pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded by Linux's numbers")
@pytest.mark.parametrize("machine", HERE, ids=lambda machine: machine.name)
def test_inputs_between_pages_that_nobody_may_read(machine: Machine) -> None:
    run = [sys.executable, "-m", "tests.targets.guarded", machine.name]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"
