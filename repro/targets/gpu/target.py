"""The GPU targets, as the registry has them: one code, which a device runs, and an interpreter where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.loops import Kernel
from repro.ir.program import Program
from repro.ir.types import Array
from repro.machines import SM_80
from repro.targets.gpu import driver
from repro.targets.gpu.emit import emit
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from repro.targets.gpu.launch import GpuKernel
from repro.targets.gpu.runtime import DeviceExecutable
from repro.targets.protocol import CodeTarget, CompiledProgram, Family, Runner

PTX_TYPE = "application/vnd.repro.ptx.v1+text"
INTERPRETER_LIMIT = 300_000_000
"""Scalar operations of a run, at some 30 million a second: more is a row 'not run: cost'."""


def _shape(program: Program) -> Program:
    """A kernel is launched over all its elements."""
    return program


def _schedule(kernel: Kernel) -> str:
    """The emitter chooses by the kernel's shapes and writes at the head of the code what it chose."""
    return "by shape"


def _compile_kernel(text: str, schedule: str) -> bytes:
    return emit(text, SM_80).code


def _compile_program(program: Program, schedules: Sequence[str]) -> bytes:
    """The host walks the program's steps: its text is all there is to say."""
    return program.text.encode()


def _interpret(compiled: CompiledProgram, parameters: Sequence[Array], threads: int) -> InterpretedExecutable:
    return InterpretedExecutable(compiled.program, kernels_of(compiled), parameters)


def _on_device(compiled: CompiledProgram, parameters: Sequence[Array], threads: int) -> DeviceExecutable:
    return DeviceExecutable(compiled.program, kernels_of(compiled), parameters, driver.default())


def kernels_of(compiled: CompiledProgram) -> tuple[GpuKernel, ...]:
    """PTX and launches of each kernel of a compiled program."""
    return tuple(GpuKernel.parse(code) for code in compiled.kernel_objects)


CODE = CodeTarget("gpu", SM_80.digest, PTX_TYPE, ".ptx", _shape, _schedule, _compile_kernel, _compile_program)
DEVICE = Runner("gpu", CODE, driver.obstacle, _on_device, device=driver.described)
INTERPRETER = Runner("gpu/interpreter", CODE, lambda: None, _interpret, limit=INTERPRETER_LIMIT)
FAMILY = Family("gpu", (DEVICE, INTERPRETER), (CODE,))
