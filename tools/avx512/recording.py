"""What tests run, kept: each program's code for one machine with its bytes before and after a run."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from passes.schedule import schedule
from repro.ir.loops import Kernel
from repro.ir.program import CONSTANT, INPUT, LOCAL, OUTPUT, PARAMETER, TEMPORARY, Program
from repro.ir.schedule import Schedule
from repro.ir.types import Array
from repro.machines import Machine
from repro.runtime.session import CpuExecutable
from repro.targets import cpu
from repro.targets.cpu import host


@dataclass(frozen=True)
class Job:
    """One run of a program. `before` and `after`: bytes by number of the program's buffer."""

    test: str
    objects: tuple[bytes, ...]
    program: Program
    scratch: int
    before: dict[int, bytes]
    after: dict[int, bytes]


@dataclass
class Recorder:
    """Makes a host claim that it runs `machine`, runs each program for it on `instead`, and keeps the run as a job."""

    machine: Machine
    instead: Machine
    largest: int = 1 << 20
    """Bytes of a program's buffers; larger ones are left out."""
    of_each: int = 2
    """Runs of the same code."""
    jobs: list[Job] = field(default_factory=list[Job])
    left_out: Counter[str] = field(default_factory=Counter[str])
    _foreign: dict[bytes, Machine] = field(default_factory=dict[bytes, Machine])
    _runs: Counter[str] = field(default_factory=Counter[str])

    def keep(self, executable: Any, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """A run that has ended. `executable.given` holds its parameters' bytes before it, and then those after."""
        program: Program = executable.program
        before: dict[int, bytes] = {}
        after: dict[int, bytes] = {}
        for number, buffer in enumerate(program.buffers):
            if buffer.role == CONSTANT:
                before[number] = bytes(program.constants[buffer.position])
            elif buffer.role == INPUT:
                before[number] = np.ascontiguousarray(inputs[buffer.position]).tobytes()
            elif buffer.role == OUTPUT:
                after[number] = outputs[buffer.position].tobytes()
            elif buffer.role == PARAMETER:
                before[number] = executable.given[buffer.position]
                if buffer.position in program.written:
                    after[number] = executable.parameter(buffer.position).tobytes()
                    executable.given[buffer.position] = after[number]
        alone = (buffer.nbytes for buffer in program.buffers if buffer.role not in (TEMPORARY, LOCAL))
        code = hashlib.sha256(b"".join(executable.objects)).hexdigest()
        if program.arena_bytes + sum(alone) > self.largest:
            self.left_out[f"larger than {self.largest} bytes"] += 1
        elif self._runs[code] == self.of_each:
            self.left_out[f"after {self.of_each} runs of the same code"] += 1
        else:
            self._runs[code] += 1
            test = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
            self.jobs.append(Job(test, executable.objects, program, executable.scratch, before, after))

    @contextmanager
    def installed(self) -> Generator[None]:
        """While inside, executables of the machine's code are twins that run on the other machine."""
        recorder, machine, instead = self, self.machine, self.instead
        compile_kernel, compile_program, runs_here = cpu.compile_kernel, cpu.compile_program, host.runs_here
        link = cpu.Code

        def kernel_object(kernel: Kernel | str, chosen: Schedule, of: Machine) -> bytes:
            return self._remember(compile_kernel(kernel, chosen, of), of)

        def program_object(
            program: Program, schedules: Sequence[Schedule], of: Machine, profile: bool = False
        ) -> bytes:
            return self._remember(compile_program(program, schedules, of, profile), of)

        def loaded(objects: Sequence[bytes]) -> Any:
            foreign = self._foreign.get(hashlib.sha256(objects[-1]).digest())
            return tuple(objects) if foreign is machine else link(objects)

        class Twin(CpuExecutable):
            def __init__(self, program: Program, code: Any, threads: int, *rest: Any, **named: Any) -> None:
                self.objects, self.given = code, dict[int, bytes]()
                if isinstance(code, tuple):
                    self.scratch = link(code).scratch
                    schedules = [schedule(kernel, instead) for kernel in program.kernels]
                    pairs = zip(program.kernels, schedules, strict=True)
                    objects = [compile_kernel(kernel, chosen, instead) for kernel, chosen in pairs]
                    code = link([*objects, compile_program(program, schedules, instead)])
                super().__init__(program, code, threads, *rest, **named)

            def bind_parameter(self, position: int, value: Array) -> None:
                self.given[position] = value.tobytes()
                super().bind_parameter(position, value)

            def set_parameter(self, position: int, value: Array) -> None:
                self.given[position] = value.tobytes()
                super().set_parameter(position, value)

            def run(self, inputs: Sequence[Array]) -> list[Array]:
                outputs = super().run(inputs)
                if isinstance(self.objects, tuple):
                    recorder.keep(self, inputs, outputs)
                return outputs

        def claimed(of: Machine) -> str | None:
            return None if of is machine else runs_here(of)

        with ExitStack() as stack:
            for name, value in (("compile_kernel", kernel_object), ("compile_program", program_object)):
                stack.enter_context(mock.patch.object(cpu, name, value))
            stack.enter_context(mock.patch.object(cpu, "Code", loaded))
            stack.enter_context(mock.patch.object(cpu, "runs_here", claimed))
            stack.enter_context(mock.patch("repro.runtime.session.CpuExecutable", Twin))
            yield

    def _remember(self, made: bytes, of: Machine) -> bytes:
        self._foreign[hashlib.sha256(made).digest()] = of
        return made
