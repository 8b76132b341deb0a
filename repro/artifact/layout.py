"""An artifact as a value, and as an OCI image layout on disk.

model.repro/
  oci-layout  index.json      rewritten by copying tools: no part of the identity
  artifact.json               byte copy of the manifest blob; its sha256 is the artifact id
  blobs/sha256/<hex>          read-only
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from repro.artifact import files
from repro.artifact.canonical import Bytes, Json, encode, sha256
from repro.artifact.config import Config, to_json
from repro.artifact.media import ARTIFACT_TYPE, CONFIG_TYPE, INDEX_TYPE, MANIFEST_TYPE, TITLE
from repro.errors import ReproError

TOPS = frozenset({"artifact.json", "index.json", "oci-layout"})
LAYOUT_FILE = b'{"imageLayoutVersion":"1.0.0"}'


@dataclass(frozen=True, eq=False)
class Layer:
    """A blob with the title and media type that the manifest gives it."""

    title: str
    media_type: str
    data: Bytes

    @cached_property
    def digest(self) -> str:
        return sha256(self.data)


@dataclass(frozen=True, eq=False)
class Artifact:
    """A whole artifact in memory (its large layers may be mapped files)."""

    config: Config
    layers: tuple[Layer, ...]

    @cached_property
    def config_bytes(self) -> bytes:
        return encode(to_json(self.config))

    @cached_property
    def manifest(self) -> dict[str, Json]:
        return {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": descriptor(CONFIG_TYPE, self.config_bytes),
            "layers": [
                {**descriptor(layer.media_type, layer.data, layer.digest), "annotations": {TITLE: layer.title}}
                for layer in self.layers
            ],
        }

    @cached_property
    def manifest_bytes(self) -> bytes:
        return encode(self.manifest)

    @property
    def id(self) -> str:
        """`sha256:` and the digest of the manifest."""
        return sha256(self.manifest_bytes)

    @cached_property
    def blobs(self) -> dict[str, Bytes]:
        """Every blob by digest, the config and the manifest too."""
        found: dict[str, Bytes] = {layer.digest: layer.data for layer in self.layers}
        for data in (self.config_bytes, self.manifest_bytes):
            found[sha256(data)] = data
        return found


def descriptor(media_type: str, data: Bytes, digest: str | None = None) -> dict[str, Json]:
    """An OCI content descriptor."""
    return {"mediaType": media_type, "digest": digest or sha256(data), "size": len(data)}


def blob_path(folder: Path, digest: str) -> Path:
    algorithm, _, digits = digest.partition(":")
    return folder / "blobs" / algorithm / digits


def is_part(path: Path) -> bool:
    """Whether a file is one of an artifact's own, there or not: written over, the artifact is damaged."""
    folder = path.parent
    if path.name in TOPS:
        return (folder / "blobs").is_dir()
    return folder.parent.name == "blobs" and (folder.parent.parent / "artifact.json").is_file()


def unique(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Layers without repetition of a title, in the order of first appearance."""
    return tuple({layer.title: layer for layer in reversed(list(layers))}.values())[::-1]


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────


def write(artifact: Artifact, folder: Path, force: bool = False) -> bool:
    """Write the artifact as `folder`, whole or not at all. False where the identical one already stood.

    Raises ReproError if the folder holds anything else and `force` is not given.
    """
    if _occupied(folder):
        if holds(artifact, folder):
            return False
        _refuse(folder, force)
    try:
        with files.replaced_folder(folder) as fresh:
            _fill(artifact, fresh)
    except OSError as error:
        raise ReproError(
            "the artifact cannot be written", found=f"{error.filename or folder}: {error.strerror}"
        ) from error
    return True


def check_place(folder: Path, force: bool) -> None:
    """Refuse a folder that cannot become the artifact, before a build is spent on it."""
    if _occupied(folder) and not (folder / "artifact.json").exists():
        _refuse(folder, force)


def _refuse(folder: Path, force: bool) -> None:
    if not force:
        raise ReproError(
            "the output folder is not empty and does not hold this artifact",
            found=str(folder),
            next="choose another with -o, or replace it with --force",
        )
    if files.resolved(folder) in (Path.cwd(), *Path.cwd().parents):
        raise ReproError("the output folder cannot be replaced: the current folder lies in it", found=str(folder))


def _occupied(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ReproError("the output folder cannot be used", found=f"{folder}: {error.strerror}") from error


def _fill(artifact: Artifact, folder: Path) -> None:
    for part in ("blobs", "blobs/sha256"):
        files.make_folder(folder / part)
    for digest, data in sorted(artifact.blobs.items()):
        files.write_new(blob_path(folder, digest), data, files.READ_ONLY)
    files.write_new(folder / "oci-layout", LAYOUT_FILE, files.READ_WRITE)
    files.write_new(folder / "index.json", _index_bytes(artifact), files.READ_WRITE)
    files.write_new(folder / "artifact.json", artifact.manifest_bytes, files.READ_WRITE)
    files.sync_all(folder)


def _index_bytes(artifact: Artifact) -> bytes:
    entry = {**descriptor(MANIFEST_TYPE, artifact.manifest_bytes), "artifactType": ARTIFACT_TYPE}
    return encode({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry]})


def holds(artifact: Artifact, folder: Path) -> bool:
    """Whether the folder holds exactly this artifact, every byte of it."""
    tops = {"artifact.json": artifact.manifest_bytes, "index.json": _index_bytes(artifact), "oci-layout": LAYOUT_FILE}
    wanted = {name: sha256(data) for name, data in tops.items()}
    wanted |= {blob_path(Path(), digest).as_posix(): digest for digest in artifact.blobs}
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if present != set(wanted):
        return False
    with contextlib.suppress(ReproError):
        return all(sha256(files.read_file(folder / name, name)) == digest for name, digest in wanted.items())
    return False
