"""The first value of a step that differs, by what two traces recorded of it: nothing is run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.artifact.canonical import Json
from repro.errors import EXIT_MISMATCH, ReproError
from repro.training.nodes import GIVEN, Operand, name


@dataclass(frozen=True)
class RecordedDifference:
    """A value whose digests differ. `source` is its ONNX node, or the name of an input or a state tensor."""

    position: int
    values: int
    op: str
    source: str
    type: str
    left: str
    right: str
    operands: tuple[Operand, ...]


def recorded_difference(rows: Sequence[Json], left: Sequence[str], right: Sequence[str]) -> RecordedDifference | None:
    """The first in canonical order, in which operands stand before what reads them; what was given comes first of all.

    `rows` are the header's: (op, source, type, rows of the operands). Raises ReproError for lines of another length.
    """
    if not len(rows) == len(left) == len(right):
        found = f"{len(left)} and {len(right)} digests"
        what = "the nodes of a trace do not fit its header"
        raise ReproError(what, found=found, expected=str(len(rows)), exit_code=EXIT_MISMATCH)
    differing = [number for number in range(len(rows)) if left[number] != right[number]]
    if not differing:
        return None
    number = next((each for each in differing if rows[each][0] in GIVEN), differing[0])
    op, source, kind, reads = rows[number]
    operands = tuple(Operand(name(*rows[each][:2]), left[each], right[each]) for each in map(int, reads))
    return RecordedDifference(number, len(rows), op, source, kind, left[number], right[number], operands)


def said(found: RecordedDifference | None, values: int, where: str) -> str:
    """In words. `where` says whose digests were compared."""
    if found is None:
        return (
            f"all {values} recorded values of the step are the same in {where}: what differs was changed outside of "
            "the operations, in memory or storage, or by code that fuses them"
        )
    if found.op in GIVEN:
        return f"{name(found.op, found.source)} differs between {where} before the step: no operation of it is at fault"
    same = all(each.left == each.right for each in found.operands)
    fault = "its operands are the same, so the operation is at fault" if same else "its operands differ"
    return f"value {found.position + 1} of {values} is the first that differs between {where}: {fault}"
