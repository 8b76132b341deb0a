"""What a simulated run takes, on the command line: run --profile, inspect --chips, inspect --code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from repro import cli
from repro.targets.tpu_sim.program import parse_routine

MODEL = Path(__file__).resolve().parents[2] / "golden" / "digits_mlp" / "forward.onnx"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    words = ["build", str(MODEL), "--bind", "N=8", "--targets", "tpu-sim,cpu", "-o", str(folder / "mlp.repro")]
    assert cli.main(words) == 0
    np.savez(folder / "in.npz", input=np.ones((8, 64), np.float32))
    return folder / "mlp.repro" / "artifact.json"


def run(artifact: Path, target: str, profile: Path) -> int:
    given, made = artifact.parents[1] / "in.npz", profile.parent / "out.npz"
    words = ["--inputs", str(given), "--outputs", str(made), "--target", target, "--profile", str(profile)]
    return cli.main(["run", str(artifact), *words])


def test_a_document_says_what_a_run_took(artifact: Path, tmp_path: Path) -> None:
    assert run(artifact, "tpu-sim", tmp_path / "p.json") == 0
    found = json.loads((tmp_path / "p.json").read_text())
    assert found["chip"] == "v5e"
    assert found["seconds"] == pytest.approx(found["cycles"] / (found["clock_mhz"] * 1e6))
    assert sum(kernel["cycles"] for kernel in found["kernels"]) == found["cycles"] > 0
    assert sum(found["joules_by"].values()) == pytest.approx(found["joules"]) and found["joules"] > 0
    weights = 4 * (64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10)
    assert found["counts"]["hbm read"] >= weights
    assert 0 < found["vmem_high_water"] < 128 << 20


def test_a_page_needs_no_network_and_no_script(artifact: Path, tmp_path: Path) -> None:
    assert run(artifact, "tpu-sim/v5e", tmp_path / "p.html") == 0
    page = (tmp_path / "p.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"<script|<link|<img|url\(|src=|href=", page)
    for part in ("Units over time", "Roofline", "Kernels", "Energy", "infer on tpu-sim/v5e"):
        assert part in page


def test_a_target_without_a_clock_of_its_own_says_so(artifact: Path, tmp_path: Path, capsys) -> None:
    assert run(artifact, "cpu", tmp_path / "p.json") == 2
    assert "no profile" in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()


def test_chips_are_compared_without_a_run(artifact: Path, capsys) -> None:
    assert cli.main(["inspect", str(artifact), "--chips", "v4,v5e,v6e"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("v4", "v5e", "v6e", "infer"))
    assert cli.main(["inspect", str(artifact), "--chips", "v4,v5e,v6e", "--json"]) == 0
    found = {each["chip"]: each for each in json.loads(capsys.readouterr().out)}
    assert all(each["exact"] and each["cycles"] > 0 and each["joules"] > 0 for each in found.values())
    assert len({each["seconds"] for each in found.values()}) == 3


def test_an_estimate_is_what_a_run_takes(artifact: Path, tmp_path: Path, capsys) -> None:
    assert run(artifact, "tpu-sim", tmp_path / "p.json") == 0
    capsys.readouterr()
    assert cli.main(["inspect", str(artifact), "--chips", "v5e", "--json"]) == 0
    (estimated,) = json.loads(capsys.readouterr().out)
    assert estimated["cycles"] == json.loads((tmp_path / "p.json").read_text())["cycles"]


def test_code_that_is_text_is_printed(artifact: Path, capsys) -> None:
    assert cli.main(["inspect", str(artifact), "--code", "tpu-sim"]) == 0
    program, *routines = capsys.readouterr().out.split("\nroutine ")
    assert program.startswith("program ")
    assert len(routines) >= 2
    assert all(parse_routine("routine " + each.rstrip() + "\n").body for each in routines)


def test_a_kernel_is_shown_with_its_routine_and_its_cycles(artifact: Path, capsys) -> None:
    assert cli.main(["inspect", str(artifact), "--json"]) == 0
    targets = {each["name"]: each for each in json.loads(capsys.readouterr().out)["config"]["targets"]}
    kernel = targets["tpu-sim/v5e"]["entries"][0]["kernels"][0]["kernel"].removeprefix("sha256:")[:16]
    words = ["inspect", str(artifact), "--kernel", kernel, "--target", "tpu-sim"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "routine k_" in shown and "kernel {" in shown and "stall transfer" in shown
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["simulated"]["cycles"] > 0 and parse_routine(found["routine"]).arguments


@pytest.mark.parametrize(("option", "value", "said"), [("--chips", "v6x", "v5e"), ("--code", "cpu", "not text")])
def test_what_cannot_be_shown_is_refused(artifact: Path, option: str, value: str, said: str, capsys) -> None:
    assert cli.main(["inspect", str(artifact), option, value]) == 2
    assert said in capsys.readouterr().err
