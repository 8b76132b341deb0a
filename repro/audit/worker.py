"""One executor, in a process of its own: `python -m repro.audit.worker JOB.json`.

The job's folder is the process's own (external data lies there) and takes what comes out: `capture.json`, written
after each stage, and `arrays.safetensors` with the arrays that are not golden's.

A model is run three ways. *Served*: as it is, twice, since some runtimes differ from run to run. *Opened*: what the
runtime makes of it, with every value that survives as an output. *Fed*: the same, each node reading golden values
instead of its predecessors' own.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from onnx import ModelProto, NodeProto

from repro.artifact.cache import Cache
from repro.artifact.canonical import Json, encode
from repro.audit.capture import capture_json, executor_of, key, load_arrays, store_arrays, value_at, value_of
from repro.audit.golden import FAMILY
from repro.audit.model import fed_inputs, opened, severed
from repro.audit.peers import PEERS, peer
from repro.audit.peers.own import Own
from repro.audit.peers.peer import Peer, PeerError
from repro.audit.records import Capture, Executor, Outcome, Value
from repro.audit.rewiring import reads
from repro.errors import ReproError
from repro.frontend.tensors import DTYPES, read_array
from repro.ir.types import Array, parse_type, to_face

CAPTURE, ARRAYS = "capture.json", "arrays.safetensors"
UNSTABLE = "differs from run to run"


@dataclass(frozen=True, eq=False)
class Job:
    """What a worker is told. `golden` are the values to feed, by name; their arrays lie by `key` in `arrays`."""

    model: ModelProto
    inputs: dict[str, Array]
    golden: dict[str, Value]
    arrays: Path
    executor: Executor
    peers: dict[str, str]
    keep: bool
    memory: int | None
    cache: Path | None


def read_job(path: Path) -> Job:
    """The job of a file that the parent wrote; its paths lead from its folder."""
    value = json.loads(path.read_bytes())
    folder = path.parent
    inputs = {name: value_at(text) for name, text in value["inputs"].items()}
    stored = load_arrays(folder / value["arrays"], {key(each) for each in inputs.values()})
    return Job(
        model=onnx.load(folder / value["model"], load_external_data=False),
        inputs={name: stored[key(each)] for name, each in inputs.items()},
        golden={name: value_at(text) for name, text in value["golden"].items()},
        arrays=folder / value["arrays"],
        executor=executor_of(value["executor"]),
        peers=value["peers"],
        keep=value["keep"],
        memory=value["memory"],
        cache=None if value["cache"] is None else Path(value["cache"]),
    )


@dataclass
class _Run:
    """A capture in the making."""

    job: Job
    peer: Peer
    folder: Path
    capture: Capture
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])

    def update(self, **parts: object) -> None:
        self.capture = replace(self.capture, **parts)
        (self.folder / CAPTURE).write_bytes(encode(capture_json(self.capture)))

    def note(self, text: str) -> None:
        if text not in self.capture.notes:
            self.update(notes=(*self.capture.notes, text))

    def ask(self, model: ModelProto, inputs: Mapping[str, Array], lowered: bool = False) -> dict[str, Array]:
        """The outputs that are tensors."""
        found = _flat(self.peer.run(model, inputs, self.job.executor, lowered))
        tensors = {name: array for name, array in found.items() if _is_tensor(array)}
        if len(tensors) < len(found):
            self.note(f"not compared, as they are no tensors: {', '.join(sorted(found.keys() - tensors.keys()))}")
        return tensors

    def keep(self, arrays: Mapping[str, Array]) -> dict[str, Value]:
        """Digests; arrays that are not golden's are kept."""
        values = {name: value_of(array) for name, array in arrays.items()}
        for name, value in values.items() if self.job.keep else ():
            if value != self.job.golden.get(name):
                self.arrays.setdefault(key(value), arrays[name])
        return values


def _flat(results: Mapping[str, object]) -> dict[str, Any]:
    """Results by name; a sequence's values as `name[0]`, `name[1]`…, as repro names them."""
    found: dict[str, Any] = {}
    for name, value in results.items():
        items = cast("list[object]", value) if isinstance(value, list) else None
        if items and all(_is_tensor(item) for item in items):
            found |= {f"{name}[{number}]": item for number, item in enumerate(items)}
        else:
            found[name] = value
    return found


def _is_tensor(value: object) -> bool:
    if not isinstance(value, np.ndarray | np.generic):
        return False
    try:
        value_of(np.asarray(value))
    except KeyError:
        return False
    return True


def work(job: Job, folder: Path) -> None:
    """Run all stages. Whatever ends it early is the capture's outcome."""
    made = peer(job.executor.family, {FAMILY: PEERS[FAMILY], **job.peers})
    if isinstance(made, Own) and job.cache is not None:
        made.cache = Cache(job.cache)
    run = _Run(job, made, folder, Capture(job.executor, Outcome.CRASHED))
    try:
        _stages(run)
    except PeerError as error:
        run.update(outcome=error.outcome, reason=error.reason)
    except MemoryError:
        run.update(outcome=Outcome.MEMORY, reason=_over(job))
    except ReproError as error:
        run.update(outcome=Outcome.FAILED, reason="; ".join(line.strip() for line in str(error).splitlines()))
    except Exception as error:  # a peer may raise anything: it is a row with its reason
        first = (str(error).strip() or "no message").splitlines()[0]
        run.update(outcome=Outcome.FAILED, reason=f"{type(error).__name__}: {first}")


def _over(job: Job) -> str:
    return "memory ran out" if job.memory is None else f"more than {job.memory >> 20} MiB"


def _stages(run: _Run) -> None:
    job = run.job
    run.update(reason="while it started")
    run.update(environment=_environment(run.peer, job.executor))
    run.update(reason="while the model ran as it is")
    served = run.ask(job.model, job.inputs)
    again = run.ask(job.model, job.inputs)
    values = run.keep(served)
    _note_unstable(run, values, {name: value_of(array) for name, array in again.items()})
    run.update(served=values, reason="while its values were shown")
    try:
        lowered = run.peer.lowered(job.model, job.executor)
        run.update(implementations=dict(run.peer.implementations(job.model)))
        shown = _opened(run, lowered, served)
    except PeerError as error:
        run.note(f"its values cannot be shown: {error.reason}")
        lowered, shown = job.model, {}
    if shown and job.executor.family != FAMILY:
        run.update(reason="while its nodes were fed golden values")
        _fed(run, lowered, shown)
    if job.keep:
        store_arrays(run.folder / ARRAYS, run.arrays)
    run.update(outcome=Outcome.RAN, reason="")


def _environment(runtime: Peer, executor: Executor) -> dict[str, Json]:
    return {
        "versions": dict(runtime.versions()),
        "variables": dict(executor.environment),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _note_unstable(run: _Run, first: Mapping[str, Value], second: Mapping[str, Value]) -> None:
    different = [name for name, value in first.items() if second.get(name) != value]
    if different:
        shown = ", ".join(different[:5]) + (f" and {len(different) - 5} more" if len(different) > 5 else "")
        run.note(f"{UNSTABLE}: {shown}")


# ── opened ──────────────────────────────────────────────────────────────────────────────────────────


def _opened(run: _Run, lowered: ModelProto, served: Mapping[str, Array]) -> dict[str, Array]:
    """Every value that survives in the lowered model; notes whether showing them changed the outputs."""
    made = {name for node in lowered.graph.node for name in node.output}
    surviving = [name for name in run.job.golden if name in made]
    model = opened(lowered, surviving)
    shown = run.ask(model, run.job.inputs, lowered=True)
    shown |= {name: array for name, array in _folded(run, lowered).items() if name not in shown}
    values = run.keep({name: array for name, array in shown.items() if name in run.job.golden})
    outputs = {name: value_of(shown[name]) for name in served if name in shown}
    faithful = outputs == dict(run.capture.served)
    if not faithful:
        again = run.ask(model, run.job.inputs, lowered=True)
        _note_unstable(run, values, {name: value_of(again[name]) for name in values if name in again})
    run.update(values=values, faithful=faithful)
    return shown


def _folded(run: _Run, lowered: ModelProto) -> dict[str, Array]:
    """Values that the runtime computed when it lowered the model: now initializers under their names."""
    own = {item.name for item in run.job.model.graph.initializer}
    found: dict[str, Array] = {}
    for item in lowered.graph.initializer:
        if item.name in run.job.golden and item.name not in own and item.data_type in DTYPES:
            array, dtype = read_array(item, Path())
            found[item.name] = to_face(array, dtype)
    return found


# ── fed ─────────────────────────────────────────────────────────────────────────────────────────────


def _fed(run: _Run, lowered: ModelProto, shown: Mapping[str, Array]) -> None:
    """The results of the lowered model's nodes on golden values.

    Only values that the runtime has in golden's type are fed. Those that depend on no input stay constants.
    """
    job = run.job
    types = {name: parse_type(job.golden[name].type) for name in shown if name in job.golden}
    fitting = {name: kind for name, kind in types.items() if str(kind) == value_of(shown[name]).type}
    stored = load_arrays(job.arrays, {key(job.golden[name]) for name in fitting})
    golden = {name: stored[key(job.golden[name])] for name in fitting}
    varying = _varying(lowered)
    model = severed(
        lowered,
        {name: kind for name, kind in fitting.items() if name in varying},
        {name: golden[name] for name in fitting if name not in varying},
    )
    try:
        found = run.ask(model, fed_inputs(model, golden, job.inputs), lowered=True)
    except PeerError as error:
        run.note(f"its nodes cannot be fed: {error.reason}")
        return
    run.update(fed=run.keep({name: array for name, array in found.items() if name in job.golden}))


def _varying(model: ModelProto) -> set[str]:
    """The values that depend on an input, or are random."""
    constant = {item.name for item in model.graph.initializer}
    found = {item.name for item in model.graph.input if item.name not in constant}
    for node in model.graph.node:
        if _is_random(node) or any(name in found for name in reads(node)):
            found.update(node.output)
    return found


def _is_random(node: NodeProto) -> bool:
    return node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial", "Dropout")


# ── the process ─────────────────────────────────────────────────────────────────────────────────────


def limit_memory(size: int | None) -> None:
    """Let this process have that much memory of its own, where the system can say so."""
    if size is None or sys.platform != "linux":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def main(path: str, report: Callable[[Job, Path], None] = work) -> None:
    """The process: reads the job, limits itself, runs."""
    job = read_job(Path(path))
    limit_memory(job.memory)
    report(job, Path(path).parent)


if __name__ == "__main__":
    main(sys.argv[1])
