"""LLVM itself: text to objects and assembly. The pinned llvmlite is part of an artifact's toolchain identity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from repro.machines import Machine


def versions() -> dict[str, str]:
    """Version strings that code depends on."""
    return {"llvmlite": llvmlite.__version__, "llvm": ".".join(map(str, llvm.llvm_version_info))}


@cache
def initialise() -> None:
    """Register every back end; whatever makes or loads code calls it first."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


class LinkError(Exception):
    """Objects that cannot be linked: what the linker says."""


class Loaded:
    """Objects linked in this process, for as long as this is kept; `addresses` are those of symbols of theirs. Raises
    LinkError, if they have not all of these, or want others.

    JITLink gives each object one piece of memory. The older loader asks for a piece for each kind of section, which may
    lie further apart than an instruction reaches (a mapped model between them): it then ends the process.
    """

    def __init__(self, objects: Sequence[bytes], *symbols: str) -> None:
        initialise()
        target = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._compiler = llvm.create_lljit_compiler(target, use_jit_link=True)
        library = llvm.JITLibraryBuilder().add_current_process()
        for symbol in symbols:
            library.export_symbol(symbol)
        for data in objects:
            library.add_object_img(data)
        try:
            self._library = library.link(self._compiler, symbols[0])
        except RuntimeError as error:
            raise LinkError(str(error)) from error
        self.addresses = tuple(self._library[symbol] for symbol in symbols)


@cache
def target_machine(machine: Machine) -> Any:
    initialise()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=3, reloc="pic", codemodel="default"
    )


def optimised(text: str, machine: Machine) -> Any:
    """A verified, optimised module. Vectors are written by the emitter, so nothing is vectorised here."""
    target = target_machine(machine)
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(target.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    return module


def object_code(text: str, machine: Machine) -> bytes:
    """A relocatable ELF object."""
    return target_machine(machine).emit_object(optimised(text, machine))


def assembly(text: str, machine: Machine) -> tuple[str, str]:
    """Assembly, and the optimised LLVM module (text) that it is of."""
    module = optimised(text, machine)
    return target_machine(machine).emit_assembly(module), str(module)
