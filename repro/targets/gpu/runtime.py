"""A program on a device: memory once, code once, and a run as few launches as its control flow allows.

The first run launches kernel by kernel and waits for each, so that one that fails is named. From the second on every
stretch of launches without a decision in it is a CUDA graph, in which a launch waits for those alone whose memory it
touches (repro.targets.gpu.order): a training step is one launch. State stays on the device, and so does what is made of
parameters and constants alone (`Program.once`): it is made by the first run, and by the next one after a parameter was
given a value.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from repro.errors import EXIT_INCOMPLETE, InternalError, ReproError
from repro.ir.program import CONSTANT, INPUT, OUTPUT, PARAMETER, Program
from repro.ir.types import Array
from repro.targets.gpu.driver import OUT_OF_MEMORY, Driver, DriverError, Work
from repro.targets.gpu.launch import GpuKernel
from repro.targets.gpu.order import Span, Touched, waits
from repro.targets.gpu.placement import Placement, placed
from repro.targets.gpu.plan import (
    MOST_IN_GRAPH,
    Bound,
    Choice,
    Node,
    Repeat,
    Straight,
    planned,
    workspace_bytes,
)
from repro.targets.gpu.steps import shapes


class DeviceExecutable:
    """A program with its kernels' code on a device. Not to be used by two threads at once."""

    def __init__(
        self,
        program: Program,
        kernels: Sequence[GpuKernel],
        parameters: Sequence[Array],
        driver: Driver,
        most_in_graph: int = MOST_IN_GRAPH,
    ) -> None:
        """Raises ReproError where the device has too little memory, or refuses the code."""
        self.program, self.kernels, self.driver = program, tuple(kernels), driver
        self._plan = planned(program, kernels, most_in_graph)
        self._once = planned(replace(program, steps=program.once), kernels, most_in_graph)
        self._placement = placed(program, workspace_bytes((*self._plan, *self._once), kernels))
        self._stale = True
        """Whether what `_once` makes is to be made."""
        self._sources = frozenset(buffer for call in program.once for buffer in call.buffers)
        self._modules: list[Any] = []
        self._functions: dict[tuple[int, str], Any] = {}
        self._graphs: dict[Straight, Any] = {}
        self._blocks: list[int] = []
        self._events: tuple[Any, ...] = ()
        self._checked = False
        self._times: dict[int, float] | None = None
        self._unplaced: dict[int, Array] = {}
        """Parameters that the program has no buffer for."""
        self._numbers = {
            (buffer.role, buffer.position): number
            for number, buffer in enumerate(program.buffers)
            if buffer.role in (INPUT, OUTPUT, PARAMETER)
        }
        try:
            with self._device():
                self._run_block, self._lasting_block = self._allocated(self._placement)
                self._events = driver.event(), driver.event()
                self._load()
                self._fill(parameters)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _device(self) -> Generator[None]:
        """The device's context meanwhile; what fails on the device is an error for the user."""
        try:
            with self.driver.current():
                yield
        except DriverError as error:
            raise _failed("the device fails", error) from None

    # ── setting up ──

    def _allocated(self, placement: Placement) -> tuple[int, int]:
        for nbytes in (placement.run_bytes, placement.lasting_bytes):
            try:
                self._blocks.append(self.driver.allocate(nbytes))
            except DriverError as error:
                if error.number != OUT_OF_MEMORY:
                    raise _failed("the device's memory cannot be had", error) from None
                raise self._too_little(placement) from None
        return self._blocks[0], self._blocks[1]

    def _too_little(self, placement: Placement) -> ReproError:
        shares = ", ".join(f"{name} {size:,}" for name, size in placement.shares)
        held = sum((placement.run_bytes, placement.lasting_bytes)[: len(self._blocks)])
        return ReproError(
            f"{self.driver.device.name} has too little memory for the program",
            found=f"{self.driver.free_bytes() + held:,} bytes free",
            expected=f"{placement.run_bytes + placement.lasting_bytes:,} bytes: {shares}",
            next="build with --memory-budget, or for a smaller batch",
            exit_code=EXIT_INCOMPLETE,
        )

    def _load(self) -> None:
        limit = self.driver.shared_limit()
        for number, kernel in enumerate(self.kernels):
            if not kernel.launches:
                continue
            name = kernel.launches[0].symbol
            try:
                module = self.driver.load_module(kernel.ptx)
                self._modules.append(module)
                for each in kernel.launches:
                    if each.shared_bytes > limit:
                        raise ReproError(
                            f"{self.driver.device.name} has too little shared memory for kernel {each.symbol}",
                            found=f"{limit:,} bytes for a block",
                            expected=f"{each.shared_bytes:,}",
                            next="build --targets gpu/graphics: its blocks need less",
                            exit_code=EXIT_INCOMPLETE,
                        )
                    function = self.driver.function(module, each.symbol, each.shared_bytes)
                    self._functions[number, each.symbol] = function
            except DriverError as error:
                raise _failed(f"the driver refuses the code of kernel {name}", error) from None

    def _fill(self, parameters: Sequence[Array]) -> None:
        for number, buffer in enumerate(self.program.buffers):
            if buffer.role == CONSTANT:
                self._upload(number, np.frombuffer(self.program.constants[buffer.position], np.uint8))
        for position, value in enumerate(parameters):
            self._set(position, value)
        self._wait("constants and parameters")

    # ── memory ──

    def _address(self, number: int) -> int:
        block = self._lasting_block if number in self._placement.lasting else self._run_block
        return block + self._placement.offsets[number]

    def _upload(self, number: int, value: Array) -> Array:
        """Gives what must be kept until the stream is synchronised."""
        data = np.ascontiguousarray(value).reshape(-1)
        if data.nbytes != self.program.buffers[number].nbytes:
            raise InternalError(f"buffer {number} has {self.program.buffers[number].nbytes} bytes, not {data.nbytes}")
        self.driver.upload(self._address(number), data.ctypes.data, data.nbytes)
        return data

    def _download(self, number: int) -> Array:
        """Filled once the stream is synchronised."""
        buffer = self.program.buffers[number]
        found = np.empty(buffer.elements, buffer.dtype.storage)
        self.driver.download(found.ctypes.data, self._address(number), found.nbytes)
        return found

    def _set(self, position: int, value: Array) -> None:
        number = self._numbers.get((PARAMETER, position))
        if number is None:
            self._unplaced[position] = value
        else:
            kept = self._upload(number, value)
            self._wait(f"parameter {position}")
            del kept
            self._stale |= number in self._sources

    def set_parameter(self, position: int, value: Array) -> None:
        with self._device():
            self._set(position, value.reshape(-1).copy())

    def parameter(self, position: int) -> Array | None:
        """A copy, read back from the device."""
        number = self._numbers.get((PARAMETER, position))
        if number is None:
            return self._unplaced.get(position)
        with self._device():
            found = self._download(number)
            self._wait(f"parameter {position}")
        return found

    # ── running ──

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        with self._device():
            kept = self._given(inputs)
            self._launch_all()
            found = self._taken()
            del kept
        return found

    def give(self, inputs: Sequence[Array]) -> None:
        """What the next launches run on."""
        with self._device():
            kept = self._given(inputs)
            self._wait("the inputs")
            del kept

    def launch(self) -> None:
        """A run on what was given last; from the second one on it is waited for where the host decides, and no more."""
        with self._device():
            self._launch_all()

    def outputs(self) -> list[Array]:
        """Of the last run."""
        with self._device():
            return self._taken()

    def _given(self, inputs: Sequence[Array]) -> list[Array]:
        """Gives what must be kept until the stream is synchronised."""
        placed = ((self._numbers.get((INPUT, position)), value) for position, value in enumerate(inputs))
        return [self._upload(number, value) for number, value in placed if number is not None]

    def _taken(self) -> list[Array]:
        positions = sorted(position for role, position in self._numbers if role == OUTPUT)
        found = [self._download(self._numbers[OUTPUT, position]) for position in positions]
        self._wait("the run")
        return found

    def _launch_all(self) -> None:
        """A run between its inputs and its outputs, and before it what it needs that is not made yet."""
        if self._stale:
            self._nodes(self._once, ())
            self._stale = False
        self._nodes(self._plan, ())
        self._checked = True

    def _nodes(self, nodes: Sequence[Node], counters: tuple[int, ...]) -> None:
        for node in nodes:
            match node:
                case Straight():
                    self._straight(node, counters)
                case Choice():
                    side = node.then if self._true(node.condition) else node.otherwise
                    self._nodes(side, counters)
                case Repeat():
                    at = 0
                    while at < node.count and (node.condition is None or self._true(node.condition)):
                        self._nodes(node.body, (*counters, at))
                        at += 1

    def kernel_seconds(self, inputs: Sequence[Array]) -> dict[str, float]:
        """Seconds of all launches of each kernel, by digest, in one run that launches them one by one; a step over
        blocks of rows is one too."""
        self._times = {}
        digests = [each.digest for each in (*self.program.kernels, *shapes(self.program))]
        try:
            self.run(inputs)
            return {digests[number]: seconds for number, seconds in self._times.items()}
        finally:
            self._times = None

    def _timed(self, bound: Bound, counters: tuple[int, ...], times: dict[int, float]) -> None:
        start, end = self._events
        self.driver.record(start)
        self._launch(bound, counters)
        self.driver.record(end)
        times[bound.kernel] = times.get(bound.kernel, 0.0) + self.driver.seconds(start, end)

    def _straight(self, node: Straight, counters: tuple[int, ...]) -> None:
        if not node.launches:
            return
        if self._times is not None:
            for each in node.launches:
                self._timed(each, counters, self._times)
            return
        if node.open or not self._checked:
            for each in node.launches:
                self._launch(each, counters)
                if not self._checked:
                    self._wait(f"kernel {each.launch.symbol}")
            return
        if node not in self._graphs:
            works = [self._work(each, counters) for each in node.launches]
            order = waits([self._touched(each) for each in node.launches])
            self._graphs[node] = self.driver.graph(works, order)
        self.driver.launch_graph(self._graphs[node])

    def _launch(self, bound: Bound, counters: tuple[int, ...]) -> None:
        try:
            self.driver.launch(self._work(bound, counters))
        except DriverError as error:
            raise _failed(f"kernel {bound.launch.symbol} cannot be launched", error) from None

    def _work(self, bound: Bound, counters: tuple[int, ...]) -> Work:
        """The host's own counters are those of the outermost loops that it runs, in order of their depth."""
        arguments = [self._address(number) for number in bound.buffers]
        arguments += [
            counters[depth] if value is None else value
            for value, depth in zip(bound.scalars, bound.depths, strict=True)
        ]
        if bound.workspace is not None:
            arguments.append(self._workspace(bound.workspace)[0])
        each = bound.launch
        function = self._functions[bound.kernel, each.symbol]
        return Work(function, each.grid, each.block, each.shared_bytes, tuple(arguments))

    def _workspace(self, turn: int) -> Span:
        start, end = self._placement.workspaces[turn]
        return self._run_block + start, self._run_block + end

    def _touched(self, bound: Bound) -> Touched:
        """Each launch of a kernel counts as touching all that the kernel does."""
        starts = {number: self._address(number) for number in bound.buffers}
        spans = {number: (start, start + self.program.buffers[number].nbytes) for number, start in starts.items()}
        writes = {spans[number] for number in bound.written}
        if bound.workspace is not None:
            writes.add(self._workspace(bound.workspace))
        return Touched(frozenset(spans.values()) - writes, frozenset(writes))

    def _true(self, number: int) -> bool:
        """Element 0 of a bool buffer: the host waits for it."""
        byte = np.empty(1, np.uint8)
        self.driver.download(byte.ctypes.data, self._address(number), 1)
        self._wait("a condition")
        return bool(byte[0])

    def _wait(self, what: str) -> None:
        try:
            self.driver.synchronise()
        except DriverError as error:
            raise _failed(f"the device fails in {what}", error) from None

    def close(self) -> None:
        """Give the device's memory and code back, when what was launched has ended. What a broken device says to that
        does not matter, and one thing that is refused keeps no other."""
        driver = self.driver
        returned = [
            *((driver.destroy_graph, graph) for graph in self._graphs.values()),
            *((driver.destroy_event, event) for event in self._events),
            *((driver.unload, module) for module in self._modules),
            *((driver.release, block) for block in self._blocks),
        ]
        with suppress(DriverError), driver.current():
            with suppress(DriverError):
                driver.synchronise()
            for give_back, what in returned:
                with suppress(DriverError):
                    give_back(what)
        self._graphs, self._events, self._modules, self._blocks = {}, (), [], []


def _failed(what: str, error: DriverError) -> ReproError:
    return ReproError(what, found=str(error), next="see the device's own messages: dmesg, nvidia-smi")
