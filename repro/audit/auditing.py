"""A whole audit, straight through: prepare, golden, executors, record, findings, their causes, small models."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from repro.artifact.cache import Cache
from repro.artifact.checks import Report
from repro.artifact.files import as_text
from repro.artifact.tensors import write_output
from repro.audit import capture, comparison, environment, golden, model, running, training
from repro.audit.explaining import explained
from repro.audit.model import Audited
from repro.audit.peers import PEERS
from repro.audit.probes.running import probe_executors, usual
from repro.audit.records import Audit, Capture, Executor, Origin, Probe, Record
from repro.audit.reduce import Reduced, reduce
from repro.audit.report import document, html, junit, sarif
from repro.audit.report.view import OriginRow, View
from repro.audit.verdict import Thresholds, verdict
from repro.errors import ReproError
from repro.frontend.integer_qdq import INTEGER
from repro.ir.types import Array
from repro.train_step import TrainOptions

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Request:
    """What to audit. `against` are families or names of executors, None for those of each family's own choice.

    `require` are those that have to run. With `steps` it is a training run that is audited, of a forward model and its
    `training` options or of a model that brings its step; `inputs` are then the data that batches are taken from, in
    the order of `seed`. The record is written to `capture`, with its values if `values`; small models that drift go to
    the folder `reduce`.
    """

    model: model.Source
    bind: Mapping[str, int]
    set: Mapping[str, Any]
    inputs: Mapping[str, Array] | None
    golden_seed: int | None
    against: Sequence[str] | None
    require: Sequence[str]
    limits: running.Limits
    thresholds: Thresholds
    probe: bool = False
    steps: int | None = None
    training: TrainOptions | None = None
    seed: int = 0
    label: str = ""
    reduce: Path | None = None
    capture: Path | None = None
    values: bool = False
    qdq: str | None = None
    """How the model computes, as in a build; None: an artifact's own, or in floats."""
    command: str = ""
    """The command line that makes these findings, but for `--against`."""


@dataclass(frozen=True, eq=False)
class Findings:
    """An audit and what it comes to. `model_uri` is where reports say that the model lies."""

    audit: Audit
    report: Report
    model_uri: str
    required: tuple[str, ...] = ()
    reduced: tuple[Reduced, ...] = ()
    not_reduced: tuple[tuple[str, str], ...] = ()
    """Values of origins of which no smaller model was made, and why."""

    @cached_property
    def view(self) -> View:
        """The findings as reports show them."""
        return View(self.audit, self.report, self.required)

    @property
    def exit_code(self) -> int:
        """0 good, 1 a threshold was passed or repro's own targets differ, 3 something required did not run."""
        return self.report.exit_code

    @property
    def summary(self) -> str:
        return self.view.summary

    def json(self) -> str:
        return document.text(self.view)

    def junit(self) -> str:
        return junit.text(self.view)

    def sarif(self) -> str:
        return sarif.text(self.view, self.model_uri)

    def html(self) -> str:
        """The page. Raises ReproError without Jinja2 (the extra `report`)."""
        return html.render(self.view)

    def write(self, **paths: Path | None) -> None:
        """Write the reports that have a path: json, junit, sarif, html; all that can be. Raises ReproError for one that
        cannot, behind the others."""
        failed: list[ReproError] = []
        for form, path in paths.items():
            if path is not None:
                try:
                    write_output(path, getattr(self, form)().encode())
                except ReproError as error:
                    failed.append(error)
        if failed:
            raise failed[0]


def audit(request: Request, cache: Cache | None, progress: Progress, peers: Mapping[str, str] = PEERS) -> Findings:
    """Run a model on every executor that is asked for and find where they part. Raises ReproError for a model that
    cannot be prepared or compiled, for unknown executors, and for files that cannot be written."""
    table = peers if request.steps is None else training.PEERS
    executors = running.choose(_chosen(request), table)
    if request.capture is not None:
        capture.check_place(request.capture, request.values)
    progress("prepare", 0, 1)
    audited = _prepared(request)
    progress("prepare", 1, 1)
    best = (golden if request.steps is None else training).golden(audited, cache, progress)
    captures = running.run_all(audited, best, executors, request.limits, True, progress, cache, table)
    inputs = {name: capture.value_of(array) for name, array in audited.inputs.items()}
    record = Record(audited.summary, inputs, best, captures, environment.host(), request.label)
    if request.capture is not None:
        capture.write(record, request.capture, request.values)
    found = explained(comparison.audit((record,)), audited, best, progress)
    found = replace(found, probes=_probes(request, executors, peers, progress))
    small = _Small(audited, best, request, cache, table, progress)
    small.reduce(View(found, verdict(found)), {each.name: each for each in executors})
    commands = (*_commands(request, found), *(shlex.join(each.command) for each in small.made))
    return Findings(
        audit=replace(found, commands=tuple(map(as_text, commands))),
        report=verdict(found, request.thresholds, request.require),
        model_uri=_uri(request.model),
        required=tuple(request.require),
        reduced=tuple(small.made),
        not_reduced=tuple(small.failed),
    )


def _probes(
    request: Request, executors: Sequence[Executor], peers: Mapping[str, str], progress: Progress
) -> tuple[Probe, ...]:
    """How the executors add that were asked for; of each family's own choice, those that may differ."""
    if not request.probe:
        return ()
    chosen = usual(peers) if request.against is None else executors
    return probe_executors(chosen, seconds=request.limits.seconds, progress=progress, table=peers)


def _prepared(request: Request) -> Audited:
    if request.steps is None:
        given = request.bind, request.set, request.inputs, request.golden_seed
        return model.prepare(request.model, *given, qdq=request.qdq)
    unfit = {
        "--set": request.set,
        "--qdq integer": request.qdq == INTEGER,
        "--reduce": request.reduce,
        "--probe": request.probe,
    }
    for option, given in unfit.items():
        if given:
            raise ReproError(f"{option} does not go with a training run")
    seeds = request.golden_seed or 0, request.seed
    return training.prepare(request.model, request.training, request.steps, request.bind, request.inputs, *seeds)


def _commands(request: Request, found: Audit) -> tuple[str, ...]:
    """What makes all of it again, and one executor of each group that has other bits than golden."""
    against = "" if request.against is None else shlex.join([f"--against={','.join(request.against)}"])
    others = [group[0] for group in found.groups if comparison.GOLDEN not in group]
    single = [f"{request.command} {shlex.join([f'--against={name}'])}" for name in others]
    return tuple(dict.fromkeys((f"{request.command} {against}".rstrip(), *single)))


def _chosen(request: Request) -> Sequence[str] | None:
    """What is required is run too."""
    if request.against is None:
        return None
    return tuple(dict.fromkeys((*request.against, *request.require)))


def _uri(source: model.Source) -> str:
    """As RFC 3986 writes it: bytes that are no plain characters are percent-encoded."""
    return quote(os.fsencode(Path(source).as_posix())) if isinstance(source, str | Path) else "model.onnx"


@dataclass(frozen=True, eq=False)
class _Small:
    """Models cut down to what drifts: one for each kind of node that does, as its first executor runs it."""

    audited: Audited
    golden: Capture
    request: Request
    cache: Cache | None
    peers: Mapping[str, str]
    progress: Progress
    made: list[Reduced] = field(default_factory=list[Reduced])
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def reduce(self, view: View, executors: Mapping[str, Executor]) -> None:
        if self.request.reduce is None:
            return
        first: dict[tuple[str, ...], OriginRow] = {}
        for row in view.origins:
            if row.is_node:
                first.setdefault(row.operators, row)
        for number, row in enumerate(first.values(), start=1):
            self.progress("small models", number - 1, len(first))
            variant = row.variants[0]
            folder = self.request.reduce / f"{number:02}-{'-'.join(row.operators)[:40]}"
            self._one(variant.origin, executors[variant.executors[0]], folder)
        self.progress("small models", len(first), len(first))

    def _one(self, origin: Origin, executor: Executor, folder: Path) -> None:
        request = self.request
        try:
            found = reduce(self.audited, self.golden, origin, executor, folder, request.limits, self.cache, self.peers)
        except ReproError as error:
            self.failed.append((origin.value, error.what))
        else:
            self.made.append(found)


def compare(paths: Sequence[Path], thresholds: Thresholds, require: Sequence[str] = ()) -> Findings:
    """The findings of records on disk, from whatever machines. Raises ReproError for files that are no captures."""
    records = [capture.read(path) for path in paths]
    found = comparison.audit(records)
    return Findings(found, verdict(found, thresholds, require), _uri(records[0].model.name), tuple(require))
