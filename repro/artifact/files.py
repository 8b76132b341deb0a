"""Files that are either whole or absent. Those of an artifact have the same mode whatever the umask."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from repro.artifact.canonical import Bytes
from repro.errors import ReproError

READ_ONLY = 0o444
READ_WRITE = 0o644
FOLDER = 0o755

MAPPED_FROM = 1 << 16
"""Bytes; a file of this size or more is mapped, not read, so that large weights take no memory of ours."""
SYNCED_AT_ONCE = 8
"""Files: a journal writes out together what is asked for together; more at once were no faster."""


def resolved(path: Path) -> Path:
    """Where links lead; links in a circle, of which pathlib makes an error before Python 3.13, lead nowhere else."""
    return Path(os.path.realpath(path))


def as_text(path: str) -> str:
    """What a document can hold of a path whose name is no UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def write_file(path: Path, data: Bytes) -> None:
    """Write under a temporary name, sync, rename, sync the folder: a kill at any point leaves no torn file. Who may
    read it is as the umask has it, and of a file that was there as before. A link stays one, and what is no file (a
    device, a pipe) takes the bytes and stays what it is."""
    path = resolved(path) if path.is_symlink() and (path.is_file() or not path.exists()) else path
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)
        return
    with replaced_file(path) as temporary, temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replaced_file(path: Path) -> Generator[Path]:
    """A new empty file to be written; on success it takes the place of `path`, on failure nothing remains of it. Its
    mode is as the umask has it, or that of the file that was there."""
    temporary = path.parent / f".partial-{secrets.token_hex(8)}"
    try:
        temporary.touch(exist_ok=False)
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


class Appending:
    """A file that lines are added to, by one process at a time. What the system refuses is a ReproError, which names
    `what`."""

    def __init__(self, path: Path, what: str, begins: bytes) -> None:
        """Take the file, and leave what is there. A file that does not begin as such files do is somebody else's."""
        self._path, self._what = path, what
        with self._told():
            if not _is_of_kind(path, begins):
                raise ReproError(
                    f"{what} would replace a file of another kind",
                    found=str(path),
                    expected="no file there, or one of an earlier run",
                    next="name a new file",
                )
            self._file = self._taken()

    def begin(self, kept: Bytes) -> None:
        """Begin with what is kept of an earlier one. The file that was taken is let go once its successor is taken."""
        with self._told(), self._file:
            write_file(self._path, kept)
            self._file = self._taken()

    def _taken(self) -> BinaryIO:
        file = self._path.open("ab")
        plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        if plain and not (taken(file.fileno()) and os.path.samestat(os.fstat(file.fileno()), self._path.stat())):
            file.close()
            raise ReproError(f"another run writes {self._what}", found=str(self._path), next="name another file")
        return file

    def write(self, data: bytes) -> None:
        with self._told():
            self._file.write(data)

    def sync(self) -> None:
        """Make everything so far last."""
        with self._told():
            self._file.flush()
            if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        with self._told():
            self._file.close()

    @contextlib.contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise ReproError(f"{self._what} cannot be written", found=f"{self._path}: {error.strerror}") from error


def taken(descriptor: int) -> bool:
    """Whether this process has a file for itself now, until it closes it or ends; no, if another one has it. Where
    there are no such locks, nobody is kept out."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _is_of_kind(path: Path, begins: bytes) -> bool:
    """Whether a file is not there or empty, or begins so; what is no file, a pipe say, is written to, not replaced."""
    if not path.is_file():
        return True
    with path.open("rb") as file:
        return file.read(len(begins)) in (b"", begins)


def write_new(path: Path, data: Bytes, mode: int) -> None:
    """Write a file in a folder that nobody sees yet (`replaced_folder`), for `sync_all` to sync with the others."""
    with path.open("xb") as file:
        file.write(data)
    path.chmod(mode)


def sync_all(folder: Path) -> None:
    """Make everything in a folder last. Files written one after another, and then synced several at a time, cost the
    disk little more than one; each written and synced by itself costs a wait."""
    folders, written = [], []
    for path in folder.rglob("*"):
        (folders if path.is_dir() else written).append(path)
    with ThreadPoolExecutor(SYNCED_AT_ONCE) as threads:
        for _ in threads.map(_sync_file, written):
            pass  # an error of any is raised here
    for path in folders:
        sync_folder(path)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make the folder's entries last; a system without such a thing (Windows) does so by itself."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(FOLDER)


def read_file(path: Path, what: str) -> Bytes:
    """The file's bytes. Raises ReproError naming `what` if it is missing, unreadable or no plain file."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):  # a device may well have no end
                raise ValueError("no plain file")
            if status.st_size < MAPPED_FROM:
                return file.read()
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ReproError(f"{what} cannot be read", found=f"{path}: {reason}") from error


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe that nobody writes to does not block."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@contextlib.contextmanager
def replaced_folder(path: Path) -> Generator[Path]:
    """A new sibling folder to fill; on success it takes the place of `path`, on failure nothing remains. A link stays
    one: it is what it leads to that is replaced."""
    path = resolved(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
    old = fresh.with_name(fresh.name + "-old")
    try:
        fresh.chmod(FOLDER)
        yield fresh
        sync_folder(fresh)
        if path.exists():
            path.rename(old)
        fresh.rename(path)
        sync_folder(path.parent)
    except BaseException:
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)
