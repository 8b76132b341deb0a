"""Exit codes and output of the commands that need no build."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from repro import cli, driver, driver_inspect
from repro.artifact.cache import key
from repro.artifact.layout import write
from repro.version import VERSION
from tests.artifact.sample import sample_artifact


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    write(sample_artifact(), tmp_path / "a.repro")
    return tmp_path / "a.repro" / "artifact.json"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nothing"],
        ["build"],
        ["build", "m.onnx", "--golden-seed", "-1"],
        ["build", "m.onnx", "--seed", "1.5"],
        ["build", "m.onnx", "--golden-seed", "1", "--inputs", "f.npz"],
        ["build", "m.onnx", "--targets", "cpu,"],
        ["build", "m.onnx", "--bind", "N"],
        ["build", "m.onnx", "--bind", "N=-1"],
        ["build", "m.onnx", "--bind", "N=1.5"],
        ["build", "m.onnx", "--bind", "N=1", "--bind", "N=2"],
        ["build", "m.onnx", "--bind", "=2"],
        ["build", "m.onnx", "--set", "x=nonsense"],
        ["build", "m.onnx", "--inputs", "missing.npz"],
        ["verify", "missing.json"],
        ["run", "a.json", "--inputs", "missing.npz", "--outputs", "o.npz"],
        ["run", "a.json", "--inputs", "i.npz", "--outputs", "o.npz", "--threads", "0"],
        ["inspect", "missing.json"],
        ["inspect", "a.json", "--target", "cpu"],
        ["inspect", "a.json", "--chips", "v4", "--device", "H100"],
        ["inspect", "a.json", "--code", "gpu", "--json"],
        ["build", "m.onnx", "--loss", "mse", "--option", "loss=l1"],
        ["build", "m.onnx", "--loss", "mse", "--option", "beta1=0", "--option", "beta1=0"],
        ["build", "m.onnx", "--loss", "bce", "--weighted", "--option", "weighted=false"],
        ["cache", "burn"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_two(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.err
    assert "Traceback" not in captured.err
    assert not list(tmp_path.iterdir())


def test_inspect_shows_the_artifact(sample: Path, capsys) -> None:
    assert cli.main(["inspect", str(sample)]) == 0
    text = capsys.readouterr().out
    for part in (sample_artifact().id, "cpu/x86-64-v3", "f32[1]", "simplify", "0.50.0"):
        assert part in text
    assert "ÿ\\n" in text, "control characters in names are shown, not obeyed"
    assert cli.main(["inspect", str(sample), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["artifact"] == sample_artifact().id


def test_diff(sample: Path, tmp_path: Path, capsys) -> None:
    write(sample_artifact(weight=b"\0\0\0\0"), tmp_path / "b.repro")
    assert cli.main(["diff", str(sample), str(sample)]) == 0
    assert "identical" in capsys.readouterr().out
    assert cli.main(["diff", str(sample), str(tmp_path / "b.repro")]) == 1
    assert "weights.[w].digest" in capsys.readouterr().out
    assert cli.main(["diff", str(sample), str(tmp_path / "b.repro"), "--json"]) == 1
    assert {row["where"] for row in json.loads(capsys.readouterr().out)} == {
        "weights.[w].digest",
        "layers.weights/00000.digest",
        "layers.config.digest",
    }


def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    found = driver.default_cache()
    assert found is not None
    found.put(key("code", a="b"), b"1234")
    assert cli.main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 1
    assert cli.main(["cache", "clear"]) == 0
    assert found.usage().entries == 0
    monkeypatch.setenv("REPRO_CACHE", "off")
    assert driver.default_cache() is None
    assert cli.main(["cache"]) == 0


def test_an_internal_error_is_four_with_a_report(monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path) -> None:
    def broken(path: object) -> None:
        raise RuntimeError(f"broken by {path}")

    monkeypatch.setattr(driver_inspect, "inspect", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["inspect", "x"]) == 4
    error = capsys.readouterr().err
    assert "Traceback" not in error
    (report,) = tmp_path.iterdir()
    assert report.name in error
    assert "broken by x" in report.read_text()


def test_an_interrupt_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver_inspect, "inspect", interrupted)
    assert cli.main(["inspect", "x"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_the_package_is_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "repro", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"repro {VERSION}\n")


def test_inputs_that_are_no_archive_are_not_to_be_unpickled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NumPy's own words advise to load them unsafely."""
    (tmp_path / "in.npz").write_text("text")
    assert cli.main(["run", "a.json", "--inputs", str(tmp_path / "in.npz"), "--outputs", "o.npz"]) == 2
    told = capsys.readouterr().err
    assert "not a zip archive" in told
    assert "pickle" not in told
