"""The device's runtime against a stand-in for libcuda: what it calls, in which order, and what its errors say.

No device is met here: bits come from the interpreter behind the stand-in, so they prove addresses, arguments and order.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from golden import bless
from passes import pipeline
from repro.artifact import golden
from repro.errors import EXIT_INCOMPLETE, InternalError, ReproError
from repro.ir import index as ix
from repro.ir.expressions import Scalar, apply, convert, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import (
    INPUT,
    OUTPUT,
    PARAMETER,
    PREPARED,
    TEMPORARY,
    Branch,
    Buffer,
    Call,
    Commit,
    CountedLoop,
    Program,
)
from repro.ir.types import BOOL, F32, I64, Array, to_storage
from repro.machines import SM_80
from repro.targets.gpu import emit
from repro.targets.gpu.driver import Driver, obstacle, opened
from repro.targets.gpu.guard import guarded
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from repro.targets.gpu.launch import GpuKernel
from repro.targets.gpu.placement import placed
from repro.targets.gpu.plan import Repeat, Straight, planned, workspace_bytes
from repro.targets.gpu.runtime import DeviceExecutable
from tests.targets.fake_cuda import FakeCuda


@cache
def entry(case: str, name: str) -> tuple[Program, tuple[GpuKernel, ...], tuple[Array, ...], tuple[Array, ...]]:
    """Program, kernels, inputs and parameters of a golden case's entry."""
    found = next(each for each in bless.entries(bless.cases()[case]) if each.name == name)
    graph = found.graph
    program = guarded(pipeline.run(graph, found.locations, found.updates).program)
    drawn = golden.draw(graph.arguments, golden.index_limits(graph), 0)
    inputs = tuple(to_storage(array, kind.dtype) for array, kind in zip(drawn, graph.arguments, strict=True))
    kernels = tuple(emit(kernel, SM_80) for kernel in program.kernels)
    return program, kernels, inputs, tuple(slot.initial.reshape(-1) for slot in found.parameters)


def opened_fake(**options: object) -> tuple[FakeCuda, Driver]:
    library = FakeCuda(**options)  # pyright: ignore[reportArgumentType]
    driver = opened(library)
    assert isinstance(driver, Driver), driver
    return library, driver


@pytest.mark.parametrize(
    ("case", "name"),
    [("digits_mlp", "infer"), ("digits_mlp_trained", "gradients"), ("digits_mlp_trained", "train_step")],
)
def test_three_runs_are_those_of_the_interpreter(case: str, name: str) -> None:
    """The first run launches kernels, the second makes graphs, the third launches them; state stays where it is."""
    program, kernels, inputs, parameters = entry(case, name)
    library, driver = opened_fake()
    device = DeviceExecutable(program, kernels, parameters, driver)
    model = InterpretedExecutable(program, kernels, parameters)
    for number in range(3):
        wanted = [array.tobytes() for array in model.run(inputs)]
        assert [array.tobytes() for array in device.run(inputs)] == wanted, number
        for position in range(len(parameters)):
            left, right = device.parameter(position), model.parameter(position)
            assert left is not None and right is not None
            assert left.tobytes() == right.tobytes()
    uploads = library.count("cuMemcpyHtoDAsync_v2")
    device.run(inputs)
    assert library.count("cuMemcpyHtoDAsync_v2") - uploads == len(inputs)
    device.close()
    assert not library.allocations and not library.modules and not library.events
    assert not library.graphs and not library.ready
    assert library.contexts == 0


@pytest.mark.parametrize("case", ["digits_mlp_trained", "digits_cnn_trained", "nano_gpt_trained"])
def test_a_training_step_is_one_graph(case: str) -> None:
    """Though its labels are indices that are checked: the device itself keeps a refused step from being committed."""
    program, kernels, inputs, parameters = entry(case, "train_step")
    assert any(isinstance(step, Commit) for step in program.steps)
    library, driver = opened_fake(executes=False)
    device = DeviceExecutable(program, kernels, parameters, driver)
    device.run(inputs)
    first = library.count("cuLaunchKernel")
    assert first > 50
    assert library.count("cuGraphLaunch") == 0
    assert library.count("cuStreamSynchronize") > first  # each kernel is waited for
    device.run(inputs)
    library.calls.clear()
    device.run(inputs)
    names = [name for name in library.calls if not name.startswith("cuCtx")]
    outputs = sum(buffer.role == OUTPUT for buffer in program.buffers)
    assert names == [
        *["cuMemcpyHtoDAsync_v2"] * len(inputs), "cuGraphLaunch", *["cuMemcpyDtoHAsync_v2"] * outputs,
        "cuStreamSynchronize",
    ]  # fmt: skip


@pytest.mark.parametrize("case", ["digits_mlp_trained", "digits_cnn_trained"])
def test_a_label_out_of_range_leaves_the_state_as_it_was(case: str) -> None:
    """In a first run, kernel by kernel, and in a graph; after either a good step is that of an untouched state."""
    program, kernels, inputs, parameters = entry(case, "train_step")
    _, driver = opened_fake()
    device = DeviceExecutable(program, kernels, parameters, driver)
    model = InterpretedExecutable(program, kernels, parameters)
    bad = [np.full_like(array, 10) if array.dtype == np.int64 else array for array in inputs]
    assert any(left is not right for left, right in zip(inputs, bad, strict=True))

    def state() -> list[bytes]:
        found = [device.parameter(position) for position in sorted(program.written)]
        return [array.tobytes() for array in found if array is not None]

    for _ in range(2):
        before = state()
        assert before
        assert device.run(bad)[-1].reshape(-1, 3)[:, 0].any()
        assert state() == before
        wanted = [array.tobytes() for array in model.run(inputs)]
        assert [array.tobytes() for array in device.run(inputs)] == wanted
        assert state() != before


def test_a_program_without_decisions_is_one_graph() -> None:
    program, kernels, inputs, parameters = entry("digits_mlp_trained", "infer")
    library, driver = opened_fake()
    device = DeviceExecutable(program, kernels, parameters, driver)
    for _ in range(3):
        library.calls.clear()
        device.run(inputs)
    assert library.count("cuGraphLaunch") == 1
    assert library.count("cuStreamSynchronize") == 1
    assert library.count("cuLaunchKernel") == 0


def test_set_parameter_reaches_the_device() -> None:
    program, kernels, inputs, parameters = entry("digits_mlp", "infer")
    _, driver = opened_fake()
    device = DeviceExecutable(program, kernels, parameters, driver)
    model = InterpretedExecutable(program, kernels, parameters)
    other = parameters[0] * np.float32(2)
    for executable in (device, model):
        executable.set_parameter(0, other)
    assert device.run(inputs)[0].tobytes() == model.run(inputs)[0].tobytes()
    found = device.parameter(0)
    assert found is not None and found.tobytes() == other.tobytes()


def test_what_is_made_of_parameters_is_made_again_after_one_was_set() -> None:
    """By the device's runtime and by the interpreter; other runs launch nothing for it."""
    i = ix.axis(0, 4)
    read, written = BufferParameter(F32, 4, False), BufferParameter(F32, 4, True)
    double = Kernel((read, written), (), (i,), 0, (Store(1, i, apply("add", load(F32, 0, i), load(F32, 0, i))),))
    total = apply("add", load(F32, 0, i), load(F32, 1, i))
    added = Kernel((read, read, written), (), (i,), 0, (Store(2, i, total),))
    roles = [(INPUT, 0), (OUTPUT, 0), (PARAMETER, 0), (PREPARED, 0)]
    buffers = tuple(Buffer(F32, 4, role, position) for role, position in roles)
    once = (Call(0, (2, 3), ()),)
    program = Program((double, added), buffers, (), (Call(1, (0, 3, 1), ()),), 0, once=once)
    kernels = [emit(kernel, SM_80) for kernel in program.kernels]
    x, w = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    library, driver = opened_fake()
    device, model = DeviceExecutable(program, kernels, [w], driver), InterpretedExecutable(program, kernels, [w])
    for weight, given, graphs in ((w, False, 0), (w, False, 1), (3 * w, True, 2), (3 * w, False, 1)):
        for executable in (device, model) if given else ():
            executable.set_parameter(0, weight)
        library.calls.clear()
        for executable in (device, model):
            assert np.array_equal(executable.run([x])[0], x + 2 * weight)
        assert library.count("cuGraphLaunch") == graphs
    device.close()
    assert not library.allocations and not library.ready


# ── control flow ────────────────────────────────────────────────────────────────────────────────────


def add_counter() -> Kernel:
    """b1 = b0 + counter, of four f32."""
    i = ix.axis(0, 4)
    value = apply("add", load(F32, 0, i), convert(Scalar(I64, (0, 1000), ()), F32))
    buffers = (BufferParameter(F32, 4, False), BufferParameter(F32, 4, True))
    return Kernel(buffers, (1000,), (i,), 0, (Store(1, i, value),))


def small(steps: tuple[object, ...], condition: bool = False) -> Program:
    """Buffers: an input, an output, two temporaries, a bool input, a parameter."""
    buffers = (
        Buffer(F32, 4, INPUT, 0), Buffer(F32, 4, OUTPUT, 0), Buffer(F32, 4, TEMPORARY, 0),
        Buffer(F32, 4, TEMPORARY, 64), Buffer(BOOL, 1, INPUT, 1), Buffer(F32, 4, PARAMETER, 0),
    )  # fmt: skip
    return Program((add_counter(),), buffers, (), steps, 128)  # pyright: ignore[reportArgumentType]


LOOP = CountedLoop(3, (Call(0, (0, 2), (0,)), CountedLoop(2, (Call(0, (2, 1), (1,)),))))
LONG = CountedLoop(7, (Call(0, (0, 2), (0,)), Call(0, (2, 1), (0,))))
CHOICE = Branch(4, (LOOP,), (Call(0, (0, 1), ()),))


def launched(program: Program, most: int) -> tuple[object, ...]:
    return planned(program, [emit(kernel, SM_80) for kernel in program.kernels], most)


def test_counted_loops_are_unrolled_up_to_a_limit() -> None:
    (node,) = launched(small((LOOP,)), 9)
    assert isinstance(node, Straight)
    assert [each.scalars for each in node.launches] == [(0,), (0,), (1,), (1,), (0,), (1,), (2,), (0,), (1,)]
    (node,) = launched(small((LOOP,)), 8)
    assert isinstance(node, Repeat) and (node.count, node.condition) == (3, None)
    assert [type(each) for each in node.body] == [Straight, Straight]
    opened_part, inner = node.body
    assert isinstance(opened_part, Straight) and isinstance(inner, Straight)
    assert opened_part.open and not inner.open
    assert [each.scalars for each in inner.launches] == [(0,), (1,)]


def test_a_long_run_of_launches_is_several_graphs() -> None:
    nodes = launched(small((LOOP, LOOP, LOOP)), 9)
    assert [len(node.launches) for node in nodes if isinstance(node, Straight)] == [9, 9, 9]


def test_a_commit_reads_its_verdict_on_the_device() -> None:
    asked = small((Commit(4, (CountedLoop(1, (Call(0, (0, 5), (0,)),)),)),))
    with pytest.raises(InternalError, match="the verdict"):
        launched(asked, 9)
    (node,) = launched(guarded(asked), 9)
    assert isinstance(node, Straight)
    assert [each.buffers for each in node.launches] == [(0, 5, 4)]
    free = small((Commit(None, (Call(0, (0, 5), (0,)),)),))
    assert guarded(free) is free


@pytest.mark.parametrize("most", [100, 3, 1])
@pytest.mark.parametrize("chosen", [False, True])
def test_the_hosts_control_flow(most: int, chosen: bool) -> None:
    body = (CountedLoop(2, (Branch(4, (LOOP,), (LONG,)),)), Commit(4, (CountedLoop(2, (Call(0, (2, 5), (0,)),)),)))
    program = guarded(small(body))
    inputs = [np.arange(4, dtype=np.float32), np.array([chosen])]
    kernels = [emit(kernel, SM_80) for kernel in program.kernels]
    library, driver = opened_fake()
    device = DeviceExecutable(program, kernels, [np.ones(4, np.float32)], driver, most)
    model = InterpretedExecutable(program, kernels, [np.ones(4, np.float32)])
    for _ in range(3):
        assert device.run(inputs)[0].tolist() == model.run(inputs)[0].tolist()
        left, right = device.parameter(0), model.parameter(0)
        assert left is not None and right is not None
        assert left.tolist() == right.tolist()
    assert (library.count("cuGraphLaunch") > 0) == (most > 1)


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_host_without_a_driver_says_so() -> None:
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert obstacle() == "no NVIDIA driver: libcuda.so.1 is not installed"
    else:
        assert obstacle() is None or "libcuda" not in str(obstacle())


def test_a_device_that_is_too_old_says_so() -> None:
    """And keeps none of its memory."""
    library = FakeCuda(capability=(7, 5))
    assert opened(library) == "Fake A100 has compute capability 7.5; the code is for 8.0 and later"
    assert library.retained == library.contexts == 0 and not library.streams


@pytest.mark.parametrize(("version", "fits"), [(11080, False), (12000, True), (13000, True)])
def test_a_driver_that_cannot_read_our_ptx_says_so(version: int, fits: bool) -> None:
    ptx = entry("digits_mlp", "infer")[1][0].ptx
    assert ".version 8.0" in ptx.splitlines()
    found = opened(FakeCuda(version=version))
    if fits:
        assert isinstance(found, Driver)
    else:
        assert found == "the NVIDIA driver is for CUDA 11.8; the code needs one for 12.0 or later"


def test_a_driver_without_devices_says_so() -> None:
    found = opened(FakeCuda(devices=0))
    assert isinstance(found, str) and "no such device" in found
    library = FakeCuda()
    library.failing["cuInit"] = 100
    found = opened(library)
    assert isinstance(found, str) and "cuInit says error 100" in found


def test_too_little_memory_says_what_it_is_for() -> None:
    program, kernels, _, parameters = entry("digits_mlp_trained", "train_step")
    library, driver = opened_fake(memory=100_000)
    with pytest.raises(ReproError, match="Fake A100 has too little memory") as caught:
        DeviceExecutable(program, kernels, parameters, driver)
    error = caught.value
    assert error.exit_code == EXIT_INCOMPLETE
    assert error.found == "100,000 bytes free"
    placement = placed(program, workspace_bytes(planned(program, kernels), kernels))
    assert error.expected is not None
    assert error.expected.startswith(f"{placement.run_bytes + placement.lasting_bytes:,} bytes: ")
    assert f"temporaries {program.arena_bytes:,}" in error.expected and "parameters " in error.expected
    assert not library.allocations


def test_memory_that_is_short_for_parameters_alone_is_given_back() -> None:
    program, kernels, _, parameters = entry("digits_mlp_trained", "train_step")
    library, driver = opened_fake(
        memory=placed(program, workspace_bytes(planned(program, kernels), kernels)).run_bytes + 1000
    )
    with pytest.raises(ReproError, match="too little memory") as caught:
        DeviceExecutable(program, kernels, parameters, driver)
    assert caught.value.found == f"{library.memory:,} bytes free"
    assert not library.allocations


def test_a_kernel_that_fails_is_named() -> None:
    program, kernels, inputs, parameters = entry("digits_mlp", "infer")
    library, driver = opened_fake()
    device = DeviceExecutable(program, kernels, parameters, driver)
    library.bad_kernel = kernels[1].launches[0].symbol
    with pytest.raises(ReproError, match=f"the device fails in kernel {library.bad_kernel}") as caught:
        device.run(inputs)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(caught.value)
    device.close()


def test_a_failure_in_a_graph_is_an_error() -> None:
    program, kernels, inputs, parameters = entry("digits_mlp", "infer")
    library, driver = opened_fake()
    device = DeviceExecutable(program, kernels, parameters, driver)
    device.run(inputs)
    library.bad_kernel = kernels[0].launches[0].symbol
    with pytest.raises(ReproError, match="the device fails"):
        device.run(inputs)
    library.failing["cuGraphCreate"] = 1
    with pytest.raises(ReproError, match="the device fails"):
        DeviceExecutable(program, kernels, parameters, driver).run(inputs)


def test_code_that_the_driver_refuses_comes_with_its_log() -> None:
    program, kernels, _, parameters = entry("digits_mlp", "infer")
    broken = (replace(kernels[0], ptx="nonsense"), *kernels[1:])
    library, driver = opened_fake()
    with pytest.raises(ReproError, match="the driver refuses the code of kernel k_") as caught:
        DeviceExecutable(program, broken, parameters, driver)
    assert "ptxas says: no version" in str(caught.value)
    assert not library.allocations and not library.modules


def test_shared_memory_beyond_the_device_is_an_error() -> None:
    program, kernels, _, parameters = entry("digits_mlp", "infer")
    large = replace(kernels[0], launches=(replace(kernels[0].launches[0], shared_bytes=200_000),))
    _, driver = opened_fake()
    with pytest.raises(ReproError, match="too little shared memory"):
        DeviceExecutable(program, (large, *kernels[1:]), parameters, driver)


def test_events_give_seconds() -> None:
    _, driver = opened_fake()
    start, end = driver.event(), driver.event()
    driver.record(start)
    driver.record(end)
    assert driver.seconds(start, end) == pytest.approx(0.0025)
