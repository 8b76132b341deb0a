"""A stand-in for libcuda: its calls with their arguments as ctypes pass them, over host memory, kernels interpreted.

It checks what the driver's documentation demands: a current context, live handles, copies inside of one allocation, a
stream that is synchronised before the host reads what was downloaded. What a graph leaves open is run in any order.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from repro.ir.types import Array
from repro.numerics.host_mode import exact_arithmetic
from repro.targets.gpu.interpreter.grid import decoded, launch
from repro.targets.gpu.interpreter.memory import Window
from repro.targets.gpu.launch import PLAIN_SHARED, Launch

Work = tuple[str, Launch, list[int]]
"""PTX, which of its entries, and the arguments' values."""
Node = tuple[Work, set[int]]
"""A launch in a graph, and the places there of those that it waits for."""
INVALID_VALUE, OUT_OF_MEMORY, INVALID_PTX, NOT_FOUND, ILLEGAL_ADDRESS = 1, 2, 218, 500, 700
BASE = 0x7F00_0000_0000
SINCE_12 = ("cuGraphAddKernelNode_v2",)
"""What older drivers do not have."""


class Function:
    """One entry of the library: it takes the attributes that ctypes functions have."""

    def __init__(self, body: Callable[..., int]) -> None:
        self.body = body
        self.argtypes: tuple[Any, ...] = ()
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> int:
        assert len(arguments) == len(self.argtypes), (self.body.__name__, arguments)
        return self.body(*arguments)


class FakeCuda:
    """`failing` gives the number that a call says instead of running, by name; `executes`: whether launches do
    anything."""

    def __init__(
        self,
        memory: int = 1 << 32,
        capability: tuple[int, int] = (8, 0),
        devices: int = 1,
        executes: bool = True,
        version: int = 12080,
    ) -> None:
        self.memory, self.capability, self.devices, self.executes = memory, capability, devices, executes
        self.version = version
        self.events: set[int] = set()
        self.calls: list[str] = []
        self.failing: dict[str, int] = {}
        self.failing_after: dict[str, int] = {}
        """Calls that say that something is invalid when so many of them were made."""
        self.bad_kernel = ""
        self.allocations: dict[int, Array] = {}
        self.modules: dict[int, str] = {}
        self.functions: dict[int, tuple[str, str]] = {}
        self.asked: dict[int, int] = {}
        """Dynamic shared memory that functions may be given, in bytes."""
        self.graphs: dict[int, list[Node]] = {}
        self.ready: dict[int, list[Node]] = {}
        """Graphs that can be launched."""
        self.nodes: dict[int, tuple[int, int]] = {}
        """Of each the graph, and its place there."""
        self.generator = random.Random(1)
        self.order: Callable[[Sequence[int]], int] = self.generator.choice
        """Which of the nodes that wait for nothing any more is run next."""
        self.sticky = 0
        self.contexts = self.retained = 0
        self.streams: set[int] = set()
        self._next = 1000

    def __getattr__(self, name: str) -> Function:
        if not name.startswith("cu") or (name in SINCE_12 and self.version < 12000):
            raise AttributeError(name)
        body = getattr(type(self), f"_{name}", None)
        if body is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.failing:
                return self.failing[name]
            if self.count(name) > self.failing_after.get(name, len(self.calls)):
                return INVALID_VALUE
            return body(self, *arguments) or 0

        function = Function(call)
        self.__dict__[name] = function
        return function

    def count(self, name: str) -> int:
        return self.calls.count(name)

    def _handle(self, place: Any) -> int:
        self._next += 1
        place._obj.value = self._next
        return self._next

    # ── the device ──

    def _cuInit(self, flags: int) -> int:
        assert flags == 0
        return 0

    def _cuDriverGetVersion(self, place: Any) -> None:
        place._obj.value = self.version

    def _cuDeviceGetCount(self, place: Any) -> None:
        place._obj.value = self.devices

    def _cuDeviceGet(self, place: Any, ordinal: int) -> None:
        place._obj.value = ordinal

    def _cuDeviceGetName(self, text: Any, size: int, device: Any) -> None:
        text.value = b"Fake A100"

    def _cuDeviceGetAttribute(self, place: Any, attribute: int, device: Any) -> None:
        place._obj.value = {75: self.capability[0], 76: self.capability[1], 97: 166912, 16: 108}[attribute]

    def _cuDeviceTotalMem_v2(self, place: Any, device: Any) -> None:
        place._obj.value = self.memory

    def _cuDevicePrimaryCtxRetain(self, place: Any, device: int) -> None:
        self.retained += 1
        self._handle(place)

    def _cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
        self.retained -= 1

    def _cuCtxPushCurrent_v2(self, context: Any) -> None:
        self.contexts += 1

    def _cuCtxPopCurrent_v2(self, place: Any) -> None:
        self.contexts -= 1

    # ── memory ──

    def _used(self) -> int:
        return sum(array.size for array in self.allocations.values())

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free._obj.value, total._obj.value = self.memory - self._used(), self.memory

    def _cuMemAlloc_v2(self, place: Any, nbytes: int) -> int:
        assert self.contexts > 0 and nbytes > 0
        if self._used() + nbytes > self.memory:
            return OUT_OF_MEMORY
        self._next += 1
        place._obj.value = BASE + self._next * (1 << 36)
        self.allocations[place._obj.value] = np.full(nbytes, 0xA5, np.uint8)
        return 0

    def _cuMemFree_v2(self, address: int) -> None:
        del self.allocations[address]

    def bytes_at(self, address: int, nbytes: int) -> Array:
        for start, array in self.allocations.items():
            if start <= address and address + nbytes <= start + array.size:
                return array[address - start : address - start + nbytes]
        raise AssertionError(f"{nbytes} bytes at {address:#x} are in no allocation")

    def _cuMemcpyHtoDAsync_v2(self, address: int, host: int, nbytes: int, stream: Any) -> int:
        assert self.contexts > 0
        ctypes.memmove(self.bytes_at(address, nbytes).ctypes.data, host, nbytes)
        return self.sticky

    def _cuMemcpyDtoHAsync_v2(self, host: int, address: int, nbytes: int, stream: Any) -> int:
        assert self.contexts > 0
        ctypes.memmove(host, self.bytes_at(address, nbytes).ctypes.data, nbytes)
        return self.sticky

    # ── code ──

    def _cuStreamCreate(self, place: Any, flags: int) -> None:
        assert flags == 1 and self.contexts > 0
        self.streams.add(self._handle(place))

    def _cuStreamSynchronize(self, stream: Any) -> int:
        return self.sticky

    def _cuStreamDestroy_v2(self, stream: Any) -> None:
        self.streams.remove(stream.value)

    def _cuModuleLoadDataEx(self, place: Any, image: bytes, count: int, options: Any, values: Any) -> int:
        assert image.endswith(b"\0") and list(options) == [5, 6] and count == 2
        text = image[:-1].decode()
        if ".version" not in text:
            ctypes.memmove(values[0], b"ptxas says: no version\0", 23)
            return INVALID_PTX
        self.modules[self._handle(place)] = text
        return 0

    def _cuModuleGetFunction(self, place: Any, module: Any, name: bytes) -> int:
        text = self.modules[module.value]
        if name.decode() not in decoded(text):
            return NOT_FOUND
        self.functions[self._handle(place)] = (text, name.decode())
        return 0

    def _cuModuleUnload(self, module: Any) -> None:
        del self.modules[module.value]

    def _cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> None:
        assert attribute == 8 and 0 < value <= 166912
        self.asked[function.value] = value

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        gx, gy, gz, bx, by, bz, shared, _, addresses, extra = rest
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, None)
        work = self._work(function.value, gx, bx, shared, [addresses[n] for n in range(len(addresses))])
        return INVALID_VALUE if work is None else self._execute(work)

    def _work(self, function: int, grid: int, block: int, shared: int, addresses: Sequence[int]) -> Work | None:
        """None where the function was not promised so much shared memory."""
        assert grid > 0 and block > 0
        text, symbol = self.functions[function]
        assert len(addresses) == len(decoded(text)[symbol].parameters)
        if decoded(text)[symbol].shared_bytes + shared > PLAIN_SHARED and self.asked.get(function, 0) < shared:
            return None
        values = [ctypes.c_uint64.from_address(address).value for address in addresses]
        return text, Launch(symbol, grid, block, shared), values

    def _execute(self, work: Work) -> int:
        text, chosen, values = work
        if chosen.symbol == self.bad_kernel:
            self.sticky = ILLEGAL_ADDRESS
            return 0
        if not self.executes:
            return 0
        windows: dict[int, Window] = {}
        arguments: list[Window | int] = []
        for value in values:
            found = next(((s, a) for s, a in self.allocations.items() if s <= value < s + a.size), None)
            if found is None:
                arguments.append(value if value < 1 << 63 else value - (1 << 64))
                continue
            start, array = found
            if value not in windows:
                windows[value] = Window(f"{value:#x}", array[value - start :])
            arguments.append(windows[value])
        with exact_arithmetic():
            launch(text, chosen, arguments)
        return 0

    # ── graphs ──

    def _cuGraphCreate(self, place: Any, flags: int) -> None:
        assert flags == 0
        self.graphs[self._handle(place)] = []

    def _cuGraphAddKernelNode_v2(self, place: Any, graph: Any, before: Any, count: int, given: Any) -> int:
        node = given._obj
        assert (node.gridDimY, node.gridDimZ, node.blockDimY, node.blockDimZ) == (1, 1, 1, 1)
        assert (node.extra, node.kern, node.ctx) == (None, None, None)
        held = self.graphs[graph.value]
        earlier = [self.nodes[before[n]] for n in range(count)]
        assert all(of == graph.value for of, _ in earlier) and len(set(earlier)) == count
        parameters = len(decoded(self.functions[node.func][0])[self.functions[node.func][1]].parameters)
        addresses = [ctypes.c_uint64.from_address(node.kernelParams + 8 * n).value for n in range(parameters)]
        work = self._work(node.func, node.gridDimX, node.blockDimX, node.sharedMemBytes, addresses)
        if work is None:
            return INVALID_VALUE
        self.nodes[self._handle(place)] = (graph.value, len(held))
        held.append((work, {number for _, number in earlier}))
        return 0

    def _cuGraphInstantiateWithFlags(self, place: Any, graph: Any, flags: int) -> None:
        assert flags == 0
        self.ready[self._handle(place)] = self.graphs[graph.value]

    def _cuGraphDestroy(self, graph: Any) -> None:
        self.nodes = {node: held for node, held in self.nodes.items() if held[0] != graph.value}
        del self.graphs[graph.value]

    def _cuGraphLaunch(self, graph: Any, stream: Any) -> int:
        """Nodes in any order that their edges leave."""
        nodes = self.ready[graph.value]
        left, ended = set(range(len(nodes))), set[int]()
        while left:
            number = self.order(sorted(each for each in left if nodes[each][1] <= ended))
            self._execute(nodes[number][0])
            left.remove(number)
            ended.add(number)
        return 0

    def _cuGraphExecDestroy(self, graph: Any) -> None:
        del self.ready[graph.value]

    # ── time, errors ──

    def _cuEventCreate(self, place: Any, flags: int) -> None:
        self.events.add(self._handle(place))

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        assert event.value in self.events

    def _cuEventSynchronize(self, event: Any) -> None:
        pass

    def _cuEventElapsedTime(self, place: Any, start: Any, end: Any) -> None:
        place._obj.value = 2.5

    def _cuEventDestroy_v2(self, event: Any) -> None:
        self.events.remove(event.value)

    def _cuGetErrorName(self, number: int, place: Any) -> int:
        names = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 218: b"CUDA_ERROR_INVALID_PTX", 700: b"CUDA_ERROR_ILLEGAL_ADDRESS"}
        if number not in names:
            return INVALID_VALUE
        place._obj.value = names[number]
        return 0

    def _cuGetErrorString(self, number: int, place: Any) -> int:
        return INVALID_VALUE
