"""The command `tune`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from repro import driver_tune, tables
from repro.cli import Commands, shown
from repro.cli.arguments import model_options, model_words, new_file, seconds, threads
from repro.driver_tune import Found
from repro.errors import EXIT_GOOD
from repro.ir.describe import describe
from repro.progress import DelayedProgress
from repro.tuning.search import Outcome

COLUMNS = ("kernel", "default", "best", "ratio", "tried", "schedule")


def _tune_options(made: argparse.ArgumentParser) -> None:
    model_options(made)
    made.add_argument("--target", default="cpu", metavar="NAME", help="default: cpu, the best that this host runs")
    made.add_argument("--threads", type=threads, metavar="N", help="of the runs (default: one for each core)")
    made.add_argument("--budget", type=seconds, default=120.0, metavar="SECONDS", help="of the search (default: 120)")
    out = "the tuning file, for build --tuning (default: tuning.json)"
    made.add_argument("-o", "--out", type=new_file, default="tuning.json", metavar="FILE", help=out)
    made.add_argument("--json", action="store_true", help="print the result as JSON")


def tune(options: argparse.Namespace) -> int:
    words = model_words(options)
    with DelayedProgress(tables.console(stderr=True)) as progress:
        found = driver_tune.tune(
            options.model,
            options.out,
            target=options.target,
            threads=options.threads,
            budget=options.budget,
            progress=progress,
            **words,
        )
    if options.json:
        shown.print_json(_document(found))
        return EXIT_GOOD
    out = tables.console()
    for each in found.outcomes:
        heading = f"{each.entry} on {found.target}, {_threads(found.threads)}: milliseconds of each kernel in a run"
        out.print(tables.table(heading, COLUMNS, _rows(each), right=range(1, 5)))
        if not each.complete:
            tables.line(out, "the budget ended before everything was tried", "yellow")
    kept = len(found.tuning.kernels)
    tables.line(out, f"{found.path}: {kept} schedule{'' if kept == 1 else 's'}")
    tables.line(out, f"tuning {found.tuning.digest}", "bold")
    return EXIT_GOOD


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


def _rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for each in outcome.trials:
        name = f"{describe(each.kernel)} {each.kernel.digest[:8]}"
        schedule = each.schedule if each.changed else ""
        best = _ms(each.seconds) if each.changed else ""
        ratio = f"{each.default_seconds / each.seconds:.2f}" if each.changed else ""
        yield name, _ms(each.default_seconds), best, ratio, str(each.tried), schedule
    if outcome.work:
        ratio = f"{outcome.default_work / outcome.work:.2f}"
        yield "all kernels", _ms(outcome.default_work), _ms(outcome.work), ratio, "", ""
    low, high = outcome.interval
    ratio = tables.with_interval(outcome.default_seconds / outcome.seconds, 1 / high, 1 / low)
    yield "the whole run", _ms(outcome.default_seconds), _ms(outcome.seconds), ratio, "", ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _document(found: Found) -> dict[str, Any]:
    entries = {
        each.entry: {
            "default_seconds": each.default_seconds,
            "seconds": each.seconds,
            "interval": each.interval,
            "default_work": each.default_work,
            "work": each.work,
            "kernels": [
                {
                    "kernel": trial.kernel.digest,
                    "what": describe(trial.kernel),
                    "default": trial.default,
                    "schedule": trial.schedule,
                    "default_seconds": trial.default_seconds,
                    "seconds": trial.seconds,
                    "tried": trial.tried,
                }
                for trial in each.trials
            ],
            "complete": each.complete,
        }
        for each in found.outcomes
    }
    return {
        "file": str(found.path), "tuning": found.tuning.digest, "target": found.target, "threads": found.threads,
        "entries": entries,
    }  # fmt: skip


COMMANDS: Commands = {
    "tune": (_tune_options, tune),
}
