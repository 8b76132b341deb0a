"""What the system refuses a command is told in the project's own words, and is no mismatch and no fault of ours."""

from __future__ import annotations

import argparse
import errno
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

import pytest

from benchmarks import tables
from examples import digits
from proofs import __main__ as proofs
from proofs import conversions
from repro import cli, driver, driver_inspect
from repro.artifact import files
from repro.artifact.cache import key
from repro.artifact.layout import write
from repro.cli.arguments import check_apart, new_file
from repro.ending import Command, ended
from repro.errors import EXIT_GOOD, EXIT_INTERRUPTED, EXIT_USAGE, ReproError
from tests.artifact.sample import sample_artifact

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@pytest.fixture
def sample(tmp_path: Path) -> str:
    write(sample_artifact(), tmp_path / "a.repro")
    return str(tmp_path / "a.repro")


@needs_full
@pytest.mark.parametrize("words", [["inspect", "ARTIFACT"], ["inspect", "ARTIFACT", "--json"], ["cache", "--json"]])
def test_a_full_disk_behind_the_output(words: Sequence[str], sample: str, monkeypatch: pytest.MonkeyPatch, capsys):
    """Few bytes are refused only when they are flushed."""
    with FULL.open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert cli.main([sample if word == "ARTIFACT" else word for word in words]) == EXIT_USAGE
    error = capsys.readouterr().err
    assert os.strerror(errno.ENOSPC) in error
    assert "internal" not in error


@needs_full
def test_a_full_disk_behind_the_errors(monkeypatch: pytest.MonkeyPatch):
    with FULL.open("w") as out:
        monkeypatch.setattr(sys, "stderr", out)
        assert cli.main(["inspect", "missing.json"]) == EXIT_USAGE


@pytest.mark.parametrize("words", [["inspect"], ["inspect", "--json"]], ids=" ".join)
def test_a_reader_that_has_gone_is_no_mismatch(
    words: Sequence[str], sample: str, monkeypatch: pytest.MonkeyPatch, capsys
):
    back, to = os.pipe()
    os.close(back)
    with TextIOWrapper(os.fdopen(to, "wb")) as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert cli.main([*words, sample]) == EXIT_USAGE
    assert not capsys.readouterr().err


def test_no_output_at_all(sample: str, monkeypatch: pytest.MonkeyPatch):
    """As a shell's `>&-` leaves it."""
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["inspect", sample, "--json"]) == EXIT_GOOD


REFUSALS = [MemoryError(), *(OSError(number, os.strerror(number)) for number in (errno.EMFILE, errno.EACCES))]


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
def test_what_runs_out_or_is_forbidden_is_no_fault_of_ours(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys):
    def out_of(_: object) -> None:
        raise error

    monkeypatch.setattr(driver_inspect, "inspect", out_of)
    assert cli.main(["inspect", "x"]) == EXIT_USAGE
    assert capsys.readouterr().err.startswith("error: the")


READ = ["inspect", "verify", "run", "build", "build m.onnx --inputs", "build m.onnx --tuning", "diff a.repro", "tune",
        "audit", "audit --compare", "audit m.onnx --against-manifest", "train", "bisect a", "export"]  # fmt: skip


@pytest.mark.parametrize("words", READ)
def test_a_name_that_the_system_refuses_is_no_fault_of_ours(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Too long, or links in a circle."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("x" * 300, "circle", "circle/file"):
        assert cli.main([*words.split(), name]) == EXIT_USAGE
        error = capsys.readouterr().err
        assert "internal" not in error
        assert "error: " in error


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.main(["build", "model.onnx"]) == EXIT_USAGE
    error = capsys.readouterr().err
    assert "internal" not in error
    assert "error: " in error


def test_no_more_threads(capsys):
    def command(_: list[str]) -> int:
        raise RuntimeError("can't start new thread")

    assert ended(command, []) == EXIT_USAGE
    assert "limit of processes" in capsys.readouterr().err


_STOPPED = """
import signal, sys
from repro.__main__ import main

class Stopping:
    def find_spec(self, name, *_):
        if name == "{module}":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Stopping())
sys.argv[1:] = ["cache"]
main()
"""


@pytest.mark.parametrize("module", ["repro.cli", "numpy", "onnx"])
def test_an_interrupt_while_the_command_line_is_loaded(module: str):
    """No library may forget it, or end the process by it in its own way."""
    done = subprocess.run([sys.executable, "-c", _STOPPED.format(module=module)], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, b"", b"interrupted\n")


_TERMINATED = """
import sys, tempfile
from repro import ending

def command(words):
    with tempfile.TemporaryDirectory(dir=words[0]):
        print(flush=True)
        sys.stdin.read()

ending.run(command)
"""


def test_sigterm_leaves_nothing_behind(tmp_path: Path):
    words = [sys.executable, "-c", _TERMINATED, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        assert list(tmp_path.iterdir())
        process.terminate()
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (EXIT_INTERRUPTED, b"interrupted\n")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_behind_that_is_pythons_again():
    run = "import signal, sys; from repro.__main__ import main; sys.argv[1:] = ['--version']; main(); "
    told = "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.check_output([sys.executable, "-c", run + told]).endswith(b"True\n")


@pytest.mark.parametrize(
    "command", [proofs.main, conversions.main, tables.main, digits.main], ids=lambda c: c.__module__
)
def test_commands_beside_the_package_whose_reader_has_gone(command: Command, monkeypatch: pytest.MonkeyPatch, capsys):
    back, to = os.pipe()
    os.close(back)
    with TextIOWrapper(os.fdopen(to, "wb")) as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert ended(command, ["--help"]) == EXIT_USAGE
    assert not capsys.readouterr().err


_ABSENT = """error: this needs the package 'absent', which is not installed
  next: install it (absent may be one of repro's extras: pip install 'repro[absent]')
"""


@pytest.mark.parametrize(("raised", "code", "told"), [
    (SystemExit(), EXIT_GOOD, ""), (SystemExit(3), 3, ""), (SystemExit("why"), EXIT_USAGE, "why\n"),
    (KeyboardInterrupt(), EXIT_INTERRUPTED, "interrupted\n"), (ReproError("wrong", exit_code=1), 1, "error: wrong\n"),
    (ModuleNotFoundError("No module named 'absent'", name="absent.part"), EXIT_USAGE, _ABSENT),
])  # fmt: skip
def test_how_a_command_ends(raised: BaseException, code: int, told: str, capsys):
    def command(words: Sequence[str]) -> None:
        assert words == ["a", "b"]
        raise raised

    assert ended(command, ("a", "b")) == code
    assert capsys.readouterr().err == told


def test_a_cache_that_cannot_be_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setenv("REPRO_CACHE", str(tmp_path))
    found = driver.default_cache()
    assert found is not None
    found.put(key("code", a="b"), b"1234")
    monkeypatch.setattr(shutil, "rmtree", refused)
    assert cli.main(["cache", "clear"]) == EXIT_USAGE
    told = capsys.readouterr()
    assert "removed" not in told.out
    assert str(tmp_path) in told.err


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path):
    """A device or a pipe, by its own name or by a link such as /dev/stdout, takes the bytes."""
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for name in (pipe, link):
        driver.write_text(name, "report")
        assert os.read(reader, 100) == b"report"
    os.close(reader)
    assert pipe.is_fifo() and link.is_symlink()
    (through := tmp_path / "through").symlink_to(file)
    for text in ("new", "replaced"):
        driver.write_text(through, text)
        assert through.is_symlink() and not file.is_symlink()
        assert file.read_text() == text
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "link", "file", "through"}


def test_a_folder_of_models_is_not_replaced(tmp_path: Path):
    """Of ONNX Runtime's training artifacts, say; nor one around it, by a link."""
    models, link = tmp_path / "models.repro", tmp_path / "link"
    models.mkdir()
    link.symlink_to(models)
    for out in (None, models, link, tmp_path):
        with pytest.raises(ReproError, match="holds the model itself"):
            driver.build(models, out, force=True)
    assert models.is_dir() and link.is_symlink()


@pytest.mark.parametrize("name", ["pipe", "endless", "folder"])
def test_what_is_no_file_is_not_read(name: str, tmp_path: Path):
    """A pipe would block, and some devices have no end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ReproError, match="the blob cannot be read") as told:
        files.read_file(tmp_path / name, "the blob")
    assert str(tmp_path / name) in str(told.value)


def test_output_that_its_encoding_has_not_is_told(monkeypatch: pytest.MonkeyPatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii"))
    assert ended(lambda words: print("caf\u00e9"), []) == EXIT_GOOD
    assert written.getvalue().split() == [rb"caf\xe9"]


@needs_full
def test_a_full_device_is_refused_and_stays(tmp_path: Path):
    (link := tmp_path / "out.npz").symlink_to(FULL)  # whatever goes wrong here, the device itself is not replaced
    with pytest.raises(ReproError, match="cannot be written"):
        driver.write_text(link, "report")
    assert link.is_symlink() and FULL.is_char_device()


def test_a_file_that_is_added_to_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a trace and of metrics: lines that fit no more."""
    made = files.Appending(tmp_path / "trace", "the trace", b"first")
    made.begin(b"first\n")
    made.write(b"second\n")
    made.sync()
    assert (tmp_path / "trace").read_bytes() == b"first\nsecond\n"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReproError, match="the trace cannot be written") as told:
        made.sync()
    assert str(tmp_path / "trace") in str(told.value)
    made.close()


WRITTEN = [
    "bench dot/256 --json",
    "bench dot/256 --roofline",
    "tune m.onnx -o",
    "audit m.onnx --capture",
    "audit m.onnx --html",
    "audit --compare m.json --junit",
    "verify a.repro --junit",
    "verify a.repro --record",
    "run a.repro --inputs i.npz --outputs",
    "export c -o",
]


@pytest.mark.parametrize("words", WRITTEN)
def test_where_nothing_can_be_written_is_told_before_anything_is_done(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No other file of the command exists: it is not even looked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for place, said in (("no/such/file", "there is no such folder: 'no/such'"), ("folder", "'folder' is a folder")):
        assert cli.main([*words.split(), place]) == 2
        told = capsys.readouterr().err
        assert said in told
        assert words.split()[-1] in told
    assert {each.name for each in tmp_path.iterdir()} == {"folder"}


def test_what_can_be_written_is_a_place_for_a_file(tmp_path: Path) -> None:
    """In a folder that there is, in place of a file, through a link, or to a device."""
    (tmp_path / "file").write_text("old")
    (link := tmp_path / "link").symlink_to(tmp_path / "new")
    for path in (tmp_path / "new", tmp_path / "file", link, Path("name"), Path("/dev/null")):
        assert new_file(str(path)) == path
    (broken := tmp_path / "broken").symlink_to(tmp_path / "no" / "file")
    with pytest.raises(argparse.ArgumentTypeError, match="no such folder"):
        new_file(str(broken))
    (first := tmp_path / "first").symlink_to(tmp_path / "second")
    (tmp_path / "second").symlink_to(first)
    for impossible in ("x" * 300, str(first)):
        with pytest.raises(argparse.ArgumentTypeError, match="cannot be written"):
            new_file(impossible)
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("audit m.onnx --json m.onnx", "--json and the model are one file"),
        ("audit m.onnx --html a --sarif a", "--sarif and --html are one file"),
        ("tune m.onnx -o link", "--out and the model are one file"),
        ("run a.repro --inputs m.npz --outputs m.npz", "--outputs and the inputs are one file"),
        ("audit m.onnx --capture m.json --values", "the values of a capture would replace another file"),
        ("audit m.onnx --reduce m.onnx/small", "cannot be a folder"),
        ("bench dot/256 --threads 1,99999", "not a number of threads"),
        ("bench dot/256 --mode forward,nope", "unknown mode 'nope'"),
    ],
)
def test_what_is_known_beforehand_is_told_beforehand(
    words: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m.onnx", "m.npz", "m.safetensors"):
        (tmp_path / name).write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "m.onnx")
    assert cli.main(words.split()) == EXIT_USAGE
    assert told in capsys.readouterr().err
    assert {path.read_text() for path in tmp_path.iterdir()} == {"precious"}


def test_a_device_takes_all_that_is_written(tmp_path: Path) -> None:
    null = new_file("/dev/null")
    check_apart(argparse.Namespace(json=null, html=null, model=Path("/dev/null")))
    with pytest.raises(ReproError):
        check_apart(argparse.Namespace(json=new_file(str(tmp_path / "a")), compare=[tmp_path / "b", tmp_path / "a"]))


def test_no_report_is_written_over_an_artifact(tmp_path: Path) -> None:
    (tmp_path / "blobs" / "sha256").mkdir(parents=True)
    (tmp_path / "artifact.json").write_text("{}")
    (link := tmp_path / "link").symlink_to(tmp_path / "artifact.json")
    for path in (tmp_path / "artifact.json", tmp_path / "oci-layout", link, tmp_path / "blobs" / "sha256" / "0a"):
        with pytest.raises(argparse.ArgumentTypeError, match="a file of an artifact"):
            new_file(str(path))
    assert new_file(str(tmp_path / "report.json")) == tmp_path / "report.json"
