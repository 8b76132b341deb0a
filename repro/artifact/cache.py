"""The build cache: compiled code, and what else a build can take from an earlier one, by the content of everything
that went into it.

An entry carries the digest of its payload, and one that does not match is ignored and removed. A cache that
cannot be read or written is as good as empty: nothing here can fail a build or change a byte of it.
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

log = logging.getLogger("repro.cache")

DEFAULT_LIMIT = 10 * 10**9
_FORMAT = "v2"
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

    def get(self, key: Key) -> bytes | None:
        path = self._path(key)
        log.debug("%s %s %s", key.kind, path.name, key.parts)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        payload = stored[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != stored[:_DIGEST_BYTES]:
            log.warning("cache entry %s is damaged; it is ignored and removed", path)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # what the age of an entry is counted from
        return payload

    def put(self, key: Key, payload: bytes) -> None:
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(payload).digest())
                file.write(payload)
            Path(temporary).replace(path)
            self.added.append(key)
        except OSError as error:
            log.warning("the build cache cannot be written: %s", error)

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
        """Remove every entry; the usage from before."""
        before = self.usage()
        shutil.rmtree(self.folder / _FORMAT, ignore_errors=True)
        return before

    def _path(self, key: Key) -> Path:
        digest = key.digest
        return self.folder / _FORMAT / key.kind / digest[:2] / digest[2:]

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in (self.folder / _FORMAT).glob("*/*/*"):
            with contextlib.suppress(OSError):
                yield path, path.stat()


def key(kind: str, **parts: str) -> Key:
    """A key of named parts, in the order given; a long part enters by its digest."""
    return Key(kind, tuple((name, text if len(text) <= 100 else sha256(text.encode())) for name, text in parts.items()))
