"""`inspect --kernel`: a kernel's loops, PTX, registers and floor, from an artifact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import repro
from repro import cli, driver_inspect
from repro.errors import ReproError
from repro.machines.devices import DEVICES
from repro.targets.gpu.floor import work
from repro.targets.gpu.ptxas import installed
from tests.cli.conftest import INPUTS, MODEL
from tests.targets.test_contraction_tiles import matmul


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu") / "mlp.repro"
    repro.build(MODEL, folder, inputs=repro.read_npz(INPUTS), targets=["gpu"])
    return folder


def kernels(folder: Path) -> list[str]:
    config = driver_inspect.inspect(folder)["config"]
    assert isinstance(config, dict)
    targets = config["targets"]
    return [k["kernel"] for t in targets if t["name"] == "gpu" for e in t["entries"] for k in e["kernels"]]


def test_every_kernel_is_shown(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = kernels(artifact)
    assert found
    for digest in found:
        name = "k_" + digest.removeprefix("sha256:")[:16]
        assert cli.main(["inspect", str(artifact), "--kernel", name]) == 0
        shown = capsys.readouterr().out
        assert "kernel {" in shown and f".visible .entry {name}(" in shown and "floor on A100" in shown
        assert "no record of a device" in shown
        assert cli.main(["inspect", str(artifact), "--kernel", digest, "--json", "--device", "H100"]) == 0
        content = json.loads(capsys.readouterr().out)
        assert content["floor"]["device"] == "H100" and content["floor"]["nanoseconds"] > 0
        if installed():
            assert content["assembled"][name]["registers"] > 0 and content["assembled"][name]["spill_stores"] == 0


def test_an_artifact_without_gpu_code_shows_what_it_has(artifact: Path, tmp_path: Path) -> None:
    repro.build(MODEL, tmp_path / "a", inputs=repro.read_npz(INPUTS), targets=["cpu/x86-64-v3", "cpu/aarch64"])
    config = driver_inspect.inspect(tmp_path / "a")["config"]
    assert isinstance(config, dict)
    first = config["targets"][0]
    kernel = first["entries"][0]["kernels"][0]
    shown = driver_inspect.inspect_kernel(tmp_path / "a", kernel["kernel"])
    assert (shown["target"], shown["code"]) == (first["name"], kernel["code"])
    assert driver_inspect.inspect_kernel(artifact, kernels(artifact)[0])["target"] == "gpu"


def test_what_is_not_there_is_named(artifact: Path) -> None:
    with pytest.raises(ReproError, match="no kernel has this name"):
        driver_inspect.inspect_kernel(artifact, "k_feed")
    with pytest.raises(ReproError, match="several kernels"):
        driver_inspect.inspect_kernel(artifact, "k_")
    with pytest.raises(ReproError, match="no code for this target"):
        driver_inspect.inspect_kernel(artifact, kernels(artifact)[0], "tpu-sim")
    with pytest.raises(ReproError, match="no such device"):
        driver_inspect.inspect_kernel(artifact, kernels(artifact)[0], device="abacus")


def test_a_record_of_a_device_is_shown(artifact: Path, tmp_path: Path) -> None:
    digest = kernels(artifact)[0]
    record = tmp_path / "device.json"
    record.write_text(json.dumps({"kernels": {digest: 1234}}, separators=(",", ":")))
    assert driver_inspect.inspect_kernel(artifact, digest, record=record)["measured_nanoseconds"] == 1234


def test_the_floor_of_a_dot() -> None:
    """2 m n k operations, and each matrix once."""
    needed = work(matmul(4096, 4096, 4096))
    assert needed.f32 == 2 * 4096**3 and needed.f64 == 0 and needed.bytes == 3 * 4096**2 * 4
    assert needed.bound(DEVICES["A100"]) == "f32"
    assert needed.seconds(DEVICES["A100"]) == pytest.approx(2 * 4096**3 / 19.5e12)
    assert work(matmul(1, 4096, 4096)).bound(DEVICES["A100"]) == "bytes"
