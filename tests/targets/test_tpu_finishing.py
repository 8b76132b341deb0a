"""Registers of the file, spilling and bundles change no bit: random routines before and after."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import repro.targets.tpu_sim
from repro.ir.types import BOOL, F32, F64, I32, DType
from repro.targets.tpu_sim.finishing import finish
from repro.targets.tpu_sim.isa import Alu, Constant, Instruction, Load, Move, Rotate, Store
from repro.targets.tpu_sim.loading import check
from repro.targets.tpu_sim.operands import LANES, REGISTERS, Index, Reg, counter, vmem
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, WhenAny, instructions, parse_routine, single
from tests.targets.tpu_machine import V5E, routine, run, values

FIRST = 1000
"""Registers as generated: far from the file, and every other one, so that none overlaps another."""
INPUTS = [(F32, 4 * LANES), (F64, 4 * LANES), (I32, 4 * LANES)]
OUTPUTS = [(F32, 4 * LANES), (F64, 4 * LANES), (I32, 4 * LANES)]
PLACES = {F32: 0, F64: 1, I32: 2}


class Generator:
    """A random body. Registers known at a point are listed by type; loops may read and write those from outside."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.count = 0
        self.loops = 0

    def pick(self, most: int) -> int:
        return self.draw(st.integers(0, most - 1))

    def fresh(self) -> Reg:
        self.count += 1
        return Reg(FIRST + 2 * self.count)

    def instruction(self, known: dict[DType, list[Reg]], at: Index) -> Instruction:
        dtype = (F32, F64, I32)[self.pick(3)]
        have, what = known[dtype], self.pick(7)
        if what == 0 or len(have) < 2:
            made = Load(self.fresh(), dtype, vmem(PLACES[dtype], at))
        elif what == 1:
            return Store(vmem(len(INPUTS) + PLACES[dtype], at), dtype, have[self.pick(len(have))])
        elif what == 2:
            known[BOOL].append(self.fresh())
            return Alu("lt", dtype, BOOL, known[BOOL][-1], (have[self.pick(len(have))], have[self.pick(len(have))]))
        elif what == 3 and known[BOOL]:
            sources = (known[BOOL][self.pick(len(known[BOOL]))], have[self.pick(len(have))], have[self.pick(len(have))])
            made = Alu("select", dtype, dtype, self.fresh(), sources)
        elif what == 4:
            made = Rotate(self.fresh(), dtype, have[self.pick(len(have))], self.pick(LANES))
        elif what == 5:
            made = Constant(self.fresh(), dtype, self.pick(1 << 31))
        else:
            target = have[self.pick(len(have))] if self.pick(2) else self.fresh()
            sources = (have[self.pick(len(have))], have[self.pick(len(have))])
            made = Alu("add", dtype, dtype, target, sources)
        if made.target not in have:
            have.append(made.target)
        return made

    def body(self, known: dict[DType, list[Reg]], at: Index, length: int, depth: int) -> list[Statement]:
        made = list[Statement]()
        for _ in range(length):
            what = self.pick(14)
            if what == 0 and depth < 2:
                made.append(self.loop({dtype: list(regs) for dtype, regs in known.items()}, depth))
            elif what == 1 and known[BOOL] and depth < 2:
                made += self.when_any(known, at)
            else:
                made += single(self.instruction(known, at))
        return made

    def loop(self, known: dict[DType, list[Reg]], depth: int) -> Loop:
        self.loops += 1
        name = f"i{self.loops}"
        return Loop(name, 4, False, tuple(self.body(known, counter(name, LANES), self.pick(12) + 1, depth + 1)))

    def when_any(self, known: dict[DType, list[Reg]], at: Index) -> list[Statement]:
        """A value that is made where a mask holds, and chosen there."""
        mask, other = known[BOOL][self.pick(len(known[BOOL]))], self.fresh()
        load, seldom, result = Load(other, F32, vmem(0, at)), self.fresh(), self.fresh()
        inside = single(Alu("mul", F32, F32, seldom, (other, other)), Alu("neg", F32, F32, seldom, (seldom,)))
        known[F32].append(result)
        chosen = Alu("select", F32, F32, result, (mask, seldom, other))
        return [*single(load), WhenAny(mask, inside), *single(chosen)]


@st.composite
def routines(draw: st.DrawFn) -> Routine:
    known: dict[DType, list[Reg]] = {F32: [], F64: [], I32: [], BOOL: []}
    generator = Generator(draw)
    body = generator.body(known, Index(), draw(st.integers(1, 120)), 0)
    last = [
        Store(vmem(len(INPUTS) + PLACES[dtype], (number % 4) * LANES), dtype, reg)
        for dtype in PLACES
        for number, reg in enumerate(known[dtype])
    ]
    return routine((*body, *single(*last)), INPUTS, OUTPUTS)


@given(made=routines())
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    database=None,
)
def test_finishing_changes_no_bit(made: Routine) -> None:
    arrays = [values(dtype, count, seed) for seed, (dtype, count) in enumerate(INPUTS)]
    finished = finish(made, V5E)
    check(finished, None, V5E)
    assert parse_routine(finished.text) == finished
    for found, wanted in zip(run(finished, arrays), run(made, arrays), strict=True):
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("count", [20, 60, 100])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_what_the_file_does_not_hold_is_spilled(dtype: DType, count: int) -> None:
    place = PLACES[dtype]
    regs = [Reg(FIRST + 2 * number) for number in range(count)]
    body = list[Instruction]()
    for number, reg in enumerate(regs):
        body += [Load(reg, dtype, vmem(place)), Rotate(reg, dtype, reg, number)]
    for reg in regs[1:]:
        body.append(Alu("add", dtype, dtype, regs[0], (regs[0], reg)))
    body.append(Store(vmem(len(INPUTS) + place), dtype, regs[0]))
    made = routine(single(*body), INPUTS, OUTPUTS)
    finished = finish(made, V5E)
    fits = count * (dtype.bits // 32) < REGISTERS
    assert any(isinstance(each, Move) for each in instructions(finished.body)) != fits
    assert (finished.spill_slots > 0) != fits
    arrays = [values(kind, n, seed) for seed, (kind, n) in enumerate(INPUTS)]
    assert [a.tobytes() for a in run(finished, arrays)] == [a.tobytes() for a in run(made, arrays)]


def test_independent_instructions_share_a_bundle() -> None:
    loads = [Load(Reg(FIRST + 2 * n), F32, vmem(0, n * LANES)) for n in range(4)]
    sums = [Alu("add", F32, F32, Reg(FIRST + 20 + 2 * n), (loads[n].target,) * 2) for n in range(4)]
    finished = finish(routine(single(*loads, *sums), INPUTS, OUTPUTS), V5E)
    sizes = [len(statement.instructions) for statement in finished.body if isinstance(statement, Bundle)]
    assert max(sizes) > 1
    assert sum(sizes) == len(list(instructions(finished.body)))


def test_finishing_is_one_text_on_every_run() -> None:
    rng = np.random.default_rng(0)
    body = [Load(Reg(FIRST + 2 * int(n)), F32, vmem(0, int(n) % 4 * LANES)) for n in rng.integers(0, 90, 200)]
    made = routine(single(*body), INPUTS, OUTPUTS)
    assert finish(made, V5E).text == finish(parse_routine(made.text), V5E).text


def test_the_simulator_knows_nothing_of_the_cpu_target() -> None:
    root = Path(repro.targets.tpu_sim.__path__[0])
    seen = 0
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.startswith(("repro.targets.cpu", "repro.targets.interpreter")) for name in names), path
            seen += len(names)
    assert seen > 100
