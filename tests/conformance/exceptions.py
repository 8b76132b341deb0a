"""Node cases of onnx.backend.test that do not pass, each with its reason. A case that starts to pass must leave."""

from __future__ import annotations

EXCEPTIONS: dict[str, str] = {}
"""Case name -> reason."""
