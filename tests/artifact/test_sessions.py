"""Sessions as programs use them: shared by threads, forgotten, forked, closed; code loaded where memory is full."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import repro
from repro.artifact.loaded import LoadedArtifact
from repro.errors import ReproError
from repro.ir.types import Array
from repro.targets import cpu
from repro.targets.cpu import target
from repro.targets.llvm import toolchain
from repro.targets.llvm.context import SCRATCH_SYMBOL, SYMBOL

TOP = Path(__file__).resolve().parents[2]
MODEL = TOP / "golden" / "digits_mlp" / "forward.onnx"
BATCH = 64
"""So much work that a run on one thread is not the caller's own."""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> LoadedArtifact:
    return repro.build(MODEL, tmp_path_factory.mktemp("sessions") / "out", bind={"N": BATCH})


def images(seed: int) -> dict[str, Array]:
    return {"input": np.random.default_rng(seed).standard_normal((BATCH, 64)).astype(np.float32)}


SHARED = """
import sys, threading, numpy as np, repro
def images(seed):
    return {"input": np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)}
with repro.load(sys.argv[1]).session(threads=int(sys.argv[2])) as session:
    wanted = [session.run(images(seed))["logits"].tobytes() for seed in range(4)]
    right = []
    def serve(seed):
        for _ in range(200):
            right.append(session.run(images(seed))["logits"].tobytes() == wanted[seed])
    callers = [threading.Thread(target=serve, args=(seed,)) for seed in range(4)]
    [each.start() for each in callers]
    [each.join() for each in callers]
print(len(right), all(right))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_may_share_a_session(artifact: LoadedArtifact, threads: int) -> None:
    """In a process of its own: runs that took each other's buffers ended it."""
    words = [sys.executable, "-c", SHARED, str(artifact.folder), str(threads)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, cwd=TOP, check=False)
    assert (done.returncode, done.stdout) == (0, "800 True\n"), done.stderr


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_closed_session_says_so(artifact: LoadedArtifact, target: str, threads: int) -> None:
    session = artifact.session("infer", target, threads)
    session.run(images(0))
    session.close()
    session.close()
    for use in (lambda: session.run(images(0)), lambda: session.state, session.profile):
        with pytest.raises(ReproError, match="closed"):
            use()


def test_a_forgotten_session_ends_its_threads(artifact: LoadedArtifact) -> None:
    before = threading.active_count()
    for _ in range(5):
        artifact.session(threads=3).run(images(0))
    gc.collect()
    until = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_is_told_that_the_session_is_not_its_own(artifact: LoadedArtifact) -> None:
    """It would wait for threads that it does not have."""
    with artifact.session(threads=2) as session:
        session.run(images(0))
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                session.run(images(0))
            except ReproError:
                os._exit(7)
            os._exit(8)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_state_that_does_not_fit_changes_nothing(artifact: LoadedArtifact) -> None:
    with artifact.session(threads=1) as session:
        before = session.state
        first, second = list(before)[:2]
        for wrong in ({second: np.zeros(3, np.float32)}, {"nothing": np.zeros(3, np.float32)}):
            with pytest.raises(ReproError):
                session.state = {first: np.zeros_like(before[first])} | wrong
            assert session.state[first].tobytes() == before[first].tobytes()


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_a_number_of_threads_that_is_none(artifact: LoadedArtifact, threads: int) -> None:
    with pytest.raises(ReproError, match="threads"):
        artifact.session(threads=threads)


def test_bindings_may_be_numpys_integers(tmp_path: Path) -> None:
    made = repro.build(MODEL, tmp_path / "out", bind={"N": 2})
    again = repro.build(MODEL, tmp_path / "out", bind={"N": np.int64(2)})  # pyright: ignore[reportArgumentType]
    assert (again.id, again.written) == (made.id, False)


@pytest.mark.parametrize("size", ["2", 2.0, None])
def test_a_binding_that_is_no_size(size: object, tmp_path: Path) -> None:
    with pytest.raises(ReproError, match="a binding is a size"):
        repro.build(MODEL, tmp_path / "out", bind={"N": size})  # pyright: ignore[reportArgumentType]


CROWDED = """
import mmap, sys, tempfile, numpy as np, repro
artifact = repro.load(sys.argv[1])
artifact.session(threads=1).close()
with tempfile.TemporaryFile() as file:
    file.truncate(3 << 30)
    mapped = lambda size: mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
    place = lambda memory: np.frombuffer(memory, np.uint8).ctypes.data
    model, gaps, size = mapped(3 << 30), [], 1 << 30
    while size >= mmap.PAGESIZE:  # whatever is free above the model
        gaps.append(mapped(size))
        if place(gaps[-1]) < place(model):
            gaps.pop().close()
            size //= 2
    next(gap for gap in gaps if len(gap) == 2 * mmap.PAGESIZE).close()
    with artifact.session(threads=1) as session:
        session.run({"input": np.zeros((64, 64), np.float32)})
print("good")
"""


def test_code_that_does_not_say_what_memory_it_needs_is_refused(artifact: LoadedArtifact) -> None:
    """How much it needs depends on how it was emitted."""
    machine = cpu.best_machine()
    assert machine is not None
    compiled = artifact.compiled("infer", machine.name)
    other = replace(compiled, program_object=toolchain.object_code(f"define i32 @{SYMBOL}() {{ ret i32 0 }}", machine))
    with pytest.raises(ReproError, match="cannot be loaded") as raised:
        target.load(other, (), 1)
    assert raised.value.found is not None and SCRATCH_SYMBOL in raised.value.found
    assert raised.value.next is not None and "repro build" in raised.value.next


@pytest.mark.skipif(sys.platform != "linux", reason="places memory as Linux does")
def test_code_is_loaded_where_a_large_model_lies_between_what_is_free(artifact: LoadedArtifact) -> None:
    """A hole of two pages above a mapped model, everything else below it: no object may lie on both sides."""
    words = [sys.executable, "-c", CROWDED, str(artifact.folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, cwd=TOP, check=False)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr[-1000:]
