"""The commands that look into artifacts: inspect, diff."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from repro import driver_inspect, tables
from repro.cli import Commands, shown
from repro.cli.arguments import names, refuse
from repro.errors import EXIT_GOOD, EXIT_MISMATCH


def _inspect_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("artifact", type=Path, metavar="ARTIFACT.json")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--code", metavar="TARGET", help="print the code of a target whose code is text")
    chips = "time, energy and utilisation of a run on simulated chips, such as v4,v5e,v6e"
    what.add_argument("--chips", type=names, metavar="LIST", help=chips)
    what.add_argument("--kernel", metavar="NAME", help="show one kernel: loops, code and least time (a digest's start)")
    made.add_argument(
        "--target", metavar="NAME", help="whose code of the kernel (default: gpu, or the first that is there)"
    )
    made.add_argument("--device", metavar="NAME", help="whose least time of the kernel (default: A100)")
    made.add_argument("--record", type=Path, metavar="FILE", help="what this record of a device measured of the kernel")
    made.add_argument("--json", action="store_true", help="print the result as JSON")


def _diff_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("left", type=Path, metavar="LEFT.json")
    made.add_argument("right", type=Path, metavar="RIGHT.json")
    made.add_argument("--json", action="store_true", help="print the result as JSON")


_OF_A_KERNEL = ("target", "device", "record")


def inspect(options: argparse.Namespace) -> int:
    if options.kernel is None:
        refuse(options, "without --kernel there is no use for", _OF_A_KERNEL)
    if options.code is not None:
        refuse(options, "--code does not go with", ("json",))
        sys.stdout.write(driver_inspect.code(options.artifact, options.code))
        return EXIT_GOOD
    if options.chips is not None:
        found = driver_inspect.estimates(options.artifact, options.chips)
        shown.print_json(found) if options.json else shown.show_estimates(tables.console(), found)
        return EXIT_GOOD
    if options.kernel is not None:
        return _inspect_kernel(options)
    content = driver_inspect.inspect(options.artifact)
    if options.json:
        shown.print_json(content)
    else:
        shown.show_content(tables.console(), content)
    return EXIT_GOOD


def _inspect_kernel(options: argparse.Namespace) -> int:
    given = {name: value for name in _OF_A_KERNEL if (value := getattr(options, name)) is not None}
    content = driver_inspect.inspect_kernel(options.artifact, options.kernel, **given)
    if options.json:
        shown.print_json(content)
    else:
        shown.show_kernel(tables.console(), content)
    return EXIT_GOOD


def diff(options: argparse.Namespace) -> int:
    differences = driver_inspect.diff(options.left, options.right)
    if options.json:
        shown.print_json([{"where": d.where, "left": d.left, "right": d.right} for d in differences])
    else:
        out = tables.console()
        if differences:
            rows = [(d.where, d.left, d.right) for d in differences]
            out.print(tables.table("", ("where", "left", "right"), rows))
        count = len(differences)
        same = "the artifacts are identical by their digests (repro verify checks the files)"
        tables.line(out, f"{count} difference{'s' if count > 1 else ''}" if count else same)
    return EXIT_MISMATCH if differences else EXIT_GOOD


COMMANDS: Commands = {
    "inspect": (_inspect_options, inspect),
    "diff": (_diff_options, diff),
}
