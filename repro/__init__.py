"""A compiler for ONNX graphs whose results are the same bits everywhere.

    artifact = repro.build("model.onnx", out="model.repro", bind={"N": 32})
    artifact = repro.load("model.repro/artifact.json")
    outputs = artifact.session(entry="infer", target="cpu", threads=2).run({"x": x})

Every command of the command line is a function here, and every option a keyword of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repro.driver import (
        LoadedArtifact,
        ReproError,
        Session,
        bisect,
        build,
        cache,
        diff,
        export,
        inspect,
        load,
        read_npz,
        run,
        train,
        verify,
        write_npz,
    )
    from repro.driver_audit import audit_captures, audit_manifests, audit_model
    from repro.driver_tune import tune

_AUDIT = ("audit_captures", "audit_manifests", "audit_model")
"""The command `audit`, by its three forms: `repro.audit` is the package of an audit's data types."""

__all__ = [
    "LoadedArtifact", "ReproError", "Session", "audit_captures", "audit_manifests", "audit_model", "bisect", "build",
    "cache", "diff", "export", "inspect", "load", "read_npz", "run", "train", "tune", "verify", "write_npz",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The public functions, on first use: importing a part of the package does not import all of it."""
    if name in _AUDIT:
        from repro import driver_audit

        return getattr(driver_audit, name)
    if name == "tune":
        from repro import driver_tune

        return driver_tune.tune
    if name in __all__:
        from repro import driver

        return getattr(driver, name)
    raise AttributeError(f"module 'repro' has no attribute '{name}'")
