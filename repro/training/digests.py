"""What a trace and a checkpoint say of tensors: one digest for a whole state, as a Merkle tree (RFC 6962, section 2.1).

A leaf is H(0x00, the tensor's name, 0x00, its type as `f32[2,3]`, 0x00, its bytes), a node H(0x01, left, right); the
two tags keep a leaf from being passed off as a node. A tree of n > 1 leaves splits at the largest power of two below n.
Leaves stand in slot order. Bytes are row-major and little-endian. No tensors: H of nothing.

H is BLAKE3 with 32 bytes out (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3", 2020). It hashes the chunks of a
tensor side by side in vector lanes, which no instruction for sha256 can: hashing a state takes a few hundredths of a
step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
from blake3 import blake3

from repro.artifact import tensors
from repro.artifact.tensors import BY_FACE
from repro.ir.types import Array, TensorType, to_storage

ALGORITHM = "blake3"
"""What stands before the hexadecimal digits of a digest."""
LEAF, NODE = b"\x00", b"\x01"
SHARED_FROM = 8 << 20
"""Bytes; starting threads for less takes longer than hashing it."""
RUNS = 8
"""Of tensors for each thread, about: enough for equal shares."""


def leaf(name: str, array: Array) -> bytes:
    """The digest of a tensor under its name. Hashing lets other Python threads run."""
    return leaf_of_pieces(name, array.dtype, array.shape, (array,))


def leaf_of_pieces(name: str, face: np.dtype[Any], shape: tuple[int, ...], pieces: Iterable[Array]) -> bytes:
    """The digest of a tensor that comes in pieces, one behind the other in memory: none is kept."""
    digest = blake3(_opening(name, face, shape))
    for piece in pieces:
        if piece.size:
            digest.update(_little(piece))
    return digest.digest()


def _little(array: Array) -> memoryview:
    """Bytes, row-major and little-endian; without a copy where the array lies so."""
    stored = to_storage(array, BY_FACE[array.dtype.newbyteorder("=")])
    return stored.astype(stored.dtype.newbyteorder("<"), copy=False).reshape(-1).view("u1").data


@lru_cache(maxsize=4096)
def _opening(name: str, face: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What stands before a tensor's bytes."""
    kind = TensorType(BY_FACE[face.newbyteorder("=")], shape)
    return LEAF + name.encode() + b"\x00" + str(kind).encode() + b"\x00"


def leaves(arrays: Mapping[str, Array], threads: int = 1) -> list[bytes]:
    """Digests in the order of the mapping; a large state is hashed on as many threads as are given."""
    if threads == 1 or (size := sum(array.nbytes for array in arrays.values())) < SHARED_FROM:
        return _digests(arrays.items())
    with ThreadPoolExecutor(threads) as pool:
        return [each for some in pool.map(_digests, neighbours(arrays, size // (threads * RUNS))) for each in some]


def _digests(some: Iterable[tuple[str, Array]]) -> list[bytes]:
    return [leaf(name, array) for name, array in some]


def neighbours(arrays: Mapping[str, Array], least: int) -> Iterator[list[tuple[str, Array]]]:
    """Tensors in runs of so many bytes or more: between small ones, threads would wait for the interpreter's lock."""
    run, size = list[tuple[str, Array]](), 0
    for name, array in arrays.items():
        run.append((name, array))
        size += array.nbytes
        if size >= least:
            yield run
            run, size = [], 0
    if run:
        yield run


def root(digests: Sequence[bytes]) -> bytes:
    """The root over leaves in order."""
    if not digests:
        return blake3().digest()
    if len(digests) == 1:
        return digests[0]
    split = 1 << (len(digests) - 1).bit_length() - 1
    return blake3(NODE + root(digests[:split]) + root(digests[split:])).digest()


def of_arrays(arrays: Mapping[str, Array]) -> str:
    """`blake3:<hex>` of tensors by name, in the order of the mapping."""
    return named(root(leaves(arrays)))


def of_digests(stated: Sequence[str]) -> str:
    """The root over leaves that are given as `blake3:<hex>`."""
    return named(root([bytes.fromhex(each.partition(":")[2]) for each in stated]))


def named(digest: bytes) -> str:
    return f"{ALGORITHM}:{digest.hex()}"


def bits_of(array: Array) -> str:
    """A scalar's bits, most significant first: 0x3f800000."""
    return "0x" + tensors.to_bytes(array)[::-1].hex()
