"""Recorded code, linked to a program of its own, gives the bytes that were recorded, or says that it does not. On this
host's own machine: the emulated computer runs the same program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from passes.schedule import schedule
from repro.ir.types import Array
from repro.targets import cpu
from tests.targets.native import HERE, executable, single
from tests.targets.test_random_schedules import arrays, kernels
from tools.avx512 import linking
from tools.avx512.recording import Job

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    not (sys.platform == "linux" and HERE[0].triple.startswith("x86_64"))
    or (shutil.which("gcc") is None and os.environ.get("CI") != "true"),
    reason="needs x86-64 and gcc",
)


def job() -> Job:
    """A contraction, run here."""
    kernel, machine = next(each for each in kernels() if each.scalars == ()), HERE[0]
    program, chosen, given = single(kernel), schedule(kernel, machine), arrays(kernel)
    runner = executable(program, machine, [chosen])
    for position, value in enumerate(given):
        runner.set_parameter(position, value)
    runner.run([])
    after = {position: _bytes(runner.parameter(position)) for position in program.written}
    runner.close()
    objects = (cpu.compile_kernel(kernel, chosen, machine), cpu.compile_program(program, [chosen], machine))
    before = dict(enumerate(map(_bytes, given)))
    return Job("", objects, program, cpu.Code(objects).scratch, before, after)


def _bytes(array: Array | None) -> bytes:
    assert array is not None
    return np.ascontiguousarray(array).tobytes()


def test_a_changed_bit_is_found(tmp_path: Path) -> None:
    good = job()
    number, data = next(iter(good.after.items()))
    assert good.after, "a program that writes nothing proves nothing"
    flipped = data[:-4] + bytes([data[-4] ^ 1]) + data[-3:]
    bad = replace(good, after=good.after | {number: flipped})
    found = subprocess.run([linking.link([good, bad, good], tmp_path)], capture_output=True, text=True, check=False)
    assert found.stdout.split("\n")[1:] == ["begin 3", "job 0 good", "job 1 differs", "job 2 good", "end 1", ""]
    assert found.returncode == 1


def test_what_tests_run_is_recorded_and_runs_again() -> None:
    command = [sys.executable, "-m", "tools.avx512", "--here", "--machine", HERE[0].name]
    tests = ["--", "tests/targets/test_sweeps.py", "-k", "side_by_side"]
    found = subprocess.run([*command, *tests], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert found.returncode == 0, found.stdout + found.stderr
    last = found.stdout.splitlines()[-1]
    assert last.startswith(f"{HERE[0].name}: ")
    assert last.endswith("runs have the bits of this host")
    assert " 0 of 0 " not in last
