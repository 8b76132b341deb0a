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


def test_a_graph_that_cannot_be_made_leaves_nothing() -> None:
    program, kernels, inputs, parameters = entry("digits_mlp", "infer")
    library, driver = opened_fake()
    device = DeviceExecutable(program, kernels, parameters, driver)
    wanted = device.run(inputs)
    for call, good in (("cuGraphAddKernelNode_v2", 1), ("cuGraphInstantiateWithFlags", 0)):
        library.failing_after[call] = library.count(call) + good
        with pytest.raises(ReproError, match=f"the device fails(.|\n)*{call}"):
            device.run(inputs)
        assert not library.graphs and not library.nodes and not library.ready
        library.failing_after.clear()
    library.failing["cuGraphDestroy"] = 1  # changes nothing
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
    kept = [bool(each) for each in (library.ready, library.events, library.modules)]
    assert sum(kept) == (refused != "cuStreamSynchronize")


def test_threads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one would wait for what another launches, and name it as its own."""
    program, kernels, inputs, parameters = entry("digits_mlp", "infer")
    inside: set[int] = set()
    begun = FakeCuda._cuGraphLaunch

    def slowly(self: FakeCuda, graph: object, stream: object) -> int:
        inside.add(threading.get_ident())
        time.sleep(0.03)
        assert inside == {threading.get_ident()}
        inside.clear()
        return begun(self, graph, stream)

    monkeypatch.setattr(FakeCuda, "_cuGraphLaunch", slowly)
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


def test_a_stream_of_someone_elses_is_used_and_kept() -> None:
    library, driver = opened_fake()
    (own,) = library.streams
    driver.use(7)
    assert (driver.stream.value, library.streams) == (7, set()), f"{own} was given back"
    driver.close()
    assert library.count("cuStreamDestroy_v2") == 1 and library.retained == 0
