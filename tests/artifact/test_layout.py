from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repro.artifact.canonical import decode
from repro.artifact.config import Config, from_json, to_json
from repro.artifact.files import write_new
from repro.artifact.layout import write
from repro.artifact.reading import open_artifact
from repro.errors import ReproError
from tests.artifact.sample import sample_artifact


def tree(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        path.relative_to(folder).as_posix(): (
            stat.S_IMODE(path.stat().st_mode),
            path.read_bytes() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


def test_layout_is_an_oci_image_layout(tmp_path: Path) -> None:
    artifact = sample_artifact()
    folder = tmp_path / "m.repro"
    assert write(artifact, folder)
    manifest = (folder / "artifact.json").read_bytes()
    digest = hashlib.sha256(manifest).hexdigest()
    assert artifact.id == f"sha256:{digest}"
    assert (folder / "blobs/sha256" / digest).read_bytes() == manifest
    assert json.loads((folder / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads((folder / "index.json").read_bytes())["manifests"]
    assert (entry["digest"], entry["size"]) == (artifact.id, len(manifest))
    blobs = list((folder / "blobs/sha256").iterdir())
    assert len(blobs) == len(artifact.layers) + 2
    for blob in blobs:
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
        assert stat.S_IMODE(blob.stat().st_mode) == 0o444
    assert [path.name for path in tmp_path.iterdir()] == ["m.repro"]


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    trees: list[object] = []
    for number, mask in enumerate((0o000, 0o027, 0o077)):
        before = os.umask(mask)
        try:
            write(sample_artifact(), tmp_path / f"{number}.repro")
        finally:
            os.umask(before)
        trees.append((stat.S_IMODE((tmp_path / f"{number}.repro").stat().st_mode), tree(tmp_path / f"{number}.repro")))
    assert trees[0] == trees[1] == trees[2]


def test_the_identical_artifact_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "m.repro"
    assert write(sample_artifact(), folder)
    before = folder.stat().st_ino
    assert not write(sample_artifact(), folder)
    assert folder.stat().st_ino == before


def test_another_folder_is_refused_without_force(tmp_path: Path) -> None:
    folder = tmp_path / "m.repro"
    write(sample_artifact(), folder)
    before = tree(folder)
    other = sample_artifact(weight=b"\0\0\0\x40")
    with pytest.raises(ReproError) as caught:
        write(other, folder)
    assert caught.value.exit_code == 2
    assert tree(folder) == before
    assert write(other, folder, force=True)
    assert open_artifact(folder).id == other.id
    assert [path.name for path in tmp_path.iterdir()] == ["m.repro"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_to_a_folder_stays_one(exists: bool, tmp_path: Path) -> None:
    link, real = tmp_path / "link.repro", tmp_path / "real" / "a.repro"
    (real if exists else real.parent).mkdir(parents=True)
    link.symlink_to(real)
    assert write(sample_artifact(), link)
    assert link.is_symlink() and (real / "artifact.json").exists()
    assert sorted(path.name for path in (*tmp_path.iterdir(), *real.parent.iterdir())) == [
        "a.repro", "link.repro", "real",
    ]  # fmt: skip


def test_a_damaged_copy_is_not_the_identical_one(tmp_path: Path) -> None:
    folder = tmp_path / "m.repro"
    write(sample_artifact(), folder)
    (folder / "stray").write_bytes(b"")
    with pytest.raises(ReproError):
        write(sample_artifact(), folder)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "m.repro"
    write(sample_artifact(), folder)
    before = tree(folder)

    def full(path: Path, *_: object) -> None:
        if path.name == "artifact.json":
            raise OSError(28, "No space left on device")
        write_new(path, b"", 0o444)

    monkeypatch.setattr("repro.artifact.files.write_new", full)
    with pytest.raises(ReproError, match="cannot be written"):
        write(sample_artifact(weight=b"1234"), folder, force=True)
    assert tree(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.repro"]


def test_config_round_trip() -> None:
    artifact = sample_artifact()
    assert from_json(Config, decode(artifact.config_bytes, "config")) == artifact.config
    assert from_json(Config, to_json(artifact.config)) == artifact.config


KILLED = """
import sys
from pathlib import Path
from repro.artifact.layout import write
from tests.artifact.sample import sample_artifact
for number in range(10**6):
    write(sample_artifact(number.to_bytes(4, "little")), Path(sys.argv[1]), force=True)
    print("written", flush=True)
"""


def test_a_kill_leaves_a_whole_artifact_or_none(tmp_path: Path) -> None:
    folder = tmp_path / "m.repro"
    root = Path(__file__).resolve().parents[2]
    whole = 0
    for attempt in range(4):
        command = [sys.executable, "-c", KILLED, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.02 + 0.037 * attempt)
            process.send_signal(signal.SIGKILL)
        if folder.exists():
            stored = open_artifact(folder)
            for blob in stored.blobs:
                stored.read(blob)
            whole += 1
    assert whole > 0
