"""The build cache: compiled code, and what else a build can take from an earlier one, by the content of everything
that went into it.

An entry carries the digest of its key and payload, and one that does not match, being damaged or another key's, is
ignored and removed. A cache that cannot be read or written is as good as empty: nothing here can fail a build. Whoever
may write to the folder can forge an entry, digest and all; `verify` reads no cache, and so finds what it changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from repro.artifact.canonical import encode, sha256
from repro.errors import ReproError

log = logging.getLogger("repro.cache")

DEFAULT_LIMIT = 10 * 10**9
_FORMAT = "v3"
_FORMATS = "v[0-9]*"
"""Folders of this and other versions: old entries count, and go first."""
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Key:
    """What an entry is, and what it depends on: named parts, in order."""

    kind: str
    """A folder's name: entries of a kind lie together."""
    parts: tuple[tuple[str, str], ...]

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(encode([list(part) for part in self.parts])).hexdigest()


@dataclass(frozen=True)
class Usage:
    folder: Path
    entries: int
    bytes: int
    limit: int


@dataclass(frozen=True)
class Cache:
    """A folder of entries, the least recently used of which go when `limit` bytes are passed."""

    folder: Path
    limit: int = DEFAULT_LIMIT
    added: list[Key] = field(default_factory=list[Key], compare=False)
    """What was put here by this process, in order."""
    _warned: list[bool] = field(default_factory=list[bool], compare=False, repr=False)
    """Not empty once the user was told that it cannot be written: a full disk refuses every entry of a build."""

    def get(self, key: Key) -> bytes | None:
        path = self._path(key)
        log.debug("%s %s %s", key.kind, path.name, key.parts)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        payload = stored[_DIGEST_BYTES:]
        if _seal(key, payload) != stored[:_DIGEST_BYTES]:
            log.warning("cache entry %s is damaged or another's; it is ignored and removed", path)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # what the age of an entry is counted from
        return payload

    def put(self, key: Key, payload: bytes) -> None:
        try:
            _write(self._path(key), _seal(key, payload) + payload)
            self.added.append(key)
        except OSError as error:
            if not self._warned:
                log.warning("the build cache cannot be written: %s", error)
            self._warned.append(True)

    def trim(self) -> None:
        """Remove the least recently used entries until the limit holds, if anything was added since it did."""
        if not self.added:
            return
        entries = sorted(self._entries(), key=lambda entry: (entry[1].st_mtime_ns, entry[0]))
        total = sum(status.st_size for _, status in entries)
        for path, status in entries:
            if total <= self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                total -= status.st_size

    def usage(self) -> Usage:
        sizes = [status.st_size for _, status in self._entries()]
        return Usage(self.folder, len(sizes), sum(sizes), self.limit)

    def clear(self) -> Usage:
        """Remove every entry; the usage from before. Raises ReproError if one cannot be removed."""
        before = self.usage()
        try:
            for format_folder in self.folder.glob(_FORMATS):
                shutil.rmtree(format_folder)
        except OSError as error:
            found = f"{error.filename or self.folder}: {error.strerror}"
            raise ReproError("the build cache cannot be cleared", found=found) from error
        return before

    def _path(self, key: Key) -> Path:
        digest = key.digest
        return self.folder / _FORMAT / key.kind / digest[:2] / digest[2:]

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.glob(f"{_FORMATS}/*/*/*"):
            with contextlib.suppress(OSError):
                yield path, path.stat()


def _write(path: Path, content: bytes) -> None:
    """Put a file in its place whole, or leave nothing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def _seal(key: Key, payload: bytes) -> bytes:
    """What an entry begins with: it says that the payload is whole, and that it is this key's."""
    return hashlib.sha256(bytes.fromhex(key.digest) + payload).digest()


def key(kind: str, **parts: str) -> Key:
    """A key of named parts, in the order given; a long part enters by its digest."""
    return Key(kind, tuple((name, text if len(text) <= 100 else sha256(text.encode())) for name, text in parts.items()))
