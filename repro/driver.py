"""One straight-line function per command; the public Python API, with `driver_inspect`, `driver_training`,
`driver_audit` and `driver_tune`. The drivers and the command line alone read the environment."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import ModelProto

from repro.artifact import build as building
from repro.artifact import device_records, layout, reading, tensors
from repro.artifact import tuning as tunings
from repro.artifact import verify as verification
from repro.artifact.cache import Cache, Usage
from repro.artifact.checks import Report
from repro.artifact.files import resolved
from repro.artifact.loaded import LoadedArtifact
from repro.artifact.sessions import Session, as_arrays
from repro.errors import EXIT_GOOD, ReproError
from repro.frontend import load_source
from repro.frontend.integer_qdq import FLOAT, qdq_of
from repro.frontend.training_info import initialised
from repro.ir.types import Array
from repro.signatures import checked
from repro.train_step import TrainOptions, training_of
from repro.training import checkpoint as checkpoints
from repro.training.export import check_origin
from repro.version import VERSION

__all__ = [
    "LoadedArtifact", "Progress", "ReproError", "Session", "build", "cache", "default_cache", "describe", "load",
    "read_npz", "run", "verify", "version", "write_npz", "write_text",
]  # fmt: skip

Progress = Callable[[str, int, int], None]
"""Told (stage, done, total) as a long command goes on."""

read_npz = tensors.read_npz
write_npz = tensors.write_npz
describe = tensors.describe


def _silent(stage: str, done: int, total: int) -> None:
    """No progress is shown."""


def version() -> str:
    """The version of this package."""
    return VERSION


def write_text(path: Path, text: str) -> None:
    """Write a file that the user named."""
    tensors.write_output(path, text.encode())


# ── build, load ─────────────────────────────────────────────────────────────────────────────────────


@checked
def build(
    model: str | Path | ModelProto,
    out: str | Path | None = None,
    *,
    bind: Mapping[str, int] | None = None,
    set: Mapping[str, Any] | None = None,
    targets: str | Sequence[str] = ("cpu",),
    inputs: Mapping[str, Array] | None = None,
    golden_seed: int = 0,
    seed: int = 0,
    gradients: bool = False,
    memory_budget: int | None = None,
    qdq: str = FLOAT,
    tuning: str | Path | None = None,
    initialize: bool = False,
    force: bool = False,
    progress: Progress = _silent,
    **training: Any,
) -> LoadedArtifact:
    """Compile a model to the artifact folder `out` (default: `<model>.repro`).

    `model` is a path, a ModelProto, or a folder of ONNX Runtime's training artifacts.
    `bind` fixes dimensions as `INPUT[AXIS]` or else by name, `set` fixes values of inputs; golden inputs are
    `inputs`, whose shapes fix dimensions too, or drawn from `golden_seed`. `seed` is the key of random nodes that
    have none of their own. With `loss=...` there is an entry `train_step` (and, with `gradients`, one `gradients`);
    `optimizer`, `learning_rate` and the other options of `repro.train_step` go by name. `memory_budget` is the most
    bytes of temporaries of each program: what does not fit is computed again, with the same bits. With `qdq="integer"`
    operators between DequantizeLinear and QuantizeLinear add integers and scale the sum, which are other bits than
    ONNX's definition in floats, those of QLinearConv and QLinearMatMul. `tuning` is a file of `repro tune`: schedules
    that were measured, with the same bits. With `initialize` the initialization graphs of a model's training_info make
    its initializers. The identical artifact at `out` is left alone; anything else there is replaced only with `force`.
    Raises ReproError.
    """
    folder = _output_folder(model, out)
    layout.check_place(folder, force)
    names = _split(targets)
    for what, given in (("seed", seed), ("golden seed", golden_seed)):
        if not 0 <= given < 1 << 64:
            raise ReproError(f"the {what} is out of range", found=str(given), expected="0..2^64-1")
    if memory_budget is not None and not 0 <= memory_budget < 1 << 53:
        raise ReproError("the memory budget is out of range", found=str(memory_budget), expected="0..2^53-1 bytes")
    source = load_source(model)
    request = building.Request(
        model=initialised(source, seed) if initialize else source,
        bind=_sizes(bind or {}),
        set=dict(set or {}),
        targets=building.expand_targets(names),
        inputs=None if inputs is None else as_arrays(inputs),
        golden_seed=golden_seed,
        seed=seed,
        training=_training(training, gradients),
        gradients=gradients,
        memory_budget=memory_budget,
        qdq=qdq_of(qdq),
        tuning=None if tuning is None else tunings.read(Path(tuning)),
    )
    found = default_cache()
    built = building.build(request, found, progress)
    written = layout.write(built.artifact, folder, force)
    if found is not None:
        found.trim()
    return LoadedArtifact(reading.as_written(built.artifact, folder), written, built.warnings, built.roles)


def _sizes(bind: Mapping[str, int]) -> dict[str, int]:
    """Bindings as Python's integers, whatever integers they are (NumPy's, say)."""
    found: dict[str, int] = {}
    for name, size in bind.items():
        try:
            found[name] = operator.index(size)
        except TypeError:
            raise ReproError("a binding is a size", found=f"{name}={size!r}", expected="an integer from 0 up") from None
    return found


def _training(given: Mapping[str, Any], gradients: bool) -> TrainOptions | None:
    if all(value is None for value in given.values()) and not gradients:
        return None
    return training_of(given)


def _output_folder(model: str | Path | ModelProto, out: str | Path | None) -> Path:
    if isinstance(model, ModelProto):
        if out is None:
            raise ReproError("a model that is not a file needs an output folder", next="give out=...")
        return Path(out)
    if out is None and not Path(model).name:
        raise ReproError(
            "this model has no name that an output folder could have", found=f"'{model}'", next="choose -o"
        )
    folder = Path(model).with_suffix(".repro") if out is None else Path(out)
    place = resolved(Path(model))
    models = [place] if place.is_dir() and not (place / "artifact.json").exists() else []  # an artifact is no model
    if resolved(folder) in (*models, *place.parents):
        raise ReproError("the output folder holds the model itself", found=str(folder), next="choose another with -o")
    return folder


@checked
def load(path: str | Path) -> LoadedArtifact:
    """An artifact, by its folder or its artifact.json. Raises ReproError if it is none, or is damaged."""
    return LoadedArtifact(reading.open_artifact(Path(path)))


# ── verify, run ─────────────────────────────────────────────────────────────────────────────────────


@checked
def verify(
    path: str | Path,
    *,
    targets: str | Sequence[str] | None = None,
    require: str | Sequence[str] = (),
    trust_code: bool = False,
    record: str | Path | None = None,
    progress: Progress = _silent,
) -> Report:
    """Rebuild an artifact, run it on each target, compare bits; the report's `exit_code` is the command's.

    `cpu` must run, and so must whatever `targets` (which limits the runs to those named) and `require` name.
    Code that came with the artifact is run only with `trust_code`. `record` names the record of a device, which takes
    the artifact's runs there where all is good. Raises ReproError if a part is missing.
    """
    named = None if targets is None else _split(targets)
    device = None if record is None else device_records.device_of(named)
    report = verification.verify(Path(path), named, _split(require), trust_code, progress)
    if record is not None and device is not None and report.exit_code == EXIT_GOOD:
        device_records.write(load(path), report, device, Path(record))
    return report


def _split(names: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(names.split(",")) if isinstance(names, str) else tuple(names)


@checked
def run(
    path: str | Path,
    inputs: Mapping[str, Array],
    *,
    entry: str = "infer",
    state: str | Path | None = None,
    target: str = "cpu",
    threads: int | None = None,
    profile: str | Path | None = None,
    progress: Progress = _silent,
) -> dict[str, Array]:
    """Run an entry of an artifact on inputs by name; the outputs by name. Raises ReproError.

    `state` is a checkpoint (its file, or a folder: the newest) whose tensors the entry takes where it has them.
    `profile` is a file to write what the run took to, as a page (.html) or a document (.json).
    """
    progress("load", 0, 1)
    artifact = load(path)
    found = None if state is None else checkpoints.read(Path(state))
    with artifact.session(entry, target, threads) as session:
        if found is not None:
            check_origin(artifact, found)
            own = artifact.initial_state(entry)
            session.state = {name: array for name, array in found.state.items() if name in own}
        progress("run", 0, 1)
        outputs = session.run(inputs)
        if profile is not None:
            found_profile = session.profile()
            html = Path(profile).suffix == ".html"
            title = f"{entry} on {artifact.target_name(target)}"
            text = found_profile.page(title) if html else json.dumps(found_profile.document(), indent=2) + "\n"
            write_text(Path(profile), text)
        return outputs


# ── cache ───────────────────────────────────────────────────────────────────────────────────────────


def default_cache() -> Cache | None:
    """The build cache that the environment names; None if REPRO_CACHE is `off`."""
    named = os.environ.get("REPRO_CACHE", "")
    if named == "off":
        return None
    if named:
        return Cache(Path(named))
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # no home folder: nowhere to keep anything
        return None
    return Cache(folder / "repro")


@checked
def cache(action: str = "info") -> Usage:
    """The build cache's usage; with `clear`, its usage before everything was removed."""
    if action not in ("info", "clear"):
        raise ReproError("unknown action on the cache", found=action, expected="info or clear")
    found = default_cache()
    if found is None:
        return Usage(Path(), 0, 0, 0)
    return found.clear() if action == "clear" else found.usage()
