"""Several chips: links, sums by the contract's tree, a training step whose bits do not depend on how many there are."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from golden import bless
from passes import pipeline
from passes.workers import divide
from repro.errors import ReproError
from repro.frontend import EntryGraph
from repro.ir.types import F32, F64, I64, Array, DType
from repro.targets.tpu_sim import links
from repro.targets.tpu_sim.chips import chip
from repro.targets.tpu_sim.codegen.emit import emit
from repro.targets.tpu_sim.collectives import all_gather, all_reduce, reduce_scatter
from repro.targets.tpu_sim.data_parallel import DataParallel
from repro.targets.tpu_sim.faults import FaultError
from repro.targets.tpu_sim.isa import Alu, Send, Wait
from repro.targets.tpu_sim.links import HOP, Topology, ring, torus
from repro.targets.tpu_sim.operands import LANES, Index
from repro.targets.tpu_sim.pod import Pod
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement
from repro.targets.tpu_sim.simulator import Simulator
from repro.targets.tpu_sim.timing import time_routine

V5E = chip("v5e")
CHIPS = (1, 2, 4, 8)


def tree(values: Sequence[Array]) -> Array:
    """(0, 1), (2, 3) ..., then pairs of pairs."""
    known = list(values)
    while len(known) > 1:
        known = [known[place] + known[place + 1] for place in range(0, len(known), 2)]
    return known[0]


def partial_sums(dtype: DType, sizes: Sequence[int], chips: int) -> list[list[Array]]:
    rng = np.random.default_rng(chips)
    if not dtype.is_float:
        return [[rng.integers(-99, 99, n) for n in sizes] for _ in range(chips)]
    scales = 10.0 ** rng.integers(-6, 6, chips)
    return [[(rng.standard_normal(n) * scale).astype(dtype.storage) for n in sizes] for scale in scales]


def summed(
    routine: Routine, dtype: DType, sizes: Sequence[int], given: list[list[Array]], seed: int
) -> list[list[Array]]:
    totals = [[np.zeros(n, dtype.storage) for n in sizes] for _ in given]
    arguments = [[*own, *made] for own, made in zip(given, totals, strict=True)]
    Pod(routine, len(given), V5E).run(arguments, random.Random(seed).choice)
    return totals


@pytest.mark.parametrize("chips", CHIPS)
@pytest.mark.parametrize("dtype", [F32, F64, I64], ids=str)
def test_every_chip_gets_the_sum_of_the_contracts_tree(dtype: DType, chips: int) -> None:
    """Whichever chip goes on when several can."""
    sizes = (5000, 1, 37)
    given = partial_sums(dtype, sizes, chips)
    wanted = [tree([own[place] for own in given]).tobytes() for place in range(len(sizes))]
    for seed in range(4):
        for made in summed(all_reduce(dtype, sizes, chips, V5E), dtype, sizes, given, seed):
            assert [each.tobytes() for each in made] == wanted


@pytest.mark.parametrize("chips", CHIPS[1:])
def test_scattering_then_gathering_is_reducing(chips: int) -> None:
    sizes = (LANES * chips,)
    given = partial_sums(F32, sizes, chips)
    pieces = summed(reduce_scatter(F32, sizes, chips, V5E), F32, sizes, given, 1)
    whole = summed(all_gather(F32, sizes, chips, V5E), F32, sizes, pieces, 2)
    wanted = tree([own[0] for own in given]).tobytes()
    assert {made[0].tobytes() for made in whole} == {wanted}
    assert pieces[0][0].tobytes() != wanted


def without(body: Sequence[Statement], number: int, kind: type) -> tuple[Statement, ...]:
    """The body without the n-th bundle of one such instruction."""
    found, count = list[Statement](), 0
    for statement in body:
        if isinstance(statement, Bundle) and isinstance(statement.instructions[0], kind):
            count += 1
            if count == number + 1:
                continue
        found.append(statement)
    return tuple(found)


@pytest.mark.parametrize("kind", [Send, Wait], ids=lambda kind: kind.__name__)
def test_a_send_or_a_wait_left_out_is_a_fault(kind: type) -> None:
    routine = all_reduce(F32, (4096,), 4, V5E)
    given = partial_sums(F32, (4096,), 4)
    count = sum(isinstance(s, Bundle) and isinstance(s.instructions[0], kind) for s in routine.body)
    assert count >= 4
    for number in range(count):
        broken = replace(routine, body=without(routine.body, number, kind))
        with pytest.raises(FaultError):
            summed(broken, F32, (4096,), given, number)


def test_one_semaphore_for_all_steps_is_caught_in_some_order() -> None:
    """What a chip that is ahead sends would stand for what this step awaits."""
    routine = all_reduce(F32, (4096,), 4, V5E)

    def merged(statement: Statement) -> Statement:
        if not isinstance(statement, Bundle):
            return statement
        each = statement.instructions[0]
        if not isinstance(each, Send | Wait):
            return statement
        return Bundle((replace(each, semaphore=Index(min(1, each.semaphore.constant))),))

    broken = replace(routine, body=tuple(merged(statement) for statement in routine.body))
    given, wrong = partial_sums(F32, (4096,), 4), 0
    wanted = tree([own[0] for own in given]).tobytes()
    for seed in range(20):
        try:
            wrong += any(made[0].tobytes() != wanted for made in summed(broken, F32, (4096,), given, seed))
        except FaultError:
            wrong += 1
    assert wrong


def test_another_order_of_additions_gives_other_bits() -> None:
    given = partial_sums(F32, (1000,), 4)
    left, right = tree([own[0] for own in given]), given[0][0] + given[1][0] + given[2][0] + given[3][0]
    assert left.tobytes() != right.tobytes()
    assert any(isinstance(i, Alu) for s in all_reduce(F32, (9,), 2, V5E).body if isinstance(s, Loop) for i in flat(s))


def flat(loop: Loop) -> list[object]:
    return [each for statement in loop.body if isinstance(statement, Bundle) for each in statement.instructions]


# ── links ───────────────────────────────────────────────────────────────────────────────────────────


def test_messages_take_the_shorter_way() -> None:
    assert ring(8).route(0, 3) == [(0, 1), (1, 2), (2, 3)]
    assert ring(8).route(0, 6) == [(0, 7), (7, 6)]
    assert torus(8, 2).extents == (2, 4)
    assert Topology((2, 4)).route(0, 7) == [(0, 4), (4, 7)]


def test_a_step_takes_as_long_as_its_busiest_link() -> None:
    """Chips four apart on a ring of eight: each link towards them carries four messages."""
    nbytes = 1 << 20
    across = ring(8).cycles([number ^ 4 for number in range(8)], nbytes, V5E)
    beside = ring(8).cycles([number ^ 1 for number in range(8)], nbytes, V5E)
    one = nbytes / V5E.link_bytes_per_cycle
    assert beside == pytest.approx(HOP + one, abs=2)
    assert across == pytest.approx(4 * HOP + 4 * one, abs=2)


@pytest.mark.parametrize("topology", [ring(8), torus(8, 2), torus(8, 3)], ids=str)
def test_a_big_sum_is_bound_by_its_links(topology: Topology) -> None:
    elements = 1 << 20
    timing = time_routine(all_reduce(F32, (elements,), 8, V5E), V5E, topology)
    steps = [(1 << level, elements >> (level + 1)) for level in range(3)]
    links = sum(topology.cycles([n ^ apart for n in range(8)], 4 * count, V5E) for apart, count in steps)
    assert 2 * links < timing.cycles < 2 * links + 60000


# ── a training step ─────────────────────────────────────────────────────────────────────────────────


@cache
def sharded(case: str, shards: int) -> EntryGraph:
    described = dict(bless.cases()[case])
    training = {name: value for name, value in described["training"].items() if name != "gradients"}
    described["training"] = {**training, "shards": shards}
    return next(entry for entry in bless.entries(described) if entry.name == "train_step")


def drawn(entry: EntryGraph) -> list[Array]:
    rng = np.random.default_rng(5)
    found = list[Array]()
    for port in entry.inputs:
        kind = port.type
        floats = np.abs(rng.standard_normal(kind.shape))
        found.append((floats if kind.dtype.is_float else rng.integers(0, 9, kind.shape)).astype(kind.dtype.storage))
    return found


def digest(arrays: Sequence[Array]) -> str:
    return hashlib.sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()


def on_one(entry: EntryGraph, inputs: Sequence[Array], steps: int) -> list[str]:
    """The whole step as one program."""
    program = pipeline.run(entry.graph).program
    simulator = Simulator(program, [emit(kernel, V5E) for kernel in program.kernels], V5E)
    for position, slot in enumerate(entry.parameters):
        simulator.set_parameter(position, slot.initial)
    found = list[str]()
    for _ in range(steps):
        results = simulator.run([each.reshape(-1) for each in inputs])[: len(entry.graph.results)]
        found.append(digest(results))
        for parameter, output in entry.updates:
            simulator.set_parameter(parameter, results[output])
    return found


@pytest.mark.parametrize(
    ("case", "steps"), [("digits_mlp_trained", 2), pytest.param("nano_gpt_trained", 1, marks=pytest.mark.full)]
)
def test_a_step_gives_one_digest_on_any_number_of_chips(case: str, steps: int) -> None:
    entry = sharded(case, 8)
    inputs = drawn(entry)
    wanted = on_one(entry, inputs, steps)
    computing = list[int]()
    for chips in CHIPS:
        together = DataParallel(entry.graph, entry.updates, 8, links.of(chips, V5E), V5E)
        states = [[slot.initial.reshape(-1).copy() for slot in entry.parameters] for _ in range(chips)]
        found = [{digest(made) for made in together.run(inputs, states)} for _ in range(steps)]
        assert found == [{each} for each in wanted], chips
        computing.append(together.time().computing)
    assert computing == sorted(computing, reverse=True)
    assert computing[-1] < 0.4 * computing[0]


@pytest.mark.parametrize(("shards", "workers"), [(8, 3), (4, 8), (1, 1)])
def test_shards_that_cannot_be_shared_out_are_refused(shards: int, workers: int) -> None:
    with pytest.raises(ReproError):
        divide(sharded("digits_mlp_trained", max(shards, 2)).graph, shards, workers)
