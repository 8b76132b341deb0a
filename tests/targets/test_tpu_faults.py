"""What the machine refuses: each kind of fault is provoked, and a program without it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from repro.errors import EXIT_INTERNAL
from repro.ir.program import PARAMETER, Buffer, Program
from repro.ir.types import BOOL, F32, F64, I32
from repro.targets.tpu_sim.chips import chip
from repro.targets.tpu_sim.execution import Execution
from repro.targets.tpu_sim.faults import KINDS, FaultError
from repro.targets.tpu_sim.isa import Alu, Constant, Dma, Gather, Iota, Load, Matmul, Push, Scatter, Store, Wait
from repro.targets.tpu_sim.loading import check
from repro.targets.tpu_sim.operands import LANES, Dim, Index, Reg, counter, hbm, parse_pattern, vmem
from repro.targets.tpu_sim.program import Area, Argument, Bundle, Loop, Routine, Statement, parse_routine, single
from repro.targets.tpu_sim.simulator import Simulator
from tests.targets.tpu_machine import V5E, routine

IN = Dma(Index(0), F32, vmem(0), hbm(0), (Dim(2 * LANES, 1, 1),))
OUT = Dma(Index(0), F32, hbm(1), vmem(1), (Dim(LANES, 1, 1),))
R0, R1, R2 = Reg(0), Reg(1), Reg(2)
ADD = Alu("add", F32, F32, R2, (R0, R1))


def plain(*body: Statement) -> Routine:
    """2048 numbers in VMEM, a body, 1024 results."""
    return routine(body, [(F32, 2 * LANES)], [(F32, LANES)], [(F32, 4 * LANES), (BOOL, LANES)])


def bare(*body: Statement, semaphores: int = 2) -> Routine:
    arguments = (Argument(F32, 2 * LANES, False), Argument(F32, LANES, True))
    areas = (Area(F32, 2 * LANES, 0), Area(F32, LANES, 8192))
    return Routine("bare", arguments, (), areas, (), semaphores, body)


def loop(*body: Statement, count: int = 4) -> Loop:
    return Loop("i0", count, True, body)


def start(made: Routine) -> None:
    check(made, None, V5E)
    Execution(made, V5E).run([np.ones(2 * LANES, np.float32), np.zeros(LANES, np.float32)])


at = counter("i0", LANES)
FAULTS: list[tuple[str, str, Routine]] = [
    ("vmem overflow", "areas", replace(plain(), areas=(Area(F32, 1 << 26, 0),))),
    ("overlapping areas", "areas", replace(bare(), areas=(Area(F32, 2 * LANES, 0), Area(F32, LANES, 4096)))),
    ("misaligned tile", "an area's address", replace(bare(), areas=(Area(F32, LANES, 100),))),
    ("misaligned tile", "a load", plain(*single(Load(R0, F32, vmem(0, 64))))),
    (
        "misaligned tile",
        "a store in a loop",
        plain(loop(*single(Constant(R0, F32, 0), Store(vmem(2, counter("i0", 1064)), F32, R0)), count=3)),
    ),
    ("out of range", "a load past the end", plain(*single(Load(R0, F32, vmem(0, LANES + 128))))),
    ("out of range", "a load before the start", plain(*single(Load(R0, F32, vmem(0, -128))))),
    ("out of range", "a pattern", plain(*single(Load(R0, F32, vmem(0), parse_pattern("32:66,32:1"))))),
    ("out of range", "a gather", plain(*single(Iota(R0, I32, Index(LANES + 1)), Gather(R1, F32, vmem(0), R0, I32)))),
    ("out of range", "a transfer", bare(*single(replace(IN, dims=(Dim(2 * LANES + 1, 1, 1),))))),
    ("out of range", "a transfer to an input", bare(*single(replace(IN, target=hbm(0), source=vmem(0))))),
    ("out of range", "no such area", plain(*single(Load(R0, F32, vmem(9))))),
    ("transfer race", "read before the wait", bare(*single(IN, Load(R0, F32, vmem(0)), Wait(Index(0))))),
    (
        "transfer race",
        "written before the wait",
        bare(*single(Constant(R0, F32, 0), OUT, Store(vmem(1), F32, R0), Wait(Index(0)))),
    ),
    (
        "transfer race",
        "two copies to one place",
        bare(*single(IN, replace(IN, semaphore=Index(1)), Wait(Index(0)), Wait(Index(1)))),
    ),
    (
        "transfer race",
        "a gather before the wait",
        bare(*single(IN, Iota(R0, I32, Index()), Gather(R1, F32, vmem(0), R0, I32), Wait(Index(0)))),
    ),
    (
        "transfer race",
        "weights before the wait",
        bare(*single(IN, Push(Index(0), Index(0), F32, vmem(0), 128, 8, 8), Wait(Index(0)))),
    ),
    ("semaphore", "a wait for nothing", bare(*single(Wait(Index(0))))),
    ("semaphore", "a copy not waited for", bare(*single(IN))),
    ("semaphore", "no such semaphore", bare(*single(replace(IN, semaphore=Index(5))))),
    ("undefined register", "an operand", plain(*single(Constant(R0, F32, 0), ADD))),
    (
        "undefined register",
        "half of a 64-bit one is overwritten",
        plain(*single(Constant(R0, F64, 0), Constant(R1, F32, 0), Alu("neg", F64, F64, Reg(4), (R0,)))),
    ),
    ("register type", "an operand", plain(*single(Constant(R0, F32, 0), Constant(R1, I32, 0), ADD))),
    ("register type", "an area", plain(*single(Load(R0, I32, vmem(0))))),
    ("register file", "r64", plain(*single(Constant(Reg(64), F32, 0)))),
    ("bundle", "a dependence", plain(Bundle((Constant(R0, F32, 0), Alu("neg", F32, F32, R1, (R0,)))))),
    (
        "parallel loop",
        "a register is carried",
        plain(*single(Constant(R0, F32, 0)), loop(*single(Alu("neg", F32, F32, R0, (R0,))))),
    ),
    (
        "parallel loop",
        "memory is carried",
        plain(loop(*single(Load(R0, F32, vmem(2, at)), Store(vmem(2, at + LANES), F32, R0)), count=3)),
    ),
    ("parallel loop", "stores to one place", plain(loop(*single(Constant(R0, F32, 0), Store(vmem(2), F32, R0))))),
    (
        "parallel loop",
        "scatters to one place",
        plain(loop(*single(Constant(R0, F32, 0), Iota(R1, I32, Index()), Scatter(vmem(2), F32, R1, I32, R0)))),
    ),
    ("parallel loop", "a transfer", bare(loop(*single(IN, Wait(Index(0)))))),
    ("matrix unit", "no weights", plain(*single(Matmul(Index(0), Index(0), F32, vmem(2), 128, True, vmem(0), 128, 4)))),
    ("matrix unit", "too many weights", plain(*single(Push(Index(0), Index(0), F32, vmem(0), 1, 129, 8)))),
    ("matrix unit", "no such unit", plain(*single(Push(Index(4), Index(0), F32, vmem(0), 8, 8, 8)))),
]


@pytest.mark.parametrize(("kind", "what", "made"), FAULTS, ids=[f"{kind}: {what}" for kind, what, _ in FAULTS])
def test_the_machine_refuses(kind: str, what: str, made: Routine) -> None:
    with pytest.raises(FaultError) as caught:
        start(made)
    assert caught.value.kind == kind
    assert caught.value.exit_code == EXIT_INTERNAL


def test_a_program_that_hbm_does_not_hold_is_refused() -> None:
    buffers = tuple(Buffer(F32, 1 << 32, PARAMETER, number) for number in range(2))
    with pytest.raises(FaultError, match="hbm overflow"):
        Simulator(Program((), buffers, (), (), 0), [], V5E)


def test_every_kind_of_fault_is_provoked() -> None:
    assert {kind for kind, _, _ in FAULTS} | {"hbm overflow"} == set(KINDS)


def test_what_is_no_fault_runs() -> None:
    start(bare(*single(IN, Wait(Index(0)), Load(R0, F32, vmem(0)), Store(vmem(1), F32, R0), OUT, Wait(Index(0)))))
    both = (Dma(Index(n), F32, vmem(0, n), hbm(0, n), (Dim(LANES, 2, 2),)) for n in range(2))
    start(bare(*single(*both, Wait(Index(0)), Wait(Index(1)))))


def test_interleaved_copies_do_not_race_but_touching_ones_do() -> None:
    first = Dma(Index(0), F32, vmem(0), hbm(0), (Dim(8, 256, 256), Dim(128, 1, 1)))
    second = replace(first, semaphore=Index(1), target=vmem(0, 128), source=hbm(0, 128))
    waits = (Wait(Index(0)), Wait(Index(1)))
    start(bare(*single(first, second, *waits)))
    with pytest.raises(FaultError, match="transfer race"):
        start(bare(*single(first, replace(second, target=vmem(0, 127)), *waits)))


def test_text_that_is_no_routine_is_refused_with_its_line() -> None:
    text = plain(*single(Load(R0, F32, vmem(0)))).text
    assert parse_routine(text).text == text
    with pytest.raises(ValueError, match="near line 9"):
        parse_routine(text.replace("  dma 0 f32 v0[0]", "  dma 0 f33 v0[0]"))
    with pytest.raises(ValueError, match="inside a block"):
        parse_routine(text.removesuffix("}\n"))


def test_a_chip_that_is_none_is_named_with_those_there_are() -> None:
    with pytest.raises(Exception, match="v6x") as caught:
        chip("v6x")
    assert "v5e" in str(caught.value)
