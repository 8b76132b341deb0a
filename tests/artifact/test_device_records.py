"""Records of devices: only a device writes one, only where all bits are golden, and one file is of one device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import repro
from golden import bless
from repro.artifact import device_records, schema
from repro.artifact.canonical import decode
from repro.artifact.checks import Status
from repro.cli import main
from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.targets.gpu import driver
from tests.targets.fake_cuda import FakeCuda


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("records") / "out"
    bless.build(bless.cases()["digits_mlp"], out, ["gpu"])
    return out


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_records, "ROUNDS", 2)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A device that is none: libcuda's stand-in."""
    library = FakeCuda()
    found = driver.opened(library)
    monkeypatch.setattr(driver, "_default", lambda: found)
    return library


@pytest.mark.parametrize("targets", [None, ("cpu",), ("gpu/interpreter",), ("reference", "cpu")])
def test_no_other_target_writes_one(folder: Path, tmp_path: Path, targets: tuple[str, ...] | None) -> None:
    with pytest.raises(ReproError, match="a record is of one device") as caught:
        repro.verify(folder, targets=targets, record=tmp_path / "r.json")
    assert caught.value.expected == "--targets with one of: gpu, gpu/graphics"
    assert not (tmp_path / "r.json").exists()


def test_without_a_device_there_is_none(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_default", lambda: "it is not here")
    with pytest.raises(ReproError, match="target gpu does not run here"):
        repro.verify(folder, targets=["gpu"], record=tmp_path / "r.json")
    assert not (tmp_path / "r.json").exists()


def test_a_record_says_what_ran(
    folder: Path, tmp_path: Path, device: FakeCuda, capsys: pytest.CaptureFixture[str]
) -> None:
    path, trained = tmp_path / "r.json", tmp_path / "trained"
    bless.build(bless.cases()["digits_mlp_training_info"], trained, ["gpu"])
    assert main(["verify", str(trained), "--targets", "gpu", "--record", str(path)]) == 0
    assert "run train_step on gpu" in capsys.readouterr().out
    found = decode(path.read_bytes(), "the record")
    schema.check(found, "device", "the record")
    artifact = repro.load(trained)
    assert [run["entry"] for run in found["runs"]] == sorted(artifact.entries)
    assert found["device"]["name"] == "Fake A100"
    for run in found["runs"]:
        golden = artifact.config.golden_run(run["entry"])
        assert golden is not None
        assert run["artifact"] == artifact.id
        assert run["outputs"] == {each.name: each.digest for each in golden.outputs}
        assert run["state"] == {each.name: each.digest for each in golden.state}
    mine = {kernel.kernel for target in artifact.config.targets for each in target.entries for kernel in each.kernels}
    assert set(found["kernels"]) <= mine
    assert len(found["kernels"]) > 30
    before = path.read_bytes()
    repro.verify(folder, targets=["gpu"], record=path)
    again = json.loads(path.read_bytes())
    assert [(run["artifact"], run["entry"]) for run in again["runs"]] == sorted(
        [(artifact.id, entry) for entry in artifact.entries] + [(repro.load(folder).id, "infer")]
    )
    assert set(json.loads(before)["kernels"]) < set(again["kernels"])


def test_a_file_is_of_one_device(
    folder: Path, tmp_path: Path, device: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    report = repro.verify(folder, targets=["gpu"], record=path)
    other = driver.opened(FakeCuda(capability=(9, 0)))
    monkeypatch.setattr(driver, "_default", lambda: other)
    before = path.read_bytes()
    with pytest.raises(ReproError, match="is a record of another device"):
        device_records.write(repro.load(folder), report, device_records.device_of(["gpu"]), path)
    path.write_bytes(b"{}")
    with pytest.raises(ReproError, match="device"):
        device_records.write(repro.load(folder), report, device_records.device_of(["gpu"]), path)
    assert before


def test_a_device_that_gives_other_bits_has_no_record(folder: Path, tmp_path: Path, device: FakeCuda) -> None:
    symbol = next(line for line in _codes(folder) if line.startswith("// launch ")).split()[2]
    device.bad_kernel = symbol
    path = tmp_path / "r.json"
    report = repro.verify(folder, targets=["gpu"], record=path)
    assert report.exit_code == 1
    assert not path.exists()


def test_too_little_memory_is_no_mismatch(folder: Path, device: FakeCuda) -> None:
    """Nothing ran, so nothing is known of its bits."""
    device.memory = 1000
    report = repro.verify(folder, targets=["gpu"])
    (row,) = (check for check in report.checks if check.name == "run gpu")
    assert row.status is Status.NOT_RUN and "too little memory" in row.detail
    assert report.exit_code == EXIT_INCOMPLETE


def _codes(folder: Path) -> list[str]:
    from repro.artifact.reading import open_artifact

    stored = open_artifact(folder)
    target = stored.config.target("gpu")
    assert target is not None
    first = target.entries[0].kernels[0].code
    return bytes(stored.by_digest(first)).decode().splitlines()
