"""Data for training: arrays by the names of an entry's inputs, an order for each epoch, and batches.

Order of an epoch: sample i draws word i of Philox4x32-10 with the run's seed as key, slot 2^32-1 (which no random node
has) and the epoch as run number; samples are sorted by (word, i). It depends on nothing but (seed, epoch, how many).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repro.artifact import tensors
from repro.artifact.config import Value
from repro.artifact.sessions import NEVER_CONVERTED, accept, as_array, check_names
from repro.errors import ReproError
from repro.ir.types import Array, parse_type, to_face
from repro.numerics.random_bits import philox_words
from repro.train_step.problem import LABELS, WEIGHT
from repro.training import digests

SHUFFLE_SLOT = (1 << 32) - 1
PIECE_BYTES = 8 << 20

Arrays = Mapping[str, Array]


def order_of(seed: int, epoch: int, samples: int) -> Array:
    """The samples of an epoch in the order in which they are taken."""
    return np.argsort(philox_words(seed, SHUFFLE_SLOT, epoch, samples), kind="stable")


def read(source: Path) -> dict[str, Array]:
    """The arrays of an .npz file, or of a folder of .npy files, which are mapped rather than read."""
    if not source.is_dir():
        return tensors.read_npz(source)
    files = sorted(source.glob("*.npy"))
    if not files:
        raise ReproError("the folder of data holds no .npy file", found=str(source), expected="INPUT.npy files")
    return {file.stem: _mapped(file) for file in files}


def _mapped(file: Path) -> Array:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, *tensors.UNREADABLE) as error:
        raise ReproError(
            "not an .npy file of plain values",
            found=f"{file}: {tensors.said(error)}",
            next="numpy.save makes one of an array of numbers",
        ) from error


@dataclass(frozen=True, eq=False)
class Dataset:
    """Arrays that fit an entry: `sampled` are [samples, rows per sample, ...], `fixed` are the same in every batch."""

    values: tuple[Value, ...]
    sampled: dict[str, Array]
    fixed: dict[str, Array]
    samples: int
    batch: int
    ignored_label: int | None
    """The label that counts for nothing, where the loss has one."""

    def rows(self, indices: Array) -> dict[str, Array]:
        """The inputs of the samples named, in the order of the entry's inputs."""
        made: dict[str, Array] = {}
        for value in self.values:
            if value.name in self.fixed:
                made[value.name] = _typed(value, self.fixed[value.name])
            else:
                shape = parse_type(value.type).shape[1:]
                taken = np.ascontiguousarray(self.sampled[value.name][indices]).reshape(-1, *shape)
                made[value.name] = _typed(value, taken)
        return made

    def digest(self, stopped: Callable[[], bool]) -> str:
        """Of all that batches are made of, in the order of the entry's inputs: `sampled` as [samples, rows per sample,
        ...], whatever files and shapes it came in. All of it is read, some MiB at a time; raises KeyboardInterrupt
        where `stopped` says so in between."""
        arrays = self.sampled | self.fixed
        return digests.named(digests.root([self._leaf(value, arrays[value.name], stopped) for value in self.values]))

    def _leaf(self, value: Value, array: Array, stopped: Callable[[], bool]) -> bytes:
        def pieces() -> Iterator[Array]:
            if value.name in self.fixed:
                yield _typed(value, array)
                return
            for piece in in_pieces(array):
                if stopped():
                    raise KeyboardInterrupt
                yield _typed(value, piece)

        face = parse_type(value.type).dtype.face
        return digests.leaf_of_pieces(value.name, np.dtype(face), array.shape, pieces())

    def padded(self, indices: Array, filler: Array) -> dict[str, Array]:
        """A whole batch of fewer samples, filled up with others that count for nothing where that can be said.

        The filler's labels become the ignored label, or its weights zero; a loss with neither counts it once more.
        """
        missing = self.batch - len(indices)
        made = self.rows(np.concatenate([indices, np.resize(filler, missing)]))
        if missing and self.ignored_label is not None and LABELS in self.sampled:
            made[LABELS][-missing * self.sampled[LABELS].shape[1] :] = self.ignored_label
        elif missing and WEIGHT in self.sampled:
            made[WEIGHT][-missing * self.sampled[WEIGHT].shape[1] :] = 0
        return made


def in_pieces(array: Array) -> Iterator[Array]:
    """An array of samples, some MiB of them at a time: it may be mapped, and larger than memory."""
    rows = max(1, PIECE_BYTES * len(array) // max(1, array.nbytes))
    return (array[start : start + rows] for start in range(0, len(array), rows))


def _typed(value: Value, array: Array) -> Array:
    """An array of any shape in the type of an entry's input."""
    dtype = parse_type(value.type).dtype
    shaped = Value(value.name, f"{dtype.name}[{','.join(map(str, array.shape))}]")
    return to_face(accept(array, shaped), dtype)


def fit(
    arrays: Arrays,
    values: Sequence[Value],
    ignored_label: int | None,
    what: str = "data",
    notes: Mapping[str, str] | None = None,
) -> Dataset:
    """Match arrays with an entry's inputs. Raises ReproError where names, shapes or types do not fit.

    The batch is the leading extent of the labels if another input has the same, else that of the first input with one;
    the number of samples is how many that array has. An input may have k rows for each sample, k times the batch in
    all (a label for each character of a line): its array is [samples, k, ...] or [samples * k, ...]. An array of
    exactly its input's shape that does not fit so is fixed. `notes` helps with the shapes of some arrays.
    """
    check_names(arrays, [value.name for value in values], f"the {what}'s array")
    arrays = {each: as_array(given, f"array '{each}' of the {what}") for each, given in arrays.items()}
    name, batch = _leading(values)
    samples = arrays[name].shape[0] if arrays[name].ndim else 0
    sampled: dict[str, Array] = {}
    fixed: dict[str, Array] = {}
    counted = f"one row for each sample: '{name}' has {samples} samples"
    for value in values:
        note = (notes or {}).get(value.name) or (counted if value.name != name else "")
        shaped = _shaped(value, arrays[value.name], batch, samples, what, note)
        if shaped is None:
            fixed[value.name] = arrays[value.name]
        else:
            sampled[value.name] = shaped
    return Dataset(tuple(values), sampled, fixed, samples, batch, ignored_label)


def _leading(values: Sequence[Value]) -> tuple[str, int]:
    """The input that says what a sample is, and the batch."""
    extents = {value.name: parse_type(value.type).shape[0] for value in values if parse_type(value.type).shape}
    if not extents:
        raise ReproError("the entry has no input with samples", expected="an input whose leading axis is the batch")
    others = [extent for name, extent in extents.items() if name != LABELS]
    name = LABELS if extents.get(LABELS) in others else next(iter(extents))
    return name, extents[name]


def _shaped(value: Value, array: Array, batch: int, samples: int, what: str, note: str) -> Array | None:
    """An array as [samples, rows per sample, ...]; None if it is fixed; ReproError where it fits in neither way."""
    kind = parse_type(value.type)
    raw = array.dtype.kind == "V" and array.dtype.itemsize == kind.dtype.bytes and array.dtype.names is None
    typed = raw or array.dtype.newbyteorder("=") == kind.dtype.face
    splits = bool(kind.shape) and batch > 0 and kind.shape[0] % batch == 0
    rows = kind.shape[0] // batch if splits else 0
    if typed and splits and array.shape in ((samples * rows, *kind.shape[1:]), (samples, rows, *kind.shape[1:])):
        return array.reshape(samples, rows, *kind.shape[1:])
    if typed and array.shape == kind.shape:
        return None
    rest = "".join(f", {extent}" for extent in kind.shape[1:])
    raise ReproError(
        f"array '{value.name}' of the {what} does not fit",
        found=f"{array.dtype.name}{list(array.shape)}",
        expected=f"{kind.dtype.face.name}[{samples * rows}{rest}]" if splits else str(kind),
        next=note or None if typed else NEVER_CONVERTED,
    )


class Batches:
    """The batches of a run by the number of the step, from 0: a pure function of data, seed and step."""

    def __init__(self, data: Dataset, seed: int, last: str) -> None:
        if last not in ("drop", "pad"):
            raise ReproError("there is no such treatment of the last batch", found=last, expected="drop or pad")
        self.data, self.seed, self.last = data, seed, last
        self.per_epoch = data.samples // data.batch if last == "drop" else -(-data.samples // data.batch)
        if not self.per_epoch:
            raise ReproError(
                "there is no whole batch of data",
                found=f"{data.samples} samples",
                expected=f"at least {data.batch}, the batch that the artifact was built for",
                next="build with a smaller batch, or fill it up with --last pad" if data.samples else None,
            )
        self._order: tuple[int, Array] | None = None

    def cursor(self, step: int) -> tuple[int, int]:
        """Epoch and batch in the epoch of a step."""
        return divmod(step, self.per_epoch)

    def inputs(self, step: int) -> dict[str, Array]:
        """The inputs of a step."""
        epoch, position = self.cursor(step)
        order = self._epoch(epoch)
        start = position * self.data.batch
        return self.data.padded(order[start : start + self.data.batch], order)

    def _epoch(self, epoch: int) -> Array:
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, order_of(self.seed, epoch, self.data.samples))
        return self._order[1]
