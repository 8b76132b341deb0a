"""The three forms of `repro audit` as Python functions.

They are not called `audit`: `repro.audit` is the package of an audit's data types, and a name cannot be both it and a
function, whichever part of the package is imported first.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from repro.artifact import build as building
from repro.artifact import layout, reading
from repro.artifact.loaded import request_of
from repro.audit import auditing
from repro.audit.auditing import Findings
from repro.audit.history import History, history
from repro.audit.running import Limits
from repro.audit.verdict import Thresholds
from repro.driver import Progress, default_cache, read_npz
from repro.errors import ReproError
from repro.frontend import load_source
from repro.frontend.integer_qdq import qdq_of
from repro.ir.types import Array
from repro.signatures import checked
from repro.train_step import training_of

__all__ = ["Findings", "History", "audit_captures", "audit_manifests", "audit_model", "split"]


def _silent(stage: str, done: int, total: int) -> None:
    """No progress is shown."""


@checked
def audit_model(
    model: str | Path | ModelProto,
    *,
    against: str | Sequence[str] | None = None,
    require: str | Sequence[str] = (),
    bind: Mapping[str, int] | None = None,
    set: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Array] | str | Path | None = None,
    golden_seed: int | None = None,
    probe: bool = False,
    steps: int | None = None,
    seed: int = 0,
    reduce: str | Path | None = None,
    capture: str | Path | None = None,
    values: bool = False,
    qdq: str | None = None,
    label: str = "",
    max_ulp: int | None = None,
    fail_on: str | Sequence[str] = (),
    time_limit: float | None = None,
    memory_limit: int | None = None,
    progress: Progress = _silent,
    **training: Any,
) -> Findings:
    """Run a model, or an artifact's source, on other runtimes, and find the nodes where their bits leave repro's.

    What runs: `against` names families or executors (`onnxruntime[level=all,threads=2]`), `require` those that must
    run; each may take `time_limit` seconds and `memory_limit` bytes. Inputs are an .npz file or arrays, an artifact's
    golden ones, or drawn from `golden_seed`. With `steps` a training run is audited: `loss`, `optimizer` and the other
    options of `build` go by name, and `inputs` is the data whose samples the batches take in the order of `seed`. `qdq`
    is that of `build`; with "integer" operators are compared with what lies around them, from integers to integers.

    What else is found: with `probe` the orders in which executors add, read off sums of their own. What is written:
    `reduce` is a folder for the smallest models that drift, one for each kind of node, with scripts that show it;
    `capture` is the file for the record of this machine, which is called `label`, with the values too if `values`.

    `max_ulp` and `fail_on` (drift, origin, argmax) are what the exit code depends on. Raises ReproError.
    """
    names = None if against is None else split(against)
    chosen = training_of(training) if any(value is not None for value in training.values()) else None
    if chosen is not None and steps is None:
        raise ReproError("training options audit a training run", next="say of how many steps, with --steps")
    reading = None if qdq is None else qdq_of(qdq)
    words = {
        "bind": bind,
        "set": set,
        "golden_seed": golden_seed,
        "inputs": inputs,
        "probe": probe,
        "steps": steps,
        "seed": seed or None,
        "qdq": reading,
    }
    arrays = read_npz(Path(inputs)) if isinstance(inputs, str | Path) else inputs
    request = auditing.Request(
        model=model,
        bind=dict(bind or {}),
        set=dict(set or {}),
        inputs=arrays,
        golden_seed=golden_seed,
        against=names,
        require=split(require or ()),
        limits=_limits(time_limit, memory_limit),
        thresholds=Thresholds(max_ulp, _words(fail_on)),
        probe=probe,
        steps=steps,
        training=chosen,
        seed=seed,
        label=label,
        reduce=None if reduce is None else Path(reduce),
        capture=None if capture is None else Path(capture),
        values=values,
        qdq=reading,
        command=_command(model, words, training),
    )
    return auditing.audit(request, default_cache(), progress)


def _words(names: str | Sequence[str]) -> frozenset[str]:
    return frozenset(split(names) if names else ())


def _limits(seconds: float | None, memory: int | None) -> Limits:
    usual = Limits()
    if seconds is not None and not 0 < seconds < 1e6:
        raise ReproError("the time limit is out of range", found=str(seconds), expected="seconds above 0, below 10^6")
    return Limits(seconds or usual.seconds, usual.memory_bytes if memory is None else memory)


def split(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of executors with commas between them; commas between brackets belong to a name: `a,b[c=1,d=2]`."""
    if not isinstance(names, str):
        return tuple(names)
    found, depth = [""], 0
    for character in names:
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    if depth or not all(found):
        raise ReproError("not a list of executors separated by commas", found=names)
    return tuple(found)


def _command(model: str | Path | ModelProto, given: Mapping[str, Any], training: Mapping[str, Any]) -> str:
    """The command that makes these findings again, without what it runs against."""
    words = ["repro", "audit", "model.onnx" if isinstance(model, ModelProto) else str(model)]
    for name, value in (given["bind"] or {}).items():
        words += ["--bind", f"{name}={value}"]
    for name, value in (given["set"] or {}).items():
        words += ["--set", f"{name}={json.dumps(value, default=str)}"]
    if given["inputs"] is not None:
        words += ["--inputs", str(given["inputs"]) if isinstance(given["inputs"], str | Path) else "INPUTS.npz"]
    words += ["--probe"] if given["probe"] else []
    for option in ("golden_seed", "steps", "seed", "qdq"):
        words += [_option(option), str(given[option])] if given[option] is not None else []
    for name, value in training.items():
        if value is not None:
            named = name in ("loss", "optimizer", "learning_rate")
            words += [_option(name), str(value)] if named else ["--option", f"{name}={value}"]
    return shlex.join(words)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


@checked
def audit_captures(
    paths: Sequence[str | Path],
    *,
    require: str | Sequence[str] = (),
    max_ulp: int | None = None,
    fail_on: str | Sequence[str] = (),
) -> Findings:
    """Compare records that `audit_model` wrote, on whatever machines. Raises ReproError for anything else."""
    if not paths:
        raise ReproError("no capture to compare", expected="the files that --capture wrote")
    return auditing.compare([Path(path) for path in paths], Thresholds(max_ulp, _words(fail_on)), split(require or ()))


@checked
def audit_manifests(
    new: str | Path | ModelProto,
    old: str | Path,
    *,
    bind: Mapping[str, int] | None = None,
    set: Mapping[str, Any] | None = None,
    progress: Progress = _silent,
) -> History:
    """What changed from the artifact `old` to `new`: an artifact, or a model, which is built as `old` says it was.

    `bind` and `set` replace what `old` was built with. Raises ReproError.
    """
    before = reading.open_artifact(Path(old))
    if not isinstance(new, ModelProto) and (
        Path(new).name == "artifact.json" or (Path(new) / "artifact.json").exists()
    ):
        return history(before, reading.open_artifact(Path(new)))
    request = request_of(before)
    request = replace(
        request,
        model=load_source(new),
        bind={**request.bind, **(bind or {})},
        set={**request.set, **(set or {})},
    )
    built = building.build(request, default_cache(), progress)
    with tempfile.TemporaryDirectory(prefix="repro-audit-") as folder:
        layout.write(built.artifact, Path(folder) / "new.repro")
        return history(before, reading.open_artifact(Path(folder) / "new.repro"))
