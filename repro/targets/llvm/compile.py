"""LLVM IR text to an object or to assembly: a pure function of the text and the machine.

No pass here reassociates, contracts or vectorises: the text holds the vectors and the orders already.
"""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from repro.errors import InternalError
from repro.machines import Machine


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def target_machine(machine: Machine) -> llvm.TargetMachine:
    """LLVM's code generator for a machine: position independent, so that any linker takes the object."""
    _initialise()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", codemodel="small", jit=False
    )


def _passes(generator: llvm.TargetMachine) -> tuple[llvm.PassBuilder, llvm.ModulePassManager]:
    """A short pipeline: memory to registers, cleaning, loop-invariant code."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(generator, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_simplify_pass()
    passes.add_lcssa_pass()
    passes.add_loop_rotate_pass()
    passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_dead_code_elimination_pass()
    return builder, passes


def _optimised(text: str, generator: llvm.TargetMachine) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses emitted code: {error}\n{text}") from error
    builder, passes = _passes(generator)
    passes.run(module, builder)
    return module


def object_code(text: str, machine: Machine) -> bytes:
    """A relocatable ELF object."""
    generator = target_machine(machine)
    return generator.emit_object(_optimised(text, generator))


def assembly(text: str, machine: Machine) -> str:
    """Assembly text; for an NVIDIA machine, PTX."""
    generator = target_machine(machine)
    return generator.emit_assembly(_optimised(text, generator))
