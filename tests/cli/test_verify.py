"""verify: what passes, what differs, what did not run."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import repro
from repro import cli
from repro.artifact.build import build
from repro.artifact.checks import Report, Status
from repro.artifact.config import Versions
from repro.artifact.layout import Artifact, Layer, write
from repro.artifact.loaded import request_of
from repro.artifact.reading import open_artifact

OTHER = "cpu/x86-64-v3" if platform.machine() == "aarch64" else "cpu/aarch64"


def statuses(report: Report) -> dict[str, Status]:
    return {check.name: check.status for check in report.checks}


def test_a_good_artifact_verifies(mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "sarif")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    assert cli.main(["verify", str(mlp / "artifact.json"), *options]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    report = json.loads(files["json"].read_text())
    assert last.startswith(f"{report['passed']} of {report['total']} checks passed")
    names = [check["name"] for check in report["checks"] if check["status"] == "good"]
    assert {"parse", "hash", "rebuild", "code", "loop IR", "run reference"} <= set(names)
    for threads in ("1 thread", "2 threads", "5 threads"):
        assert any(name.startswith("run cpu/") and name.endswith(threads) for name in names)
    assert ElementTree.fromstring(files["junit"].read_text()).get("tests") == str(report["total"])
    assert json.loads(files["sarif"].read_text())["version"] == "2.1.0"


def test_another_host_s_target_is_not_run(mlp: Path) -> None:
    report = repro.verify(mlp)
    rows = [check for check in report.checks if check.name.startswith(f"run {OTHER}")]
    assert len(rows) == 3
    assert all(check.status is Status.NOT_RUN and check.detail and not check.required for check in rows)
    assert report.exit_code == 0


@pytest.mark.parametrize("option", ["--require", "--targets"])
def test_a_required_target_that_cannot_run_is_three(mlp: Path, option: str) -> None:
    assert cli.main(["verify", str(mlp), option, OTHER]) == 3


def test_targets_limits_the_runs(mlp: Path) -> None:
    report = repro.verify(mlp, targets="reference")
    runs = [check for check in report.checks if check.name.startswith("run ")]
    assert [check.name for check in runs if check.name == "run reference" and check.required] == ["run reference"]
    assert all(check.required for check in runs)
    assert len(runs) == 1 + 3


def test_an_unknown_target_is_two(mlp: Path) -> None:
    assert cli.main(["verify", str(mlp), "--require", "abacus"]) == 2


def test_trusted_code_is_another_row(mlp: Path) -> None:
    assert statuses(repro.verify(mlp, trust_code=True))["run shipped code"] is Status.GOOD


def test_a_changed_byte_in_any_file_is_one_and_is_named(
    copy: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy()
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(paths) > 20
    for path in paths:
        good = path.read_bytes()
        bad = bytearray(good)
        bad[len(bad) // 2] ^= 0x10
        path.write_bytes(bad)
        assert cli.main(["verify", str(folder)]) == 1, path
        assert path.name in capsys.readouterr().out
        path.write_bytes(good)


def test_a_missing_file_is_two(copy: Callable[[], Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        aside = folder.parent / "aside"
        path.rename(aside)
        assert cli.main(["verify", str(folder)]) == 2, path
        assert path.name in capsys.readouterr().err
        aside.rename(path)


def forged(mlp: Path, folder: Path, change: Callable[[Artifact], Artifact]) -> Path:
    """A consistent artifact that says something else than its source builds to."""
    artifact = build(request_of(open_artifact(mlp)), None, lambda *_: None).artifact
    write(change(artifact), folder)
    return folder


def test_other_golden_bits_are_a_mismatch_on_every_target(mlp: Path, tmp_path: Path) -> None:
    def change(artifact: Artifact) -> Artifact:
        (run,) = artifact.config.golden
        layers = list(artifact.layers)
        position = next(n for n, layer in enumerate(layers) if layer.digest == run.outputs[0].digest)
        data = bytearray(layers[position].data)
        data[40] ^= 1
        layers[position] = Layer(layers[position].title, layers[position].media_type, bytes(data))
        outputs = (replace(run.outputs[0], digest=layers[position].digest),)
        config = replace(artifact.config, golden=(replace(run, outputs=outputs),))
        return Artifact(config, tuple(layers))

    report = repro.verify(forged(mlp, tmp_path / "forged", change))
    found = statuses(report)
    assert report.exit_code == 1
    assert found["rebuild"] is found["run reference"] is Status.MISMATCH
    (row,) = (check for check in report.checks if check.name == "run reference")
    assert "output 'logits': 1 of 160 elements differ, first at [1, 0]" in row.detail


def test_a_golden_output_that_the_entry_has_not_is_a_mismatch(mlp: Path, tmp_path: Path) -> None:
    def change(artifact: Artifact) -> Artifact:
        (run,) = artifact.config.golden
        outputs = (replace(run.outputs[0], name="other"),)
        return Artifact(replace(artifact.config, golden=(replace(run, outputs=outputs),)), artifact.layers)

    report = repro.verify(forged(mlp, tmp_path / "forged", change), targets="reference")
    (row,) = (check for check in report.checks if check.name == "run reference")
    assert row.status is Status.MISMATCH
    assert "'other'" in row.detail


def test_other_code_is_named_and_never_run(mlp: Path, tmp_path: Path) -> None:
    def change(artifact: Artifact) -> Artifact:
        target = artifact.config.targets[-1]
        poison = Layer(f"code/{target.name}/infer.o", "application/vnd.repro.object.v1+elf", b"\x7fELF poison")
        layers = tuple(poison if layer.title == poison.title else layer for layer in artifact.layers)
        entries = (replace(target.entries[0], code=poison.digest),)
        targets = (*artifact.config.targets[:-1], replace(target, entries=entries))
        return Artifact(replace(artifact.config, targets=targets), layers)

    report = repro.verify(forged(mlp, tmp_path / "forged", change))
    found = statuses(report)
    assert found["code"] is found["rebuild"] is Status.MISMATCH
    assert "infer.o" in next(check.detail for check in report.checks if check.name == "rebuild")
    assert found["run reference"] is Status.GOOD
    assert all(status is not Status.MISMATCH for name, status in found.items() if name.startswith("run "))


def test_another_toolchain_compares_bits_but_not_code(mlp: Path, tmp_path: Path) -> None:
    def change(artifact: Artifact) -> Artifact:
        return Artifact(replace(artifact.config, versions=Versions("0.1.0", "0.49.0", "21.0.0")), artifact.layers)

    report = repro.verify(forged(mlp, tmp_path / "forged", change))
    found = statuses(report)
    assert found["code"] is found["rebuild"] is Status.NOT_RUN
    assert found["loop IR"] is found["source digest"] is found["run reference"] is Status.GOOD
    assert report.exit_code == 0


def test_another_contract_is_three_with_the_way_out(mlp: Path, tmp_path: Path) -> None:
    def change(artifact: Artifact) -> Artifact:
        return Artifact(replace(artifact.config, contract=2), artifact.layers)

    report = repro.verify(forged(mlp, tmp_path / "forged", change))
    assert report.exit_code == 3
    assert any("pip install" in check.detail for check in report.checks)


def test_an_artifact_can_be_moved_and_its_index_rewritten(mlp: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "x"
    shutil.copytree(mlp, folder)
    index = json.loads((folder / "index.json").read_bytes())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "v1"}
    (folder / "index.json").write_text(json.dumps(index, indent=1))
    assert repro.verify(folder).exit_code == 0
    assert repro.load(folder).id == repro.load(mlp).id
