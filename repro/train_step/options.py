"""Options by name, as a command line or a dictionary gives them, into the dataclass that describes them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from repro.errors import ReproError

T = TypeVar("T")


def choose(what: str, kinds: Mapping[str, type[T]], kind: str, given: Mapping[str, Any]) -> T:
    """An instance of `kinds[kind]` with the options given. Raises ReproError for a kind or an option it lacks."""
    made = kinds.get(kind)
    if made is None:
        raise ReproError(f"there is no {what} of this name", found=f"'{kind}'", expected=", ".join(kinds))
    known = [field.name for field in dataclasses.fields(made) if field.init]  # pyright: ignore[reportArgumentType]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ReproError(
            f"{what} {kind} has no such option",
            found=", ".join(unknown),
            expected=", ".join(known) or "no options",
        )
    return made(**given)


def check_range(name: str, value: float, low: float, high: float = math.inf, open_end: bool = False) -> None:
    """Refuses a number outside of low <= value <= high (value < high with `open_end`); NaN is outside."""
    inside = low <= value and (value < high if open_end else value <= high)
    if not inside or math.isinf(value):
        bound = "" if math.isinf(high) else f" and {'below' if open_end else 'at most'} {high:g}"
        raise ReproError(f"option {name} is out of range", found=f"{value}", expected=f"at least {low:g}{bound}")


def check_count(name: str, value: int, least: int) -> None:
    """Refuses a count below `least`."""
    if value < least:
        raise ReproError(f"option {name} is out of range", found=str(value), expected=f"{least} or more")


def check_power_of_two(name: str, value: int) -> None:
    """Refuses a number that is none of 1, 2, 4, 8 ..."""
    if value < 1 or value & (value - 1):
        raise ReproError(f"option {name} is no power of two", found=str(value), expected="1, 2, 4, 8 ...")
