"""python -m tools.avx512: the code of tests for AVX-512, run on an emulated computer."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from repro import ending
from repro.errors import EXIT_GOOD, EXIT_INCOMPLETE, EXIT_MISMATCH
from repro.machines import CPUS, X86_64_V4, Machine
from repro.targets.cpu import best_machine
from tools.avx512 import computer, linking
from tools.avx512.goldens import golden_jobs
from tools.avx512.recording import Job, Recorder

TESTS = [
    f"tests/targets/test_{name}.py"
    for name in (
        "contraction_tiles", "window_tiles", "grouped_convolutions", "reduction_orders", "sweeps", "rows_ahead",
        "turning", "native_programs", "random_graphs", "scalar_bits", "program_parts",
    )
]  # fmt: skip
LEFT_OUT = ["--deselect", "tests/targets/test_scalar_bits.py::test_every_conversion"]
"""Bochs 2.7 converts numbers from 2^63 on to u64 wrongly (VCVTTSD2USI of 2^63 is 2^63; it gives 2^64 - 1)."""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    lacking = [] if options.here else computer.missing()
    if lacking:
        sys.stdout.write(f"not run: missing Debian packages: {' '.join(lacking)}\n")
        return EXIT_INCOMPLETE
    machine, instead = CPUS[options.machine], best_machine()
    if instead is None:
        sys.stdout.write("not run: this host runs no CPU machine\n")
        return EXIT_INCOMPLETE
    recorder = Recorder(machine, instead, options.largest)
    with recorder.installed():
        status = pytest.main(["-q", "-m", "not full", "-p", "no:xdist", *(options.tests or [*TESTS, *LEFT_OUT])])
    jobs = [*recorder.jobs, *(golden_jobs(machine, instead) if options.goldens else ())]
    for reason, count in recorder.left_out.items():
        sys.stdout.write(f"left out: {count} runs of programs {reason}\n")
    if status or not jobs:
        sys.stdout.write(
            "not run: tests failed\n" if status else "not run: these tests ran no program of the machine\n"
        )
        return EXIT_MISMATCH if status else EXIT_INCOMPLETE
    return _report(jobs, _printed(jobs, options), machine)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.avx512", description=__doc__)
    parser.add_argument(
        "tests", nargs="*", metavar="PYTEST-ARGUMENT", help=f"options behind --; default: {' '.join(TESTS)}"
    )
    parser.add_argument("--goldens", action="store_true", help="every entry of every golden model too")
    parser.add_argument("--largest", type=int, default=1 << 20, metavar="BYTES", help="of a program's buffers (2^20)")
    parser.add_argument("--seconds", type=float, default=3000, help="for the emulated computer (3000)")
    parser.add_argument("--machine", choices=sorted(CPUS), default=X86_64_V4.name)
    parser.add_argument("--here", action="store_true", help="run on this host, without an emulator")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what is made for the computer")
    return parser


def _printed(jobs: Sequence[Job], options: argparse.Namespace) -> str:
    with tempfile.TemporaryDirectory(prefix="repro-avx512-") as name:
        folder = (options.keep or Path(name)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        program = linking.link(jobs, folder)
        if options.here:
            return subprocess.run([program], capture_output=True, text=True, check=False).stdout
        return computer.run(program, options.seconds)


def _report(jobs: Sequence[Job], printed: str, machine: Machine) -> int:
    """One line for each job that is not good, and one for all; the exit code."""
    said = dict(line.removeprefix("job ").split(" ", 1) for line in printed.splitlines() if line.startswith("job "))
    states = [said.get(str(number), "did not run") for number in range(len(jobs))]
    for job, state in zip(jobs, states, strict=True):
        if state != "good":
            sys.stdout.write(f"{state}: {job.test}\n")
    sys.stdout.writelines(f"{line}\n" for line in printed.splitlines() if line.startswith("refused"))
    programs, good = len({job.objects for job in jobs}), states.count("good")
    sys.stdout.write(f"{machine.name}: {programs} programs, {good} of {len(jobs)} runs have the bits of this host\n")
    return EXIT_GOOD if good == len(jobs) else EXIT_MISMATCH


if __name__ == "__main__":
    ending.run(main)
