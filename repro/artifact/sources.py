"""Digests of our own sources and tools: what the cache's keys have of how a thing was made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import passes
import repro.artifact
import repro.ir
import repro.machines
import repro.numerics
import repro.ops
import repro.runtime
import repro.targets
from repro.targets.llvm.toolchain import versions

EMITTER = (repro.ir, repro.numerics, repro.machines, repro.targets, passes)
"""What a kernel's code depends on, besides its text and its schedule."""
RUNNING = (*EMITTER, repro.ops, repro.runtime, repro.artifact)
"""What programs and runs depend on, besides the canonical graph."""


@cache
def toolchain(packages: tuple[ModuleType, ...] = EMITTER) -> dict[str, str]:
    """Parts of a key: versions of the tools, and a digest of sources, so that changed ones never meet old work."""
    return {**versions(), "sources": _digest(packages)}


def _digest(packages: Sequence[ModuleType]) -> str:
    """sha256 (hex) over every Python file of packages, with its place."""
    digest = hashlib.sha256()
    for package in packages:
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
            digest.update(f"{package.__name__}/{path.relative_to(root).as_posix()}\n".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
