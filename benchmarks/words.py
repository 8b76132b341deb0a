"""Words of the benchmarks' command lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def one_of(what: str, known: Collection[str]) -> Callable[[str], str]:
    """The type of an argument that names one of several. (argparse's `choices` go with no default of several.)"""

    def word(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"there is no {what} {text!r}; there are {', '.join(known)}")
        return text

    return word
