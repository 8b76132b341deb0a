"""The collector of cycles is as it was behind what pauses it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from passes import pipeline
from repro.collector import paused
from repro.ir.graph import Graph, Node, argument
from repro.ir.loops import Kernel
from repro.ir.program import Program
from repro.ir.types import F32, TensorType
from repro.ops import add, fill, reduce_axes


@pytest.mark.parametrize("running", [True, False])
def test_paused_inside_and_as_before_behind(running: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if running else gc.disable)()
        with paused():
            assert not gc.isenabled()
        assert gc.isenabled() is running
        with pytest.raises(KeyError), paused():
            raise KeyError
        assert gc.isenabled() is running
    finally:
        (gc.enable if before else gc.disable)()


def test_no_cycle_holds_what_is_large() -> None:
    """Graphs, programs and arrays go by counting references alone, so that a pause holds no memory longer."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with paused():
            for size in range(1, 20):
                x = argument(0, TensorType(F32, (3, 1, 64, size)))
                pipeline.run(
                    Graph((x.type,), (add(reduce_axes("add", x, (2,)), fill(0.5, TensorType(F32, (3, 1, size)))),))
                )
                del x
        gc.collect()
        found = {type(each) for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert found, "not even a function that calls itself: the test sees nothing"
    assert not found & {Node, Graph, Program, Kernel, np.ndarray, bytes}
