"""Programs on a GPU that PyTorch holds too, so that both sides are timed on one stream by one clock.

The code is launched through the driver (repro.targets.gpu.driver) in the context that PyTorch has made current and on
its stream; memory is PyTorch's. A program is a straight run of launches, so that it can be captured as a CUDA graph
like anything of PyTorch's.
"""

# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from repro.errors import EXIT_INCOMPLETE, InternalError, ReproError
from repro.ir.program import (
    CONSTANT,
    INPUT,
    OUTPUT,
    PARAMETER,
    TEMPORARY,
    Branch,
    Call,
    Commit,
    CountedLoop,
    Program,
    RowBlocks,
    Step,
    While,
)
from repro.ir.types import Array
from repro.machines import SM_80
from repro.targets.gpu import GpuKernel, Launch, codes
from repro.targets.gpu.driver import default
from repro.targets.gpu.shape import shaped
from repro.targets.gpu.steps import calls_of

Launcher = Callable[[Launch, Sequence[Any]], None]
"""Runs one of a kernel's launches on arguments: memory, and integers for scalars."""


class Device(Protocol):
    """Memory and launches; memory is whatever the device takes for a buffer."""

    def upload(self, data: Array) -> Any: ...
    def empty(self, size: int) -> Any: ...
    def part(self, memory: Any, start: int, size: int) -> Any: ...
    def load(self, code: GpuKernel) -> Launcher: ...


class Clock(Protocol):
    """Times runs on a device."""

    def seconds(self, run: Callable[[], object], repeats: int) -> float: ...


class Cuda:
    """The device that PyTorch has chosen. Raises ReproError (exit code 3) where there is none."""

    def __init__(self) -> None:
        self.torch = _torch()
        self.torch.zeros(1, device="cuda")  # makes the context that the driver's calls below stand in
        self.driver = default()

    @property
    def name(self) -> str:
        return str(self.torch.cuda.get_device_name())

    def upload(self, data: Array) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(data).reshape(-1).view(np.uint8).copy()).cuda()

    def tensor(self, data: Array) -> Any:
        """As PyTorch holds it."""
        return self.torch.from_numpy(np.ascontiguousarray(data)).cuda()

    def empty(self, size: int) -> Any:
        return self.torch.empty(max(size, 16), dtype=self.torch.uint8, device="cuda")

    def part(self, memory: Any, start: int, size: int) -> Any:
        return memory[start : start + size]

    def load(self, code: GpuKernel) -> Launcher:
        with self.driver.current():
            module = self.driver.load_module(code.ptx) if code.launches else None
            functions = {
                launch.symbol: self.driver.function(module, launch.symbol, launch.shared_bytes)
                for launch in code.launches
            }

        def run(launch: Launch, arguments: Sequence[Any]) -> None:
            addresses = [each if isinstance(each, int) else each.data_ptr() for each in arguments]
            self.driver.stream = self.torch.cuda.current_stream().cuda_stream
            sizes = (launch.grid, launch.block, launch.shared_bytes)
            self.driver.launch(functions[launch.symbol], *sizes, addresses)

        return run

    def aside(self, run: Callable[[], Any]) -> Any:
        """A run on a stream of its own, as one has to go before a capture (PyTorch's notes on CUDA graphs)."""
        stream = self.torch.cuda.Stream()
        stream.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(stream):
            found = run()
        self.torch.cuda.current_stream().wait_stream(stream)
        return found

    def graph(self, run: Callable[[], object]) -> Callable[[], None]:
        """The run as one launch: a CUDA graph, captured after a first run that loads what is loaded late. What the run
        holds lives as long as the launch: the graph reads that memory, whoever else has it by then."""
        run()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            run()

        def replay(held: Callable[[], object] = run) -> None:
            graph.replay()

        return replay

    def seconds(self, run: Callable[[], object], repeats: int) -> float:
        """Of one run, by events around several."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / repeats


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise _nothing("PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise _nothing("PyTorch finds no CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


def _nothing(reason: str) -> ReproError:
    instead = "python -m benchmarks.gpu_static says what can be said without one"
    return ReproError("no GPU is there to measure", found=reason, next=instead, exit_code=EXIT_INCOMPLETE)


class Loaded:
    """A program's kernels and memory on a device; parameters start at values given or at zero. What is made of them and
    of constants alone is made here."""

    def __init__(self, device: Device, program: Program, parameters: Sequence[Array] = ()) -> None:
        self.device, self.program = device, shaped(program, SM_80)
        self.clock: Clock | None = None
        self.times: dict[int, list[float]] = {}
        self.codes, self.blocks = codes(self.program, SM_80), calls_of(self.program)
        self.kernels = [device.load(code) for code in self.codes]
        self.workspace = device.empty(max((code.workspace_bytes for code in self.codes), default=0))
        self.arena = device.empty(self.program.arena_bytes)
        self.buffers = [self._buffer(number, parameters) for number in range(len(self.program.buffers))]
        self._steps(self.program.once, [])

    def _buffer(self, number: int, parameters: Sequence[Array]) -> Any:
        buffer = self.program.buffers[number]
        match buffer.role:
            case "constant":
                return self.device.upload(np.frombuffer(self.program.constants[buffer.position], np.uint8))
            case "temporary":
                return self.device.part(self.arena, buffer.position, buffer.nbytes)
            case "parameter" if parameters:
                return self.device.upload(parameters[buffer.position])
            case _:
                return self.device.upload(np.zeros(buffer.nbytes, np.uint8))

    def of(self, role: str, position: int) -> int:
        """The number of a buffer by what it is."""
        assert role in (INPUT, OUTPUT, PARAMETER, CONSTANT, TEMPORARY)
        found = [n for n, each in enumerate(self.program.buffers) if (each.role, each.position) == (role, position)]
        return found[0]

    def give(self, inputs: Sequence[Array]) -> None:
        for position, array in enumerate(inputs):
            self.buffers[self.of(INPUT, position)] = self.device.upload(array)

    def output(self, position: int = 0) -> Any:
        return self.buffers[self.of(OUTPUT, position)]

    def run(self) -> None:
        """Every launch of the program, in order."""
        self._steps(self.program.steps, [])

    def seconds(self, clock: Clock) -> dict[int, list[float]]:
        """Of one run, the time of each call of each kernel, by its number; each call is waited for."""
        self.times = {}
        self.clock = clock
        self.run()
        self.clock = None
        return self.times

    def _steps(self, steps: Sequence[Step], counters: list[int]) -> None:
        for step in steps:
            match step:
                case Call():
                    self._call(step, counters)
                case CountedLoop():
                    for at in range(step.count):
                        self._steps(step.body, [*counters, at])
                case RowBlocks():
                    self._call(self.blocks[step], counters)
                case Commit():
                    assert step.refused is None
                    self._steps(step.body, counters)
                case While() | Branch():
                    raise InternalError("the benchmark's programs decide nothing on the way")

    def _call(self, step: Call, counters: list[int]) -> None:
        code, launch = self.codes[step.kernel], self.kernels[step.kernel]
        buffers = [self.buffers[number] for number in step.buffers]
        scalars = [counters[depth] for depth in step.scalars]
        extra = [self.workspace] if code.workspace_bytes else []

        def call() -> None:
            for each in code.launches:
                launch(each, [*buffers, *scalars, *extra])

        if self.clock is None:
            call()
        else:
            self.times.setdefault(step.kernel, []).append(self.clock.seconds(call, 1))
