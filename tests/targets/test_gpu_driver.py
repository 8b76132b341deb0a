"""The device's driver where something breaks off, is lost, or is asked for by several threads."""

from __future__ import annotations

import threading
import time
from functools import cache

import pytest

from repro.errors import ReproError
from repro.targets.gpu.driver import lost
from repro.targets.gpu.runtime import DeviceExecutable
from tests.targets.fake_cuda import FakeCuda
from tests.targets.test_gpu_runtime import entry, opened_fake


def test_a_capture_that_breaks_off_leaves_no_graph() -> None:
    program, kernels, inputs, parameters = entry("digits_mlp", "infer")
    library, driver = opened_fake()
    device = DeviceExecutable(program, kernels, parameters, driver)
    wanted = device.run(inputs)
    library.failing["cuLaunchKernel"] = 1
    with pytest.raises(ReproError, match="cannot be launched"):
        device.run(inputs)
    assert not library.graphs and library.captured is None
    library.failing.clear()
    assert [a.tobytes() for a in device.run(inputs)] == [a.tobytes() for a in wanted]


@pytest.mark.parametrize(
    "refused", ["cuGraphExecDestroy", "cuEventDestroy_v2", "cuModuleUnload", "cuStreamSynchronize"]
)
def test_what_is_not_taken_back_keeps_nothing_else(refused: str) -> None:
    program, kernels, inputs, parameters = entry("digits_mlp", "infer")
    library, driver = opened_fake()
    device = DeviceExecutable(program, kernels, parameters, driver)
    for _ in range(2):
        device.run(inputs)
    library.failing[refused] = 1
    device.close()
    assert not library.allocations and library.contexts == 0
    kept = [bool(each) for each in (library.graphs, library.events, library.modules)]
    assert sum(kept) == (refused != "cuStreamSynchronize")


def test_threads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what one launches would be part of the graph that another captures on the stream."""
    program, kernels, inputs, parameters = entry("digits_mlp", "infer")
    begun = FakeCuda._cuStreamBeginCapture_v2

    def slowly(self: FakeCuda, stream: object, mode: int) -> None:
        begun(self, stream, mode)
        time.sleep(0.03)

    monkeypatch.setattr(FakeCuda, "_cuStreamBeginCapture_v2", slowly)
    library, driver = opened_fake(executes=False)
    found: list[BaseException | None] = []

    def runs() -> None:
        try:
            device = DeviceExecutable(program, kernels, parameters, driver)
            for _ in range(4):
                device.run(inputs)
            device.close()
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=runs) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not found, found
    assert library.count("cuGraphLaunch") == 12 and not library.allocations and library.contexts == 0


def test_a_lost_device_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    library, driver = opened_fake()
    default = cache(lambda: driver)
    monkeypatch.setattr("repro.targets.gpu.driver._default", default)
    assert lost() is None, "nothing has asked for it"
    default()
    assert lost() is None
    library.sticky = 700
    assert lost() == "cuStreamSynchronize says CUDA_ERROR_ILLEGAL_ADDRESS"
