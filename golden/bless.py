"""Make the golden manifests anew: `make bless`. They are never edited by hand.

A case is a model with its build options, those of training too; the manifest that it must rebuild to goes to
manifests/golden.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import repro
from repro import ending
from repro.artifact.build import Request, imported_entries
from repro.frontend import EntryGraph, load_model
from repro.train_step import training_of

HERE = Path(__file__).resolve().parent
MANIFESTS = HERE.parent / "manifests" / "golden"


def cases() -> dict[str, dict[str, Any]]:
    return json.loads((HERE / "cases.json").read_text())


def build(case: dict[str, Any], out: Path, targets: Sequence[str] | None = None) -> repro.LoadedArtifact:
    """Build one case into a new folder, for the case's own targets if none are given."""
    chosen: Sequence[str] = case.get("targets", ["cpu"]) if targets is None else targets
    inputs = repro.read_npz(HERE / case["inputs"]) if "inputs" in case else None
    bind, training = case.get("bind", {}), case.get("training", {})
    return repro.build(HERE / case["model"], out, bind=bind, targets=chosen, inputs=inputs, **training)


def entries(case: dict[str, Any], bind: dict[str, int] | None = None) -> tuple[EntryGraph, ...]:
    """The graphs of a case, with other dimensions if they are given."""
    training = dict(case.get("training", {}))
    gradients = training.pop("gradients", False)
    request = Request(
        model=load_model(HERE / case["model"]),
        bind=case.get("bind", {}) if bind is None else bind,
        set={},
        targets=(),
        inputs=repro.read_npz(HERE / case["inputs"]) if bind is None and "inputs" in case else None,
        golden_seed=0,
        seed=0,
        training=training_of(training) if training else None,
        gradients=gradients,
    )
    return imported_entries(request)[1]


def main(words: list[str]) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--only-build", type=Path, metavar="DIR", help="build the one case named into DIR; bless nothing"
    )
    options.add_argument("--targets", metavar="LIST", help="of --only-build (default: the case's)")
    options.add_argument("names", nargs="*", help="cases (default: all)")
    chosen = options.parse_args(words)
    table = cases()
    if chosen.only_build is not None:
        (name,) = chosen.names
        targets = chosen.targets.split(",") if chosen.targets else None
        sys.stdout.write(f"{name}: {build(table[name], chosen.only_build, targets).id}\n")
        return 0
    for name in chosen.names or table:
        with tempfile.TemporaryDirectory() as folder:
            artifact = build(table[name], Path(folder) / "out")
            made = (artifact.folder / "artifact.json").read_bytes()
        target = MANIFESTS / f"{name}.json"
        changed = not target.exists() or target.read_bytes() != made
        target.write_bytes(made)
        sys.stdout.write(f"{name}: {artifact.id} {'changed' if changed else 'unchanged'}\n")
    return 0


if __name__ == "__main__":
    ending.run(main)
