"""Checkpoints: a whole state as safetensors, and beside it a document that says what it is and vouches for it.

`step-00000042.safetensors` is written first, then `step-00000042.json`; each is complete before it has its name. A
checkpoint is there if its document is, so a kill at any moment leaves the one before or the new one, whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors import numpy as safetensors

from repro.artifact import files, schema, tensors
from repro.artifact.canonical import Json, decode, encode, sha256
from repro.artifact.tensors import type_of
from repro.errors import EXIT_MISMATCH, ReproError
from repro.ir.types import F8E4M3FNUZ, F8E5M2FNUZ, Array
from repro.training import digests

FORMAT = "repro-checkpoint/3"
"""Version 1 had digests of sha256 for tensors, version 2 none of the data."""
_NAME, _TENSORS = re.compile(r"step-(\d{8,})\.json"), re.compile(r"step-\d{8,}\.safetensors")
_UNKNOWN_TO_SAFETENSORS = (F8E4M3FNUZ, F8E5M2FNUZ)
"""They are kept as bytes; the document has their type."""


@dataclass(frozen=True)
class Document:
    """What a checkpoint says of itself. `artifact_path` leads from the checkpoint's folder to the artifact's."""

    format: str
    artifact: str
    artifact_path: str
    entry: str
    graph: str
    step: int
    epoch: int
    position: int
    """Finished batches of the epoch."""
    options: dict[str, Json]
    """What decides which samples come when: data (its digest), seed, last, batch, samples."""
    loss: str
    """Bits of the last step's loss; empty before the first."""
    tensors: tuple[tuple[str, str, str], ...]
    """(name, type, digest) of each tensor, in slot order."""
    state: str
    """The Merkle root over them."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint that was read and whose digests hold."""

    path: Path
    document: Document
    state: dict[str, Array]


def describe(state: Mapping[str, Array]) -> tuple[tuple[tuple[str, str, str], ...], str]:
    """The tensors of a state, and its root."""
    found = digests.leaves(state)
    rows = zip(state.items(), found, strict=True)
    return tuple((name, str(type_of(array)), digests.named(each)) for (name, array), each in rows), digests.named(
        digests.root(found)
    )


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────


def write(folder: Path, document: Document, state: Mapping[str, Array], keep: int) -> Path:
    """Write a checkpoint, and remove all but the newest `keep`. The path of its document."""
    path = folder / f"step-{document.step:08}.json"
    try:
        files.write_file(path.with_suffix(".safetensors"), _pack(state))
        files.write_file(path, _seal(document))
        _remove_old(folder, keep)
    except OSError as error:
        raise ReproError("the checkpoint cannot be written", found=f"{path}: {error.strerror}") from error
    return path


def _pack(state: Mapping[str, Array]) -> bytes:
    return safetensors.save({name: _packable(array) for name, array in state.items()})


def _packable(array: Array) -> Array:
    dense = np.ascontiguousarray(array).reshape(array.shape)
    return dense.view(np.uint8) if type_of(array).dtype in _UNKNOWN_TO_SAFETENSORS else dense


def _seal(document: Document) -> bytes:
    """Canonical JSON with a digest of everything else in it."""
    fields: dict[str, Json] = {**dataclasses.asdict(document), "tensors": [list(row) for row in document.tensors]}
    return encode({**fields, "digest": sha256(encode(fields))})


def _remove_old(folder: Path, keep: int) -> None:
    """Documents first: without its own, a file of tensors is no checkpoint. What a user keeps beside them under another
    name stays."""
    found = documents(folder)
    for path in found[:-keep]:
        path.unlink(missing_ok=True)
    kept = {path.stem for path in found[-keep:]}
    tensors = (path for path in folder.glob("step-*.safetensors") if _TENSORS.fullmatch(path.name))
    for path in (*tensors, *folder.glob(".partial-*")):
        if path.stem not in kept:
            with contextlib.suppress(OSError):
                path.unlink()


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────


def documents(folder: Path) -> list[Path]:
    """The documents of a folder's checkpoints, oldest step first."""
    named = {path: _NAME.fullmatch(path.name) for path in folder.glob("step-*.json")}
    steps = {path: int(match[1]) for path, match in named.items() if match}
    return sorted(steps, key=lambda path: steps[path])


def step_of(path: Path) -> int:
    """The step that a document's name says."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ReproError("not a checkpoint", found=str(path), expected="a folder of checkpoints, or its step-….json")
    return int(match[1])


def read(path: Path) -> Checkpoint:
    """A checkpoint by its document, or the newest of a folder. Raises ReproError for one that is none or is damaged."""
    if path.is_dir():
        found = documents(path)
        if not found:
            raise ReproError("the folder holds no checkpoint", found=str(path), expected="step-….json")
        path = found[-1]
    elif path.suffix == ".safetensors":
        path = path.with_suffix(".json")
    document = _document(path)
    data = bytes(files.read_file(path.with_suffix(".safetensors"), "the checkpoint"))
    state = _unpack(path, document, data)
    rows, root = describe(state)
    wrong = [mine[0] for mine, stated in zip(rows, document.tensors, strict=True) if mine != stated]
    if wrong or root != document.state:
        raise _damaged(path, ", ".join(wrong) or root, "the tensors that its document names by digest")
    return Checkpoint(path, document, state)


def _document(path: Path) -> Document:
    value = decode(files.read_file(path, "the checkpoint"), f"the checkpoint {path}")
    expected = {field.name for field in dataclasses.fields(Document)} | {"digest"}
    if not isinstance(value, dict) or value.get("format") != FORMAT or set(value) != expected:
        stated = f" of {value['format']}" if isinstance(value, dict) and "format" in value else ""
        raise ReproError("not a checkpoint", found=f"{path}{stated}", expected=f"a document of {FORMAT}")
    fields: dict[str, Json] = {name: item for name, item in value.items() if name != "digest"}
    if sha256(encode(fields)) != value["digest"]:
        raise _damaged(path, sha256(encode(fields)), str(value["digest"]))
    schema.check(value, "checkpoint", f"the checkpoint {path}")
    rows = tuple((name, kind, digest) for name, kind, digest in fields.pop("tensors"))
    return Document(**fields, tensors=rows)


def _unpack(path: Path, document: Document, data: bytes) -> dict[str, Array]:
    try:
        found = {name: bytes(each["data"]) for name, each in deserialize(data)}
        if sorted(found) != sorted(name for name, _, _ in document.tensors):
            raise ValueError(f"tensors {', '.join(sorted(found))}")
        return {name: tensors.from_bytes(found[name], kind) for name, kind, _ in document.tensors}
    except (SafetensorError, ValueError, KeyError) as error:
        raise _damaged(path, str(error), "a safetensors file of the tensors that its document names") from error


def _damaged(path: Path, found: str, expected: str) -> ReproError:
    return ReproError("the checkpoint is damaged", found=f"{path}: {found}", expected=expected, exit_code=EXIT_MISMATCH)
