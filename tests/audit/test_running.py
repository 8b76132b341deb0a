"""Workers as processes: whatever an executor does, the audit goes on and the row says what happened."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from repro.audit import model as auditing
from repro.audit import running
from repro.audit.golden import golden, own_executors
from repro.audit.model import Audited, prepare
from repro.audit.records import Capture, Executor, Outcome
from repro.audit.running import Limits, choose, run_all
from repro.errors import ReproError
from tests.audit.models import CHAIN, model
from tests.audit.troublesome import GRANDCHILD, PEERS

LIMITS = Limits(seconds=120, memory_bytes=1 << 30)
QUICK = {"plain": PEERS["plain"], "repro": "repro.audit.peers.own:Own"}


@cache
def prepared() -> tuple[Audited, Capture]:
    audited = prepare(model(CHAIN), bind={"N": 2})
    return audited, golden(audited, None, lambda *_: None)


def captures(*executors: Executor, limits: Limits = LIMITS, keep: bool = True) -> tuple[Capture, ...]:
    return run_all(*prepared(), executors, limits, keep, lambda *_: None, peers=PEERS)


@pytest.mark.parametrize(
    ("family", "outcome", "reason"),
    [
        ("missing", Outcome.MISSING, "nothing is installed"),
        ("refusing", Outcome.REFUSED, "no kernel for MatMul"),
        ("raising", Outcome.FAILED, "RuntimeError: went wrong"),
        ("aborting", Outcome.CRASHED, "SIGABRT while the model ran as it is: terminate called"),
        ("leaving", Outcome.CRASHED, "exit status 0 while the model ran as it is: nothing on stderr"),
        ("hungry", Outcome.MEMORY, "more than 1024 MiB"),
        ("swelling", Outcome.MEMORY, "more than 1024 MiB while the model ran as it is"),
    ],
)
def test_whatever_ends_a_run_is_a_row_with_its_reason(family: str, outcome: Outcome, reason: str) -> None:
    (capture,) = captures(Executor(family))
    assert (capture.outcome, capture.reason) == (outcome, reason)
    assert not capture.ran
    assert not capture.values


def test_a_run_out_of_time_ends_with_all_its_processes(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    hanging = Executor("hanging", environment=((GRANDCHILD, str(told)),))
    (capture,) = captures(hanging, limits=Limits(seconds=6))
    assert capture.outcome is Outcome.TIMEOUT
    assert capture.reason == "more than 6 s while it started"
    grandchild = int(told.read_text())
    deadline = time.monotonic() + 10
    while _runs(grandchild) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(grandchild)


def _runs(pid: int) -> bool:
    """Whether a process is there, and is not just waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_an_interrupt_ends_the_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[int] = []

    def interrupted(process: subprocess.Popen[bytes], limits: Limits) -> None:
        seen.append(process.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_wait", interrupted)
    monkeypatch.setattr(running.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        captures(Executor("plain"))
    assert len(seen) == 1
    assert not _runs(seen[0])
    assert not [*tmp_path.iterdir()]


def test_an_emulator_that_is_not_there_is_a_row() -> None:
    (capture,) = captures(Executor("plain", emulator=("no-such-emulator", "-cpu", "Haswell")))
    assert capture.outcome is Outcome.MISSING
    assert "no-such-emulator" in capture.reason


def test_rows_stand_in_order_and_arrays_are_there() -> None:
    told: list[tuple[str, int, int]] = []
    audited, best = prepared()
    executors = (Executor("off"), Executor("aborting"), Executor("plain"))
    found = run_all(audited, best, executors, LIMITS, True, lambda *step: told.append(step), peers=PEERS)
    assert [capture.executor for capture in found] == [*executors]
    assert [capture.outcome for capture in found] == [Outcome.RAN, Outcome.CRASHED, Outcome.RAN]
    assert told[0][1:] == (0, 3)
    assert told[-1][1:] == (3, 3)
    off, _, plain = found
    assert off.arrays.keys() == off.fed_arrays.keys() == set(audited.types) == plain.arrays.keys()
    assert off.arrays["h"].tobytes() != best.arrays["h"].tobytes()
    assert off.fed_arrays["y"] is best.fed_arrays["y"], "what is golden's is not held twice"
    assert all(not capture.arrays for capture in captures(Executor("off"), keep=False))


def test_variables_reach_the_process_and_folders_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(running.tempfile, "tempdir", str(tmp_path))
    (capture,) = captures(Executor("plain", environment=(("NPY_DISABLE_CPU_FEATURES", "AVX512F"),)))
    assert capture.ran, capture.reason
    assert capture.environment["variables"] == {"NPY_DISABLE_CPU_FEATURES": "AVX512F"}
    assert not [*tmp_path.iterdir()]


def test_a_model_with_external_data_runs_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = model(CHAIN)
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([0.1, 0.2, 0.3], np.float32), "b"))
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, location="sub.bin", size_threshold=0)
    monkeypatch.setattr(auditing, "INLINE_BYTES", 0)
    audited = prepare(tmp_path / "m.onnx", bind={"N": 2})
    best = golden(audited, None, lambda *_: None)
    names = ("onnxruntime", "onnx-reference")
    executors = [next(each for each in choose([name]) if each.family == name) for name in names]
    executors.append(own_executors()[-1])
    for capture in run_all(audited, best, executors, LIMITS, True, lambda *_: None):
        assert capture.ran, capture.reason
        assert len(capture.values) >= 3
        assert capture.values["biased"] == best.values["biased"] or capture.executor.family != "repro"


# ── choosing ────────────────────────────────────────────────────────────────────────────────────────


def test_executors_are_chosen_by_family_or_name() -> None:
    own = [executor.name for executor in own_executors()]
    assert [each.name for each in choose(None, QUICK)] == ["plain", "plain[threads=2]", *own]
    assert [each.name for each in choose([], QUICK)] == own
    assert [each.name for each in choose(["plain[mode=slow]"], QUICK)] == [*own, "plain[mode=slow]"]
    assert [each.name for each in choose(["plain", "repro"], QUICK)][-2:] == ["plain", "plain[threads=2]"]


def test_an_unknown_executor_is_refused_with_what_there_is() -> None:
    with pytest.raises(ReproError) as caught:
        choose(["plain[threads=3]"], QUICK)
    assert "plain[threads=2]" in str(caught.value.expected)
    assert "plain[threads=2]" in str(caught.value.next)
    assert caught.value.exit_code == 2


def test_every_peer_of_the_table_says_its_executors_without_its_runtime() -> None:
    """Names are unique, and choosing imports no runtime."""
    program = (
        "import sys; from repro.audit.running import choose; names = [each.name for each in choose(None)];"
        "assert len(names) == len(set(names)) > 5, names;"
        "assert not {'onnxruntime', 'torch', 'onnx.reference'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr[-500:]
