"""Reading an artifact strictly: every byte that is used has been hashed, every document is canonical.

A part that is missing or cannot be read is a ReproError with exit code 2; a part whose bytes are not those
that its digest names is one with exit code 1, and it names the blob.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.artifact import files, schema
from repro.artifact.canonical import DOCUMENT_LIMIT, Bytes, Json, decode, sha256
from repro.artifact.config import FORMAT_VERSION, Config, from_json
from repro.artifact.layout import Artifact, blob_path
from repro.artifact.media import ARTIFACT_TYPE, INDEX_TYPE, MANIFEST_TYPE, TITLE
from repro.errors import EXIT_MISMATCH, ReproError


@dataclass(frozen=True)
class Blob:
    """What the manifest says of a blob."""

    title: str
    media_type: str
    digest: str
    size: int

    @property
    def what(self) -> str:
        return f"blob {self.digest} ({self.title})"


@dataclass(frozen=True, eq=False)
class Stored:
    """An artifact on disk, its manifest and config read and checked."""

    folder: Path
    id: str
    manifest: Json
    config: Config
    blobs: tuple[Blob, ...]
    """The config, then the layers in the manifest's order."""

    def read(self, blob: Blob) -> Bytes:
        """The blob's bytes, hashed. Raises ReproError if they are not the named ones."""
        return _read_blob(self.folder, blob)

    def by_digest(self, digest: str) -> Bytes:
        for blob in self.blobs:
            if blob.digest == digest:
                return self.read(blob)
        raise _differs("the manifest", f"no layer {digest}", "a layer for each digest in the config")

    def by_title(self, title: str) -> Bytes:
        for blob in self.blobs:
            if blob.title == title:
                return self.read(blob)
        raise _differs("the manifest", f"no layer titled {title}", f"a layer titled {title}")


def _read_blob(folder: Path, blob: Blob) -> Bytes:
    data = files.read_file(blob_path(folder, blob.digest), blob.what)
    if len(data) != blob.size:
        raise _differs(blob.what, f"{len(data)} bytes", f"{blob.size} bytes")
    found = sha256(data)
    if found != blob.digest:
        raise _differs(blob.what, found, blob.digest)
    return data


def _differs(what: str, found: str, expected: str) -> ReproError:
    return ReproError(f"{what} does not match", found=found, expected=expected, exit_code=EXIT_MISMATCH)


def locate(path: Path) -> Path:
    """The artifact's folder, from its path or that of its artifact.json. Raises ReproError if it is none."""
    folder = path if path.is_dir() else path.parent
    if path.is_dir() or path.name == "artifact.json":
        missing = [
            name
            for name in ("artifact.json", "oci-layout", "index.json", "blobs/sha256")
            if not (folder / name).exists()
        ]
        if not missing:
            return folder
        found = f"no {', '.join(missing)} in {folder}"
    else:
        found = str(path) if path.exists() else f"{path}: no such file"
    raise ReproError("not an artifact", found=found, expected="the artifact.json of a folder that `repro build` made")


def open_artifact(path: Path) -> Stored:
    """Read the layout, the manifest and the config; the layers are hashed when they are read."""
    folder = locate(path)
    manifest_bytes = files.read_file(folder / "artifact.json", "artifact.json")
    identity = sha256(manifest_bytes)
    _check_layout_file(folder)
    _check_index(folder, identity, len(manifest_bytes))
    if files.read_file(blob_path(folder, identity), f"manifest blob {identity}") != manifest_bytes:
        raise _differs(f"manifest blob {identity}", "other bytes", "the bytes of artifact.json")
    manifest = decode(manifest_bytes, "artifact.json")
    schema.check(manifest, "manifest", "artifact.json")
    blobs = _blobs(manifest)
    return Stored(folder, identity, manifest, _read_config(_read_blob(folder, blobs[0])), blobs)


def as_written(artifact: Artifact, folder: Path) -> Stored:
    """What `open_artifact` finds in the folder that `layout.write` has just written or found the same, unread."""
    return Stored(folder, artifact.id, artifact.manifest, artifact.config, _blobs(artifact.manifest))


def _blobs(manifest: Json) -> tuple[Blob, ...]:
    config = manifest["config"]
    layers = (
        Blob(layer["annotations"][TITLE], layer["mediaType"], layer["digest"], layer["size"])
        for layer in manifest["layers"]
    )
    return (Blob("config", config["mediaType"], config["digest"], config["size"]), *layers)


def _read_config(data: Bytes) -> Config:
    document = decode(data, "the config blob")
    version = document.get("format") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise ReproError(
            "this artifact's format is not one that this version reads",
            found=f"format {version}",
            expected=f"format {FORMAT_VERSION}",
            next="use the version of repro that built it (see versions in its config blob)",
        )
    schema.check(document, "config", "the config blob")
    return from_json(Config, document)


# Copying tools rewrite these two files, so they are compared by meaning; a key or value that the OCI
# specification does not know is damage.

_DESCRIPTOR_KEYS = {"mediaType", "digest", "size", "urls", "annotations", "data", "artifactType", "platform"}
_INDEX_KEYS = {"schemaVersion", "mediaType", "artifactType", "manifests", "subject", "annotations"}


def _check_layout_file(folder: Path) -> None:
    document = _rewritable(folder / "oci-layout")
    if document != {"imageLayoutVersion": "1.0.0"}:
        raise _differs("oci-layout", str(document)[:200], '{"imageLayoutVersion":"1.0.0"}')


def _check_index(folder: Path, identity: str, size: int) -> None:
    document = _rewritable(folder / "index.json")
    shaped = (
        set(document) <= _INDEX_KEYS
        and document.get("schemaVersion") == 2
        and document.get("mediaType", INDEX_TYPE) == INDEX_TYPE
        and isinstance(document.get("manifests"), list)
    )
    if not shaped:
        raise _differs("index.json", str(document)[:200], "an OCI image index")
    entries = [entry for entry in document["manifests"] if isinstance(entry, dict)]
    for entry in entries:
        if entry.get("digest") != identity:
            continue
        wanted = {"digest": identity, "size": size, "mediaType": MANIFEST_TYPE, "artifactType": ARTIFACT_TYPE}
        described: dict[str, Json] = {"artifactType": ARTIFACT_TYPE, **entry}
        if set(entry) <= _DESCRIPTOR_KEYS and all(described.get(key) == value for key, value in wanted.items()):
            return
        raise _differs("index.json", str(entry)[:300], f"a descriptor of {identity}")
    named = ", ".join(str(entry.get("digest")) for entry in entries) or "no manifest"
    raise _differs("artifact.json", identity, f"the manifest that index.json names ({named[:300]})")


def _rewritable(path: Path) -> dict[str, Any]:
    data = files.read_file(path, path.name)
    if len(data) > DOCUMENT_LIMIT:
        raise _differs(path.name, f"{len(data)} bytes", "a small JSON document")
    try:
        document = json.loads(bytes(data).decode())
    except (ValueError, RecursionError) as error:
        raise _differs(path.name, str(error), "a JSON document") from error
    if not isinstance(document, dict):
        raise _differs(path.name, "no JSON object", "a JSON object")
    return document
