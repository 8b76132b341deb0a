"""python -m tools.constants [--check] [NAME...]: write, or compare, the constants modules."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

from mpmath import workprec

import tools.constants
from repro import ending

ROOT = Path(__file__).resolve().parents[2]
PRECISION = 300
"""Bits."""
HELPERS = ("__main__", "minimax", "printing", "rational")


def names() -> list[str]:
    """The modules that describe a constants file."""
    found = (module.name for module in pkgutil.iter_modules(tools.constants.__path__))
    return sorted(name for name in found if name not in HELPERS)


def text_of(name: str) -> tuple[Path, str]:
    """The file that a module describes, and what belongs into it."""
    with workprec(PRECISION):
        module = importlib.import_module(f"tools.constants.{name}")
        return ROOT / module.PATH, "\n".join(module.lines()) + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.constants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file differs")
    options = parser.parse_args(arguments)
    different = 0
    for name in options.names or names():
        path, text = text_of(name)
        if path.exists() and path.read_text() == text:
            continue
        different += 1
        if not options.check:
            path.write_text(text)
        sys.stdout.write(f"{'differs' if options.check else 'wrote'} {path.relative_to(ROOT)}\n")
    return int(options.check and different > 0)


if __name__ == "__main__":
    ending.run(main)
