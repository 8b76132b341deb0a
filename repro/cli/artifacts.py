"""The commands on artifacts: build, verify, run, cache."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from repro import driver, tables
from repro.cli import Commands, shown
from repro.cli.arguments import model_options, model_words, names, new_file, threads
from repro.errors import EXIT_GOOD
from repro.progress import DelayedProgress


def _build_options(made: argparse.ArgumentParser) -> None:
    model_options(made)
    made.add_argument("-o", "--out", type=Path, metavar="DIR", help="output folder (default: MODEL.repro)")
    made.add_argument("--force", action="store_true", help="replace the output folder if it contains something else")
    made.add_argument(
        "--targets",
        type=names,
        default=("cpu",),
        metavar="LIST",
        help="targets to build for, separated by commas (default: cpu, which is all of cpu/*)",
    )
    made.add_argument(
        "--tuning", type=Path, metavar="FILE", help="use the schedules that repro tune found; the bits stay the same"
    )
    made.add_argument("--json", action="store_true", help="print the result as JSON")


def _verify_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("artifact", type=Path, metavar="ARTIFACT.json")
    made.add_argument(
        "--targets", type=names, metavar="LIST", help="run only these targets; each must run (default: all)"
    )
    made.add_argument(
        "--require", type=names, default=(), metavar="LIST", help="these targets must run (else exit code 3)"
    )
    made.add_argument("--trust-code", action="store_true", help="also run the code that came with the artifact")
    recorded = "add the runs on the device that --targets names to this record of it"
    made.add_argument("--record", type=new_file, metavar="FILE", help=recorded)
    for kind in ("json", "junit", "sarif"):
        made.add_argument(f"--{kind}", type=new_file, metavar="FILE", help=f"also write the report as {kind}")


def _run_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("artifact", type=Path, metavar="ARTIFACT.json")
    made.add_argument("--inputs", type=Path, required=True, metavar="IN.npz")
    made.add_argument("--outputs", type=new_file, required=True, metavar="OUT.npz")
    made.add_argument("--entry", default="infer", metavar="NAME", help="entry to run (default: infer)")
    made.add_argument("--state", type=Path, metavar="CHECKPOINT", help="run with the tensors of a checkpoint")
    made.add_argument("--target", default="cpu", metavar="NAME", help="target to run on (default: cpu)")
    made.add_argument("--threads", type=threads, metavar="N", help="default: one for each core")
    profile = "write the profile of a simulated run as a page (.html) or a document (.json)"
    made.add_argument("--profile", type=new_file, metavar="FILE", help=profile)
    made.add_argument("--json", action="store_true", help="print the result as JSON")


def _cache_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("action", nargs="?", choices=("info", "clear"), default="info")
    made.add_argument("--json", action="store_true", help="print the result as JSON")


# ── commands ────────────────────────────────────────────────────────────────────────────────────────


def build(options: argparse.Namespace) -> int:
    words = model_words(options)
    with DelayedProgress(tables.console(stderr=True)) as progress:
        artifact = driver.build(
            options.model,
            options.out,
            targets=options.targets,
            tuning=options.tuning,
            force=options.force,
            progress=progress,
            **words,
        )
    for warning in artifact.warnings:
        tables.line(tables.console(stderr=True), f"warning: {warning}", "yellow")
    if options.json:
        roles = {kind: [each.name for each in artifact.roles if each.role == kind] for kind in shown.ROLES}
        told = {"artifact": artifact.id, "graph": artifact.graph_digest, "folder": str(artifact.folder)}
        shown.print_json({**told, "parameters": roles} if artifact.roles else told)
        return EXIT_GOOD
    out = tables.console()
    shown.show_layers(out, artifact.layers)
    if artifact.roles:
        shown.show_roles(out, artifact.roles)
    tables.line(out, f"{artifact.folder}{'' if artifact.written else ' (already there, identical)'}")
    tables.line(out, f"artifact {artifact.id}", "bold")
    tables.line(out, f"graph    {artifact.graph_digest}", "bold")
    return EXIT_GOOD


def verify(options: argparse.Namespace) -> int:
    with DelayedProgress(tables.console(stderr=True)) as progress:
        report = driver.verify(
            options.artifact,
            targets=options.targets,
            require=options.require,
            trust_code=options.trust_code,
            record=options.record,
            progress=progress,
        )
    forms: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (options.json, lambda: json.dumps(report.json(), indent=2) + "\n"),
        (options.junit, report.junit),
        (options.sarif, lambda: report.sarif(driver.version())),
    )
    out = tables.console()
    shown.show_report(out, report)
    tables.line(out, f"artifact {report.artifact}")
    tables.line(out, f"graph    {report.graph}")
    tables.line(out, report.summary, "bold green" if report.exit_code == EXIT_GOOD else "bold red")
    for path, form in forms:  # last: where one cannot be written, what was found has been told
        if path is not None:
            driver.write_text(path, form())
    return report.exit_code


def run(options: argparse.Namespace) -> int:
    inputs = driver.read_npz(options.inputs)
    with DelayedProgress(tables.console(stderr=True)) as progress:
        outputs = driver.run(
            options.artifact,
            inputs,
            entry=options.entry,
            state=options.state,
            target=options.target,
            threads=options.threads,
            profile=options.profile,
            progress=progress,
        )
    driver.write_npz(options.outputs, outputs)
    rows = driver.describe(outputs)
    if options.json:
        shown.print_json(
            {"outputs": [dict(zip(("name", "type", "digest", "first"), row, strict=True)) for row in rows]}
        )
        return EXIT_GOOD
    out = tables.console()
    shown.show_arrays(out, "outputs", rows)
    tables.line(out, f"written to {options.outputs}")
    return EXIT_GOOD


def cache(options: argparse.Namespace) -> int:
    usage = driver.cache(options.action)
    content = {"folder": str(usage.folder), "entries": usage.entries, "bytes": usage.bytes, "limit": usage.limit}
    if options.json:
        shown.print_json(content)
        return EXIT_GOOD
    verb = "removed" if options.action == "clear" else "holds"
    tables.line(
        tables.console(),
        f"{usage.folder} {verb} {usage.entries} entries, {tables.size(usage.bytes)} of {tables.size(usage.limit)}",
    )
    return EXIT_GOOD


COMMANDS: Commands = {
    "build": (_build_options, build),
    "verify": (_verify_options, verify),
    "run": (_run_options, run),
    "cache": (_cache_options, cache),
}
