"""The command line: words in, one function of `repro.driver` per command, tables and an exit code out (repro.ending;
`train` ends by Ctrl-C with a checkpoint)."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from repro import cli_audit, cli_bench, cli_training, cli_tune, driver, tables
from repro.arguments import command, model_options, model_words, names, new_file, refuse, threads
from repro.ending import ended
from repro.errors import EXIT_GOOD, EXIT_MISMATCH
from repro.progress import DelayedProgress


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and never raises."""
    return ended(_run, sys.argv[1:] if arguments is None else arguments)


def _run(words: Sequence[str]) -> int:
    options = parser().parse_args(words)
    logging.basicConfig(level=logging.DEBUG if options.debug else logging.WARNING, format="%(name)s: %(message)s")
    return options.command(options)


# ── arguments ───────────────────────────────────────────────────────────────────────────────────────


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="repro", description="Compiles ONNX graphs to code whose results are the same bits everywhere."
    )
    top.add_argument("--version", action="version", version=f"repro {driver.version()}")
    top.add_argument("--debug", action="store_true", help="log cache keys and other inner workings to stderr")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        _build_parser,
        _verify_parser,
        _run_parser,
        *cli_tune.PARSERS,
        *cli_training.PARSERS,
        *cli_audit.PARSERS,
        *cli_bench.PARSERS,
    ):
        add(commands)
    for add in (_inspect_parser, _diff_parser, _cache_parser):
        add(commands)
    return top


def _build_parser(commands: Any) -> None:
    made = command(commands, "build", build, "compile a model to an artifact")
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


def _verify_parser(commands: Any) -> None:
    made = command(commands, "verify", verify, "rebuild an artifact, run it everywhere, compare bits")
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


def _run_parser(commands: Any) -> None:
    made = command(commands, "run", run, "run an entry of an artifact on your inputs")
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


def _inspect_parser(commands: Any) -> None:
    made = command(commands, "inspect", inspect, "show what is in an artifact")
    made.add_argument("artifact", type=Path, metavar="ARTIFACT.json")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--code", metavar="TARGET", help="print the code of a target whose code is text")
    chips = "time, energy and utilisation of a run on simulated chips, such as v4,v5e,v6e"
    what.add_argument("--chips", type=names, metavar="LIST", help=chips)
    what.add_argument("--kernel", metavar="NAME", help="show one kernel: loops, code and least time (a digest's start)")
    made.add_argument("--target", metavar="NAME", help="whose code of the kernel (default: gpu)")
    made.add_argument("--device", metavar="NAME", help="whose least time of the kernel (default: A100)")
    made.add_argument("--record", type=Path, metavar="FILE", help="what this record of a device measured of the kernel")
    made.add_argument("--json", action="store_true", help="print the result as JSON")


def _diff_parser(commands: Any) -> None:
    made = command(commands, "diff", diff, "show where two artifacts differ (exit code 1 if they do)")
    made.add_argument("left", type=Path, metavar="LEFT.json")
    made.add_argument("right", type=Path, metavar="RIGHT.json")
    made.add_argument("--json", action="store_true", help="print the result as JSON")


def _cache_parser(commands: Any) -> None:
    made = command(commands, "cache", cache, "show or clear the build cache")
    made.add_argument("action", nargs="?", choices=("info", "clear"), default="info")
    made.add_argument("--json", action="store_true", help="print the result as JSON")


# ── commands ────────────────────────────────────────────────────────────────────────────────────────


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


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
        roles = {kind: [each.name for each in artifact.roles if each.role == kind] for kind in tables.ROLES}
        told = {"artifact": artifact.id, "graph": artifact.graph_digest, "folder": str(artifact.folder)}
        _print_json({**told, "parameters": roles} if artifact.roles else told)
        return EXIT_GOOD
    out = tables.console()
    tables.show_layers(out, artifact.layers)
    if artifact.roles:
        tables.show_roles(out, artifact.roles)
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
    tables.show_report(out, report)
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
        _print_json({"outputs": [dict(zip(("name", "type", "digest", "first"), row, strict=True)) for row in rows]})
        return EXIT_GOOD
    out = tables.console()
    tables.show_arrays(out, "outputs", rows)
    tables.line(out, f"written to {options.outputs}")
    return EXIT_GOOD


_OF_A_KERNEL = ("target", "device", "record")


def inspect(options: argparse.Namespace) -> int:
    if options.kernel is None:
        refuse(options, "without --kernel there is no use for", _OF_A_KERNEL)
    if options.code is not None:
        refuse(options, "--code does not go with", ("json",))
        sys.stdout.write(driver.code(options.artifact, options.code))
        return EXIT_GOOD
    if options.chips is not None:
        found = driver.estimates(options.artifact, options.chips)
        _print_json(found) if options.json else tables.show_estimates(tables.console(), found)
        return EXIT_GOOD
    if options.kernel is not None:
        return _inspect_kernel(options)
    content = driver.inspect(options.artifact)
    if options.json:
        _print_json(content)
    else:
        tables.show_content(tables.console(), content)
    return EXIT_GOOD


def _inspect_kernel(options: argparse.Namespace) -> int:
    given = {name: value for name in _OF_A_KERNEL if (value := getattr(options, name)) is not None}
    content = driver.inspect_kernel(options.artifact, options.kernel, **given)
    if options.json:
        _print_json(content)
    else:
        tables.show_kernel(tables.console(), content)
    return EXIT_GOOD


def diff(options: argparse.Namespace) -> int:
    differences = driver.diff(options.left, options.right)
    if options.json:
        _print_json([{"where": d.where, "left": d.left, "right": d.right} for d in differences])
    else:
        out = tables.console()
        if differences:
            rows = [(d.where, d.left, d.right) for d in differences]
            out.print(tables.table("", ("where", "left", "right"), rows))
        count = len(differences)
        same = "the artifacts are identical by their digests (repro verify checks the files)"
        tables.line(out, f"{count} difference{'s' if count > 1 else ''}" if count else same)
    return EXIT_MISMATCH if differences else EXIT_GOOD


def cache(options: argparse.Namespace) -> int:
    usage = driver.cache(options.action)
    content = {"folder": str(usage.folder), "entries": usage.entries, "bytes": usage.bytes, "limit": usage.limit}
    if options.json:
        _print_json(content)
        return EXIT_GOOD
    verb = "removed" if options.action == "clear" else "holds"
    tables.line(
        tables.console(),
        f"{usage.folder} {verb} {usage.entries} entries, {tables.size(usage.bytes)} of {tables.size(usage.limit)}",
    )
    return EXIT_GOOD
