"""The command: what it shows, what it writes, its exit codes, and what it says of wrong use."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import repro
from repro import cli
from repro.artifact import schema
from repro.audit import auditing, records, training
from tests.audit.small_peers import PEERS, TRAINING

FORMS = ("html", "json", "junit", "sarif")
SUMMARY = "2 of 4 executors ran, 1 give repro's bits, 1 origin; exit code 0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A model, its cache, and the peers of these tests in place of the real ones."""
    made = tmp_path_factory.mktemp("audit")
    onnx.save(model(), made / "m.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_CACHE", str(made / "cache"))
        patch.setattr(auditing, "audit", functools.partial(auditing.audit, peers=PEERS))
        yield made


def model(scale: float = 1 / 8, first: str = "Relu") -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(first, ["x"], ["a"], "positive"), helper.make_node("MatMul", ["a", "w"], ["y"], "dot")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor("w", TensorProto.FLOAT, [3, 4], [number * scale + 1 for number in range(12)])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def ran(folder: Path) -> str:
    """One run with everything that it can write, and what it showed."""
    words = ["audit", str(folder / "m.onnx"), "--bind", "N=2", "--capture", str(folder / "run.json"), "--values"]
    for form in FORMS:
        words += [f"--{form}", str(folder / f"report.{form}")]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert cli.main(words) == 0
    return shown.getvalue()


@pytest.fixture(scope="module")
def captured(folder: Path, ran: str) -> Path:
    """The record of that run, with its values."""
    return folder / "run.json"


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """`repro audit` with these words, on the model where they begin with an option of running one."""

    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main(["audit", *map(str, words)])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return code, shown.out, shown.err

    return run


def test_what_it_shows(ran: str) -> None:
    assert ran.splitlines()[-1] == SUMMARY
    (off,) = [line for line in ran.splitlines() if "│ off " in line]
    assert [cell.strip() for cell in off.split("│")[2:8]] == ["off", "no", "dot", "1", "1", "0"]
    assert "missing: missing is not installed" in ran
    assert "crashed: SIGABRT" in ran


def test_what_it_writes(folder: Path, ran: str) -> None:
    text = {form: (folder / f"report.{form}").read_text() for form in FORMS}
    content = json.loads(text["json"])
    schema.check(content, "audit", "the report")
    assert content["verdict"]["same"] == 1
    command = f"repro audit {folder / 'm.onnx'} --bind N=2"
    assert content["commands"] == [command, f"{command} --against=off"]
    assert ElementTree.fromstring(text["junit"]).get("skipped") == "2"
    (origin,) = json.loads(text["sarif"])["runs"][0]["results"]
    place = origin["locations"][0]
    assert place["logicalLocations"] == [{"name": "dot", "kind": "element"}]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == (folder / "m.onnx").as_posix()
    assert "<title>Audit of m</title>" in text["html"]


@pytest.mark.parametrize(
    ("words", "code", "last"),
    [
        ((), 0, SUMMARY),
        (("--max-ulp", "1"), 0, SUMMARY),
        (("--max-ulp", "0"), 1, SUMMARY.replace("code 0", "code 1")),
        (("--fail-on", "drift"), 1, SUMMARY.replace("code 0", "code 1")),
        (("--fail-on", "argmax,origin"), 1, SUMMARY.replace("code 0", "code 1")),
        (("--fail-on", "argmax"), 0, SUMMARY),
        (("--require", "off"), 0, SUMMARY),
        (("--require", "missing"), 3, SUMMARY.replace("code 0", "code 3")),
        (("--require", "nobody[a=1,b=2]"), 3, SUMMARY.replace("code 0", "code 3")),
        (("--require", "missing", "--max-ulp", "0"), 1, SUMMARY.replace("code 0", "code 1")),
    ],
)
def test_thresholds_decide_of_a_capture(captured: Path, command: Command, words: tuple[str, ...], code: int, last: str):
    assert command("--compare", captured, *words)[:2][0] == code
    assert command("--compare", captured, *words)[1].splitlines()[-1] == last


def test_what_is_required_is_run_and_probed(folder: Path, command: Command) -> None:
    words = ("--bind", "N=2", "--against", "off", "--require", "missing", "--probe")
    code, out, _ = command(folder / "m.onnx", *words)
    assert code == 3
    assert "aborting" not in out
    assert "missing: missing: missing is not installed" in out
    assert "missing was not probed: missing: missing is not installed" in out
    (order,) = [line for line in out.splitlines() if "│ sum " in line]
    assert [order.split("│")[place].strip() for place in (1, 2, 4)] == ["off", "sum", "sequential"]


@pytest.mark.parametrize(
    ("changed", "origin"),
    [(model(1 / 4), "weight w"), (model(first="Abs"), "graph positive (Abs)")],
    ids=["weight", "operator"],
)
def test_two_machines_with_other_models(
    captured: Path, tmp_path: Path, command: Command, changed: onnx.ModelProto, origin: str
) -> None:
    onnx.save(changed, tmp_path / "m.onnx")
    other = tmp_path / "other.json"
    words = ("--bind", "N=2", "--against", "off", "--label", "laptop", "--capture", other)
    assert command(tmp_path / "m.onnx", *words)[0] == 0
    assert not other.with_suffix(".safetensors").exists(), "digests alone, unless asked for"
    code, out, _ = command("--compare", captured, other, "--html", tmp_path / "both.html")
    assert code == 0
    assert "│ laptop:off" in out
    assert [line for line in out.splitlines() if line.startswith("model ") and line.endswith(" laptop")]
    first = next(line for line in out.splitlines() if line.startswith("│") and f"│ {origin.split()[0]} " in line)
    assert first.split("│")[1].strip() == origin


def test_an_artifact_with_its_own_inputs(folder: Path, command: Command) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    repro.build(folder / "m.onnx", folder / "m.repro", inputs={"x": x})
    code, out, _ = command(folder / "m.repro" / "artifact.json", "--against", "off")
    assert code == 0
    assert "2 of 2 executors ran" in out
    code, _, err = command(folder / "m.repro" / "artifact.json", "--bind", "N=3")
    assert code == 2
    assert "an artifact has its own bindings" in err


def test_in_python(folder: Path) -> None:
    x = np.ones((2, 3), np.float32)
    found = repro.audit_model(model(), inputs={"x": x}, against="off,off[threads=1,way=other]", max_ulp=1)
    assert found.exit_code == 1
    assert [row.group for row in found.view.executors] == ["A", "B", "C"]
    assert records.Audit is type(found.audit), "repro.audit is the package, whatever was called before"
    assert json.loads(found.json())["commands"] == [
        "repro audit model.onnx --inputs INPUTS.npz '--against=off,off[threads=1,way=other]'",
        "repro audit model.onnx --inputs INPUTS.npz --against=off",
        "repro audit model.onnx --inputs INPUTS.npz '--against=off[threads=1,way=other]'",
    ]


def test_a_training_run(folder: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setattr(training, "PEERS", TRAINING)
    words = ("--steps", "2", "--loss", "mse", "--optimizer", "adam", "--option", "beta1=0.8", "--against", "repro")
    code, out, _ = command(folder / "m.onnx", "--bind", "N=2", *words, "--json", folder / "steps.json")
    assert (code, out.splitlines()[-1]) == (0, "1 of 1 executors ran, 1 give repro's bits; exit code 0")
    content = json.loads((folder / "steps.json").read_text())
    assert content["model"]["nodes"] >= 4, "loss and gradients, and an update, of each step"
    (said,) = content["commands"]
    assert said.endswith("--bind N=2 --steps 2 --loss mse --optimizer adam --option beta1=0.8 --against=repro")


def test_a_small_model_that_drifts(folder: Path, tmp_path: Path, command: Command) -> None:
    small = tmp_path / "small"
    code, out, _ = command(folder / "m.onnx", "--bind", "N=2", "--against", "off", "--reduce", small)
    assert code == 0
    (place,) = small.iterdir()
    assert place.name == "01-MatMul"
    (row,) = [line for line in out.splitlines() if str(place) in line]
    assert [cell.strip() for cell in row.split("│")[2:6]] == ["dot", "off", "1", "yes"]
    (node,) = onnx.load(place / "model.onnx").graph.node
    assert node.name == "dot"


# ── two builds ──────────────────────────────────────────────────────────────────────────────────────


def test_a_build_against_an_old_one(folder: Path, tmp_path: Path, command: Command) -> None:
    repro.build(folder / "m.onnx", tmp_path / "old.repro", bind={"N": 2})
    old = tmp_path / "old.repro" / "artifact.json"
    code, out, _ = command(folder / "m.onnx", "--against-manifest", old)
    assert (code, out.splitlines()[-1]) == (0, "the artifacts are identical; exit code 0")
    onnx.save(model(1 / 4), tmp_path / "new.onnx")
    code, out, _ = command(tmp_path / "new.onnx", "--against-manifest", old, "--json", tmp_path / "history.json")
    assert code == 1
    assert out.splitlines()[-1] == "the golden results have other bits; exit code 1"
    assert [row["stage"] for row in json.loads((tmp_path / "history.json").read_text())["changes"]] == [
        "weight",
        "results",
    ]
    code, out, _ = command(folder / "m.onnx", "--against-manifest", old, "--bind", "N=3")
    assert code == 3, "other inputs: nobody can say"
    assert "import of infer" in out


# ── wrong use ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "takes a model"),
        (["missing.onnx"], "missing.onnx"),
        (["m.onnx", "--bind", "N=2", "--against", "of"], "did you mean off"),
        (["m.onnx", "--bind", "N=2", "--against", "off[threads=1"], "not a list of executors"),
        (["m.onnx", "--bind", "N=2", "--against", ""], "not a list of executors"),
        (["m.onnx", "--bind", "N=2", "--fail-on", "weather"], "unknown threshold"),
        (["m.onnx", "--max-ulp", "-1"], "not a number from 0 up"),
        (["m.onnx", "--time-limit", "0"], "not a number of seconds"),
        (["m.onnx", "--memory-limit", "much"], "not a number of bytes"),
        (["m.onnx", "--inputs", "missing.npz"], "missing.npz"),
        (["m.onnx", "--bind", "M=2"], "--bind N=INT"),
        (["m.onnx", "--bind", "N=2", "--values"], "without --capture there is no place for --values"),
        (["m.onnx", "--compare", "a.json"], "--compare does not go with a model"),
        (["--compare", "a.json", "--bind", "N=2"], "--compare does not go with --bind"),
        (["--compare", "a.json", "--against", "off"], "--compare does not go with --against"),
        (["--compare", "a.json", "--option", "beta1=0.8"], "--compare does not go with --beta1"),
        (["m.onnx", "--bind", "N=2", "--loss", "mse"], "--steps"),
        (["m.onnx", "--bind", "N=2", "--loss", "mse", "--steps", "0"], "not a number from 1 up"),
        (["m.onnx", "--bind", "N=2", "--steps", "2"], "no training step"),
        (["m.onnx", "--bind", "N=2", "--loss", "mse", "--steps", "2", "--reduce", "d"], "--reduce does not go with"),
        (["--compare", "missing.json"], "missing.json"),
        (["--compare"], "expected at least one argument"),
        (["--compare", "m.onnx"], "the capture m.onnx"),
        (["--compare", "empty.json"], "not a capture"),
        (["m.onnx", "--against-manifest", "missing.json"], "not an artifact"),
        (["m.onnx", "--against-manifest", "old.json", "--html", "r.html"], "does not go with --html"),
        (["m.onnx", "--against-manifest", "old.json", "--against", "off"], "does not go with --against"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_two(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "empty.json").write_text("{}")
    before = {path.name for path in folder.iterdir()}
    code, out, err = command(*words)
    assert code == 2
    assert said in err
    assert not out
    assert {path.name for path in folder.iterdir()} == before


def test_a_damaged_capture_is_refused(captured: Path, tmp_path: Path, command: Command) -> None:
    text = captured.read_text()
    (tmp_path / "a.json").write_text(text.replace('"label":""', '"label":"b"'))
    code, _, err = command("--compare", tmp_path / "a.json")
    assert code == 2
    assert "the capture is damaged" in err


def test_a_report_that_cannot_be_written_is_said_before_anything_runs(
    folder: Path, tmp_path: Path, command: Command
) -> None:
    code, out, err = command(folder / "m.onnx", "--bind", "N=2", "--json", tmp_path / "no" / "where.json")
    assert (code, out) == (2, "")
    assert "argument --json: there is no such folder" in err


def test_a_model_whose_name_is_no_text(folder: Path, tmp_path: Path, command: Command) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/l\xe9.onnx"))
    try:
        place.write_bytes((folder / "m.onnx").read_bytes())
    except OSError:
        pytest.skip("the file system takes no such name")
    words = [word for form in FORMS for word in (f"--{form}", tmp_path / f"report.{form}")]
    assert command(place, "--bind", "N=2", *words, "--capture", tmp_path / "run.json")[0] == 0
    assert "l\ufffd.onnx" in json.loads((tmp_path / "report.json").read_text())["commands"][0]
    assert "/l%E9.onnx" in (tmp_path / "report.sarif").read_text()
    assert command("--compare", tmp_path / "run.json")[0] == 0


def test_a_capture_has_the_mode_that_the_umask_gives(folder: Path, tmp_path: Path, command: Command) -> None:
    for mask, mode in ((0o027, 0o640), (0o002, 0o664)):
        before = os.umask(mask)
        try:
            made = tmp_path / str(mask)
            made.mkdir()
            assert command(folder / "m.onnx", "--bind", "N=2", "--capture", made / "run.json", "--values")[0] == 0
        finally:
            os.umask(before)
        assert {path.name: path.stat().st_mode & 0o777 for path in made.iterdir()} == {
            "run.json": mode,
            "run.safetensors": mode,
        }


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_report_that_fails_stops_no_other(captured: Path, tmp_path: Path, command: Command) -> None:
    code, _, err = command("--compare", captured, "--json", "/dev/full", "--junit", tmp_path / "report.xml")
    assert (code, "No space left" in err) == (2, True)
    assert ElementTree.fromstring((tmp_path / "report.xml").read_text()).get("skipped") == "2"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_what_was_found_is_shown_before_a_report_that_fails(captured: Path, command: Command) -> None:
    code, out, err = command("--compare", captured, "--json", "/dev/full")
    assert code == 2
    assert "No space left" in err
    assert out.splitlines()[-1] == SUMMARY


def test_a_page_without_jinja2_is_said_before_anything_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    code, out, err = command(folder / "m.onnx", "--bind", "N=2", "--html", tmp_path / "page.html")
    assert (code, out) == (3, "")
    assert "repro[report]" in err


def test_eighty_columns_are_enough(captured: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setattr("repro.tables.WIDTH_OF_A_PIPE", 80)
    _, out, _ = command("--compare", captured)
    table = [line for line in out.splitlines() if line.startswith(("│", "┃"))]
    assert table
    assert max(map(len, table)) <= 80
    assert any("SIGABRT" in line for line in table)
