from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from repro.artifact.cache import Cache, key


def test_get_gives_back_what_was_put(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert cache.get(key("code", kernel="a", machine="m")) is None
    cache.put(key("code", kernel="a", machine="m"), b"code")
    assert cache.get(key("code", kernel="a", machine="m")) == b"code"
    for other in (
        key("other", kernel="a", machine="m"),
        key("code", kernel="a", machine="n"),
        key("code", machine="m", kernel="a"),
        key("code", kernel="am", machine=""),
    ):
        assert cache.get(other) is None


def test_parts_cannot_run_into_each_other() -> None:
    assert key("code", a="x", b="yz").digest != key("code", a="xy", b="z").digest
    assert key("code", a="x" * 1000).digest != key("code", a="x" * 1001).digest


def test_a_damaged_entry_is_ignored(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(key("code", a="1"), b"code" * 100)
    (entry,) = (path for path in tmp_path.rglob("*") if path.is_file())
    good = entry.read_bytes()
    damaged = [good[:-1], good + b"x", b"", good[:10], bytes([good[0] ^ 1]) + good[1:], good[:-1] + b"x"]
    for bad in damaged:
        entry.write_bytes(bad)
        assert cache.get(key("code", a="1")) is None
        assert not entry.exists()
    cache.put(key("code", a="1"), b"code")
    assert cache.get(key("code", a="1")) == b"code"


def test_an_entry_in_the_place_of_another_is_ignored(tmp_path: Path) -> None:
    """Whole, but the result of other work: a folder that was restored, merged or copied wrongly."""
    cache = Cache(tmp_path)
    one, other = key("code", a="1"), key("code", a="2")
    cache.put(one, b"code of one")
    cache.put(other, b"code of another")
    cache._path(other).write_bytes(cache._path(one).read_bytes())
    assert cache.get(one) == b"code of one"
    assert cache.get(other) is None
    assert not cache._path(other).exists()


def test_entries_of_other_versions_count_and_go(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=200)
    old = tmp_path / "v1" / "code" / "00" / "1"
    old.parent.mkdir(parents=True)
    old.write_bytes(bytes(150))
    os.utime(old, (1000, 1000))
    cache.put(key("code", a="1"), bytes(100))
    assert cache.usage().entries == 2
    cache.trim()
    assert not old.exists()
    old.write_bytes(b"")
    assert cache.clear().entries == 2
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=3 * 132)
    for number in range(4):
        cache.put(key("code", n=str(number)), bytes(100))
    paths = {number: cache._path(key("code", n=str(number))) for number in range(4)}
    for number, path in paths.items():
        os.utime(path, (1000 + number, 1000 + number))
    assert cache.get(key("code", n="0")) is not None  # now the youngest
    cache.trim()
    assert [number for number, path in paths.items() if path.exists()] == [0, 2, 3]


def test_usage_and_clear(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(key("code", a="1"), b"x")
    (tmp_path / "mine").write_text("kept")
    assert cache.usage().entries == 1
    assert cache.clear().entries == 1
    assert cache.usage().entries == 0
    assert (tmp_path / "mine").exists()


def test_an_unusable_folder_is_an_empty_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    cache.put(key("code", a="1"), b"x")
    assert cache.get(key("code", a="1")) is None
    assert cache.usage().entries == 0


def test_a_full_disk_is_told_once_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    cache = Cache(tmp_path)
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            cache.put(key("code", n=str(number)), b"x")
    assert len(caplog.records) == 1
    assert not cache.added
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
