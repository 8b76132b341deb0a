"""The command line: words in, one function of a driver per command, tables and an exit code out (`repro.ending`).

A command's own module, and what it needs, is loaded when the command is called: help, or a word that is none, waits for
no compiler.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from repro.ending import ended
from repro.version import VERSION

Commands = Mapping[str, tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]]
"""What a module here has of each of its commands: what adds the options to a parser, and what runs it."""

COMMANDS = {
    "build": ("artifacts", "compile a model to an artifact"),
    "verify": ("artifacts", "rebuild an artifact, run it everywhere, compare bits"),
    "run": ("artifacts", "run an entry of an artifact on your inputs"),
    "tune": ("tune", "measure schedules of a model's kernels here; the bits stay"),
    "train": ("training", "train an artifact that was built with --loss"),
    "export": ("training", "write a checkpoint's weights into the model they were trained from"),
    "bisect": ("training", "find where two training runs diverge (exit code 1 if they do)"),
    "audit": ("audit", "run a model on other runtimes and name the nodes that drift"),
    "bench": ("bench", "measure repro beside PyTorch and ONNX Runtime, in turn in one run"),
    "inspect": ("inspect", "show what is in an artifact"),
    "diff": ("inspect", "show where two artifacts differ (exit code 1 if they do)"),
    "cache": ("artifacts", "show or clear the build cache"),
}
"""The module here whose own `COMMANDS` has the command's options and function, and what it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and never raises."""
    return ended(_run, sys.argv[1:] if arguments is None else arguments)


def _run(words: Sequence[str]) -> int:
    options = parse(words)
    from repro.cli.arguments import check_apart  # imports what commands need: not where help is asked for

    check_apart(options)
    logging.basicConfig(level=logging.DEBUG if options.debug else logging.WARNING, format="%(name)s: %(message)s")
    return options.command(options)


def called(words: Sequence[str]) -> tuple[str, Commands]:
    """The command that a command line calls, and the commands of its module, which is loaded; "" if there is none."""
    name = next((word for word in words if not word.startswith("-")), "")  # no option before it has a value
    return name, import_module(f"repro.cli.{COMMANDS[name][0]}").COMMANDS if name in COMMANDS else {}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What a command line says; `command` is the function to call with it. Wrong use ends the process (SystemExit)."""
    top = argparse.ArgumentParser(
        prog="repro", description="Compiles ONNX graphs to code whose results are the same bits everywhere."
    )
    top.add_argument("--version", action="version", version=f"repro {VERSION}")
    top.add_argument("--debug", action="store_true", help="log cache keys and other inner workings to stderr")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    name, loaded = called(words)
    for each, (_, text) in COMMANDS.items():
        made = commands.add_parser(each, help=text, description=text)
        if each == name:
            options, function = loaded[each]
            options(made)
            made.set_defaults(command=function)
    return top.parse_args(words)
