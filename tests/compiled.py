"""CPU code for tests, each object made once for all processes of a session: a kernel is run on several numbers of
threads, and small models have kernels in common.

What is kept is found by the text that LLVM is given, so whatever changes that text, a planted fault too, is compiled.
Builds and their verification compile for themselves.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from repro.artifact.cache import Cache, key
from repro.ir.loops import Kernel
from repro.ir.program import Program
from repro.ir.schedule import Schedule
from repro.machines import Machine
from repro.targets import cpu
from repro.targets.llvm import toolchain

FOLDER = "REPRO_TEST_OBJECTS"
"""The variable that names the session's folder (conftest.py); without it nothing is kept."""

_compile = toolchain.object_code


def compile_kernel(kernel: Kernel | str, schedule: Schedule, machine: Machine) -> bytes:
    """As `cpu.compile_kernel`."""
    with mock.patch.object(toolchain, "object_code", object_code):
        return cpu.compile_kernel(kernel, schedule, machine)


def compile_program(program: Program, schedules: Sequence[Schedule], machine: Machine) -> bytes:
    """As `cpu.compile_program`."""
    with mock.patch.object(toolchain, "object_code", object_code):
        return cpu.compile_program(program, schedules, machine)


def object_code(text: str, machine: Machine) -> bytes:
    """As `toolchain.object_code`, made once."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return _compile(text, machine)
    cache = Cache(Path(folder))
    which = key("object", text=hashlib.sha256(text.encode()).hexdigest(), machine=machine.name)
    made = cache.get(which)
    if made is None:
        made = _compile(text, machine)
        cache.put(which, made)
    return made
