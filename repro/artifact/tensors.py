"""Tensors as bytes, and as .npz files. A tensor's bytes are its elements, row-major, little-endian."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np

from repro.artifact import files
from repro.artifact.canonical import Bytes, sha256
from repro.artifact.sessions import as_arrays
from repro.errors import ReproError
from repro.ir.types import DTYPES, Array, DType, TensorType, parse_type, to_face, to_storage
from repro.signatures import checked

UNREADABLE: tuple[type[Exception], ...] = (
    ValueError, TypeError, KeyError, EOFError, SyntaxError, TokenError, OverflowError,  # of the header of an array
    BadZipFile, zlib.error, RuntimeError, MemoryError,  # of the archive: damaged, encrypted, of a method not known
)  # fmt: skip
"""What NumPy and the libraries below it raise for bytes that are no arrays."""

BY_FACE: dict[np.dtype[Any], DType] = {dtype.face: dtype for dtype in DTYPES}


def type_of(array: Array) -> TensorType:
    """The tensor type of a user's array. Raises KeyError for a NumPy type that has no element type here."""
    return TensorType(BY_FACE[array.dtype.newbyteorder("=")], tuple(array.shape))


def to_bytes(array: Array) -> bytes:
    """The bytes of a user's array."""
    little = to_storage(array, type_of(array).dtype)
    return little.astype(little.dtype.newbyteorder("<"), copy=False).tobytes()


def from_bytes(data: Bytes, kind: str) -> Array:
    """A user's (read-only) array from a tensor's bytes and its type, such as `f32[32,64]`."""
    parsed = parse_type(kind)
    stored = np.frombuffer(data, dtype=parsed.dtype.storage.newbyteorder("<")).reshape(parsed.shape)
    return to_face(stored.astype(parsed.dtype.storage, copy=False), parsed.dtype)


def digest(array: Array) -> str:
    return sha256(to_bytes(array))


@checked
def read_npz(path: str | Path) -> dict[str, Array]:
    """The arrays of an .npz file by name. Raises ReproError for anything else."""
    try:
        with Path(path).open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("not a zip archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return {name: _member(archive, name) for name in archive.files}
    except OSError as error:
        raise ReproError("the .npz file cannot be read", found=f"{path}: {error.strerror or error}") from error
    except UNREADABLE as error:
        made = "numpy.savez makes one of arrays of numbers by name"
        raise ReproError("not an .npz file of plain arrays", found=f"{path}: {error}", next=made) from error


def _member(archive: Mapping[str, Array], name: str) -> Array:
    try:
        return archive[name]
    except UNREADABLE as error:
        raise ValueError(f"array '{name}': {said(error)}") from error


def said(error: Exception) -> str:
    """What NumPy says of bytes that are no array, but for its advice to load Python objects unsafely."""
    return "Python objects, or no array" if "pickle" in str(error) else str(error)


@checked
def write_npz(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as .npz, whole or not at all; the same arrays give the same bytes. Raises ReproError."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in as_arrays(arrays, "array").items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), entry.getvalue())
    write_output(Path(path), buffer.getvalue())


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user named."""
    try:
        files.write_file(path, data)
    except OSError as error:
        raise ReproError("the file cannot be written", found=f"{path}: {error.strerror}") from error


def describe(arrays: Mapping[str, Array]) -> list[tuple[str, str, str, str]]:
    """(name, type, digest, first values) of each array."""
    rows: list[tuple[str, str, str, str]] = []
    for name, array in arrays.items():
        values = ", ".join(str(value) for value in np.ravel(array)[:4])
        rows.append((name, str(type_of(array)), digest(array), values + (", ..." if array.size > 4 else "")))
    return rows
