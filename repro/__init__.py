"""A compiler for ONNX graphs whose results are the same bits everywhere.

    artifact = repro.build("model.onnx", out="model.repro", bind={"N": 32})
    artifact = repro.load("model.repro/artifact.json")
    outputs = artifact.session(entry="infer", target="cpu", threads=2).run({"x": x})

Every command of the command line is a function here, and every option a keyword of the same name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repro.driver import (
        LoadedArtifact,
        ReproError,
        Session,
        build,
        cache,
        load,
        read_npz,
        run,
        verify,
        write_npz,
    )
    from repro.driver_audit import audit_captures, audit_manifests, audit_model
    from repro.driver_inspect import diff, inspect
    from repro.driver_training import bisect, export, train
    from repro.driver_tune import tune

_MODULES = {
    **dict.fromkeys(("audit_captures", "audit_manifests", "audit_model"), "driver_audit"),
    **dict.fromkeys(("diff", "inspect"), "driver_inspect"),
    **dict.fromkeys(("bisect", "export", "train"), "driver_training"),
    "tune": "driver_tune",
}
"""Where functions are that are not in `driver`. The command `audit` is three, by its forms: `repro.audit` is the
package of an audit's data types."""

__all__ = [
    "LoadedArtifact", "ReproError", "Session", "audit_captures", "audit_manifests", "audit_model", "bisect", "build",
    "cache", "diff", "export", "inspect", "load", "read_npz", "run", "train", "tune", "verify", "write_npz",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The public functions, on first use: importing a part of the package does not import all of it."""
    if name in __all__:
        return getattr(import_module(f"repro.{_MODULES.get(name, 'driver')}"), name)
    raise AttributeError(f"module 'repro' has no attribute '{name}'")
