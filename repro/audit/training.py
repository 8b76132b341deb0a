"""Drift over training steps: a run of N steps audited as one model.

`prepare` makes the run (see `unrolled`), `golden` runs it with repro's own entries on this host's best target, and
`PEERS` are the runtimes that can run it; with these three, `running.run_all`, records, comparison and reports are those
of any model. *Fed* means that each step starts from golden's state of the step before, and each update gets golden's
gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repro.artifact import golden as drawing
from repro.artifact import reading
from repro.artifact.cache import Cache
from repro.artifact.config import Value as Signature
from repro.artifact.loaded import request_of
from repro.audit import model, unrolled
from repro.audit.capture import value_of
from repro.audit.golden import best_executor, own_versions
from repro.audit.model import Audited, Source
from repro.audit.peers.own_training import Progress, run_steps
from repro.audit.records import Capture, Outcome
from repro.errors import ReproError
from repro.frontend import LoadedModel, Port, import_model, load_source
from repro.frontend.training_info import bindings_of_infer
from repro.ir.graph import Graph
from repro.ir.types import Array
from repro.train_step import TrainOptions, read_for_training
from repro.training.data import Batches, fit

PEERS: Mapping[str, str] = {
    "repro": "repro.audit.peers.own_training:OwnTraining",
    "torch": "repro.audit.peers.training:TorchTraining",
    "onnxruntime": "repro.audit.peers.training:OnnxRuntimeTraining",
    "onnx-reference": "repro.audit.peers.training:OnnxReferenceTraining",
}
"""By family, as the table of `repro.audit.peers`: who can run training steps, and who says why it cannot."""

MAX_BYTES = 1 << 30
"""Of a model that is audited in training: it travels as one file, whose format ends at 2 GiB."""


def prepare(
    source: Source,
    options: TrainOptions | None,
    steps: int,
    bind: Mapping[str, int] | None = None,
    data: Mapping[str, Array] | None = None,
    golden_seed: int = 0,
    seed: int = 0,
) -> Audited:
    """A training run of a forward model and its options, of a model with a training step of its own (training_info,
    a folder of ONNX Runtime's artifacts), or of an artifact that was built from either.

    Batches are taken from `data` in the order that `repro train` takes them with `seed`, or drawn from the golden seed.
    Raises ReproError.
    """
    if steps < 1:
        raise ReproError("a training run needs steps", found=str(steps), expected="1 or more")
    loaded, options, bound = _source(source, options, dict(bind or {}))
    if options is None:
        return _of_own_step(loaded, bound, steps, data, golden_seed, seed)
    inner = bindings_of_infer(loaded.proto, bound)
    imported = read_for_training(lambda changing: import_model(loaded, inner, changing=changing), options)
    flat = model.prepare(loaded, bound, changing=imported.notes.changing)
    if flat.folder is not None or flat.proto.ByteSize() > MAX_BYTES:
        raise ReproError("the model is too large to be audited in training", expected=f"at most {MAX_BYTES} bytes")
    whole, proto, step = unrolled.unroll(flat.proto, options, steps)
    ignored = options.loss.ignored_label
    inputs = _batches(step.inputs, step.graph, steps, data, golden_seed, seed, ignored)
    return _audited(proto, whole, loaded.name, inputs, bound)


def _source(
    source: Source, options: TrainOptions | None, bind: dict[str, int]
) -> tuple[LoadedModel, TrainOptions | None, dict[str, int]]:
    """The model, its options (None where it brings its own step) and its bindings."""
    path = Path(source) if isinstance(source, str | Path) else None
    if path is not None and (path.name == "artifact.json" or (path / "artifact.json").is_file()):
        if options is not None or bind:
            raise ReproError("an artifact has its own training options and bindings", found=str(path))
        request = request_of(reading.open_artifact(path))
        if request.set:
            raise ReproError("inputs that a build has set cannot be audited in training", found=", ".join(request.set))
        loaded, options, bind = request.model, request.training, dict(request.bind)
    else:
        loaded = source if isinstance(source, LoadedModel) else load_source(source)
    if options is None and not loaded.proto.training_info:
        raise ReproError("the model has no training step", found=loaded.name, next="say how it is trained with --loss")
    return loaded, options, bind


def _of_own_step(
    loaded: LoadedModel,
    bind: Mapping[str, int],
    steps: int,
    data: Mapping[str, Array] | None,
    golden_seed: int,
    seed: int,
) -> Audited:
    whole, proto, entry = unrolled.unroll_own(loaded.proto, bind, steps)
    inputs = _batches(entry.inputs, entry.graph, steps, data, golden_seed, seed, None)
    return _audited(proto, whole, loaded.name, inputs, bind)


def _batches(
    ports: tuple[Port, ...],
    graph: Graph,
    steps: int,
    data: Mapping[str, Array] | None,
    golden_seed: int,
    seed: int,
    ignored: int | None,
) -> dict[str, Array]:
    """Inputs of all steps by name. Those drawn for the first are the golden inputs of a build."""
    if data is not None:
        values = [Signature(port.name, str(port.type)) for port in ports]
        rows = Batches(fit(data, values, ignored), seed, "drop")
        return {unrolled.at(n + 1, name): each for n in range(steps) for name, each in rows.inputs(n).items()}
    limits = drawing.index_limits(graph)
    width = len(ports)
    types = [port.type for port in ports] * steps
    bounds = {place + width * n: bound for n in range(steps) for place, bound in limits.items()}
    names = [unrolled.at(n + 1, port.name) for n in range(steps) for port in ports]
    return dict(zip(names, drawing.draw(types, bounds, golden_seed), strict=True))


def _audited(
    proto: Any, whole: unrolled.Unrolled, name: str, inputs: dict[str, Array], bind: Mapping[str, int]
) -> Audited:
    types = {value: kind for value, kind in whole.types.items() if value not in whole.hidden}
    return Audited(proto, model.summarize(proto, name), inputs, dict(bind), types=types)


def golden(audited: Audited, cache: Cache | None, progress: Progress) -> Capture:
    """Every value of the run by repro's own entries, with its array. Raises ReproError."""
    executor = best_executor()
    progress("golden values", 0, 1)
    found = run_steps(audited.proto, audited.inputs, executor, cache, progress)
    progress("golden values", 1, 1)
    arrays = {name: found[name] for name in audited.types if name in found}
    values = {name: value_of(array) for name, array in arrays.items()}
    served = {item.name: values[item.name] for item in audited.proto.graph.output}
    return Capture(
        executor, Outcome.RAN, environment={"versions": own_versions()}, served=served, values=values, fed=values,
        arrays=arrays, fed_arrays=arrays,
    )  # fmt: skip
