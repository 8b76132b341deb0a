"""What a user is likely to get wrong: the message names it, says what fits instead, and is no traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import repro
from repro import cli
from repro.cli import arguments
from repro.errors import EXIT_MISMATCH, EXIT_USAGE
from tests.cli.conftest import MODEL

SAMPLES = 12


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training step, its data, a checkpoint and a trace. Read only."""
    folder = tmp_path_factory.mktemp("trained")
    repro.build(
        MODEL, folder / "step.repro", bind={"N": 4}, loss="softmax_cross_entropy", targets=("cpu/x86-64-v3",)
    )  # fmt: skip
    repro.build(MODEL, folder / "other.repro", bind={"N": 4}, loss="nll", targets=("cpu/x86-64-v3",))
    arrays = {"input": np.zeros((SAMPLES, 64), np.float32), "labels": np.arange(SAMPLES, dtype=np.int64) % 10}
    repro.write_npz(folder / "train.npz", arrays)
    for name, labels in {
        "high": np.where(arrays["labels"] == 3, 77, arrays["labels"]),
        "nan": np.full(SAMPLES, np.nan),
        "short": arrays["labels"][:-1],
    }.items():
        np.savez(folder / f"{name}.npz", input=arrays["input"], labels=labels)
    np.savez(folder / "objects.npz", input=np.array([{}, 2], dtype=object))
    shutil.copy(MODEL, folder / "m.onnx")
    repro.train(
        folder / "step.repro", folder / "train.npz", checkpoint=folder / "ck", steps=2, trace=folder / "t.trace",
        target="reference",
    )  # fmt: skip
    (folder / "cut.trace").write_bytes((folder / "t.trace").read_bytes()[:-5])
    first, second, _ = (folder / "t.trace").read_bytes().split(b"\n", 2)
    (folder / "damaged.trace").write_bytes(first + b"\n" + second.replace(b'"step"', b"step") + b"\n")
    return folder


@pytest.mark.parametrize(("words", "told"), [
    ("build m.onnx --bind M=8", ("names no dimension", "found: M", "expected: N, or INPUT[AXIS]")),
    ("build m.onnx --bind N=eight", ("--bind takes a size", "N=eight", "integer from 0 up")),
    ("build m.onnx --bind N", ("--bind takes a name and a value", "expected: NAME=VALUE")),
    ("build m.onnx --bind N=4 --bind input[0]=5", ("input 'input' conflicts", "input[0]=5 and N=4", "leave one")),
    ("build m.onnx --bind input[-2]=5 --inputs train.npz", ("input 'input' conflicts", "extent 12", "input[-2]=5")),
    ("build m.onnx --set input=1e400", ("that a double can hold", "found: 1e400", "write Infinity")),
    ("build m.onnx --set input=-1e300", ("--set input: the value does not fit", "expected: f32")),
    ("build m.onnx --set a=b=1", ("--set names no input", "found: a=b")),
    ("build m.onnx --bind N=4 --optimizer adam", ("needs a loss", "optimizer, without a loss", "add --loss")),
    ("build m.onnx --bind N=4 --loss mse --option beta1", ("--option takes", "expected: NAME=VALUE")),
    ("build m.onnx --inputs objects.npz", ("array 'input': Python objects", "numpy.savez")),
    ("build m.onnx --inputs m.onnx", ("not an .npz file", "m.onnx: not a zip archive", "numpy.savez")),
    ("build train.npz", ("not a readable ONNX model", "'train.npz'", "a zip file")),
    ("build step.repro", ("holds no training artifacts", "give the .onnx file itself")),
    ("build m.onnx --bind N=4 -o m.onnx", ("output folder cannot be used", "m.onnx: Not a directory")),
    ("run m.onnx --inputs train.npz --outputs o.npz", ("not an artifact", "m.onnx", "artifact.json")),
    ("run step.repro --inputs train.npz --outputs o.npz --target cuda", ("no target 'cuda'", "cpu/x86-64-v3")),
    ("train step.repro --data high.npz --steps 3 --checkpoint new", ("no class", "77 of sample 3", "0 to 9, or -100")),
    ("train step.repro --data nan.npz --steps 1 --checkpoint new", ("'labels'", "float64[12]", "int64[12]")),
    ("train step.repro --data short.npz --steps 1 --checkpoint new", ("'input'", "'labels' has 11 samples")),
    ("train step.repro --data m.onnx --steps 1 --checkpoint new", ("m.onnx: not a zip archive",)),
    ("train step.repro --data train.npz --steps 1 --checkpoint m.onnx", ("folder of checkpoints", "m.onnx")),
    ("bisect m.onnx t.trace", ("not a trace", "m.onnx: line 1 is not canonical JSON", "a header of")),
    (
        "bisect t.trace t.trace --artifact step.repro --data train.npz --left-checkpoint nope",
        ("no such folder of checkpoints", "nope"),
    ),
    ("bisect train.npz t.trace", ("not a trace", "train.npz: line 1")),
    ("bisect t.trace", ("needs the artifact and its data", "give --artifact and --data")),
    ("export m.onnx -o o.onnx", ("checkpoint", "m.onnx")),
])  # fmt: skip
def test_wrong_use_is_named_with_what_fits(
    words: str, told: tuple[str, ...], trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
):
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    target = ["--target", "reference"] if words.startswith("train") else []
    assert cli.main([*words.split(), *target]) == EXIT_USAGE
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error
    for part in told:
        assert part in error


@pytest.mark.parametrize(("name", "told"), [
    ("cut", ("damaged at line 3", "the line has no end")), ("damaged", ("damaged at line 2", "canonical JSON")),
])  # fmt: skip
def test_a_damaged_trace_is_a_mismatch_that_names_the_line(name: str, told: tuple[str, ...], trained: Path, capsys):
    assert cli.main(["bisect", str(trained / f"{name}.trace"), str(trained / "t.trace")]) == EXIT_MISMATCH
    error = capsys.readouterr().err
    for part in told:
        assert part in error


@pytest.mark.parametrize(("words", "told"), [
    ("run {other} --inputs inputs.npz --outputs o.npz --state ck", "give the artifact that it was trained from"),
    ("export ck -o o.onnx --artifact {other}", "give the artifact that it was trained from"),
    ("train step.repro --data train.npz --steps 3 --checkpoint ck --resume --seed 7", "into another folder"),
    ("train other.repro --data train.npz --steps 3 --checkpoint ck --resume", "into another folder"),
])  # fmt: skip
def test_a_checkpoint_of_another_run_is_wrong_use_and_says_what_to_give(
    words: str, told: str, trained: Path, mlp: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
):
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    shutil.copy(MODEL.parent / "inputs.npz", "inputs.npz")
    target = [] if words.startswith("export") else ["--target", "reference"]
    assert cli.main([*words.format(other=mlp).split(), *target]) == EXIT_USAGE
    assert told in capsys.readouterr().err


def test_names_with_an_equals_sign_are_names():
    assert arguments.bindings(["n=k=4"]) == {"n=k": 4}
    assert arguments.values(["a=b=1", "c==[Infinity, 0.1]"]) == {"a=b": 1, "c=": [float("inf"), 0.1]}


def test_an_open_dimension_is_named_with_the_option_that_fixes_it(capsys):
    assert cli.main(["build", str(MODEL)]) == EXIT_USAGE
    assert "--bind N=INT" in capsys.readouterr().err
