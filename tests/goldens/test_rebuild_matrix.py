"""One model, built under different folders, hash seeds, locales, clocks, umasks, cores and caches: identical trees."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from golden import bless
from tests.artifact.test_layout import tree

NUMPY_FEATURES = " ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name))


@dataclass(frozen=True)
class Surroundings:
    """What a build must not depend on. `{tmp}` stands for a folder of this one's own."""

    name: str
    environment: dict[str, str] = field(default_factory=dict[str, str])
    umask: int = 0o022
    cores: int | None = None


MATRIX = (
    Surroundings("hash seed", {"PYTHONHASHSEED": "1"}),
    Surroundings("another hash seed", {"PYTHONHASHSEED": "4242"}),
    Surroundings("locale", {"LC_ALL": "C", "LANG": "tr_TR.UTF-8", "PYTHONUTF8": "0"}),
    Surroundings("time zone", {"TZ": "Asia/Kathmandu"}),
    Surroundings("home", {"HOME": "/nonexistent", "REPRO_CACHE": ""}),
    Surroundings("umask", umask=0o077),
    Surroundings("one core", cores=1),
    Surroundings("no cache", {"REPRO_CACHE": "off"}),
    Surroundings("cold cache", {"REPRO_CACHE": "{tmp}/cold"}),
    Surroundings("NumPy without vectors", {"NPY_DISABLE_CPU_FEATURES": NUMPY_FEATURES, "REPRO_CACHE": "off"}),
    Surroundings("BLAS", {"OPENBLAS_CORETYPE": "Nehalem", "OMP_NUM_THREADS": "7"}),
    Surroundings("optimised bytecode", {"PYTHONOPTIMIZE": "2"}),
)


def build(case: str, folder: Path, around: Surroundings, cache: Path) -> dict[str, object]:
    folder.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "REPRO_CACHE": str(cache)}
    environment |= {name: value.format(tmp=folder) for name, value in around.environment.items()}
    environment["PYTHONPATH"] = str(bless.HERE.parent)

    def settle() -> None:
        os.umask(around.umask)
        if around.cores is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: around.cores])

    command = [sys.executable, bless.__file__, "--targets", "cpu,gpu", "--only-build", folder / "out", case]
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        preexec_fn=settle,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(tree(folder / "out"))


def forget(cache: Path) -> None:
    """Leave a cache nothing but compiled code: the next build makes all else itself."""
    kinds = [folder for folder in cache.glob("*/*") if folder.name not in ("kernel", "program")]
    assert kinds
    for folder in kinds:
        shutil.rmtree(folder)


def check_matrix(case: str, tmp_path: Path) -> Iterator[str]:
    """Names of the surroundings in which the case builds to another tree; after the first, code comes from a cache."""
    cache = tmp_path / "cache"
    first = build(case, tmp_path / "first", Surroundings("first"), cache)
    assert len(first) > 10
    for number, around in enumerate((*MATRIX, Surroundings("all of it known"))):
        if number < len(MATRIX) and any(cache.glob("*/lowered")):
            forget(cache)
        if build(case, tmp_path / str(number), around, cache) != first:
            yield around.name


def test_numpy_has_features_to_disable() -> None:
    assert NUMPY_FEATURES


def test_digits_mlp(tmp_path: Path) -> None:
    assert list(check_matrix("digits_mlp", tmp_path)) == []


@pytest.mark.full
@pytest.mark.parametrize("case", sorted(set(bless.cases()) - {"digits_mlp"}))
def test_the_other_models(case: str, tmp_path: Path) -> None:
    assert list(check_matrix(case, tmp_path)) == []
