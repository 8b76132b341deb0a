"""The wheel, installed away from the checkout, builds and verifies."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what git knows, so that no stray file can help it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "pyproject.toml", "README.md", "LICENSE", "NOTICE", "repro", "passes", "manifests"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("*.whl")
    return found


def test_it_holds_the_packages_their_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"repro", "passes", "manifests"}
    schemas = {name for name in names if name.startswith("manifests/schema/")}
    kinds = {path.name for path in (ROOT / "manifests" / "schema").glob("*.schema.json")}
    assert schemas == {f"manifests/schema/{kind}" for kind in kinds}
    assert {"config.schema.json", "manifest.schema.json"} <= kinds
    templates = {name for name in names if name.startswith("repro/audit/report/templates/")}
    assert {Path(name).name for name in templates} == {"parts.html", "report.html", "style.css"}
    assert "manifests/golden/digits_mlp.json" in names
    assert "repro/py.typed" in names


def test_installed_elsewhere_it_builds_and_verifies(wheel: Path, tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(install, check=True, timeout=300)
    (work / "m.onnx").write_bytes((ROOT / "golden" / "digits_mlp" / "forward.onnx").read_bytes())
    environment = {**os.environ, "PYTHONPATH": str(site), "HOME": str(tmp_path), "REPRO_CACHE": "off"}

    def python(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = python("-c", "import repro, passes, manifests; print(repro.__file__, passes.__file__, manifests.__file__)")
    assert all(Path(path).is_relative_to(site) for path in where.split())
    python("-m", "repro", "build", "m.onnx", "--bind", "N=2")
    assert "checks passed" in python("-m", "repro", "verify", "m.repro/artifact.json")
