"""Types of command-line arguments, and how a command gets its parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def command(
    commands: Any, name: str, function: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    made.set_defaults(command=function)
    return made


def names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names separated by commas")
    return found


def seed(text: str) -> int:
    try:
        found = int(text, 0)
    except ValueError:
        found = -1
    if not 0 <= found < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer in 0..2^64-1")
    return found


def threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of threads in 1..1024")
    return int(text)


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) < 1 << 53:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text: str) -> int:
    """Bytes, from a whole number and a unit: 65536, 512MiB, 2GB."""
    digits = text.rstrip("kKMGiB")
    unit = _UNITS.get(text[len(digits) :])
    if unit is None or not (digits.isascii() and digits.isdecimal()) or int(digits) * unit >= 1 << 53:
        known = ", ".join(name for name in _UNITS if name)
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, plain or in {known}")
    return int(digits) * unit
