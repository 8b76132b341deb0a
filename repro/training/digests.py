"""What a trace and a checkpoint say of tensors: one digest for a whole state, as a Merkle tree (RFC 6962, section 2.1).

A leaf is sha256(0x00, the tensor's name, 0x00, its type as `f32[2,3]`, 0x00, its bytes), a node sha256(0x01, left,
right); the two tags keep a leaf from being passed off as a node. A tree of n > 1 leaves splits at the largest power of
two below n. Leaves stand in slot order. Bytes are row-major and little-endian. No tensors: sha256 of nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np

from repro.artifact import tensors
from repro.artifact.tensors import BY_FACE
from repro.ir.types import Array, TensorType, to_storage

LEAF, NODE = b"\x00", b"\x01"
SHARED_FROM = 4 << 20
"""Bytes; starting threads for less takes longer than hashing it."""
THREADS = 4


def leaf(name: str, array: Array) -> bytes:
    """The digest of a tensor under its name. Hashing lets other Python threads run."""
    stored = to_storage(array, BY_FACE[array.dtype.newbyteorder("=")])
    little = stored.astype(stored.dtype.newbyteorder("<"), copy=False).reshape(-1)
    digest = hashlib.sha256(_opening(name, array.dtype, array.shape))
    if little.size:
        digest.update(little.view("u1").data)
    return digest.digest()


@lru_cache(maxsize=4096)
def _opening(name: str, face: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What stands before a tensor's bytes."""
    kind = TensorType(BY_FACE[face.newbyteorder("=")], shape)
    return LEAF + name.encode() + b"\x00" + str(kind).encode() + b"\x00"


def leaves(arrays: Mapping[str, Array]) -> list[bytes]:
    """Digests in the order of the mapping; large states are hashed on several threads."""
    if sum(array.nbytes for array in arrays.values()) < SHARED_FROM:
        return [leaf(name, array) for name, array in arrays.items()]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(leaf, arrays.keys(), arrays.values()))


def root(digests: Sequence[bytes]) -> bytes:
    """The root over leaves in order."""
    if not digests:
        return hashlib.sha256().digest()
    if len(digests) == 1:
        return digests[0]
    split = 1 << (len(digests) - 1).bit_length() - 1
    return hashlib.sha256(NODE + root(digests[:split]) + root(digests[split:])).digest()


def of_arrays(arrays: Mapping[str, Array]) -> str:
    """`sha256:<hex>` of tensors by name, in the order of the mapping."""
    return named(root(leaves(arrays)))


def named(digest: bytes) -> str:
    return "sha256:" + digest.hex()


def bits_of(array: Array) -> str:
    """A scalar's bits, most significant first: 0x3f800000."""
    return "0x" + tensors.to_bytes(array)[::-1].hex()
