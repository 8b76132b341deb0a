"""Traces: one line of canonical JSON per step, each with the sha256 of the line before it.

The first line says what is trained: the entry's graph digest, the contract's version, the names and types of the state
and its digest before the first step, the digest of the data, the seed and the batches. It says nothing of the machine,
the target, the threads or the toolchain, so that two runs that agree have the same bytes. Then, for each step: its
number, the loss's bits, the digest of its inputs, the digest of the state after it, and `previous`. Lines may have
more: a digest of each tensor of the state, and a digest of each node's value, whose rows the first line names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import manifests
from repro.artifact import files, schema
from repro.artifact.canonical import Json, decode, encode
from repro.errors import EXIT_MISMATCH, ReproError
from repro.ir.types import Array
from repro.training import digests

FORMAT = "repro-trace/3"
"""Version 1 had digests of sha256, version 2 none of the data."""
STEP_FIELDS = {"step", "loss", "inputs", "state", "previous"}
HEADER_FIELDS: frozenset[str] = frozenset(manifests.schema("trace")["required"])
BEGINS = b'{"batch":'
"""Every trace: canonical JSON has its keys in order."""
_DIGEST = re.compile(f"{digests.ALGORITHM}:[0-9a-f]{{64}}")
_BITS = re.compile("0x([0-9a-f]{2}){1,8}")
STEP_EXTRAS = {"tensors", "nodes"}


def line_digest(line: bytes) -> str:
    """What the next line calls `previous`: the digest of a line without its end."""
    return "sha256:" + hashlib.sha256(line).hexdigest()


@dataclass(frozen=True)
class Trace:
    """A trace whose chain has been verified: `lines[0]` is the header, `lines[i]` the i-th step after it."""

    path: Path
    lines: tuple[bytes, ...]
    documents: tuple[Json, ...]

    @property
    def header(self) -> Json:
        return self.documents[0]

    @property
    def first(self) -> int:
        """Finished steps before the first one in the trace."""
        return self.header["step"]

    @property
    def steps(self) -> tuple[Json, ...]:
        return self.documents[1:]


def read(path: Path, torn: bool = False) -> Trace:
    """A trace. Raises ReproError, with the line's number, where the chain does not hold.

    `torn`: a last line without its end, which is what a killed run leaves, is left out.
    """
    data = bytes(files.read_file(path, "the trace"))
    *lines, rest = data.split(b"\n")
    if not lines and not torn:
        raise _no_trace(path, "no whole line")
    documents: list[Json] = []
    for number, line in enumerate(lines, 1):
        document = _document(path, number, line)
        _check_line(path, number, document, documents, lines)
        documents.append(document)
    if rest and not torn:  # last: a file of another kind has no header either
        raise _broken(path, len(lines) + 1, "the line has no end", "a whole line", "the run was killed here: resume it")
    return Trace(path, tuple(lines), tuple(documents))


def _document(path: Path, number: int, line: bytes) -> Json:
    try:
        return decode(line, f"line {number}")
    except ReproError as error:
        if number == 1:
            raise _no_trace(path, str(error).replace("\n  found", "")) from error
        raise _broken(path, number, error.found or error.what, error.expected or "canonical JSON (RFC 8785)") from error


def _check_line(path: Path, number: int, document: Json, before: Sequence[Json], lines: Sequence[bytes]) -> None:
    if not before and not (isinstance(document, dict) and document.get("format") == FORMAT):
        stated = document.get("format") if isinstance(document, dict) else None
        raise _no_trace(path, "another first line" if stated is None else f"a first line of {stated}")
    if not isinstance(document, dict):
        raise _broken(path, number, type(document).__name__, "an object")
    if not before:
        try:
            schema.check(document, "trace", "the first line")
        except ReproError as error:
            expected = "a first line that follows manifests/schema/trace.schema.json"
            raise _broken(path, number, str(error.found), expected) from error
        if not _are_rows(document.get("nodes", [])):
            raise _broken(path, number, "its nodes", "rows of op, source, type and rows before it")
        return
    if set(document) - STEP_EXTRAS != STEP_FIELDS:
        raise _broken(path, number, ", ".join(sorted(document)), ", ".join(sorted(STEP_FIELDS)))
    for field, form, words in (("loss", _BITS, "its bits"), ("inputs", _DIGEST, "a digest"), ("state", _DIGEST, "one")):
        if not (_is(document[field], form) or (field == "state" and document[field] is None)):
            raise _broken(path, number, f"{field} {document[field]}", words)
    for extra in sorted(STEP_EXTRAS & set(document)):
        if not _are_digests(document[extra], before[0].get(extra)):
            raise _broken(path, number, f"its {extra}", f"a digest for each of the header's {extra}")
    previous = line_digest(lines[number - 2])
    if document["previous"] != previous:
        raise _broken(path, number, f"previous {document['previous']}", f"{previous}, the digest of the line before")
    if type(document["step"]) is not int or document["step"] != before[-1]["step"] + 1:
        raise _broken(path, number, f"step {document['step']}", f"step {before[-1]['step'] + 1}")


def _are_digests(stated: Json, rows: Json) -> bool:
    """Whether there is a digest for each row."""
    if not isinstance(stated, list) or not isinstance(rows, list) or len(stated) != len(rows):
        return False
    return all(_is(each, _DIGEST) for each in stated)


def _is(stated: Json, form: re.Pattern[str]) -> bool:
    return isinstance(stated, str) and form.fullmatch(stated) is not None


def _are_rows(rows: Json) -> bool:
    """Whether they are rows of values, operands before what reads them. (Of a hundred thousand rows a schema takes
    twelve seconds to say so.)"""
    return isinstance(rows, list) and all(_is_row(row, number) for number, row in enumerate(rows))


def _is_row(row: Json, number: int) -> bool:
    if not isinstance(row, list) or len(row) != 4 or not isinstance(row[3], list):
        return False
    known = range(number)
    return all(isinstance(word, str) for word in row[:3]) and all(type(at) is int and at in known for at in row[3])


def _no_trace(path: Path, found: str) -> ReproError:
    return ReproError(
        "not a trace", found=f"{path}: {found}", expected=f"a header of {FORMAT}, as `repro train` writes it"
    )


def _broken(path: Path, number: int, found: str, expected: str, next_step: str | None = None) -> ReproError:
    what = f"the trace is damaged at line {number}"
    return ReproError(what, found=f"{path}: {found}", expected=expected, next=next_step, exit_code=EXIT_MISMATCH)


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Detail:
    """What lines have besides loss and inputs.

    The state is digested after each `state_every`-th step, with `tensors` each of its tensors by itself; the nodes'
    values of each `nodes_every`-th step are, and of those in `nodes_at`.
    """

    state_every: int = 1
    tensors: bool = False
    nodes_every: int | None = None
    nodes_at: frozenset[int] = frozenset()

    def state_of(self, step: int) -> bool:
        return step % self.state_every == 0

    def nodes_of(self, step: int) -> bool:
        return step in self.nodes_at or (self.nodes_every is not None and step % self.nodes_every == 0)

    @property
    def any_nodes(self) -> bool:
        return self.nodes_every is not None or bool(self.nodes_at)


class TraceWriter:
    """Appends steps to a trace. Lines reach the disk at `sync`, before a checkpoint relies on them."""

    def __init__(self, path: Path, header: Json, step: int, resumed: bool, detail: Detail, threads: int = 1) -> None:
        """Take the file, to start a trace, or to go on after `step` with the one that a resumed run finds; `begin`
        writes it. Hash on so many threads."""
        self.detail, self.threads = detail, threads
        self._file = files.Appending(path, "the trace", BEGINS)
        kept = _kept(path, header, step) if resumed else None
        self._lines = (encode(header),) if kept is None else kept
        self.goes_on = kept is not None
        """Whether it has lines of the steps before this run's."""
        self._previous = line_digest(self._lines[-1])

    def begin(self) -> None:
        self._file.begin(b"\n".join(self._lines) + b"\n")
        self._lines = ()

    def add(
        self,
        step: int,
        loss: Array,
        inputs: Mapping[str, Array],
        state: Mapping[str, Array] | None,
        nodes: Sequence[str] | None = None,
    ) -> None:
        """The line of a finished step. No state: it is not digested. `nodes` are digests by the header's rows."""
        document: dict[str, Json] = {
            "step": step,
            "loss": digests.bits_of(loss),
            "inputs": digests.of_arrays(inputs),
            "state": None,
            "previous": self._previous,
        }
        if state is not None:
            found = digests.leaves(state, self.threads)
            document["state"] = digests.named(digests.root(found))
            if self.detail.tensors:
                document["tensors"] = [digests.named(each) for each in found]
        if nodes is not None:
            document["nodes"] = list(nodes)
        line = encode(document)
        self._file.write(line + b"\n")
        self._previous = line_digest(line)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _kept(path: Path, header: Json, step: int) -> tuple[bytes, ...] | None:
    """The lines of the trace that a run resumed after `step` goes on from; None: it has not begun.

    Raises ReproError for a trace of another run, and for one that ends before the step.
    """
    found = read(path, torn=True)
    if not found.documents:
        return None
    for name, value in header.items():
        if name not in ("step", "state") and found.header.get(name) != value:
            raise ReproError(
                f"the trace is of another run: its {name} differs", found=str(path), next="name a new file"
            )
    count = step - found.first
    if not 0 <= count <= len(found.steps):
        last = found.first + len(found.steps)
        raise ReproError(
            "the trace does not reach the checkpoint",
            found=f"{path}: steps {found.first} to {last}",
            expected=f"step {step}",
            next="resume with a new trace file",
        )
    return found.lines[: count + 1]
