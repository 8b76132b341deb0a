"""A whole audit, straight through: prepare, golden, executors, record, findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from repro.artifact.cache import Cache
from repro.artifact.checks import Report
from repro.artifact.tensors import write_output
from repro.audit import capture, comparison, environment, golden, model, running
from repro.audit.peers import PEERS
from repro.audit.records import Audit, Record
from repro.audit.report import document, html, junit, sarif
from repro.audit.report.view import View
from repro.audit.verdict import Thresholds, verdict
from repro.ir.types import Array

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Request:
    """What to audit. `against` are families or names of executors, None for those of each family's own choice.

    `require` are those that have to run. The record is written to `capture`, with its values if `values`.
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
    label: str = ""
    capture: Path | None = None
    values: bool = False
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Findings:
    """An audit and what it comes to. `model_uri` is where reports say that the model lies."""

    audit: Audit
    report: Report
    model_uri: str
    required: tuple[str, ...] = ()

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
        """Write the reports that have a path: json, junit, sarif, html. Raises ReproError."""
        for form, path in paths.items():
            if path is not None:
                write_output(path, getattr(self, form)().encode())


def audit(request: Request, cache: Cache | None, progress: Progress, peers: Mapping[str, str] = PEERS) -> Findings:
    """Run a model on every executor that is asked for and find where they part. Raises ReproError for a model that
    cannot be prepared or compiled, for unknown executors, and for files that cannot be written."""
    executors = running.choose(_chosen(request), peers)
    progress("prepare", 0, 1)
    audited = model.prepare(request.model, request.bind, request.set, request.inputs, request.golden_seed)
    progress("prepare", 1, 1)
    best = golden.golden(audited, cache, progress)
    captures = running.run_all(audited, best, executors, request.limits, True, progress, cache, peers)
    inputs = {name: capture.value_of(array) for name, array in audited.inputs.items()}
    record = Record(audited.summary, inputs, best, captures, environment.host(), request.label)
    if request.capture is not None:
        capture.write(record, request.capture, request.values)
    found = replace(comparison.audit((record,)), commands=request.commands)
    return Findings(
        found, verdict(found, request.thresholds, request.require), _uri(request.model), tuple(request.require)
    )


def _chosen(request: Request) -> Sequence[str] | None:
    """What is required is run too."""
    if request.against is None:
        return None
    return tuple(dict.fromkeys((*request.against, *request.require)))


def _uri(source: model.Source) -> str:
    return Path(source).as_posix() if isinstance(source, str | Path) else "model.onnx"


def compare(paths: Sequence[Path], thresholds: Thresholds, require: Sequence[str] = ()) -> Findings:
    """The findings of records on disk, from whatever machines. Raises ReproError for files that are no captures."""
    records = [capture.read(path) for path in paths]
    found = comparison.audit(records)
    return Findings(found, verdict(found, thresholds, require), records[0].model.name, tuple(require))
