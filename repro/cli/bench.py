"""The command `bench`: measurements beside other runtimes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from repro import driver, tables
from repro.cli import Commands
from repro.cli.arguments import count, names, new_file, threads
from repro.errors import EXIT_GOOD
from repro.progress import DelayedProgress


def _thread_counts(text: str) -> tuple[int, ...]:
    return tuple(threads(word) for word in names(text))


def _bench_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="default: all; --list names them")
    made.add_argument("--list", action="store_true", help="name the workloads")
    made.add_argument("--mode", type=names, default=("forward", "step"), metavar="LIST", help="forward, step")
    made.add_argument("--threads", type=_thread_counts, default=(1, 2), metavar="LIST", help="default: 1,2")
    sides = ("repro", "torch", "torch.compile", "onnxruntime")
    made.add_argument("--sides", type=names, default=sides, metavar="LIST", help=f"default: {','.join(sides)}")
    made.add_argument("--rounds", type=count, default=15, metavar="N", help="rounds of each side (default: 15)")
    made.add_argument(
        "--seconds", type=count, default=60, metavar="N", help="fewer rounds where they would take longer"
    )
    made.add_argument(
        "--processes",
        type=count,
        default=1,
        metavar="N",
        help="measure in so many, one after the other, each with its own rounds: memory lies elsewhere in each",
    )
    made.add_argument(
        "--copies",
        type=count,
        default=1,
        metavar="N",
        help="give so many copies of the inputs in turn, so that caches may forget them",
    )
    made.add_argument(
        "--other", type=Path, metavar="FOLDER", help="measure what another version of repro, in this folder, builds too"
    )
    made.add_argument("--no-memory", action="store_true", help="leave out peak memory, which takes a process a side")
    made.add_argument("--kernels", action="store_true", help="the time of each kernel too")
    made.add_argument("--tuning", type=Path, metavar="FILE", help="build with the schedules that repro tune found")
    made.add_argument("--json", type=new_file, metavar="FILE", help="write every sample as JSON")
    made.add_argument(
        "--roofline", type=new_file, metavar="FILE", help="draw the kernels as an HTML page (the report extra)"
    )


def bench(options: argparse.Namespace) -> int:
    from repro.bench import report, suite  # imports half of the package: only where it is asked for
    from repro.bench.workloads import WORKLOADS

    out = tables.console()
    if options.list:
        listed = [(each.name, ", ".join(each.modes), each.what) for each in WORKLOADS.values()]
        out.print(tables.table("", ("workload", "modes", "what"), listed))
        return EXIT_GOOD
    if options.roofline is not None:
        report.drawing()  # which nobody should miss after minutes of measuring
    plan = suite.Plan(
        workloads=tuple(options.workloads) or tuple(WORKLOADS),
        modes=options.mode,
        threads=options.threads,
        sides=options.sides,
        rounds=options.rounds,
        seconds=float(options.seconds),
        processes=options.processes,
        copies=options.copies,
        memory=not options.no_memory,
        kernels=options.kernels or options.roofline is not None,
        tuning=options.tuning,
        other=options.other,
    )
    with DelayedProgress(tables.console(stderr=True)) as progress:
        found = suite.run(plan, progress)
    title = (
        "medians; share of the fma peak or of memory's; ratios with 95 % intervals; MiB of repro / torch / onnxruntime"
    )
    out.print(tables.table(title, report.columns(found), report.rows(found), right=range(2, 13)))
    for each in found.measurements if options.kernels else ():
        heading = f"{each.workload}, {each.mode}, {each.threads} threads"
        out.print(tables.table(heading, report.KERNEL_COLUMNS, report.kernel_rows(found, each), right=range(1, 8)))
    for peak in found.peaks:
        flops, read, moved = (value / 1e9 for value in (peak.flops, peak.read, peak.bytes))
        memory = f"{read:.1f} GB/s (read), {moved:.1f} GB/s (read and written)"
        tables.line(out, f"peaks on {peak.threads} threads: {flops:.0f} GFLOP/s (fma loop), {memory}")
    if options.json is not None:
        driver.write_text(options.json, json.dumps(found.json(), indent=2) + "\n")
    if options.roofline is not None:
        driver.write_text(options.roofline, report.roofline(found))
    sys.stdout.flush()
    return EXIT_GOOD


COMMANDS: Commands = {
    "bench": (_bench_options, bench),
}
