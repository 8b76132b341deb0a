"""What was in memory before a run changes neither its bits nor, by way of subnormals, its time.

Vectors reach behind the ends of rows and tiles, and compute with what is there, for lanes that are never stored. Some
processors take as long for a product with a subnormal as for a hundred others, and memory is full of them: an integer
or half a pointer, read as a float, is one. So nothing may be computed from what a kernel did not write. The processor
tells: it notes operands that were subnormal.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from passes import pipeline
from passes.schedule import schedule
from repro.frontend import import_model, load_model
from repro.ir.contraction import find
from repro.ir.types import Array, to_storage
from repro.machines import CPUS
from repro.runtime.session import CpuExecutable
from repro.targets.llvm import program
from repro.targets.llvm.pieces import TAKEN_BYTES
from repro.targets.llvm.tiling import shape_of
from tests.targets.test_random_layers import FAMILY, RUNNERS, Layers, code, convolution, rows, transposed, walk

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the MXCSR bits of x86-64")

SUBNORMAL = np.float32(1e-42)
NOTED = 0b10
"""Of MXCSR: an operand was subnormal."""
DEFAULT = ctypes.c_void_p(-1)
"""glibc's FE_DFL_ENV: nothing noted."""


def scattered(m: Layers) -> str:
    """A weight gradient: of each of many terms a tile takes a short run of rows, the last tile of a part of its own."""
    return m.add("Gemm", m.new(520, 530, fixed=False), m.new(520, 40, fixed=False), transA=1)


FOUND = [
    (0, scattered),
    *((seed, convolution) for seed in (2, 5, 10)),
    *((seed, transposed) for seed in (4, 6, 14, 17)),
    *((seed, rows) for seed in (16, 19)),
]
"""Layers that once computed with stale memory, or might: behind outputs, packed columns, packed rows, windows."""


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """What the processor has noted since it was last asked, on code that leaves it noted."""
    declared, enter, _ = program.FLOAT_MODE["x86_64"]
    monkeypatch.setitem(program.FLOAT_MODE, "x86_64", (declared, enter, ""))
    libm = ctypes.CDLL("libm.so.6")

    def asked() -> int:
        environment = ctypes.create_string_buffer(64)
        libm.fegetenv(environment)
        libm.fesetenv(DEFAULT)
        return int.from_bytes(environment.raw[28:32], "little")

    asked()
    yield asked
    libm.fesetenv(DEFAULT)


def fill(memory: Array, value: np.float32) -> None:
    memory[: memory.size // 4 * 4].view(np.float32)[:] = value


def run(executable: CpuExecutable, inputs: list[Array], before: np.float32) -> list[bytes]:
    """The outputs of a run, in memory that is full of a value: of a second one, which is given the first one's outputs
    to write to."""
    executable.prepare()
    given = list[bytes]()
    for _ in range(2):
        fill(executable._scratch[TAKEN_BYTES:], before)
        fill(executable.buffers._arena, before)
        outputs = executable.run(inputs)
        given = [output.tobytes() for output in outputs]
        for output in outputs:
            fill(output.view(np.uint8), before)
    return given


def check(m: Layers, family: Callable[[Layers], str], walks: bool, noted: Callable[[], int]) -> int:
    """What was noted whatever memory held, of all runners: with it the rest proves nothing."""
    m.edges, always = 0.0, 0
    imported = import_model(load_model(m.model(family(m))))
    inputs = [to_storage(m.inputs[port.name], port.type.dtype) for port in imported.inputs]
    parameters = [slot.initial.reshape(-1) for slot in imported.parameters]
    shaped = pipeline.run(imported.graph).program
    for runner in RUNNERS:
        chosen = (lambda kernel, runner=runner: walk(m, runner, kernel)) if walks else runner.code.schedule
        executable = runner.open(code(runner, shaped, chosen), parameters, 1)
        assert isinstance(executable, CpuExecutable)
        assert executable._inline, "the processor is asked on the thread that runs the code"
        wanted = run(executable, inputs, np.float32(1.0))
        expected = noted() & NOTED
        assert run(executable, inputs, SUBNORMAL) == wanted
        assert noted() & NOTED == expected, "subnormals that no input holds were computed with"
        executable.close()
        always |= expected
    return always


def test_the_processor_notes_subnormals(noted: Callable[[], int]) -> None:
    """Else the tests below would prove nothing."""
    assert np.float32(1.0) * SUBNORMAL == SUBNORMAL
    assert noted() & NOTED


def test_scattered_rows_are_packed_before() -> None:
    m = Layers(0)
    program = pipeline.run(import_model(load_model(m.model(scattered(m)))).graph).program
    kernel = next(each for each in program.kernels if find(each))
    for machine in CPUS.values():
        shape = shape_of(kernel, schedule(kernel, machine))
        assert shape.rows_beside, machine.name
        assert not shape.rows_in_memory, machine.name


@pytest.mark.parametrize(("seed", "family"), FOUND)
def test_stale_memory_is_not_computed_with(
    seed: int, family: Callable[[Layers], str], noted: Callable[[], int]
) -> None:
    assert not check(Layers(seed), family, False, noted), "subnormals of its own: the test would prove nothing"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("family", FAMILY)
def test_stale_memory_of_many_layers(seed: int, family: Callable[[Layers], str], noted: Callable[[], int]) -> None:
    check(Layers(seed), family, seed % 2 > 0, noted)
