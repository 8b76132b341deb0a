"""Programs on a GPU that PyTorch uses too, so that both sides are timed on one stream by one clock.

Ours run as they do for a user (repro.targets.gpu.runtime), in the context that PyTorch has made current and on its
stream.
"""

# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.ir.program import Program
from repro.ir.types import Array
from repro.machines import SM_80
from repro.targets.gpu import codes
from repro.targets.gpu.driver import Driver, default
from repro.targets.gpu.plan import Straight, launches, planned
from repro.targets.gpu.runtime import DeviceExecutable
from repro.targets.gpu.shape import shaped


class Cuda:
    """The device that PyTorch has chosen. Raises ReproError (exit code 3) where there is none."""

    def __init__(self) -> None:
        self.torch = _torch()
        self.torch.zeros(1, device="cuda")  # makes the context that the driver's calls below stand in
        self.driver: Driver = default()
        self.driver.use(self.torch.cuda.current_stream().cuda_stream)

    @property
    def name(self) -> str:
        return str(self.torch.cuda.get_device_name())

    def tensor(self, data: Array) -> Any:
        """As PyTorch holds it."""
        return self.torch.from_numpy(np.ascontiguousarray(data)).cuda()

    def empty(self, size: int) -> Any:
        return self.torch.empty(max(size, 16), dtype=self.torch.uint8, device="cuda")

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
    """A program's kernels and memory on a device, with values of all its parameters. `close` gives the memory back."""

    def __init__(self, device: Cuda, program: Program, parameters: Sequence[Array] = ()) -> None:
        self.program = shaped(program, SM_80)
        self.codes = codes(self.program, SM_80)
        self.executable = DeviceExecutable(self.program, self.codes, parameters, device.driver)
        self.give, self.run, self.outputs = self.executable.give, self.executable.launch, self.executable.outputs
        self.close = self.executable.close

    def calls(self) -> Counter[int]:
        """Of each kernel in a run."""
        nodes = planned(self.program, self.codes)
        assert all(isinstance(node, Straight) for node in nodes), "the benchmark's programs decide nothing on the way"
        found = Counter(each.kernel for each in launches(nodes))
        return Counter({kernel: count // len(self.codes[kernel].launches) for kernel, count in found.items()})

    def seconds(self, inputs: Sequence[Array]) -> Mapping[str, float]:
        """Of all calls of each kernel in one run, by digest; each launch is waited for."""
        return self.executable.kernel_seconds(inputs)
