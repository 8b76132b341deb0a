"""repro's own bits of every value: the model opened, compiled for this host's best CPU, run once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from onnx import ModelProto

from passes import pipeline
from passes.pipeline import Lowered
from repro.artifact import entries, sessions
from repro.artifact.cache import Cache
from repro.artifact.compiling import compile_programs
from repro.artifact.config import Entry
from repro.artifact.config import Value as Signature
from repro.audit.capture import value_of
from repro.audit.model import Audited, opened, qdq_of_prepared
from repro.audit.records import Capture, Executor, Outcome
from repro.errors import InternalError
from repro.frontend import EntryGraph, import_model, load_model
from repro.ir.types import Array
from repro.ir.work import program_operations
from repro.numerics.contract import CONTRACT_VERSION
from repro.targets import registry
from repro.targets.llvm.toolchain import versions
from repro.targets.protocol import REFERENCE, Executable
from repro.version import VERSION

Progress = Callable[[str, int, int], None]

FAMILY = "repro"
THREADS = (1, 2)


class TooMuchWorkError(Exception):
    """More scalar operations than the reference is asked for."""


def golden(audited: Audited, cache: Cache | None, progress: Progress) -> Capture:
    """A capture with the array of every tensor that a node makes. What is served has the bits of what is shown.

    `fed` are the values themselves: a node's result from golden operands is the golden result. Raises ReproError for
    a model that cannot be compiled.
    """
    executor = best_executor()
    stages = (("golden, served", audited.proto), ("golden, every value", opened(audited.proto, list(audited.types))))
    runs: list[dict[str, Array]] = []
    for done, (_, model) in enumerate(stages):
        progress("golden values", done, len(stages))
        runs.append(execute(model, audited.folder, audited.inputs, executor, cache, progress))
    progress("golden values", len(stages), len(stages))
    served = {name: value_of(array) for name, array in runs[0].items()}
    shown = {name: value_of(array) for name, array in runs[1].items()}
    different = [name for name, value in served.items() if shown[name] != value]
    if different:
        raise InternalError(f"showing every value changed the bits of {', '.join(different)}")
    values = {name: value for name, value in shown.items() if name in audited.types}
    arrays = {**runs[1], **runs[0]}
    notes = (f"not compared, as they are no tensors: {', '.join(audited.hidden)}",) if audited.hidden else ()
    return Capture(
        executor, Outcome.RAN, environment={"versions": own_versions()}, served=served, values=values, fed=values,
        notes=notes, arrays=arrays, fed_arrays={name: arrays[name] for name in values},
    )  # fmt: skip


def own_executors() -> tuple[Executor, ...]:
    """repro on every CPU target that this host runs, on 1 and 2 threads, and the reference: all must agree."""
    names = sorted(runner.name for runner in registry.family(registry.CPU).runners if runner.obstacle() is None)
    found = [_executor(name, threads) for name in names for threads in THREADS]
    return (*found, Executor(FAMILY, (("target", REFERENCE),)))


def own_versions() -> dict[str, str]:
    """What repro's bits and code depend on."""
    return {"repro": VERSION, "contract": str(CONTRACT_VERSION), **versions()}


def best_executor() -> Executor:
    """This host's best target on one thread: where golden values are computed."""
    best = registry.best(registry.CPU)
    return Executor(FAMILY, (("target", REFERENCE),)) if best is None else _executor(best.name, 1)


def _executor(target: str, threads: int) -> Executor:
    return Executor(FAMILY, (("target", target), ("threads", str(threads))))


# ── running a model on a target ─────────────────────────────────────────────────────────────────────


def execute(
    model: ModelProto,
    folder: Path | None,
    inputs: Mapping[str, Array],
    executor: Executor,
    cache: Cache | None,
    progress: Progress = lambda *_: None,
    limit: int | None = None,
) -> dict[str, Array]:
    """The outputs of a prepared model on one of repro's targets; `limit` is of the reference's operations.

    Raises ReproError, and TooMuchWorkError above the limit.
    """
    imported = import_model(load_model(model, folder), qdq=qdq_of_prepared(model))
    with session_of(imported.infer, executor, cache, progress, limit) as session:
        return session.run(inputs)


def session_of(
    source: EntryGraph,
    executor: Executor,
    cache: Cache | None,
    progress: Progress = lambda *_: None,
    limit: int | None = None,
) -> sessions.Session:
    """An entry on one of repro's targets, ready to run; `limit` is of the reference's operations.

    Raises ReproError, and TooMuchWorkError above the limit.
    """
    lowered = pipeline.run(source.graph, source.locations, source.updates)
    target, threads = executor.option("target"), int(executor.option("threads", "1"))
    if target == REFERENCE and limit is not None and program_operations(lowered.program) > limit:
        raise TooMuchWorkError(f"{program_operations(lowered.program)} operations; the reference runs up to {limit}")
    slots = [sessions.Parameter(slot.name, slot.type) for slot in source.parameters]
    return sessions.Session(_entry(source, lowered), _open(source, lowered, target, threads, cache, progress), slots)


def _open(
    source: EntryGraph, lowered: Lowered, target: str, threads: int, cache: Cache | None, progress: Progress
) -> Executable:
    if target == REFERENCE:
        return entries.reference(source, lowered)
    runner = registry.runner(target)
    compiled = compile_programs([(runner.code, lowered.program)], cache, progress)[0]
    return runner.open(compiled, [slot.initial.reshape(-1) for slot in source.parameters], threads)


def _entry(source: EntryGraph, lowered: Lowered) -> Entry:
    """The signature that a session needs."""
    return Entry(
        name=source.name,
        graph="sha256:" + source.graph.digest.hex(),
        inputs=tuple(Signature(port.name, str(port.type)) for port in source.inputs),
        outputs=tuple(Signature(port.name, str(port.type)) for port in source.outputs),
        weights=(),
        index_checks=lowered.checked,
    )
