"""Where two documents differ, as paths; and what an artifact holds, as one document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from repro.artifact.canonical import Json
from repro.artifact.config import to_json
from repro.artifact.reading import Stored

ABSENT = "absent"


@dataclass(frozen=True)
class Difference:
    """One place where two artifacts differ, and what stands there on each side."""

    where: str
    left: str
    right: str


def content(stored: Stored) -> dict[str, Json]:
    """What `inspect` shows: the identity, the config, and the layers with their sizes."""
    layers = {blob.title: {"digest": blob.digest, "size": blob.size} for blob in stored.blobs}
    return {"artifact": stored.id, "config": to_json(stored.config), "layers": layers}


def differences(left: Stored, right: Stored) -> tuple[Difference, ...]:
    """Every leaf of the two artifacts' configs and layers that is not the same."""
    if left.id == right.id:
        return ()
    one, other = content(left), content(right)
    return tuple(_walk("", one["config"], other["config"])) + tuple(_walk("layers", one["layers"], other["layers"]))


def document_differences(left: Json, right: Json) -> tuple[Difference, ...]:
    """Every leaf of two JSON documents that is not the same."""
    return tuple(_walk("", left, right))


def _walk(where: str, left: Json, right: Json) -> Iterator[Difference]:
    if left == right:
        return
    if isinstance(left, dict) and isinstance(right, dict):
        left, right = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        for name in dict.fromkeys((*left, *right)):
            yield from _walk(f"{where}.{name}" if where else name, left.get(name, ABSENT), right.get(name, ABSENT))
    elif isinstance(left, list) and isinstance(right, list):
        yield from _walk(where, _by_name(left), _by_name(right))
    else:
        yield Difference(where, _text(left), _text(right))


def _by_name(items: list[Any]) -> dict[str, Json]:
    """List items under their own name where they have one, so that one insertion is one difference."""
    keys = [_name(item, position) for position, item in enumerate(items)]
    if len(set(keys)) != len(keys):
        keys = [f"[{position}]" for position in range(len(items))]
    return dict(zip(keys, items, strict=True))


def _name(item: Any, position: int) -> str:
    if isinstance(item, dict):
        for key in ("name", "entry", "kernel"):
            if key in item:
                return f"[{item[key]}]"
    return f"[{position}]"


def _text(value: Json) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:197] + "..."
