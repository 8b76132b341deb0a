"""Documents against their JSON Schemas (manifests/schema)."""

from __future__ import annotations

from functools import cache

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

import manifests
from repro.artifact.canonical import Json
from repro.errors import ReproError


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(manifests.schema(name))


def check(value: Json, name: str, what: str) -> None:
    """Raise ReproError with the place and the rule if `value` breaks the schema `name`.

    jsonschema's own leniencies are closed elsewhere: the canonical encoding has no 1.0 for an integer, and
    every pattern ends in `$(?!\\n)`, since Python's `$` alone accepts a final newline.
    """
    error = best_match(_validator(name).iter_errors(value))
    if error is not None:
        place = "/".join(map(str, error.absolute_path)) or "the document itself"
        raise ReproError(
            f"{what} does not follow manifests/schema/{name}.schema.json", found=f"{place}: {error.message}"
        )
