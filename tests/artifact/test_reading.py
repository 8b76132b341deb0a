"""A changed byte is a mismatch (1) that names the blob; a missing or unreadable part is 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro.artifact.canonical import encode, sha256
from repro.artifact.layout import write
from repro.artifact.reading import as_written, open_artifact
from repro.errors import ReproError
from tests.artifact.sample import sample_artifact


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(sample_artifact(), tmp_path / "m.repro")
    return tmp_path / "m.repro"


def read_all(folder: Path) -> int:
    stored = open_artifact(folder / "artifact.json")
    return sum(len(stored.read(blob)) for blob in stored.blobs)


def parts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_good_artifact_reads(folder: Path) -> None:
    assert read_all(folder) > 5000
    stored = open_artifact(folder)
    assert stored.config == sample_artifact().config
    assert bytes(stored.by_title("weights/00000")) == b"\0\0\x80\x3f"


def test_what_was_written_is_what_is_read(folder: Path) -> None:
    assert vars(as_written(sample_artifact(), folder)) == vars(open_artifact(folder))


def test_any_changed_byte_is_a_mismatch_that_names_the_part(folder: Path) -> None:
    checked = 0
    for path in parts(folder):
        good = path.read_bytes()
        path.chmod(0o644)
        for position in range(0, len(good), max(1, len(good) // 60)):
            for change in (0x01, 0x20, 0x80):
                bad = bytearray(good)
                bad[position] ^= change
                path.write_bytes(bad)
                with pytest.raises(ReproError) as caught:
                    read_all(folder)
                assert caught.value.exit_code == 1, (path.name, position, bytes(bad[position : position + 20]))
                named = path.name if path.parent.name == "sha256" else path.name.removesuffix(".json")
                assert named in str(caught.value), (path.name, position)
                checked += 1
        path.write_bytes(good)
    assert checked > 500
    assert read_all(folder)


def test_a_shortened_or_lengthened_part_is_a_mismatch(folder: Path) -> None:
    for path in parts(folder):
        good = path.read_bytes()
        path.chmod(0o644)
        for bad in (good[:-1], good + b"\0"):
            path.write_bytes(bad)
            with pytest.raises(ReproError) as caught:
                read_all(folder)
            assert caught.value.exit_code == 1
        path.write_bytes(good)


def test_a_missing_part_is_unreadable(folder: Path) -> None:
    for path in parts(folder):
        aside = path.with_name("aside")
        path.rename(aside)
        with pytest.raises(ReproError) as caught:
            read_all(folder)
        assert caught.value.exit_code == 2
        assert path.name in str(caught.value)
        path.mkdir()  # not a plain file: unreadable
        with pytest.raises(ReproError) as caught:
            read_all(folder)
        assert caught.value.exit_code == 2
        path.rmdir()
        aside.rename(path)


@pytest.mark.parametrize("name", ["nothing.json", "README.md", "."])
def test_what_is_no_artifact(tmp_path: Path, name: str) -> None:
    (tmp_path / "README.md").write_text("hello")
    with pytest.raises(ReproError, match="not an artifact") as caught:
        open_artifact(tmp_path / name)
    assert caught.value.exit_code == 2


def test_copying_tools_may_rewrite_the_index(folder: Path) -> None:
    index = json.loads((folder / "index.json").read_bytes())
    index["annotations"] = {"org.example": "copied"}
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    del index["manifests"][0]["artifactType"]
    (folder / "index.json").write_text(json.dumps(index, indent=3))
    (folder / "oci-layout").write_text('{\n "imageLayoutVersion": "1.0.0"\n}')
    assert read_all(folder)


def forge(folder: Path, change: object) -> None:
    """Change the config and re-hash everything above it, as an attacker would."""
    manifest = json.loads((folder / "artifact.json").read_bytes())
    blobs = folder / "blobs/sha256"
    config = json.loads((blobs / manifest["config"]["digest"][7:]).read_bytes())
    data = change(config)  # pyright: ignore[reportCallIssue]
    manifest["config"] |= {"digest": sha256(data), "size": len(data)}
    (blobs / sha256(data)[7:]).write_bytes(data)
    top = encode(manifest)
    (blobs / sha256(top)[7:]).write_bytes(top)
    (folder / "artifact.json").write_bytes(top)
    index = json.loads((folder / "index.json").read_bytes())
    index["manifests"][0] |= {"digest": sha256(top), "size": len(top)}
    (folder / "index.json").write_bytes(encode(index))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: json.dumps(config).encode(), "RFC 8785"),
        (lambda config: encode({**config, "extra": 1}), "schema"),
        (lambda config: encode({**config, "format": 2}), "format"),
        (lambda config: encode({**config, "limits": {"a": -1}}), "schema"),
        (lambda config: encode([config]), "format"),
        (lambda config: encode({**config, "source": {"digest": "sha256:" + "0" * 64 + "\n", "opset": {}}}), "schema"),
    ],
)
def test_a_consistent_forgery_still_follows_the_rules(folder: Path, change: object, message: str) -> None:
    forge(folder, change)
    with pytest.raises(ReproError, match=message) as caught:
        open_artifact(folder)
    assert caught.value.exit_code == 2
