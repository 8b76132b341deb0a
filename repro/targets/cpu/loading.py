"""Objects into this process: linked in memory, found by symbol."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import llvmlite.binding as llvm

from repro.errors import InternalError
from repro.targets.llvm import context

_Entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.load_library_permanently("libm.so.6")  # fmod: exact, so any libm will do


class LoadedCode:
    """A program's code; `engine` owns its memory."""

    def __init__(self, engine: llvm.ExecutionEngine) -> None:
        self._engine = engine
        address = engine.get_function_address(context.ENTRY)
        if not address:
            raise InternalError(f"no symbol '{context.ENTRY}' in the objects")
        self._entry = _Entry(address)

    def enter(self, context: int, thread: int, threads: int) -> int:
        """One thread's part of a run; the interpreter's lock is released meanwhile."""
        return self._entry(context, thread, threads)


def _engine() -> llvm.ExecutionEngine:
    _initialise()
    module = llvm.parse_assembly("", llvm.create_context())
    target = llvm.Target.from_default_triple()
    return llvm.create_mcjit_compiler(module, target.create_target_machine(reloc="pic", codemodel="small"))


def load(objects: Sequence[bytes]) -> LoadedCode:
    """The objects of a program and of its kernels, linked together. Only objects that we built may come here."""
    engine = _engine()
    for data in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return LoadedCode(engine)
