"""Records of runs on real devices: what ran, which bits came out, how long it took, and how to do it again.

A record is of one device, driver and toolchain; each artifact that is verified there adds its runs. RFC 8785 bytes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from repro.artifact import files, schema, sessions, tensors
from repro.artifact.canonical import Json, decode, encode
from repro.artifact.checks import Report, Status
from repro.artifact.config import GoldenRun, to_json
from repro.artifact.loaded import LoadedArtifact
from repro.errors import EXIT_GOOD, EXIT_INCOMPLETE, ReproError
from repro.ir.types import Array, to_storage
from repro.numerics.contract import CONTRACT_VERSION
from repro.targets import registry
from repro.targets.protocol import REFERENCE, Executable, Runner

FORMAT = "repro-device/1"
ROUNDS = 7


@runtime_checkable
class Profiled(Protocol):
    """An executable that can time its kernels."""

    def kernel_seconds(self, inputs: Sequence[Array]) -> Mapping[str, float]:
        """Seconds of all calls of each kernel, by digest, in one run."""
        ...


def device_of(targets: Sequence[str] | None) -> Runner:
    """The one target named that is a device. Raises ReproError unless there is exactly one, and it runs here."""
    named = [registry.runner(name) for name in targets or () if name != REFERENCE]
    found = [runner for runner in named if runner.device is not None]
    if len(found) != 1:
        known = ", ".join(sorted(runner.name for runner in registry.runners() if runner.device is not None))
        raise ReproError(
            "a record is of one device, and no other target may write one",
            found=", ".join(targets or ()) or "no targets named",
            expected=f"--targets with one of: {known}",
        )
    reason = found[0].obstacle()
    if reason is not None:
        what = f"there is no record to write: target {found[0].name} does not run here"
        raise ReproError(what, found=reason, exit_code=EXIT_INCOMPLETE)
    return found[0]


def write(artifact: LoadedArtifact, report: Report, runner: Runner, path: Path) -> None:
    """Run the artifact's entries once more on the device, and add them to the record at `path`.

    Raises ReproError where the verification was not whole, the bits are not golden, or the record is another device's.
    """
    rebuilt = any(check.name == "rebuild" and check.status is Status.GOOD for check in report.checks)
    if report.exit_code != EXIT_GOOD or not rebuilt:
        raise ReproError("no record is written: the verification did not pass", found=report.summary)
    head = _head(artifact, runner)
    before = _read(path, head) if path.exists() else {"runs": [], "kernels": {}}
    runs: list[Json] = [run for run in before["runs"] if run["artifact"] != artifact.id]
    kernels: dict[str, Json] = dict(before["kernels"])
    for name in artifact.entries:
        run, times = _measured(artifact, name, runner)
        runs.append(run)
        kernels |= times
    runs.sort(key=lambda run: (run["artifact"], run["entry"]))
    document = {**head, "runs": runs, "kernels": dict(sorted(kernels.items()))}
    schema.check(document, "device", "the record")
    tensors.write_output(path, encode(document))


def _head(artifact: LoadedArtifact, runner: Runner) -> dict[str, Json]:
    assert runner.device is not None
    return {
        "format": FORMAT,
        "contract": CONTRACT_VERSION,
        "target": runner.name,
        "device": dict(runner.device()),
        "versions": to_json(artifact.config.versions),
        "reproduce": [
            f"pip install repro=={artifact.config.versions.repro}",
            "repro build MODEL.onnx --targets cpu,gpu (options: `build` of each run)",
            f"repro verify ARTIFACT.json --targets {runner.name} --record FILE",
        ],
    }


def _read(path: Path, head: Mapping[str, Json]) -> dict[str, Any]:
    """The record at a path. Raises ReproError for anything else, and for one of another device or toolchain."""
    document = decode(files.read_file(path, f"'{path}'"), f"'{path}'")
    schema.check(document, "device", f"'{path}'")
    known = cast("dict[str, Any]", document)
    for key in ("format", "contract", "target", "device", "versions"):
        if known[key] != head[key]:
            raise ReproError(
                f"'{path}' is a record of another {key}", found=str(known[key]), expected=str(head[key]),
                next="name another file",
            )  # fmt: skip
    return known


def _measured(artifact: LoadedArtifact, name: str, runner: Runner) -> tuple[dict[str, Json], dict[str, Json]]:
    """A run of an entry from its initial state, whose digests must be golden; its time; its kernels' times."""
    golden = artifact.config.golden_run(name)
    if golden is None:
        raise ReproError(f"no record is written: entry '{name}' has no golden run")
    entry, compiled = artifact.entries[name], artifact.compiled(name, runner.name)
    state = artifact.initial_state(name)
    parameters = [to_storage(array, tensors.type_of(array).dtype).reshape(-1) for array in state.values()]
    executable = runner.open(compiled, parameters, 1)
    slots = [sessions.Parameter(key, tensors.type_of(array)) for key, array in state.items()]
    with sessions.Session(entry, executable, slots) as session:
        inputs = artifact.golden_inputs(golden)
        outputs = session.run(inputs)
        digests = {each.name: tensors.digest(outputs[each.name]) for each in golden.outputs}
        changed = {each.name: tensors.digest(session.state[each.name]) for each in golden.state}
        _compare(golden, digests | changed)
        seconds = [_seconds(session, inputs) for _ in range(ROUNDS)]
        times = _kernels(executable, sessions.match(inputs, entry.inputs))
    run: dict[str, Json] = {
        "artifact": artifact.id,
        "source": artifact.config.source.digest,
        "build": to_json(artifact.config.build),
        "entry": name,
        "graph": entry.graph,
        "outputs": digests,
        "state": changed,
        "nanoseconds": round(statistics.median(seconds) * 1e9),
        "rounds": ROUNDS,
    }
    return run, {f"sha256:{digest}": round(t * 1e9) for digest, t in times.items()}


def _compare(golden: GoldenRun, found: Mapping[str, str]) -> None:
    for each in (*golden.outputs, *golden.state):
        if found[each.name] != each.digest:
            raise ReproError("no record is written: other bits", found=found[each.name], expected=each.digest)


def _seconds(session: sessions.Session, inputs: Mapping[str, Array]) -> float:
    start = time.perf_counter()
    session.run(inputs)
    return time.perf_counter() - start


def _kernels(executable: Executable, inputs: Sequence[Array]) -> Mapping[str, float]:
    return executable.kernel_seconds(inputs) if isinstance(executable, Profiled) else {}
