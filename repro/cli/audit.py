"""The command `audit`: a model on many executors, captures of many machines, or two builds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from repro import driver, driver_audit, tables
from repro.audit.causes.seeking import NOT_COVERED
from repro.audit.report.html import check as check_html
from repro.audit.report.view import ExecutorRow, View
from repro.cli import Commands
from repro.cli.arguments import (
    bindings,
    count,
    names,
    new_file,
    new_folder,
    qdq_option,
    refuse,
    seconds,
    seed,
    size,
    training,
    training_options,
    values,
    whole,
)
from repro.errors import EXIT_GOOD, EXIT_MISMATCH, ReproError
from repro.progress import DelayedProgress

_FORMS = ("html", "json", "junit", "sarif")


def _audit_options(made: argparse.ArgumentParser) -> None:
    what = "an ONNX model, or the artifact.json of one; none with --compare"
    made.add_argument("model", type=Path, nargs="?", metavar="MODEL_OR_ARTIFACT", help=what)
    forms = made.add_argument_group("instead of running the model")
    forms.add_argument("--compare", type=Path, nargs="+", metavar="RUN.json", help="compare captures, of any machines")
    forms.add_argument("--against-manifest", type=Path, metavar="OLD.json", help="what changed since this artifact")
    _run_options(made.add_argument_group("what runs"))
    training_options(made, entries=False)
    kept = made.add_argument_group("what is kept")
    kept.add_argument(
        "--capture", type=new_file, metavar="RUN.json", help="write this machine's record, to be compared"
    )
    kept.add_argument("--values", action="store_true", help="with the values themselves, beside it")
    kept.add_argument("--reduce", type=new_folder, metavar="DIR", help="smallest models that drift, with scripts")
    kept.add_argument("--label", default="", metavar="NAME", help="what this machine is called in comparisons")
    for form in _FORMS:
        kept.add_argument(f"--{form}", type=new_file, metavar="FILE", help=f"write the report as {form}")
    verdict = made.add_argument_group("what fails (exit code 1)")
    verdict.add_argument("--max-ulp", type=whole, metavar="N", help="an output is further from repro's than this")
    kinds = "drift (any value differs), origin (a node drifts by itself), argmax (of an output)"
    verdict.add_argument("--fail-on", type=names, default=(), metavar="LIST", help=kinds)
    verdict.add_argument(
        "--require", type=driver_audit.split, default=(), metavar="LIST", help="these must run (exit code 3)"
    )


def _run_options(group: Any) -> None:
    against = "families or executors, with commas: onnxruntime,torch[threads=1] (default: what is usual for each)"
    group.add_argument("--against", type=driver_audit.split, metavar="LIST", help=against)
    group.add_argument("--bind", action="append", default=[], metavar="NAME=INT", help="fix a dimension, as in build")
    group.add_argument("--set", action="append", default=[], metavar="INPUT=VALUE", help="fix an input's value")
    group.add_argument("--inputs", type=Path, metavar="FILE.npz", help="default: an artifact's own, or drawn")
    group.add_argument("--golden-seed", type=seed, metavar="INT", help="draw inputs from this (default: 0)")
    probe = "read the orders in which the executors add off sums and dots of their own"
    group.add_argument("--probe", action="store_true", help=probe)
    steps = "audit a training run of so many steps: of a model with --loss, or with a training step of its own"
    group.add_argument("--steps", type=count, metavar="N", help=steps)
    group.add_argument("--seed", type=seed, metavar="INT", help="order of samples in a training run (default: 0)")
    qdq_option(group, None)
    group.add_argument("--time-limit", type=seconds, metavar="SECONDS", help="of each executor (default: 120)")
    group.add_argument("--memory-limit", type=size, metavar="SIZE", help="of each executor (default: 8GiB)")


def audit(options: argparse.Namespace) -> int:
    if options.html is not None:
        check_html()
    if options.compare is not None:
        _refuse(options, "compare", "model", "against_manifest", *_RUN_ONLY)
        return _show(options, driver_audit.audit_captures(options.compare, **_verdict(options)))
    if options.model is None:
        raise ReproError("audit takes a model, an artifact, or captures", next="repro audit MODEL, or --compare A B")
    if options.against_manifest is not None:
        _refuse(options, "against-manifest", *(name for name in _RUN_ONLY if name not in ("bind", "set")), *_JUDGING)
        return _history(options)
    if options.capture is None:
        refuse(options, "without --capture there is no place for", ("values",))
    more: dict[str, Any] = {name: getattr(options, name) for name in _RUN_ONLY if name not in ("bind", "set", "seed")}
    more |= _verdict(options) | training(options)
    with DelayedProgress(tables.console(stderr=True)) as progress:
        findings = driver_audit.audit_model(
            options.model,
            bind=bindings(options.bind),
            set=values(options.set),
            progress=progress,
            seed=options.seed or 0,
            **more,
        )
    return _show(options, findings)


_RUN_ONLY = (
    "against", "bind", "set", "inputs", "golden_seed", "probe", "steps", "seed", "reduce", "capture", "values", "label",
    "time_limit", "memory_limit", "qdq",
)  # fmt: skip
_JUDGING = ("max_ulp", "fail_on", "require", "html", "junit", "sarif")


def _refuse(options: argparse.Namespace, form: str, *excluded: str) -> None:
    trained = [name for name, value in training(options).items() if value is not None]
    refuse(options, f"--{form} does not go with", excluded, trained)


def _verdict(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("require", "max_ulp", "fail_on")}


# ── what is shown ───────────────────────────────────────────────────────────────────────────────────


def _show(options: argparse.Namespace, findings: driver_audit.Findings) -> int:
    out, view = tables.console(), findings.view
    columns = ("", "executor", "same", "first difference at", "origins", "max ULP", "flips")
    out.print(tables.table(f"audit of {view.model}", columns, map(_row, view.executors), right=(4, 5, 6)))
    for row in view.executors:
        for note in row.notes:
            tables.line(out, f"note: {row.name}: {note}")
    _show_origins(out, view)
    _show_orders(out, view)
    _show_reduced(out, findings)
    for reason in view.reasons:
        tables.line(out, f"{reason.executor}: {reason.text}" if reason.executor else reason.text, "bold red")
    for label, digest in view.models:
        tables.line(out, f"model {digest} {label}".rstrip())
    tables.line(out, view.summary, "bold green" if view.good else "bold red")
    findings.write(**{form: getattr(options, form) for form in _FORMS})
    return findings.exit_code


def _row(row: ExecutorRow) -> tuple[object, ...]:
    if not row.capture.ran:
        reason = f"{row.outcome}: {row.capture.reason}" if row.capture.reason else row.outcome
        return "", row.name, Text("not run", "yellow"), reason, "", "", ""
    same = Text("yes", "green") if row.identical else Text("no", "bold red" if row.own or row.failed else "yellow")
    origins = len(row.pair.origins) if row.pair else ""
    worst = "" if row.worst is None else f"{row.worst:,}"
    return row.group, row.name, same, row.first, origins, worst, "" if row.flips is None else row.flips


def _show_origins(out: Console, view: View) -> None:
    """A line for each way in which executors drift at an origin."""
    groups = {name: letter for letter, names in view.groups.items() for name in names}
    rows: list[tuple[object, ...]] = []
    for row in view.origins:
        title = row.title if row.is_node else f"{row.kind.value} {row.title}"
        for variant in row.variants:
            letters = dict.fromkeys(groups[name] for name in variant.executors)
            worst = "" if variant.drift is None or variant.drift.max_ulp is None else f"{variant.drift.max_ulp:,}"
            causes = "; ".join(f"{c.name}: {c.evidence}" if c.name == NOT_COVERED else c.name for c in variant.causes)
            rows.append((title, " ".join(letters), worst, causes))
            title = ""
    if rows:
        out.print(tables.table("origins of drift", ("node", "groups", "max ULP", "cause"), rows, right=(2,)))


def _show_orders(out: Console, view: View) -> None:
    said = {True: "yes", False: "no", None: ""}
    rows = [
        (", ".join(row.executors), row.operation, ", ".join(map(str, row.lengths)), row.order, said[row.fused])
        for row in view.orders
    ]
    if rows:
        out.print(tables.table("orders of addition", ("executors", "operation", "terms", "order", "fma"), rows))
    for executor, reason in view.not_probed:
        tables.line(out, f"{executor} was not probed: {reason}", "yellow")


def _show_reduced(out: Console, findings: driver_audit.Findings) -> None:
    if findings.reduced:
        rows = [
            (each.folder, ", ".join(each.nodes), each.executor, each.drift.max_ulp, "yes" if each.confirmed else "no")
            for each in findings.reduced
        ]
        columns = ("folder", "nodes", "executor", "max ULP", "script shows it")
        out.print(tables.table("small models that drift", columns, rows, right=(3,)))
    for value, reason in findings.not_reduced:
        tables.line(out, f"no small model of {value}: {reason}", "yellow")


def _history(options: argparse.Namespace) -> int:
    with DelayedProgress(tables.console(stderr=True)) as progress:
        found = driver_audit.audit_manifests(
            options.model,
            options.against_manifest,
            bind=bindings(options.bind),
            set=values(options.set),
            progress=progress,
        )
    if options.json is not None:
        driver.write_text(options.json, json.dumps(found.json(), indent=2) + "\n")
    out = tables.console()
    if found.changes:
        rows = [(change.stage, change.where, change.old, change.new) for change in found.changes]
        out.print(tables.table("", ("stage", "what", "old", "new"), rows))
    tables.line(out, f"old {found.old}")
    tables.line(out, f"new {found.new}")
    tables.line(out, found.summary, {EXIT_GOOD: "bold green", EXIT_MISMATCH: "bold red"}.get(found.exit_code, "yellow"))
    return found.exit_code


COMMANDS: Commands = {
    "audit": (_audit_options, audit),
}
