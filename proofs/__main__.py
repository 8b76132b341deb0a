"""Show that f32 functions are correctly rounded for every one of the 2^32 inputs, and record it.

    python -m proofs [NAME...] [--workers 2]          every class; writes golden/elementary/NAME.json
    python -m proofs NAME --classes 0-15              some residue classes of 256; a report, no record
    python -m proofs NAME --find [--stop 20]          list misrounded inputs; stop once there are so many

pow and atan2, whose operand pairs are too many, are shown on 2^30 of them (proofs/pairs.py).
Exit code 0 where everything that ran was right, 1 where a result was not, 2 for a wrong command.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from proofs import pairs, records
from proofs.exhaustive import CLASSES, Tally, Wrong
from proofs.workers import Outcome, outcomes
from repro import ending
from repro.errors import ReproError
from repro.numerics.elementary import BINARY_FUNCTIONS, FUNCTIONS
from repro.tables import console, line

SHOWN = 100
"""Misrounded inputs that are printed."""


def residues(text: str) -> range:
    """`7` or `0-15`."""
    first, _, last = text.partition("-")
    chosen = range(int(first), int(last or first) + 1)
    if not chosen or chosen[0] < 0 or chosen[-1] >= CLASSES:
        raise argparse.ArgumentTypeError(f"classes are numbered 0 to {CLASSES - 1}, ascending")
    return chosen


def options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proofs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="functions (default: all)")
    parser.add_argument("--classes", type=residues, default=range(CLASSES), metavar="A-B", help="residue classes")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--find", action="store_true", help="list misrounded inputs; no record")
    parser.add_argument("--stop", type=int, default=20, help="with --find: stop after so many (default: 20)")
    chosen = parser.parse_args(words)
    known = [*FUNCTIONS, *BINARY_FUNCTIONS]
    unknown = [name for name in chosen.names if name not in known]
    if unknown:
        parser.error(f"no function {', '.join(unknown)}; there are {', '.join(known)}")
    chosen.names = chosen.names or known
    return chosen


def watched(name: str, found: Iterator[Outcome], total: int, to: Console) -> Iterator[Outcome]:
    """The outcomes, with a bar that shows how far they are."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=to, transient=True, disable=not to.is_terminal) as bar:
        task = bar.add_task(name, total=total)
        for outcome in found:
            bar.advance(task)
            yield outcome


def show_wrong(wrong: Sequence[Wrong], to: Console) -> None:
    for each in wrong[:SHOWN]:
        line(to, f"  0x{each.argument:08x}: 0x{each.wanted:08x},  # found 0x{each.result:08x}")


def find(found: Iterator[Outcome], stop: int, to: Console) -> Tally:
    """Misrounded inputs as they are found, as entries of a table of patches."""
    total = Tally()
    for outcome in found:
        show_wrong(outcome.tally.wrong, to)
        total = total + outcome.tally
        if total.misroundings >= stop:
            break
    return total


def prove(name: str, found: Iterator[Outcome], to: Console) -> Tally:
    """Run the classes; a record if they are all there and right."""
    by_class = {outcome.residue: outcome for outcome in found}
    ordered = [by_class[residue] for residue in sorted(by_class)]
    total = sum((outcome.tally for outcome in ordered), Tally())
    show_wrong(total.wrong, to)
    if len(ordered) == CLASSES and not total.misroundings:
        record = records.of_every_input(name, [outcome.digest for outcome in ordered], total)
        if {outcome.code for outcome in ordered} != {(record["code"], record["screen"]["code"])}:
            raise ReproError(f"{name} or its screen changed while it was proved", next="run the proof again")
        line(to, f"{name}: recorded in {records.write(record, name, 'every_input')}")
    return total


def run(name: str, chosen: argparse.Namespace, to: Console) -> bool:
    """Whether every result that was asked for is right."""
    if name in BINARY_FUNCTIONS:
        return pairs.prove(name, pairs.PAIRS, pairs.SEED, chosen.workers, to)
    started = time.perf_counter()
    tasks = [(name, residue) for residue in chosen.classes]
    found = watched(name, outcomes(tasks, chosen.workers), len(tasks), to)
    tally = find(found, chosen.stop, to) if chosen.find else prove(name, found, to)
    line(
        to,
        f"{name}: {tally.misroundings} misrounded of {tally.inputs:,} inputs ({tally.rule:,} by rule, "
        f"{tally.screen:,} by screen, {tally.mpfr:,} by MPFR; {len(tally.hard)} hard) "
        f"in {time.perf_counter() - started:.1f} s",
        "bold red" if tally.misroundings else "green",
    )
    return not tally.misroundings


def main(words: Sequence[str]) -> int:
    chosen, to = options(words), console()
    right = [run(name, chosen, to) for name in chosen.names]
    return 0 if all(right) else 1


if __name__ == "__main__":
    ending.run(main)
