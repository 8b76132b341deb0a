"""The published formats (schema/) and the manifests that the golden models must rebuild to (golden/)."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def schema(name: str) -> dict[str, Any]:
    """A JSON Schema (2020-12) by name: `manifest` or `config`."""
    return json.loads(files(__name__).joinpath("schema", f"{name}.schema.json").read_text("utf-8"))
