"""What is made when a program is loaded: the same bytes, nothing of it left in a run, no more memory held for it."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from passes import pipeline
from passes.at_load import at_load
from passes.schedule import schedule, tile_orders
from repro.bench.network import Network
from repro.errors import InternalError
from repro.frontend import import_model, load_model
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Chain, load, reduce
from repro.ir.graph import Graph, Value, argument, parameter
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.parse_program import parse_program
from repro.ir.program import PARAMETER, PREPARED, TEMPORARY, Branch, Call, Commit, CountedLoop, Program, RowBlocks, walk
from repro.ir.types import F32, Array, TensorType
from repro.machines import AARCH64, CPUS, X86_64_V3, Machine
from repro.ops import add, branch, broadcast, compare, loop, matmul, mul, reshape, scalar, slice_, transpose
from repro.ops.record import evaluate
from repro.runtime.buffers import give_back
from repro.targets import interpreter
from repro.targets.cpu.target import FAMILY
from repro.targets.llvm.tiling import shape_of
from repro.targets.protocol import CodeTarget
from tests.reference import reference
from tests.running import executable
from tests.targets.native import HERE, run_kernel


@dataclass(frozen=True)
class Case:
    graph: Graph
    copies: int
    """Constants that are laid out anew."""


def weights(identity: int, *shape: int) -> Value:
    return parameter(identity, TensorType(F32, shape))


def taking(*shape: int) -> tuple[TensorType, Value]:
    kind = TensorType(F32, shape)
    return kind, argument(0, kind)


def layers() -> Case:
    """As exporters write weights: [k][n], and [n][k], which a transpose stands before; the last with a short tile."""
    kind, x = taking(20, 24)
    hidden = matmul(x, weights(0, 24, 96))
    return Case(Graph((kind,), (matmul(hidden, transpose(weights(1, 21, 96), (1, 0))),)), 2)


def batched() -> Case:
    """A matrix for each of a batch."""
    kind, x = taking(3, 9, 16)
    return Case(Graph((kind,), (matmul(x, weights(0, 3, 16, 48)),)), 1)


def twice() -> Case:
    """Two readers that want the same: one copy."""
    kind, x = taking(12, 96)
    w = weights(0, 96, 96)
    return Case(Graph((kind,), (matmul(matmul(x, w), w),)), 1)


def steps() -> Case:
    """Recurrent weights, read in every iteration."""
    kind, x = taking(32, 64)

    def body(_: Value, state: Value, fixed: Value, recurrent: Value) -> list[Value]:
        return [add(matmul(state, recurrent), fixed)]

    return Case(Graph((kind,), tuple(loop(3, (x,), (), (x, weights(0, 64, 64)), body))), 1)


def both_ways() -> Case:
    """Readers that want two orders: the constant stays as it is."""
    kind, x = taking(12, 32)
    w = weights(0, 32, 32)
    return Case(Graph((kind,), (matmul(matmul(x, w), transpose(w, (1, 0))),)), 0)


def shown() -> Case:
    """A result made of the constant: somebody else reads it in every run."""
    kind, x = taking(32, 32)
    w = weights(0, 32, 32)
    return Case(Graph((kind,), (matmul(x, w), mul(x, w))), 0)


def widened() -> Case:
    """A few numbers that a contraction reads as a large matrix: the copy would take more memory than they do."""
    kind, x = taking(12, 32)
    every = reshape(broadcast(weights(0, 32, 16), (32, 16, 4), (0, 1)), (32, 64))
    return Case(Graph((kind,), (matmul(x, every),)), 0)


def added_behind() -> Case:
    """A row that a contraction reads as a large matrix, and that is added to its sums: somebody else reads it."""
    kind, x = taking(64, 64)
    row = slice_(weights(0, 64, 64), (0, 0), (1, 64))
    return Case(Graph((kind,), (add(matmul(x, _repeated(row)), _repeated(row)),)), 0)


def _repeated(row: Value) -> Value:
    return broadcast(reshape(row, (64,)), (64, 64), (1,))


def varying() -> Case:
    """No constants at all."""
    kind = TensorType(F32, (32, 32))
    return Case(Graph((kind, kind), (matmul(argument(0, kind), argument(1, kind)),)), 0)


CASES: dict[str, Callable[[], Case]] = {
    each.__name__: each for each in (layers, batched, twice, steps, both_ways, shown, widened, added_behind, varying)
}
EVERY_CASE = pytest.mark.parametrize("name", CASES)


def shaped(graph: Graph, machine: Machine) -> Program:
    return at_load(pipeline.run(graph).program, lambda kernel: tile_orders(kernel, machine))


def arrays(kinds: tuple[TensorType, ...], seed: int) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(kind.shape).astype(np.float32) for kind in kinds]


def parameters_of(graph: Graph, seed: int = 7) -> list[Array]:
    found = {node["identity"]: node.value.type for node in graph.nodes if node.op == "parameter"}
    return arrays(tuple(found[slot] for slot in sorted(found)), seed)


def copies_of(program: Program) -> list[int]:
    """The prepared buffers that runs read."""
    read = {b for step in walk(program.steps) if isinstance(step, Call) for b in step.buffers}
    return [number for number, buffer in enumerate(program.buffers) if buffer.role == PREPARED and number in read]


def flat(values: list[Array]) -> list[Array]:
    return [value.reshape(-1).copy() for value in values]


@EVERY_CASE
@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
def test_copies_are_made_where_they_should_be_and_the_interpreter_agrees(name: str, machine: Machine) -> None:
    case = CASES[name]()
    program = shaped(case.graph, machine)
    inputs, parameters = arrays(case.graph.arguments, 1), parameters_of(case.graph)
    wanted = [result.tobytes() for result in evaluate(case.graph, inputs, parameters)]
    found = interpreter.run(program, flat(inputs), flat(parameters))
    assert [each.tobytes() for each in found[: len(wanted)]] == wanted
    assert len(copies_of(program)) == case.copies
    if case.copies:
        direct = [find(program.kernels[s.kernel]) for s in walk(program.steps) if isinstance(s, Call)]
        chosen = [schedule(program.kernels[s.kernel], machine) for s in walk(program.steps) if isinstance(s, Call)]
        tiles = [(c, s.tile.vectors * s.vector_width) for c, s in zip(direct, chosen, strict=True) if c and s.tile]
        assert tiles
        assert all(contraction.in_place(columns) == columns for contraction, columns in tiles)
        read = {b for step in walk(program.steps) if isinstance(step, Call) for b in step.buffers}
        assert not any(program.buffers[b].role == PARAMETER for b in read)


@pytest.mark.parametrize(("rows", "terms", "columns"), [(256, 1024, 1024), (256, 768, 768), (64, 500, 96)])
@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
def test_what_lies_in_the_order_of_tiles_is_not_packed(rows: int, terms: int, columns: int, machine: Machine) -> None:
    """However wide the tiles are."""
    kind, x = taking(rows, terms)
    program = shaped(Graph((kind,), (matmul(x, weights(0, terms, columns)),)), machine)
    assert copies_of(program)
    (call,) = (step for step in walk(program.steps) if isinstance(step, Call))
    kernel = program.kernels[call.kernel]
    shape = shape_of(kernel, schedule(kernel, machine))
    assert shape.in_order and not shape.tile.packs


@EVERY_CASE
@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
def test_code_agrees_and_sees_a_parameter_that_changes(name: str, machine: Machine) -> None:
    case = CASES[name]()
    program = shaped(case.graph, machine)
    inputs = arrays(case.graph.arguments, 1)
    for threads in (1, 2):
        made = executable(program, machine, threads)
        for seed in (7, 8, 8):
            parameters = parameters_of(case.graph, seed)
            give = made.set_parameter if threads == 1 else made.bind_parameter
            for position, value in enumerate(parameters):
                give(position, value)
            wanted = [result.tobytes() for result in evaluate(case.graph, inputs, parameters)]
            assert [each.tobytes() for each in made.run(flat(inputs))[: len(wanted)]] == wanted
            kept = [made.parameter(position) for position in range(len(parameters))]
            assert all(
                each is not None and each.tobytes() == value.tobytes()
                for each, value in zip(kept, parameters, strict=True)
            )
        made.close()


def test_a_copy_that_is_wrong_is_seen() -> None:
    """The planted fault: the copy's last two terms change places."""
    case = twice()
    program = shaped(case.graph, X86_64_V3)
    (call,) = program.once
    kernel = program.kernels[call.kernel]
    store = kernel.stores[0]
    turned = replace(store, offset=ix.add(ix.number(kernel.buffers[1].elements - 1), ix.scale(store.offset, -1)))
    kernels = tuple(replace(k, stores=(turned,)) if k is kernel else k for k in program.kernels)
    inputs, parameters = flat(arrays(case.graph.arguments, 1)), flat(parameters_of(case.graph))
    good = interpreter.run(program, inputs, parameters)[0]
    assert interpreter.run(replace(program, kernels=kernels), inputs, parameters)[0].tobytes() != good.tobytes()


@EVERY_CASE
def test_programs_parse_back(name: str) -> None:
    program = shaped(CASES[name]().graph, AARCH64)
    kernels = {f"sha256:{kernel.digest}": kernel for kernel in program.kernels}
    constants = iter(program.constants)
    back = parse_program(program.text, kernels.__getitem__, lambda _: next(constants))
    assert back.text == program.text
    assert (back.once, back.digest) == (program.once, program.digest)


def test_a_loop_cannot_be_made_once() -> None:
    program = shaped(steps().graph, X86_64_V3)
    text = program.text.replace("  once {\n", "  once {\n    loop 2 {\n    }\n")
    assert text != program.text
    kernels = {f"sha256:{kernel.digest}": kernel for kernel in program.kernels}
    with pytest.raises(ValueError, match="no call"):
        parse_program(text, kernels.__getitem__, lambda _: b"")


def test_parameters_that_a_run_changes_are_no_constants() -> None:
    """The program of `twice` with a commit that writes the weights is left alone."""
    program = pipeline.run(twice().graph).program
    (weight,) = [n for n, buffer in enumerate(program.buffers) if buffer.role == PARAMETER]
    (given,) = [n for n, buffer in enumerate(program.buffers) if buffer.role == "input"]
    i = ix.axis(0, 1)
    nudge = Kernel(
        (BufferParameter(F32, 12 * 48, False), BufferParameter(F32, 48 * 48, True)),
        (),
        (i,),
        0,
        (Store(1, i, load(F32, 0, i)),),
    )
    commit = Commit(None, (Call(len(program.kernels), (given, weight)),))
    changed = replace(program, kernels=(*program.kernels, nudge), steps=(*program.steps, commit))
    assert shaped_again(program).once
    assert shaped_again(changed) is changed


def shaped_again(program: Program) -> Program:
    return at_load(program, lambda kernel: tile_orders(kernel, X86_64_V3))


def test_what_is_made_of_constants_alone_leaves_the_run() -> None:
    """A sum of two weights is taken once, in memory of its own, and the arena does not hold it."""
    kind, x = taking(32, 32)
    both = add(weights(0, 32, 32), mul(weights(1, 32, 32), weights(1, 32, 32)))
    graph = Graph((kind,), (add(mul(x, both), transpose(both, (1, 0))), mul(both, x)))
    before = pipeline.run(graph).program
    temporary = [b for b in before.buffers if b.role == TEMPORARY and b.elements == 1024]
    assert temporary, "nothing is stored: the test would prove nothing"
    program = shaped_again(before)
    assert len(program.once) == 1
    assert program.arena_bytes < before.arena_bytes
    inputs, parameters = arrays(graph.arguments, 1), parameters_of(graph)
    wanted = [result.tobytes() for result in evaluate(graph, inputs, parameters)]
    found = interpreter.run(program, flat(inputs), flat(parameters))
    assert [each.tobytes() for each in found[:2]] == wanted


@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
def test_a_condition_that_is_made_once_stays(machine: Machine) -> None:
    """No call of the run reads it: the branch alone does."""
    kind, x = taking(2, 3)
    w = weights(0, 2, 3)
    first = reshape(slice_(w, (0, 0), (1, 1)), ())
    large = compare("gt", first, scalar(0.5, F32))
    graph = Graph((kind,), branch(large, (x, w), lambda x, w: (mul(x, w),), lambda x, w: (add(x, w),)))
    program = pipeline.run(graph).program
    shaped = shaped_again(program)
    (decided,) = (step.condition for step in shaped.steps if isinstance(step, Branch))
    assert shaped.buffers[decided].role == PREPARED
    made, (given,) = executable(shaped, machine), arrays((kind,), 1)
    for value in (1.0, 0.25, 0.75):
        parameter = np.full((2, 3), value, np.float32)
        made.set_parameter(0, parameter)
        for _ in range(2):
            (found,) = made.run([given.reshape(-1)])
            wanted = given * parameter if value > 0.5 else given + parameter
            np.testing.assert_array_equal(found.reshape(2, 3), wanted)
    made.close()


@pytest.mark.parametrize("target", FAMILY.built, ids=lambda t: t.name)
def test_recurrent_weights_are_cut_out_and_turned_once(target: CodeTarget, tmp_path: Path) -> None:
    """Two of a GRU's three gates are more than stays near: no run turns them anew, block by block."""
    net = Network("gru")
    x, w, r = net.input("x", (16, 1, 256)), net.weight("w", (1, 768, 256)), net.weight("r", (1, 768, 256))
    (tmp_path / "gru.onnx").write_bytes(net.model(net.node("GRU", x, w, r, hidden_size=256)).SerializeToString())
    graph = import_model(load_model(tmp_path / "gru.onnx")).graph
    program = target.shape(pipeline.run(graph).program)
    made = {buffer for call in program.once for buffer in call.buffers}
    (repeated,) = (step for step in program.steps if isinstance(step, CountedLoop))
    dots = [call for call in repeated.body if isinstance(call, Call) and find(program.kernels[call.kernel])]
    assert len(dots) == 2 and all(made & {*call.buffers} for call in dots)
    assert not any(isinstance(step, RowBlocks) for step in program.steps)


@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
def test_a_parameter_without_a_value_is_noticed(machine: Machine) -> None:
    case = twice()
    made = executable(shaped(case.graph, machine), machine)
    with pytest.raises(InternalError, match="parameter 0 has no value"):
        made.run(flat(arrays(case.graph.arguments, 1)))
    made.close()


@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
def test_memory_between_the_copies_is_given_back(machine: Machine) -> None:
    """Of what is made on the way to a copy nothing stays, and it is made anew for other parameters."""
    kind, x = taking(12, 64)
    both = transpose(matmul(weights(0, 96, 64), weights(1, 64, 64)), (1, 0))
    graph = Graph((kind,), (matmul(x, both),))
    program = shaped(graph, machine)
    (kept,) = copies_of(program)
    passing = [n for n, b in enumerate(program.buffers) if b.role == PREPARED and n != kept]
    assert passing
    made, inputs = executable(program, machine), arrays(graph.arguments, 1)
    for seed in (7, 8):
        parameters = parameters_of(graph, seed)
        for position, value in enumerate(parameters):
            made.set_parameter(position, value)
        made.prepare()
        assert made.buffers.addresses[kept] != 0
        assert not made.buffers.addresses[passing].any()
        assert made.run(flat(inputs))[0].tobytes() == evaluate(graph, inputs, parameters)[0].tobytes()
    made.close()


def test_pages_of_a_mapped_file_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * 4096)
    with path.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    array = np.frombuffer(mapped, np.uint8).reshape(256, -1)[1:].reshape(-1)
    before = array.tobytes()
    give_back(array)
    assert array.tobytes() == before
    give_back(np.zeros(3))


def test_each_cpu_lays_out_for_its_own_tiles() -> None:
    program = pipeline.run(layers().graph).program
    made = {target.name: target.shape(program).digest for target in FAMILY.built}
    assert len(set(made.values())) == len(made) == 3


# ── rows that fill no whole number of tiles ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("machine", HERE, ids=lambda m: m.name)
@pytest.mark.parametrize("k", [20, 530])
@pytest.mark.parametrize("rows", [1, 5, 6, 7, 8, 9, 13, 15, 16, 29, 32, 43])
def test_short_last_tiles(machine: Machine, rows: int, k: int) -> None:
    i, j, t = ix.axis(0, rows), ix.axis(1, 40), ix.axis(2, k)
    operands = load(F32, 0, ix.linear((i, t), (rows, k))), load(F32, 1, ix.linear((t, j), (k, 40)))
    product = reduce("fma", Chain(512, 8), (t,), operands)
    sizes = (rows * k, k * 40, rows * 40)
    held = tuple(BufferParameter(F32, size, size == sizes[2]) for size in sizes[:2])
    kernel = Kernel(
        (*held, BufferParameter(F32, sizes[2], True)),
        (),
        (i, j),
        0,
        (Store(2, ix.linear((i, j), (rows, 40)), product),),
    )
    given = [*arrays(tuple(TensorType(F32, (size,)) for size in sizes[:2]), 3), np.zeros(sizes[2], np.float32)]
    wanted = reference(kernel, given)
    chosen = schedule(kernel, machine)
    assert chosen.tile is not None
    for block in (rows, 2 * chosen.tile.rows):
        tile = replace(chosen.tile, block_m=block, rows_in_place=True)
        found = run_kernel(kernel, given, machine, replace(chosen, tile=tile))
        assert found[2].tobytes() == wanted[2].tobytes()
