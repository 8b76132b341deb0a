"""What tests keep of compiled code hides no fault: another text is compiled, another machine's code too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from repro.ir import index as ix
from repro.ir.expressions import apply, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import F32
from repro.machines import Machine
from repro.targets.llvm import scalars
from tests import compiled
from tests.targets.native import HERE, run_kernel

EXTENT = 77


def sums() -> Kernel:
    """out[i] <- a[i] + b[i]"""
    i = ix.axis(0, EXTENT)
    buffers = tuple(BufferParameter(F32, EXTENT, out) for out in (False, False, True))
    return Kernel(buffers, (), (i,), 0, (Store(2, i, apply("add", load(F32, 0, i), load(F32, 1, i))),))


def added(machine: Machine) -> list[float]:
    given = [np.full(EXTENT, value, np.float32) for value in (3, 2, 0)]
    return sorted(set(run_kernel(sums(), given, machine)[2].tolist()))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The machines that LLVM was asked for, from an empty folder on."""
    asked: list[str] = []
    compile_it: Callable[[str, Machine], bytes] = compiled._compile

    def counted(text: str, machine: Machine) -> bytes:
        asked.append(machine.name)
        return compile_it(text, machine)

    monkeypatch.setattr(compiled, "_compile", counted)
    monkeypatch.setenv(compiled.FOLDER, str(tmp_path))
    return asked


def test_a_text_is_compiled_once_for_each_machine(made: list[str]) -> None:
    for machine in HERE:
        assert added(machine) == added(machine) == [5.0]
    assert made == [machine.name for machine in HERE for _ in ("kernel", "program")]


def test_a_fault_of_the_emitter_is_compiled(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """After the right code was kept."""
    assert added(HERE[0]) == [5.0]
    before = len(made)
    monkeypatch.setitem(scalars._ARITHMETIC, "add", ("fsub", "sub"))
    assert added(HERE[0]) == [1.0]
    assert len(made) > before


def test_without_a_folder_nothing_is_kept(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.FOLDER)
    assert added(HERE[0]) == added(HERE[0]) == [5.0]
    assert len(made) == 4
