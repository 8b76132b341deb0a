"""Starts an executor's worker, keeps its time and memory, and takes what it says; nothing it does can end the audit."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import TensorProto

from repro.artifact.cache import Cache
from repro.audit.capture import capture_of, executor_json, key, load_arrays, store_arrays, value_of, with_arrays
from repro.audit.golden import FAMILY
from repro.audit.model import Audited
from repro.audit.peers import PEERS, peer
from repro.audit.records import Capture, Executor, Outcome
from repro.audit.worker import ARRAYS, CAPTURE
from repro.errors import InternalError, ReproError

Progress = Callable[[str, int, int], None]

_START = "import json,sys; sys.path[:]=json.loads(sys.argv[1]); from repro.audit.worker import main; main(sys.argv[2])"
_MODEL, _VALUES, _JOB, _ERRORS = "model.onnx", "golden.safetensors", "job.json", "stderr"
_LOOK_EVERY = 0.05
"""Seconds between two looks at a worker's memory."""
_TAIL = 1 << 16
"""Bytes of what a worker said on stderr that are looked at."""
_NO_MEMORY = ("bad_alloc", "cannot allocate memory", "out of memory", "failed to allocate", "memory allocation")


@dataclass(frozen=True)
class Limits:
    """What one executor may take. Memory is the worker's own, libraries' and mapped files aside."""

    seconds: float = 120.0
    memory_bytes: int | None = 8 << 30


def choose(against: Sequence[str] | None, table: Mapping[str, str] = PEERS) -> tuple[Executor, ...]:
    """The executors by family or exact name; None is each family's own choice. repro's targets are always among them.

    Raises ReproError for a name that nothing has, naming what there is.
    """
    usual = {family: peer(family, table).variants() for family in table}
    if against is None:
        return tuple(executor for family in usual for executor in usual[family])
    named = {each.name: each for family in table for each in (*usual[family], *peer(family, table).named())}
    chosen: dict[str, Executor] = {executor.name: executor for executor in usual.get(FAMILY, ())}
    for word in against:
        if word in usual:
            chosen.update({executor.name: executor for executor in usual[word]})
        elif word in named:
            chosen[word] = named[word]
        elif (family := word.partition("[")[0]) in PEERS and family not in table:
            raise ReproError(f"'{family}' trains no models", found=word, expected=", ".join(table))
        else:
            near = difflib.get_close_matches(word, [*usual, *named], 3, 0.5)
            raise ReproError(
                f"unknown executor '{word}'",
                found=word,
                expected=", ".join((*usual, *(name for name in named if name not in usual))),
                next=f"did you mean {' or '.join(near)}?" if near else None,
            )
    return tuple(chosen.values())


def run_all(
    audited: Audited,
    golden: Capture,
    executors: Sequence[Executor],
    limits: Limits,
    keep_arrays: bool,
    progress: Progress,
    cache: Cache | None = None,
    peers: Mapping[str, str] = PEERS,
) -> tuple[Capture, ...]:
    """A capture of each executor, run one after another in processes of their own.

    `golden` has its arrays. Whatever an executor does, it has a row: outcome and reason. Raises ReproError only where
    the workers' folder cannot be written.
    """
    made: list[Capture] = []
    with _workplace(audited, golden) as folder:
        found = cache or Cache(folder / "cache")
        for number, executor in enumerate(executors):
            progress("executors", number, len(executors))
            place = folder / str(number)
            place.mkdir()
            job = _job(audited, golden, executor, limits, keep_arrays, found, peers)
            (place / _JOB).write_bytes(json.dumps(job).encode())
            made.append(_run(executor, place, folder, limits, golden if keep_arrays else None))
            shutil.rmtree(place, ignore_errors=True)
        progress("executors", len(executors), len(executors))
    return tuple(made)


@contextlib.contextmanager
def _workplace(audited: Audited, golden: Capture) -> Generator[Path]:
    """A folder with what every worker reads: the model, its external data, inputs and golden values."""
    with tempfile.TemporaryDirectory(prefix="repro-audit-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            (folder / _MODEL).write_bytes(audited.proto.SerializeToString(deterministic=True))
            _place_external(audited, folder)
        except OSError as error:
            raise ReproError("the audit's workplace cannot be written", found=f"{folder}: {error.strerror}") from error
        arrays = {key(value_of(array)): array for array in audited.inputs.values()}
        arrays |= {key(value): golden.fed_arrays[name] for name, value in golden.fed.items()}
        store_arrays(folder / _VALUES, arrays)
        yield folder


def _place_external(audited: Audited, folder: Path) -> None:
    external = [item for item in audited.proto.graph.initializer if item.data_location == TensorProto.EXTERNAL]
    locations = {entry.value for item in external for entry in item.external_data if entry.key == "location"}
    for location in sorted(locations):
        if audited.folder is None:
            raise InternalError(f"external data {location} of a model without a folder")
        (folder / location).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(audited.folder / location, folder / location)


def _job(
    audited: Audited,
    golden: Capture,
    executor: Executor,
    limits: Limits,
    keep: bool,
    cache: Cache,
    peers: Mapping[str, str],
) -> dict[str, object]:
    return {
        "model": f"../{_MODEL}",
        "arrays": f"../{_VALUES}",
        "inputs": {name: key(value_of(array)) for name, array in audited.inputs.items()},
        "golden": {name: key(value) for name, value in golden.fed.items()},
        "executor": executor_json(executor),
        "peers": dict(peers),
        "keep": keep,
        "memory": limits.memory_bytes,
        "cache": str(cache.folder.resolve()),
    }


# ── one worker ──────────────────────────────────────────────────────────────────────────────────────


def _run(executor: Executor, place: Path, folder: Path, limits: Limits, golden: Capture | None) -> Capture:
    variables = [f"{name}={value}" for name, value in executor.environment]
    python = [sys.executable, "-c", _START, json.dumps(sys.path), str(place / _JOB)]
    command = [*(["env", *variables] if variables else []), *executor.emulator, *python]
    if executor.emulator and shutil.which(executor.emulator[0]) is None:
        return Capture(executor, Outcome.MISSING, f"{executor.emulator[0]} is not installed")
    with (place / _ERRORS).open("wb") as errors:
        try:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )
        except OSError as error:
            return Capture(executor, Outcome.MISSING, f"cannot be started: {command[0]}: {error.strerror}")
        try:
            stopped = _wait(process, limits)
        finally:
            _kill(process)
    return _taken(executor, place, process.returncode, stopped, golden)


def _wait(process: subprocess.Popen[bytes], limits: Limits) -> tuple[Outcome, str] | None:
    """Wait for the end; what was exceeded, if it has to be stopped before."""
    deadline = time.monotonic() + limits.seconds
    while True:
        try:
            process.wait(_LOOK_EVERY)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                return Outcome.TIMEOUT, f"more than {limits.seconds:g} s"
            if limits.memory_bytes is not None and _resident(process.pid) > limits.memory_bytes:
                return Outcome.MEMORY, f"more than {limits.memory_bytes >> 20} MiB"
        else:
            return None


def _resident(pid: int) -> int:
    """Bytes of memory that a process has; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the worker and everything that it started."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()
        process.wait()


def _taken(
    executor: Executor, place: Path, code: int, stopped: tuple[Outcome, str] | None, golden: Capture | None
) -> Capture:
    """What the worker wrote; where it ended early, how it did."""
    try:
        capture = capture_of(json.loads((place / CAPTURE).read_bytes()))
    except (OSError, ValueError, KeyError):
        capture = Capture(executor, Outcome.CRASHED, "while it started")
    if stopped is not None:
        return replace(capture, outcome=stopped[0], reason=f"{stopped[1]} {capture.reason}".strip())
    if code != 0 or capture.outcome is Outcome.CRASHED:
        return _crashed(capture, code, _tail(place / _ERRORS))
    if golden is None or not capture.ran:
        return capture
    stored = {key(value): golden.fed_arrays[name] for name, value in golden.fed.items()}
    return with_arrays(capture, {**stored, **load_arrays(place / ARRAYS)})


def _tail(path: Path) -> bytes:
    """The end of a file, however long it is."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return file.read(_TAIL)


def _crashed(capture: Capture, code: int, output: bytes) -> Capture:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1][:300] if lines else "nothing on stderr"
    if any(word in line.lower() for line in lines[-5:] for word in _NO_MEMORY):
        return replace(capture, outcome=Outcome.MEMORY, reason=f"{capture.reason}: {last}")
    how = signal.Signals(-code).name if code < 0 and -code in [*signal.Signals] else f"exit status {code}"
    return replace(capture, outcome=Outcome.CRASHED, reason=f"{how} {capture.reason}: {last}")
