"""Every command ends in one place, `repro.ending`, and `make help` knows every command of make."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "examples", "golden", "proofs", "repro", "tools")
ELSEWHERE = {
    "repro/__main__.py",  # loads the command line, which ends there
    "repro/audit/probes/__main__.py",  # below the layer of commands
    "repro/audit/worker.py", "repro/bench/task.py", "repro/tuning/measure.py",  # processes that a command starts
}  # fmt: skip


def last_statement(path: Path) -> str | None:
    """What a module does when it is run; None: nothing."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            return ast.unparse(node.body[-1])
    return None


def test_commands_end_in_one_place() -> None:
    found = {str(p.relative_to(ROOT)): last_statement(p) for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")}
    run = {name: statement for name, statement in found.items() if statement is not None}
    assert len(run) > 20
    assert {name for name, statement in run.items() if not statement.startswith("ending.run(")} == ELSEWHERE


def test_make_help_lists_every_command() -> None:
    (phony,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith(".PHONY:"))
    told = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout  # the name of the folder would stand there where make runs the tests
    assert {line.split()[0] for line in told.splitlines()} == set(phony.split()[1:])
