"""Imports go one way, along the layers of docs/architecture.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"repro.collector", "repro.errors", "repro.signatures", "repro.version"}),
    frozenset({"repro.ir", "repro.machines"}),
    frozenset({"repro.numerics"}),
    frozenset({"repro.ops"}),
    frozenset({"repro.frontend", "repro.autodiff", "repro.train_step", "passes"}),
    frozenset({"repro.targets", "repro.runtime"}),
    frozenset({"repro.artifact", "manifests"}),
    frozenset({"repro.training", "repro.audit", "repro.tuning"}),
    frozenset({f"repro.driver{part}" for part in ("", "_audit", "_inspect", "_training", "_tune")}),
    frozenset({"repro"}),
    frozenset({"repro.bench", "repro.ending", "repro.progress", "repro.tables", "proofs"}),
    frozenset({"repro.cli"}),
    frozenset({"repro.__main__"}),
)
"""Each layer may import from its own and from those before it. `repro` itself is the public face."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
SOURCES = sorted(
    path
    for folder in ("repro", "passes", "manifests", "proofs")
    for path in (ROOT / folder).rglob("*.py")
    if path.is_file()
)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def layer_of(module: str) -> str | None:
    """The layer a module belongs to; None for a third-party module."""
    parts = module.split(".")
    if parts[0] != "repro":
        return parts[0] if parts[0] in LEVEL else None
    return "repro" if len(parts) == 1 else ".".join(parts[:2])


def imported_modules(path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import in the file, those inside functions too."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from repro import ir` names the package ir, not something of `repro` itself.
            found += [
                (node.lineno, f"{origin}.{alias.name}" if origin == "repro" and is_part(alias.name) else origin)
                for alias in node.names
            ]
    return found


def is_part(name: str) -> bool:
    return f"repro.{name}" in LEVEL


def test_there_are_sources() -> None:
    assert len(SOURCES) > 5


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_go_one_way(path: Path) -> None:
    own = layer_of(module_name(path))
    assert own in LEVEL, f"{module_name(path)} belongs to no layer: add it to LAYERS"
    for line, module in imported_modules(path):
        other = layer_of(module)
        if other is None:
            continue
        assert other in LEVEL, f"{path.name}:{line} imports {module}, which belongs to no layer"
        assert LEVEL[other] <= LEVEL[own], f"{path.name}:{line}: {own} may not import {module}"


@pytest.mark.parametrize("name", ["repro", "passes", "manifests", "golden", "proofs", "benchmarks", "examples"])
def test_no_test_package_hides_a_real_one(name: str) -> None:
    """Type checkers look in tests/ first; there a package named like a real one would be found instead."""
    assert not (ROOT / "tests" / name / "__init__.py").exists()
