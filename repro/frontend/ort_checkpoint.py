"""The checkpoint of ONNX Runtime's training artifacts: parameters and optimizer state in a flatbuffer.

A minimal reader of the two schemas ort_training_checkpoint.fbs and ort.fbs. Every offset is checked against the file
before it is followed, tables are only as deep as the schema, and the tensors together hold no more bytes than the file.
Where parameters are over 1800 MiB, that runtime puts them into a second file, `checkpoint.data`, and says of each where
it lies; they become external data in ONNX's sense, and are mapped. It writes one group of an optimizer, never more.
Format: FlatBuffers Internals, https://flatbuffers.dev/internals/.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from onnx import StringStringEntryProto, TensorProto

from repro.errors import ReproError
from repro.frontend.limits import check_tensor_size
from repro.frontend.tensors import dtype_of, onnx_tensor, onnx_type, read_array
from repro.ir.types import Array, DType

IDENTIFIER = b"ODTC"
DATA = "checkpoint.data"
"""The file that holds what does not fit into a checkpoint called `checkpoint`."""

Read = TypeVar("Read")


@dataclass(frozen=True, eq=False)
class SavedTensor:
    """A tensor by name, as a storage array. `external` says where it lies if that is another file."""

    name: str
    dtype: DType
    array: Array
    external: TensorProto | None = None

    @property
    def initializer(self) -> TensorProto:
        """As an initializer of a model beside the files."""
        return self.external or onnx_tensor(self.name, self.dtype, self.array)


@dataclass(frozen=True)
class SavedGroup:
    """The optimizer's state: finished steps, learning rate, and the moments of each parameter, in order."""

    step: int
    learning_rate: float
    moments: dict[str, tuple[SavedTensor, ...]]


@dataclass(frozen=True)
class SavedState:
    trained: tuple[SavedTensor, ...]
    frozen: tuple[SavedTensor, ...]
    group: SavedGroup | None


def read_checkpoint(content: bytes, folder: Path | None = None) -> SavedState:
    """A checkpoint; `folder` is where its second file lies. Raises ReproError for what is not one, or is damaged."""
    file = _File(content, folder)
    if content[4:8] != IDENTIFIER:
        found = "another format" if len(content) >= 8 else f"{len(content)} bytes"
        raise ReproError("this is no training checkpoint", found=found, expected=f"a file marked {IDENTIFIER.decode()}")
    root = file.table(file.offset(0))
    module = root.child(1)
    if module is None or module.scalar(2, "<B"):
        raise ReproError(
            "the checkpoint holds no parameters",
            found="a nominal checkpoint",
            expected="the parameters themselves",
            next="save it with its parameters: CheckpointState.save_checkpoint(state, path, nominal_checkpoint=False)",
        )
    trained = tuple(_tensor(each) for each in module.children(0))
    frozen = tuple(_tensor(each) for each in module.children(1))
    _check_names([tensor.name for tensor in (*trained, *frozen)])
    groups = [_group(each) for each in root.children(2)]
    if len(groups) > 1:
        raise ReproError("the optimizer has several groups", found=f"{len(groups)}", expected="one")
    return SavedState(trained, frozen, groups[0] if groups else None)


def _check_names(names: list[str]) -> None:
    if len(set(names)) != len(names) or "" in names:
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ReproError("parameters have no names of their own", found=", ".join(twice) or "an empty name")


def _group(table: _Table) -> SavedGroup:
    moments: dict[str, tuple[SavedTensor, ...]] = {}
    for each in table.children(3):
        name = each.text(0)
        if name in moments:
            raise ReproError("a parameter has optimizer state twice", node=name)
        moments[name] = tuple(_tensor(tensor) for tensor in each.children(1))
    return SavedGroup(int(table.scalar(1, "<q")), float(table.scalar(2, "<f")), moments)


def _tensor(table: _Table) -> SavedTensor:
    name = table.text(0)
    dtype = dtype_of(int(table.scalar(3, "<i")), f"'{name}' of the checkpoint", name)
    shape = table.integers(2)
    if min(shape, default=0) < 0:
        raise ReproError("a tensor has a negative extent", node=name, found=str(list(shape)))
    check_tensor_size(shape, dtype.bytes, node=name)
    offset = int(table.scalar(6, "<q", -1))
    if offset >= 0:
        return _external(table.file, name, dtype, shape, offset)
    data = table.data(4)
    if len(data) != math.prod(shape) * dtype.bytes:
        raise ReproError(
            "a tensor's data does not fit its shape",
            node=name,
            found=f"{len(data)} bytes",
            expected=f"{math.prod(shape) * dtype.bytes} for {dtype}{list(shape)}",
        )
    little = np.frombuffer(data, np.dtype(dtype.storage).newbyteorder("<"))
    return SavedTensor(name, dtype, little.astype(dtype.storage).reshape(shape))


def _external(file: _File, name: str, dtype: DType, shape: tuple[int, ...], offset: int) -> SavedTensor:
    """A tensor that lies in the second file."""
    length = math.prod(shape) * dtype.bytes
    fields = {"location": DATA, "offset": str(offset), "length": str(length)}
    tensor = TensorProto(name=name, data_type=onnx_type(dtype), dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.extend(StringStringEntryProto(key=key, value=value) for key, value in fields.items())
    array, _ = read_array(tensor, file.folder)
    file.spend_outside(length)
    return SavedTensor(name, dtype, array, tensor)


# ── flatbuffers ─────────────────────────────────────────────────────────────────────────────────────


class _File:
    """The bytes, read within their bounds."""

    def __init__(self, content: bytes, folder: Path | None) -> None:
        self.content, self.folder = content, folder
        self._left, self._left_outside = len(content), 0
        if folder is not None and (folder / DATA).is_file():
            self._left_outside = (folder / DATA).stat().st_size

    def read(self, layout: str, at: int) -> int | float:
        size = struct.calcsize(layout)
        self.check(at, size)
        return struct.unpack_from(layout, self.content, at)[0]

    def check(self, at: int, size: int) -> None:
        if at < 0 or size < 0 or at + size > len(self.content):
            found = f"{size} bytes at {at} of {len(self.content)}"
            raise ReproError("the checkpoint is damaged", found=found, expected="offsets within the file")

    def spend(self, size: int) -> None:
        """Counts bytes that are taken out, so that overlapping vectors cannot multiply a small file."""
        self._left -= size
        if self._left < 0:
            raise ReproError("the checkpoint is damaged", found="parts that overlap", expected="parts of their own")

    def spend_outside(self, size: int) -> None:
        """The same of the second file."""
        self._left_outside -= size
        if self._left_outside < 0:
            raise ReproError("the checkpoint is damaged", found=f"parts of {DATA} that overlap", expected="their own")

    def offset(self, at: int) -> int:
        """Where the unsigned offset at a place leads; it counts from there."""
        return at + int(self.read("<I", at))

    def table(self, at: int) -> _Table:
        return _Table(self, at)

    def vector(self, at: int, size: int) -> tuple[int, int]:
        """The first element's place and the count of a vector of elements of a size."""
        count = int(self.read("<I", at))
        self.check(at + 4, count * size)
        self.spend(count * size)
        return at + 4, count


class _Table:
    """A table: the vtable in front says where each field lies, 0 standing for its default."""

    def __init__(self, file: _File, at: int) -> None:
        self.file, self.at = file, at
        self._vtable = at - int(file.read("<i", at))
        self._fields = (int(file.read("<H", self._vtable)) - 4) // 2

    def _place(self, field: int) -> int | None:
        if field >= self._fields:
            return None
        relative = int(self.file.read("<H", self._vtable + 4 + 2 * field))
        return self.at + relative if relative else None

    def _followed(self, field: int, read: Callable[[int], Read], default: Read) -> Read:
        place = self._place(field)
        return default if place is None else read(self.file.offset(place))

    def scalar(self, field: int, layout: str, default: int = 0) -> int | float:
        place = self._place(field)
        return default if place is None else self.file.read(layout, place)

    def child(self, field: int) -> _Table | None:
        return self._followed(field, self.file.table, None)

    def data(self, field: int) -> bytes:
        def read(at: int) -> bytes:
            first, count = self.file.vector(at, 1)
            return self.file.content[first : first + count]

        return self._followed(field, read, b"")

    def text(self, field: int) -> str:
        try:
            return self.data(field).decode()
        except UnicodeDecodeError:
            raise ReproError("the checkpoint is damaged", found="a name that is not UTF-8") from None

    def integers(self, field: int) -> tuple[int, ...]:
        def read(at: int) -> tuple[int, ...]:
            first, count = self.file.vector(at, 8)
            return struct.unpack_from(f"<{count}q", self.file.content, first)

        return self._followed(field, read, ())

    def children(self, field: int) -> Iterator[_Table]:
        place = self._place(field)
        if place is None:
            return
        first, count = self.file.vector(self.file.offset(place), 4)
        for number in range(count):
            yield self.file.table(self.file.offset(first + 4 * number))
