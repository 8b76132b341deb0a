"""Tables of measurements come from records: nothing in them is written by hand."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from benchmarks import bounds_table, tables
from repro.bench.measuring import Ratio, Timing
from repro.bench.peaks import Peaks
from repro.bench.suite import Benchmark, Measurement

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["performance.md", "zoo.md", "gpu.md"])
def test_the_page_shows_what_the_records_say(name: str):
    text = (DOCS / name).read_text(encoding="utf-8")
    assert tables.MARKED.search(text)
    assert tables.renewed(text) == text, f"python -m benchmarks.tables --write docs/{name}"


def test_every_record_says_on_what_it_was_taken():
    kinds = [sorted(tables.RECORDS.glob(f"*/{name}")) for name in ("*.json", tables.ZOO, bounds_table.RECORD)]
    assert all(kinds)
    for path in itertools.chain(*kinds):
        text = path.read_text(encoding="utf-8")
        document = json.loads(text.splitlines()[0] if path.suffix == ".jsonl" else text)
        assert document["host"]["target"].startswith("cpu/"), path
        assert document["versions"]["onnxruntime" if path.name == bounds_table.RECORD else "torch"], path


def _measured(name: str, seconds: float, ratio: float) -> Measurement:
    ours = Timing("repro", (seconds,))
    ratios = {"torch": Ratio(ratio, ratio, ratio)}
    return Measurement(name, "forward", 1, (ours,), ratios, 0.0, 10**9, 0, 0, Ratio(0.25 / seconds, 0.0, 1.0))


@pytest.fixture
def records(tmp_path: Path) -> Path:
    machine = tmp_path / "here"
    machine.mkdir()
    for number, found in enumerate(([_measured("dot/256", 1.0, 2.0)], [_measured("dot/512", 0.5, 0.5)])):
        document = Benchmark((Peaks(1, 4e9, 1.0, 1.0),), tuple(found)).json()
        (machine / f"{number}.json").write_text(json.dumps(document))
    return machine


def test_a_record_is_read_as_it_was_written(records: Path):
    first, second = tables.rows(records)
    assert first.measurement == _measured("dot/256", 1.0, 2.0)
    assert second.cells(["torch", "onnxruntime"])[3:] == ("500.00", "0.50 fma", "0.50 (0.50 to 0.50)", "")
    assert list(tables.operations(records))[2].startswith("| dot/256 | forward | 1 | 1000.00 | 0.25 fma | 2.00")
    assert list(tables.aims(records)) == [
        "|  | asked | 1 thread |",
        "|---|---|---|",
        "| square dots, PyTorch / repro | 1.0, least 0.97 | 1.00, least 0.50 (dot/512) |",
    ]


def test_a_stale_table_is_renewed_and_a_later_record_counts(records: Path):
    page = "before\n<!-- operations of here -->\n| stale |\n<!-- end of operations -->\nbehind"
    once = tables.renewed(page, records.parent)
    assert "stale" not in once
    assert once.startswith("before\n<!-- operations of here -->\n| workload |")
    assert once.endswith("<!-- end of operations -->\nbehind")
    document = Benchmark((Peaks(1, 4e9, 1.0, 1.0),), (_measured("dot/256", 0.25, 3.0),)).json()
    (records / "later.json").write_text(json.dumps(document))
    assert tables.renewed(once, records.parent) != once


def _tried(model: str, exporter: str, *stages: str, **more: object) -> str:
    seconds = dict.fromkeys(stages, 1.0)
    return json.dumps({"model": model, "exporter": exporter, "seconds": seconds, "nodes": 9, **more}) + "\n"


def test_a_zoo_has_one_line_for_each_model_that_was_built(tmp_path: Path):
    whole = ("export", "import", "build", "error", "verify")
    measured = {
        "error": {"repro": 3e-7, "onnxruntime": 2e-7},
        "gradients": {"repro": 4e-7, "torch": 5e-7},
        "time": {"repro": 0.002, "onnxruntime": 0.003},
    }
    rows = (
        _tried("net", "script", *whole, "train", **measured, train={"difference": 2e-6}),
        _tried("net", "dynamo", "export", "import"),
        _tried("cell", "script", *whole[:2], failed={"stage": "build", "why": "no such type"}),
        _tried("tree", "script", *whole[:2]),
        _tried("loop", "script", failed={"stage": "export", "why": "no such operator"}),
    )
    (tmp_path / tables.ZOO).write_text('{"host": {}}\n' + "".join(rows))
    assert list(tables.zoo(tmp_path))[2:] == [
        "| net | both | 9 | 1.50 | 0.80 | 2.000 | 1.50 |  | verified, losses within 2e-06 |",
        "| cell | script | 9 |  |  |  |  |  | build fails |",
        "",
        "Imported, and no more was tried: tree.",
        "",
        "Written by neither exporter: loop.",
    ]


def test_steps_have_one_line_for_each_model_that_was_timed(tmp_path: Path):
    measured = {
        "train": {"difference": 2e-6},
        "memory": {"repro": 100.0, "torch": 250.0},
        "step": {"repro": 0.5, "torch": 0.75},
    }
    times = {"time": {"repro": 0.01, "torch": 0.03, "onnxruntime": 0.02}}
    rows = (
        _tried("net", "script", **measured, **times),
        _tried("cell", "script", **measured),
        _tried("tree", "script"),
    )
    (tmp_path / tables.ZOO).write_text('{"host": {}}\n' + "".join(rows))
    assert list(tables.steps(tmp_path))[2:] == [
        "| net | 9 | 500.0 | 1.50 | 100 | 2.50 | 2e-06 | 10.00 | 2.00 | 3.00 |",
        "| cell | 9 | 500.0 | 1.50 | 100 | 2.50 | 2e-06 |  |  |  |",
    ]
