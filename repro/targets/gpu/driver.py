"""The CUDA driver by ctypes: the calls that running a program takes, each checked.

Names, signatures and constants are those of the CUDA Driver API's documentation (cuda.h, 12.x and 13.0); each function
exists since 11.4 or longer, `cuGraphAddKernelNode_v2` since 12.0. Nothing here knows of programs.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

from repro.errors import EXIT_INCOMPLETE, ReproError

LIBRARIES = ("libcuda.so.1", "libcuda.so")
OLDEST = (8, 0)
"""The compute capability that our PTX is for; it runs on this and every later one."""
PTX_SINCE = (12, 0)
"""The CUDA version whose drivers read PTX 8.0, which most of ours is (PTX ISA, "Release Notes")."""

SUCCESS, OUT_OF_MEMORY = 0, 2
_MAJOR, _MINOR, _SHARED_OPT_IN, _PROCESSORS = 75, 76, 97, 16
_JIT_LOG, _JIT_LOG_BYTES = 5, 6
_MAX_DYNAMIC_SHARED = 8
_NON_BLOCKING = 1
_LOG_BYTES = 16384


@dataclass(frozen=True)
class Work:
    """A launch with all that it takes; every argument is 64 bits wide."""

    function: Any
    grid: int
    block: int
    shared_bytes: int
    arguments: tuple[int, ...]

    def held(self) -> tuple[Any, Any]:
        """The arguments' values, which must live until the driver has read them, and their addresses."""
        count = len(self.arguments)
        values = (c_uint64 * count)(*(value % (1 << 64) for value in self.arguments))
        first = ctypes.addressof(values)
        return values, (c_void_p * count)(*(first + 8 * number for number in range(count)))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.grid, 1, 1, self.block, 1, 1, self.shared_bytes


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("func", c_void_p),
        *((f"{of}Dim{axis}", c_uint) for of in ("grid", "block") for axis in "XYZ"),
        ("sharedMemBytes", c_uint),
        ("kernelParams", c_void_p),
        ("extra", c_void_p),
        ("kern", c_void_p),
        ("ctx", c_void_p),
    )


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuModuleLoadDataEx": (POINTER(c_void_p), c_char_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "cuGraphCreate": (POINTER(c_void_p), c_uint),
    "cuGraphAddKernelNode_v2": (POINTER(c_void_p), c_void_p, POINTER(c_void_p), c_size_t, POINTER(_KernelNode)),
    "cuGraphInstantiateWithFlags": (POINTER(c_void_p), c_void_p, c_ulonglong),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}


class DriverError(Exception):
    """A call of the driver that failed: its name, the error's number and text."""

    def __init__(self, call: str, number: int, text: str) -> None:
        super().__init__(f"{call} says {text}")
        self.call, self.number, self.text = call, number, text


@dataclass(frozen=True)
class Device:
    """What the driver says of a device."""

    name: str
    capability: tuple[int, int]
    memory: int
    processors: int
    driver: str
    """The newest CUDA version that the driver knows, as 12.8."""

    @property
    def known(self) -> tuple[int, ...]:
        """The same as numbers."""
        return tuple(map(int, self.driver.split(".")))


def _load_library() -> Any:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class Driver:
    """One device, its primary context and a stream. `library` is libcuda, or what stands in for it in a test.

    Threads take turns: all of them use one stream, and what fails on it while one waits is then work of its own, or
    what was launched without waiting."""

    def __init__(self, library: Any, ordinal: int = 0) -> None:
        self._library = library
        self._turn = threading.RLock()
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name, None)
            if function is not None:  # an older driver has none, and is refused for its version
                function.argtypes, function.restype = arguments, c_int
        self.call("cuInit", 0)
        self.device = self._ask(ordinal)
        self._number = self._made("cuDeviceGet", c_int(), ordinal).value
        self._context = self._made("cuDevicePrimaryCtxRetain", c_void_p(), self._number)
        with self.current():
            self.stream = self._made("cuStreamCreate", c_void_p(), _NON_BLOCKING)
        self._owns_stream = True

    def use(self, stream: int) -> None:
        """Launch on a stream of someone else's, who keeps it."""
        with self.current():
            self.synchronise()
            self._give_stream_back()
            self.stream, self._owns_stream = c_void_p(stream), False

    def _give_stream_back(self) -> None:
        if self._owns_stream:
            self.call("cuStreamDestroy_v2", self.stream)

    # ── calls ──

    def call(self, name: str, *arguments: Any) -> None:
        """Raises DriverError unless the driver says that it succeeded."""
        number = getattr(self._library, name)(*arguments)
        if number != SUCCESS:
            raise DriverError(name, number, self._text(number))

    def _text(self, number: int) -> str:
        parts: list[str] = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            if getattr(self._library, name)(number, byref(text)) == SUCCESS and text.value:
                parts.append(text.value.decode(errors="replace"))
        return ": ".join(parts) or f"error {number}"

    def _made(self, name: str, handle: Any, *arguments: Any) -> Any:
        """The handle that a call writes through its first argument."""
        self.call(name, byref(handle), *arguments)
        return handle

    @contextmanager
    def current(self) -> Generator[None]:
        """The device and its context are the calling thread's meanwhile."""
        with self._turn:
            self.call("cuCtxPushCurrent_v2", self._context)
            try:
                yield
            finally:
                self._library.cuCtxPopCurrent_v2(byref(c_void_p()))  # of a device that failed it says what we know

    def close(self) -> None:
        """Give the stream and the context back, which is hundreds of megabytes of a device's memory."""
        with self.current():
            self._give_stream_back()
        self.call("cuDevicePrimaryCtxRelease_v2", self._number)

    # ── the device ──

    def _ask(self, ordinal: int) -> Device:
        count = self._made("cuDeviceGetCount", c_int())
        if count.value <= ordinal:
            raise DriverError("cuDeviceGetCount", 100, "there is no such device")
        number = self._made("cuDeviceGet", c_int(), ordinal)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), number)
        attributes = [
            self._made("cuDeviceGetAttribute", c_int(), attribute, number).value
            for attribute in (_MAJOR, _MINOR, _PROCESSORS)
        ]
        memory = self._made("cuDeviceTotalMem_v2", c_size_t(), number).value
        version = self._made("cuDriverGetVersion", c_int()).value
        major, minor, processors = attributes
        known = f"{version // 1000}.{version % 1000 // 10}"
        return Device(name.value.decode(errors="replace"), (major, minor), memory, processors, known)

    def shared_limit(self) -> int:
        """Bytes of shared memory that a block may have when asked for."""
        return self._made("cuDeviceGetAttribute", c_int(), _SHARED_OPT_IN, self._number).value

    # ── memory ──

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def allocate(self, nbytes: int) -> int:
        """The address, a multiple of 256. Raises DriverError with OUT_OF_MEMORY."""
        return self._made("cuMemAlloc_v2", c_uint64(), max(nbytes, 1)).value

    def release(self, address: int) -> None:
        self.call("cuMemFree_v2", address)

    def upload(self, address: int, host: int, nbytes: int) -> None:
        """In the order of the stream; the host's bytes may be changed once the stream is synchronised."""
        if nbytes:
            self.call("cuMemcpyHtoDAsync_v2", address, host, nbytes, self.stream)

    def download(self, host: int, address: int, nbytes: int) -> None:
        """In the order of the stream; the host's bytes are there once the stream is synchronised."""
        if nbytes:
            self.call("cuMemcpyDtoHAsync_v2", host, address, nbytes, self.stream)

    def synchronise(self) -> None:
        self.call("cuStreamSynchronize", self.stream)

    # ── code ──

    def load_module(self, ptx: str) -> Any:
        """PTX compiled for the device by the driver. Raises DriverError with the compiler's log."""
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_JIT_LOG, _JIT_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.cast(log, c_void_p), c_void_p(_LOG_BYTES))
        try:
            return self._made("cuModuleLoadDataEx", c_void_p(), ptx.encode() + b"\0", 2, options, values)
        except DriverError as error:
            said = log.value.decode(errors="replace").strip()
            raise DriverError(error.call, error.number, f"{error.text}; {said}" if said else error.text) from None

    def function(self, module: Any, symbol: str, shared_bytes: int) -> Any:
        found = self._made("cuModuleGetFunction", c_void_p(), module, symbol.encode())
        if shared_bytes:  # whatever the entry declares comes on top of it
            self.call("cuFuncSetAttribute", found, _MAX_DYNAMIC_SHARED, shared_bytes)
        return found

    def unload(self, module: Any) -> None:
        self.call("cuModuleUnload", module)

    def launch(self, work: Work) -> None:
        """On the stream."""
        _values, addresses = work.held()
        self.call("cuLaunchKernel", work.function, *work.sizes, self.stream, addresses, None)

    # ── graphs ──

    def graph(self, works: Sequence[Work], waits: Sequence[Sequence[int]]) -> Any:
        """Launches of which each begins when those that it waits for have ended (earlier ones, by their place), ready
        to be launched as one."""
        graph = self._made("cuGraphCreate", c_void_p(), 0)
        try:
            nodes: list[Any] = []
            for work, earlier in zip(works, waits, strict=True):
                _values, addresses = work.held()
                node = _KernelNode(work.function, *work.sizes, ctypes.cast(addresses, c_void_p))
                before = (c_void_p * len(earlier))(*(nodes[each].value for each in earlier))
                given = (graph, before, len(earlier), byref(node))
                nodes.append(self._made("cuGraphAddKernelNode_v2", c_void_p(), *given))
            return self._made("cuGraphInstantiateWithFlags", c_void_p(), graph, 0)
        finally:
            self._library.cuGraphDestroy(graph)  # what it says changes nothing

    def launch_graph(self, graph: Any) -> None:
        self.call("cuGraphLaunch", graph, self.stream)

    def destroy_graph(self, graph: Any) -> None:
        self.call("cuGraphExecDestroy", graph)

    # ── time ──

    def event(self) -> Any:
        return self._made("cuEventCreate", c_void_p(), 0)

    def record(self, event: Any) -> None:
        """Mark the event when the stream has come so far."""
        self.call("cuEventRecord", event, self.stream)

    def destroy_event(self, event: Any) -> None:
        self.call("cuEventDestroy_v2", event)

    def seconds(self, start: Any, end: Any) -> float:
        """Between two recorded events; waits for the second."""
        self.call("cuEventSynchronize", end)
        return self._made("cuEventElapsedTime", c_float(), start, end).value / 1000


# ── whether there is one ────────────────────────────────────────────────────────────────────────────


@cache
def _default() -> Driver | str:
    library = _load_library()
    return f"no NVIDIA driver: {LIBRARIES[0]} is not installed" if library is None else opened(library)


def opened(library: Any) -> Driver | str:
    """The first device's driver, or why there is none that runs our code."""
    try:
        driver = Driver(library)
    except AttributeError as error:
        return f"the NVIDIA driver is too old: {error}"
    except DriverError as error:
        return f"the NVIDIA driver has no device for us: {error}"
    reason = _unfit(driver.device)
    if reason is None:
        return driver
    driver.close()
    return reason


def _unfit(device: Device) -> str | None:
    """Why a device does not run our code."""
    if device.capability < OLDEST:
        mine, needed = (".".join(map(str, pair)) for pair in (device.capability, OLDEST))
        return f"{device.name} has compute capability {mine}; the code is for {needed} and later"
    if device.known < PTX_SINCE:
        needed = ".".join(map(str, PTX_SINCE))
        return f"the NVIDIA driver is for CUDA {device.driver}; the code needs one for {needed} or later"
    return None


def obstacle() -> str | None:
    """Why no device runs our code here, or None."""
    found = _default()
    return found if isinstance(found, str) else None


def lost() -> str | None:
    """Why no call of this process reaches the first device any more; None where one does, or none was made."""
    found = _default() if _default.cache_info().currsize else ""
    if isinstance(found, str):
        return None
    try:
        with found.current():
            found.synchronise()
    except DriverError as error:
        return str(error)
    return None


def described() -> dict[str, str | int]:
    """The first device, for a record. Raises ReproError where there is none."""
    device = default().device
    return {
        "name": device.name,
        "capability": ".".join(map(str, device.capability)),
        "memory": device.memory,
        "processors": device.processors,
        "driver": device.driver,
    }


def default() -> Driver:
    """The first device's driver. Raises ReproError where there is none."""
    found = _default()
    if isinstance(found, str):
        raise ReproError("target gpu does not run here", found=found, exit_code=EXIT_INCOMPLETE)
    return found
