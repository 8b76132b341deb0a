"""The GPU targets, as the registry has them: one code, which a device runs, and an interpreter where there is none."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from passes.at_load import prepared
from passes.byte_products import byte_products
from repro.ir.loops import Kernel
from repro.ir.program import Program
from repro.ir.types import Array
from repro.machines import GRAPHICS, SM_80, GpuMachine
from repro.targets.gpu import blocks, driver
from repro.targets.gpu.emit import emit
from repro.targets.gpu.guard import guarded
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from repro.targets.gpu.launch import GpuKernel
from repro.targets.gpu.runtime import DeviceExecutable
from repro.targets.gpu.shape import shaped
from repro.targets.gpu.steps import alone, shapes
from repro.targets.protocol import INSIDE, CodeTarget, CompiledProgram, Family, Runner

PTX_TYPE = "application/vnd.repro.ptx.v1+text"
_MARK = b"// blocks of rows\n"
INTERPRETER_LIMIT = 300_000_000
"""Scalar operations of a run, at some 30 million a second: more is a row 'not run: cost'."""


def _schedule(kernel: Kernel) -> str:
    """The emitter chooses by the kernel's shapes and writes at the head of the code what it chose."""
    return "by shape"


def _compile_kernel(text: str, schedule: str, machine: GpuMachine) -> bytes:
    return GpuKernel("", (), schedule=INSIDE).code if schedule == INSIDE else emit(text, machine).code


def _compile_program(program: Program, schedules: Sequence[str], machine: GpuMachine) -> bytes:
    """The host walks the program's steps: their text, and behind it the code of those over blocks of rows."""
    return program.text.encode() + b"".join(_MARK + blocks.emit(shape, machine).code for shape in shapes(program))


def _interpret(compiled: CompiledProgram, parameters: Sequence[Array], threads: int) -> InterpretedExecutable:
    return InterpretedExecutable(compiled.program, kernels_of(compiled), parameters)


def _on_device(compiled: CompiledProgram, parameters: Sequence[Array], threads: int) -> DeviceExecutable:
    return DeviceExecutable(compiled.program, kernels_of(compiled), parameters, driver.default())


def kernels_of(compiled: CompiledProgram) -> tuple[GpuKernel, ...]:
    """PTX and launches of each kernel of a compiled program, and behind them of its steps over blocks of rows."""
    _, *steps = compiled.program_object.split(_MARK)
    return tuple(GpuKernel.parse(code) for code in (*compiled.kernel_objects, *steps))


def _code_target(name: str, machine: GpuMachine) -> CodeTarget:
    compile_kernel = functools.partial(_compile_kernel, machine=machine)
    compile_program = functools.partial(_compile_program, machine=machine)

    def shape(program: Program) -> Program:
        return shaped(prepared(guarded(byte_products(program))), machine)

    return CodeTarget(
        name, machine.digest, PTX_TYPE, ".ptx", shape, _schedule, compile_kernel, compile_program, apart=alone
    )


def _runners(name: str, code: CodeTarget) -> tuple[Runner, Runner]:
    """A device, and the interpreter of the same code."""
    device = Runner(name, code, driver.obstacle, _on_device, device=driver.described)
    return device, Runner(f"{name}/interpreter", code, lambda: None, _interpret, limit=INTERPRETER_LIMIT)


CODE, GRAPHICS_CODE = _code_target("gpu", SM_80), _code_target("gpu/graphics", GRAPHICS)
DEVICE, INTERPRETER = _runners("gpu", CODE)
FAMILY = Family("gpu", (DEVICE, INTERPRETER, *_runners("gpu/graphics", GRAPHICS_CODE)), (CODE,))
"""Code for chips of graphics is made where it is asked for by name; it runs wherever the other does."""
