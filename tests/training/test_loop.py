"""Runs: resumed is unbroken, traced is untraced, any number of threads; killed at any moment; ended by Ctrl-C."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import repro
from repro.artifact import files
from repro.errors import EXIT_INTERRUPTED, ReproError
from repro.training import checkpoint as checkpoints
from repro.training import digests, trace

STEPS = 30
Train = Callable[..., Any]


@pytest.fixture
def train(artifact: Path, samples: Path, tmp_path: Path, target: str) -> Train:
    """Train into `tmp_path/NAME`, with `tmp_path/NAME.trace`."""

    def run(name: str, **options: Any) -> Any:
        chosen: dict[str, Any] = {
            "steps": STEPS,
            "threads": 1,
            "target": target,
            "trace": tmp_path / f"{name}.trace",
        } | options
        return repro.train(artifact, samples, checkpoint=tmp_path / name, **chosen)

    return run


def test_a_run_learns_and_says_what_it_did(train: Train, samples: Path, tmp_path: Path):
    done = train("a", validation=samples, evaluate_every=10, trace=None, epochs=5, steps=None)
    assert (done.step, done.epoch, done.interrupted) == (60, 5, False)
    lines = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    measured = [line["validation"] for line in lines if "validation" in line]
    assert len(losses) == 60
    assert len(measured) == 6
    assert losses[-1] < losses[0] / 4
    assert measured[-1] == done.validation
    assert done.validation["samples"] == 200
    assert done.validation["accuracy"] > 0.9
    assert [p.name for p in checkpoints.documents(tmp_path / "a")] == [f"step-000000{n}.json" for n in (36, 48, 60)]


def test_a_loss_that_is_no_number_is_told(artifact: Path, samples: Path, tmp_path: Path, target: str):
    arrays = {name: array.copy() for name, array in repro.read_npz(samples).items()}
    arrays["input"][17] = np.nan
    done = repro.train(artifact, arrays, checkpoint=tmp_path / "a", steps=STEPS, target=target)
    lines = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert done.not_finite == min(line["step"] for line in lines if line["loss"] == "nan")
    assert repro.train(artifact, samples, checkpoint=tmp_path / "b", steps=2, target=target).not_finite is None


@pytest.mark.parametrize("label", [-1, 10])
def test_a_label_that_is_no_class(train: Train, artifact: Path, samples: Path, target: str, tmp_path: Path, label: int):
    held_out = {name: array.copy() for name, array in repro.read_npz(samples).items()}
    held_out["labels"][7] = label
    with pytest.raises(ReproError, match="no class") as refused:
        train("a", validation=held_out, trace=None)
    assert refused.value.found == f"{label} of sample 7"
    with pytest.raises(ReproError, match="a label of the data is no class"):
        repro.train(artifact, held_out, checkpoint=tmp_path / "c", steps=1, target=target)
    first = {name: array[:16] for name, array in held_out.items()}  # as many as a batch: every batch has these
    with pytest.raises(ReproError, match="no class"):
        train("a", validation=first, trace=None)
    assert not (tmp_path / "a").exists()
    held_out["labels"][7] = -100
    assert train("b", validation=held_out, trace=None).validation["samples"] == 200


def test_an_artifact_whose_path_is_no_text(artifact: Path, samples: Path, tmp_path: Path, target: str):
    """Its checkpoints are written; who exports one says where the artifact is."""
    moved = Path(os.fsdecode(os.fsencode(tmp_path) + b"/l\xe9.repro"))
    try:
        shutil.copytree(artifact, moved)
    except OSError:
        pytest.skip("the file system takes no such name")
    done = repro.train(moved, samples, checkpoint=tmp_path / "a", steps=2, target=target)
    assert done.step == 2
    repro.export(done.checkpoint, tmp_path / "trained.onnx", artifact=moved)


def test_an_artifact_behind_a_link_is_found_again(artifact: Path, samples: Path, tmp_path: Path, target: str):
    """From checkpoints behind another one; what stands before a `..` may be a link too."""
    for name in ("here", "there/deep", "work"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copytree(artifact, tmp_path / "here" / "a.repro")
    (tmp_path / "work" / "models").symlink_to(tmp_path / "here")
    (tmp_path / "work" / "runs").symlink_to(tmp_path / "there" / "deep")
    folder = tmp_path / "work" / "runs" / "first"
    repro.train(tmp_path / "work" / "models" / "a.repro", samples, checkpoint=folder, steps=1, target=target)
    assert repro.export(folder, tmp_path / "trained.onnx").is_file()


def test_the_validation_loss_is_the_loss_of_the_build(train: Train, artifact: Path, samples: Path, tmp_path: Path):
    """The same formula in float64 NumPy, on the outputs of the exported weights."""
    done = train("a", validation=samples, trace=None)
    given = repro.read_npz(samples)
    with repro.load(artifact).session("infer", "reference") as session:
        session.state = {n: a for n, a in checkpoints.read(tmp_path / "a").state.items() if n in session.state}
        scores = [session.run({"input": given["input"][i : i + 16]})["logits"] for i in range(0, 192, 16)]
        rest = np.concatenate([given["input"][192:], given["input"][:8]])
        scores.append(session.run({"input": rest})["logits"][:8])
    x = np.concatenate(scores).astype(np.float64)
    logs = x - x.max(1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(1, keepdims=True))
    expected = -logs[np.arange(200), given["labels"]].mean()
    assert done.validation["loss"] == pytest.approx(expected, rel=1e-6)
    assert done.validation["accuracy"] == np.mean(x.argmax(1) == given["labels"])


def test_a_run_is_resumed_on_its_own_data_alone(
    train: Train, artifact: Path, samples: Path, target: str, tmp_path: Path
):
    """However its files are cut; as many other samples are other data."""
    given = repro.read_npz(samples)
    changed = {name: array.copy() for name, array in given.items()}
    changed["input"][199, 63] += 1

    def resumed(data: Any) -> Any:
        return repro.train(artifact, data, checkpoint=tmp_path / "a", steps=STEPS, target=target, resume=True)

    train("a", steps=5)
    with pytest.raises(ReproError, match="its data differs"):
        resumed(changed)
    folder = tmp_path / "rows"
    folder.mkdir()
    np.save(folder / "input.npy", given["input"].reshape(200, 1, 64))
    np.save(folder / "labels.npy", given["labels"])
    assert resumed(folder).state == train("whole").state


def test_resumed_at_any_checkpoint_is_unbroken(train: Train, tmp_path: Path):
    whole = train("whole", checkpoint_every=7)
    for stop in (1, 7, 12, 29):
        train(f"part{stop}", steps=stop, checkpoint_every=4)
        done = train(f"part{stop}", resume=True, checkpoint_every=5)
        assert done.state == whole.state
        assert (tmp_path / f"part{stop}.trace").read_bytes() == (tmp_path / "whole.trace").read_bytes()
        assert metrics(tmp_path / f"part{stop}") == metrics(tmp_path / "whole")
        assert tensors_of(tmp_path / f"part{stop}") == tensors_of(tmp_path / "whole")


def metrics(folder: Path) -> bytes:
    return (folder / "metrics.jsonl").read_bytes()


def tensors_of(folder: Path) -> bytes:
    return (folder / f"step-{STEPS:08}.safetensors").read_bytes()


def test_threads_and_tracing_change_nothing(train: Train, tmp_path: Path):
    one = train("one", trace_tensors=True)
    assert train("two", threads=2, trace_tensors=True).state == one.state
    assert train("untraced", trace=None).state == one.state
    assert (tmp_path / "one.trace").read_bytes() == (tmp_path / "two.trace").read_bytes()


def test_the_reference_gives_the_same_bits(train: Train, tmp_path: Path):
    mine, theirs = train("mine", steps=3), train("theirs", steps=3, target="reference")
    assert mine.state == theirs.state
    assert (tmp_path / "mine.trace").read_bytes() == (tmp_path / "theirs.trace").read_bytes()


def test_another_seed_is_another_run(train: Train):
    assert train("a", steps=2).state != train("b", steps=2, seed=1).state


def test_padding_of_the_last_batch_trains_on_every_sample(train: Train):
    done = train("a", epochs=1, steps=None, last="pad")
    assert done.step == 13


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_not_mixed_with_another(train: Train, tmp_path: Path, artifact: Path, samples: Path):
    train("a", steps=2)
    with pytest.raises(ReproError, match="already holds checkpoints"):
        train("a")
    with pytest.raises(ReproError, match="its seed differs"):
        train("a", resume=True, seed=5)
    with pytest.raises(ReproError, match="its last differs"):
        train("a", resume=True, last="pad")
    with pytest.raises(ReproError, match="built for another batch"):
        train("b", batch=8)
    train("c", steps=1, seed=9)
    with pytest.raises(ReproError, match="trace is of another run: its seed"):
        train("a", resume=True, trace=tmp_path / "c.trace")


@pytest.mark.parametrize("options", [{"steps": None}, {"epochs": 1}, {"steps": 0}, {"keep": 0}, {"seed": -1}])
def test_settings_out_of_range_are_refused(train: Train, options: dict[str, Any]):
    with pytest.raises(ReproError):
        train("a", **options)


def test_a_forward_artifact_cannot_be_trained(artifact: Path, samples: Path, tmp_path: Path, target: str):
    model = Path(__file__).resolve().parents[2] / "golden" / "digits_mlp" / "forward.onnx"
    repro.build(model, tmp_path / "m.repro", bind={"N": 16}, targets=["reference"])
    with pytest.raises(ReproError, match="no training step"):
        repro.train(tmp_path / "m.repro", samples, checkpoint=tmp_path / "c", steps=1)


def test_two_runs_do_not_share_a_folder(train: Train):
    def again(_: object) -> None:
        with pytest.raises(ReproError, match="another run writes"):
            train("a", trace=None, resume=True)
        seen.append(1)

    seen: list[int] = []
    train("a", steps=1, progress=again)
    assert seen == [1]


def test_what_a_user_keeps_in_the_folder_stays(train: Train, tmp_path: Path):
    """Copies of tensors under other names, and who may read them."""
    folder = tmp_path / "a"
    folder.mkdir(mode=0o700)
    train("a", steps=2)
    kept = [folder / f"step-{name}.safetensors" for name in ("best", "00000002.backup")]
    for path in kept:
        path.write_bytes((folder / "step-00000002.safetensors").read_bytes())
    train("a", steps=4, keep=1, resume=True)
    assert sorted(folder.glob("step-*.safetensors")) == sorted([*kept, folder / "step-00000004.safetensors"])
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_who_may_read_a_run_is_as_the_umask_has_it(train: Train, tmp_path: Path, mask: int):
    """And of a trace that was there, as before."""
    before = os.umask(mask)
    try:
        done = train("a", steps=1)
        repro.export(done.checkpoint, tmp_path / "trained.onnx")
        (tmp_path / "a.trace").chmod(0o640)
        train("a", steps=2, resume=True)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (*tmp_path.iterdir(), *(tmp_path / "a").iterdir())}
    assert (modes.pop("a"), modes.pop("a.trace")) == (0o777 & ~mask, 0o640)
    assert len(modes) == 7 and set(modes.values()) == {0o666 & ~mask}


def test_a_run_replaces_no_file_of_another_kind(train: Train, tmp_path: Path, artifact: Path, samples: Path):
    """Data, say; what an earlier run wrote may be replaced."""
    data = tmp_path / "data.npz"
    data.write_bytes(samples.read_bytes())
    for options in ({"trace": data}, {"metrics": data}, {"trace": data, "resume": True}, {"trace": tmp_path}):
        with pytest.raises(ReproError):
            train("a", steps=1, **options)
        assert data.read_bytes() == samples.read_bytes()
        assert not (tmp_path / "a" / "step-00000001.json").exists()
    with pytest.raises(ReproError, match="one file"):
        train("b", trace=tmp_path / "c" / ".." / "b" / "metrics.jsonl")
    with pytest.raises(ReproError, match="one file"):
        train("b", trace=tmp_path / "x", metrics=tmp_path / "x")
    train("b", steps=1)
    train("c", steps=1, trace=tmp_path / "b.trace", metrics=tmp_path / "b" / "metrics.jsonl")
    before = sorted(path.name for path in artifact.iterdir())
    with pytest.raises(ReproError, match="that of an artifact"):
        repro.train(artifact, samples, checkpoint=artifact, steps=1)
    assert sorted(path.name for path in artifact.iterdir()) == before


def test_two_runs_write_no_one_trace(train: Train, tmp_path: Path):
    """Whoever is refused has written nothing."""
    path = tmp_path / "shared.trace"
    train("a", steps=3, trace=path)
    before = metrics(tmp_path / "a")
    own = tmp_path / "a" / "metrics.jsonl"
    for opened in (False, True):
        other = files.Appending(path, "the trace", trace.BEGINS)
        if opened:
            other.begin(path.read_bytes())
        with pytest.raises(ReproError, match="another run writes the trace"):
            files.Appending(path, "the trace", trace.BEGINS)
        with pytest.raises(ReproError, match="another run writes the trace"):
            train("b", steps=1, trace=path, metrics=own)
        other.close()
        assert metrics(tmp_path / "a") == before
    train("a", steps=4, trace=path, resume=True)


def test_a_file_that_was_replaced_meanwhile_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Between opening it and locking it."""
    path, free = tmp_path / "a.trace", files.taken

    def replaced(descriptor: int) -> bool:
        files.write_file(path, trace.BEGINS)
        return free(descriptor)

    monkeypatch.setattr(files, "taken", replaced)
    with pytest.raises(ReproError, match="another run writes the trace"):
        files.Appending(path, "the trace", trace.BEGINS)


def test_nodes_of_a_step_that_is_never_reached(train: Train):
    with pytest.raises(ReproError, match="does not reach") as refused:
        train("a", steps=6, trace_nodes_at=(2, 7))
    assert (refused.value.found, refused.value.expected) == ("7", "at most 6")


def test_nodes_of_a_step_that_a_resumed_run_has_behind_it(train: Train, tmp_path: Path):
    """Its own trace may have them already."""
    train("a", steps=4, trace_nodes_at=(2,))
    train("a", steps=5, trace_nodes_at=(2,), resume=True)
    assert [step["step"] for step in trace.read(tmp_path / "a.trace").steps if "nodes" in step] == [2]
    with pytest.raises(ReproError, match="behind it"):
        train("a", steps=6, trace_nodes_at=(2, 6), resume=True, trace=tmp_path / "new.trace")
    assert train("a", steps=5, resume=True, trace=tmp_path / "end.trace").step == 5
    assert not trace.read(tmp_path / "end.trace").steps


# ── kill, Ctrl-C ────────────────────────────────────────────────────────────────────────────────────


def command(artifact: Path, samples: Path, folder: Path, target: str, steps: int) -> list[str]:
    where = ["--checkpoint", str(folder), "--trace", str(folder) + ".trace", "--target", target, "--threads", "1"]
    often = ["--checkpoint-every", "2", "--keep", "2", "--resume", "--steps", str(steps)]
    return [sys.executable, "-m", "repro", "train", str(artifact), "--data", str(samples), *where, *often]


def wait_for(folder: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    """Until the run has written a checkpoint of that step or a later one."""
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        found = checkpoints.documents(folder)
        if found and checkpoints.step_of(found[-1]) >= step:
            return
        time.sleep(0.001)
    raise AssertionError(f"no checkpoint of step {step}; exit code {process.poll()}")


def test_killed_at_any_moment_a_run_goes_on_to_the_same_bits(
    train: Train, artifact: Path, samples: Path, tmp_path: Path, target: str
):
    steps, folder = 4000, tmp_path / "killed"
    moments = random.Random(11)
    reached = 0
    for _ in range(4):
        with subprocess.Popen(command(artifact, samples, folder, target, steps), stdout=subprocess.DEVNULL) as process:
            wait_for(folder, reached + 10, process)
            time.sleep(moments.random() * 0.02)
            process.kill()
        assert process.returncode == -signal.SIGKILL
        reached = checkpoints.read(folder).document.step
    final = reached + 5
    resumed = repro.train(
        artifact, samples, checkpoint=folder, trace=Path(f"{folder}.trace"), steps=final, target=target, resume=True
    )
    whole = train("whole", steps=final)
    assert resumed.state == whole.state
    assert Path(f"{folder}.trace").read_bytes() == (tmp_path / "whole.trace").read_bytes()
    assert metrics(folder) == metrics(tmp_path / "whole")
    assert not list(folder.glob(".partial-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_with_a_checkpoint(
    artifact: Path, samples: Path, tmp_path: Path, target: str, number: signal.Signals
):
    folder = tmp_path / "stopped"
    with subprocess.Popen(command(artifact, samples, folder, target, 10**6), stdout=subprocess.PIPE) as process:
        wait_for(folder, 4, process)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    document = checkpoints.read(folder).document
    assert document.state in output.decode()
    recorded = trace.read(Path(f"{folder}.trace")).steps[-1]
    assert (recorded["step"], recorded["state"]) == (document.step, document.state)


# ── weights go back into the model ──────────────────────────────────────────────────────────────────


def test_an_exported_model_and_run_with_state_give_the_trained_outputs(
    train: Train, artifact: Path, samples: Path, tmp_path: Path, target: str
):
    import onnx

    done = train("a", trace=None)
    path = repro.export(done.checkpoint, tmp_path / "trained.onnx")
    onnx.checker.check_model(str(path))
    given = {"input": repro.read_npz(samples)["input"][:16]}
    with_state = repro.run(artifact, given, state=tmp_path / "a", target=target)["logits"]
    repro.build(path, tmp_path / "t.repro", bind={"N": 16}, targets=["reference"])
    rebuilt = repro.run(tmp_path / "t.repro", given, target="reference")["logits"]
    assert with_state.tobytes() == rebuilt.tobytes()
    assert with_state.tobytes() != repro.run(artifact, given, target=target)["logits"].tobytes()
    assert digests.of_arrays(checkpoints.read(done.checkpoint).state) == done.state
