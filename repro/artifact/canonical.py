"""Canonical JSON (RFC 8785): the only JSON that this project writes or trusts.

A document is valid only if its bytes equal the canonical encoding of what they parse to. That one rule
shuts out duplicate keys, other spellings of a number, NaN, other escapes, trailing bytes and key order.
Floats and 64-bit integers travel as hex strings, because JSON numbers are doubles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import rfc8785

from repro.errors import InternalError, ReproError

Json = Any
"""None, bool, str, int below 2^53, list of Json, dict of str to Json."""

Bytes = bytes | memoryview

DOCUMENT_LIMIT = 64 << 20
"""Bytes; a larger manifest, config or index is refused before it is parsed."""


def sha256(data: Bytes) -> str:
    """`sha256:<64 hex digits>`, the form in which digests are written everywhere."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def encode(value: Json) -> bytes:
    """The canonical bytes of a value."""
    _refuse_floats(value)
    return rfc8785.dumps(value)


def _refuse_floats(value: object) -> None:
    if isinstance(value, float):
        raise InternalError(f"a float ({value!r}) on its way into canonical JSON: write its bits as a hex string")
    if isinstance(value, Mapping):
        for item in cast("Mapping[object, object]", value).values():
            _refuse_floats(item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in cast("Sequence[object]", value):
            _refuse_floats(item)


def decode(data: Bytes, what: str) -> Json:
    """The value of canonical bytes. Raises ReproError naming `what` for anything else."""
    if len(data) > DOCUMENT_LIMIT:
        raise ReproError(f"{what} is too large", found=f"{len(data)} bytes", expected=f"at most {DOCUMENT_LIMIT}")
    raw = bytes(data)
    try:
        value = json.loads(raw.decode("utf-8"))
        again = encode(value)
    except (ValueError, RecursionError, InternalError) as error:
        raise ReproError(f"{what} is not canonical JSON (RFC 8785)", found=str(error) or "too deeply nested") from error
    if again != raw:
        position = next(
            (i for i, (a, b) in enumerate(zip(raw, again, strict=False)) if a != b), min(len(raw), len(again))
        )
        raise ReproError(
            f"{what} is not canonical JSON (RFC 8785)",
            found=repr(raw[position : position + 24]),
            expected=f"{again[position : position + 24]!r} at byte {position}",
        )
    return value


def hex64(value: int) -> str:
    """An unsigned 64-bit integer as 16 hex digits."""
    return f"0x{value & (1 << 64) - 1:016x}"
