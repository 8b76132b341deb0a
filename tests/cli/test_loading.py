"""What a command loads: help waits for no compiler, and a command for no target and no audit that it has no use for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from repro import cli
from tests.cli.conftest import INPUTS, MODEL

PARTS = {"numpy", "onnx", "llvmlite", "passes", "repro.audit", "repro.driver", "repro.training"}
TARGETS = {"repro.targets.cpu.target", "repro.targets.gpu.target", "repro.targets.tpu_sim.target"}


def loaded(*words: str) -> set[str]:
    """Modules of the process that ran a command to a good end."""
    told = "import sys; from repro import cli; code = cli.main(sys.argv[1:])"
    script = f"{told}; print(*sys.modules, file=sys.stderr); sys.exit(code)"
    ran = subprocess.run([sys.executable, "-c", script, *words], check=True, capture_output=True, text=True)
    return set(ran.stderr.split())


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_waits_for_nothing(word: str) -> None:
    found = loaded(word)
    assert "repro.cli" in found
    assert not found & (PARTS | TARGETS)


def test_a_build_for_cpus_loads_no_other_target(tmp_path: Path) -> None:
    words = ["build", str(MODEL), "-o", str(tmp_path / "out"), "--inputs", str(INPUTS)]
    found = loaded(*words, "--targets", "cpu/x86-64-v3")
    assert found & TARGETS == {"repro.targets.cpu.target"}
    assert not any(name.startswith(("repro.audit", "repro.tuning", "repro.targets.gpu.emit")) for name in found)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    told = capsys.readouterr().out
    assert f"usage: repro {name}" in told
    assert told.count("--") > 1  # its options are there


def test_each_module_has_the_commands_that_the_table_gives_it() -> None:
    given = {name: cli.called([name])[1] for name in cli.COMMANDS}
    assert all(name in own for name, own in given.items())
    assert {name for own in given.values() for name in own} == set(cli.COMMANDS)


def test_an_option_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--debug", "cache", "--json"]) == 0
    assert '"entries"' in capsys.readouterr().out


def test_no_command_and_an_unknown_one_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert cli.main(["abacus"]) == 2
    assert "invalid choice: 'abacus'" in capsys.readouterr().err
