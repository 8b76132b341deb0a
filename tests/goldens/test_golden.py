"""Each golden model rebuilds to its manifest, byte for byte, and gives its golden bits on every target.

A digest that changes here names the rule or the emitter change behind it; `make bless` writes the new ones.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import repro
from golden import bless
from repro.artifact import tensors
from repro.artifact.checks import Status
from repro.artifact.reading import open_artifact
from tests.goldens import qemu

CASES = bless.cases()


@pytest.fixture(scope="module", params=CASES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A golden case, built once for the tests on it. What it is made of may come from the session's cache; `verify`,
    which has none, makes all of it again and compares."""
    folder = tmp_path_factory.mktemp(request.param)
    bless.build(CASES[request.param], folder / "out")
    return request.param, folder / "out"


def test_there_are_cases_and_every_model_has_one() -> None:
    models = {path.relative_to(bless.HERE).as_posix() for path in bless.HERE.glob("*/*.onnx")}
    assert models == {case["model"] for case in CASES.values()}
    assert {path.stem for path in bless.MANIFESTS.glob("*.json")} == set(CASES)


def test_it_rebuilds_to_its_manifest(built: tuple[str, Path]) -> None:
    name, folder = built
    expected = (bless.MANIFESTS / f"{name}.json").read_bytes()
    found = (folder / "artifact.json").read_bytes()
    if found != expected:
        new, old = (
            {
                layer["annotations"]["org.opencontainers.image.title"]: layer["digest"]
                for layer in json.loads(data)["layers"]
            }
            for data in (found, expected)
        )
        changed = [title for title in dict.fromkeys((*old, *new)) if old.get(title) != new.get(title)]
        pytest.fail(f"{name} builds to another artifact; layers that differ: {changed or 'none: the config does'}")


def test_it_verifies_on_every_target_of_this_host(built: tuple[str, Path]) -> None:
    _, folder = built
    report = repro.verify(folder)
    assert [check.status for check in report.checks if check.name == "rebuild"] == [Status.GOOD]
    bad = [check for check in report.checks if check.status is Status.MISMATCH]
    assert not bad
    assert report.exit_code == 0
    ran = [check.name for check in report.checks if check.name.startswith("run ") and check.status is Status.GOOD]
    artifact = repro.load(folder)
    assert "run reference" in ran
    assert len(ran) >= 4 * len(artifact.entries)


def test_its_aarch64_objects_give_the_same_bits(built: tuple[str, Path], tmp_path: Path) -> None:
    """On one, two and five threads."""
    missing = qemu.missing_tools()
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"not run: {', '.join(missing)} missing (Debian: qemu-user-static gcc-aarch64-linux-gnu)")
    stored = open_artifact(built[1])
    assert [run.entry for run in stored.config.golden] == [entry.name for entry in stored.config.entries]
    for entry, run in zip(stored.config.entries, stored.config.golden, strict=True):
        folder = tmp_path / entry.name
        folder.mkdir()
        runner, inputs = qemu.Runner(stored, folder, entry), qemu.golden_inputs(stored, run)
        expected = {each.name: each.digest for each in (*run.outputs, *run.state)}
        for threads in (1, 2, 5):
            found = runner.run(inputs, threads)
            assert {name: tensors.digest(array) for name, array in found.items()} == expected, f"{threads} threads"
