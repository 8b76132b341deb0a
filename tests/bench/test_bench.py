"""The suite of measurements: every workload is a valid model, counting changes no bit, ratios are what they say."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import passes
import repro
from repro.bench import measuring, peaks, suite
from repro.bench.kernels import profile_entry
from repro.bench.measuring import Ratio, Timing
from repro.bench.network import Network
from repro.bench.peaks import Peaks
from repro.bench.sides import SIDES, Job, Torch, TorchCompile, UnavailableError
from repro.bench.suite import Measurement, agree
from repro.bench.workloads import MODES, WORKLOADS
from repro.cli import main
from repro.errors import EXIT_INCOMPLETE
from repro.ir.work import program_byte_products, program_bytes, program_multiply_adds
from repro.machines import CPUS
from repro.targets.llvm import toolchain


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_a_valid_model(name):
    workload = WORKLOADS[name]
    for mode in workload.modes:
        assert mode in MODES
        network, outputs = workload.network(mode)
        model = network.model(*outputs)
        assert {each.name for each in model.graph.input} == set(workload.inputs())
        if all(each.domain == "" for each in model.opset_import):
            onnx.shape_inference.infer_shapes(model, strict_mode=True)


@pytest.fixture
def trained(tmp_path: Path):
    network = Network("small")
    x = network.input("x", (8, 16))
    hidden = network.node("Relu", network.linear("a", x, 16, 32, 0.3))
    model = network.model(network.linear("b", hidden, 32, 4, 0.3))
    return repro.build(
        model, tmp_path / "small.repro", targets="cpu", loss="softmax_cross_entropy", optimizer="adamw", accumulation=2
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_profile_has_every_kernel_and_its_work(trained, threads):
    random = np.random.default_rng(0)
    inputs = {"x": random.standard_normal((16, 16), np.float32), "labels": random.integers(0, 4, 16)}
    found = profile_entry(trained, "train_step", inputs, threads)
    kernels = {kernel.digest for kernel in trained.compiled("train_step").program.kernels}
    assert {each.kernel for each in found.kernels} == kernels
    assert found.seconds > 0
    assert found.waiting >= 0
    assert sum(each.seconds for each in found.kernels) <= found.seconds
    dots = {each.what: each for each in found.kernels if each.what.startswith("dot")}
    assert dots["dot 8x32x16"].calls == 2, "a microbatch each"
    assert dots["dot 8x32x16"].operations == 2 * 2 * 8 * 32 * 16
    program = trained.compiled("train_step").program
    forward = 2 * 8 * (16 * 32 + 32 * 4)
    gradients = 2 * 8 * (16 * 32 + 2 * 32 * 4)
    assert program_multiply_adds(program) == forward + gradients, "x has no gradient"
    weights = 4 * (16 * 32 + 32 + 32 * 4 + 4)
    read, written = program_bytes(program)
    assert 3 * weights <= written < read, "weights and two moments of each are written, and all of it is read"


def test_products_of_bytes_are_no_multiply_adds(tmp_path: Path) -> None:
    network, outputs = WORKLOADS["dynamic_int8/16x3072x768"].network(MODES[0])
    (tmp_path / "model.onnx").write_bytes(network.model(*outputs).SerializeToString())
    built = repro.build(tmp_path / "model.onnx", tmp_path / "artifact", targets=peaks.this_machine().name)
    program = built.compiled("infer").program
    assert program_byte_products(program) == 16 * 3072 * 768
    assert program_multiply_adds(program) == 0


def test_the_share_of_the_peak_is_of_what_bounds_the_work():
    share = Ratio(0.25, 0.2, 0.3)
    measured = Measurement("x", "forward", 2, (Timing("repro", (2.0,)),), {}, 0.0, 0, 60, 40, share)
    assert measured.share_of_peak == (0.25, "memory")
    assert replace(measured, flops=50).share_of_peak == (0.25, "fma")
    assert replace(measured, share=None).share_of_peak is None


@pytest.mark.parametrize("machine", CPUS.values(), ids=lambda m: m.name)
def test_peaks_are_of_code_that_every_cpu_machine_has(machine):
    """Chains fill the registers beside the factor; every road through memory compiles."""
    assert 8 <= machine.registers - peaks.SPARE_REGISTERS < machine.registers
    loops = [peaks.fma_loop(machine, machine.registers - peaks.SPARE_REGISTERS)]
    loops += [peaks.memory_loop(machine, kind) for kind in (*peaks.READING, *peaks.moving(machine))]
    assert all(toolchain.object_code(text, machine) for text in loops)
    for each in (machine, machine.with_beyond) if machine.beyond else (machine,):
        text = peaks.dot_loop(each, each.registers - peaks.SPARE_REGISTERS)
        assert toolchain.object_code(text, each)
        assert ("vpdpbusd" in text) == (each is not machine)


def test_a_run_waits_for_what_it_has_most_of():
    assert peaks.Work(flops=1000, products=0, read=10, moved=20).bound == peaks.FMA
    assert peaks.Work(flops=100, products=1000, read=10, moved=20).bound == peaks.INT8
    assert peaks.Work(flops=20, products=20, read=10, moved=20).bound == peaks.MEMORY
    assert peaks.Work(flops=0, products=0, read=10, moved=20).bound == peaks.MEMORY


def test_the_floor_of_memory_knows_reading_from_writing():
    found = Peaks(1, 1e9, read=30e9, bytes=50e9)
    assert found.floor(30, 30) == pytest.approx(1e-9), "a sum only reads"
    assert found.floor(10, 50) == pytest.approx(1e-9)


def test_ratios_are_of_medians_with_intervals_that_hold_them():
    theirs = Timing("torch", (2.0, 2.2, 1.8, 2.1, 9.0))
    ours = Timing("repro", (1.0, 1.1, 0.9, 1.05, 1.0))
    found = measuring.ratio(theirs, ours)
    assert found.value == pytest.approx(2.1)
    assert found.low <= found.value <= found.high
    assert measuring.ratio(theirs, ours) == found, "resampling is seeded"


def test_a_process_is_one_sample():
    """Its rounds are not independent: memory lies where it lies in all of them."""
    first = [Timing("repro", (1.0, 9.0, 2.0), result=(5.0,)), Timing("torch", (3.0,))]
    second = [Timing("repro", (4.0,), result=(5.0,)), Timing("torch", reason="it ended")]
    assert suite.joined([first]) == tuple(first)
    assert suite.joined([first, second]) == (
        Timing("repro", (2.0, 4.0), result=(5.0,)),
        Timing("torch", reason="it ended"),
    )


def test_runs_are_given_copies_in_turn():
    turns = Job(WORKLOADS["dot/256"], "forward", 1, Path(), copies=2).turns()
    first, second, third = (next(turns)["a"] for _ in range(3))
    assert first is third
    assert not np.shares_memory(first, second)
    assert first.tobytes() == second.tobytes()


def test_sides_that_compute_something_else_are_told_apart():
    assert agree((1.0, -2.0), (1.001, -2.001))
    assert not agree((1.0, -2.0), (1.0, -2.1))
    assert not agree((1.0, 2.0), (1.0, float("nan")))
    assert not agree((float("nan"),), (float("nan"),)), "what no side computes is no measurement"
    assert not agree((1.0,), (1.0, 2.0))


def test_the_compiled_side_trains_no_step_before_the_first(monkeypatch: pytest.MonkeyPatch):
    """Its first run compiles, and its result is what the others' first results are compared with."""
    losses = iter([np.array(3.0), np.array(2.0)])
    monkeypatch.setattr(Torch, "open", lambda self, job: lambda: next(losses))
    assert measuring._warm(TorchCompile().open(Job(WORKLOADS["mlp"], "step", 1, Path()))).result == (3.0,)
    with pytest.raises(UnavailableError, match="StopIteration"):
        TorchCompile().open(Job(WORKLOADS["mlp"], "step", 1, Path()))()


def test_the_command_measures_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "b.json"
    words = ["bench", "dot/256", "--threads", "1", "--rounds", "3", "--sides", "repro,onnxruntime", "--json", str(out)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "dot/256" in text
    assert "GFLOP/s (fma loop)" in text
    document = json.loads(out.read_text())
    (row,) = document["measurements"]
    assert [each["side"] for each in row["timings"]] == ["repro", "onnxruntime", "machine"]
    assert [len(each["samples"]) for each in row["timings"]] == [3, 3, 3]
    assert row["ratios"]["onnxruntime"]["value"] > 0
    assert "machine" not in row["ratios"], "it is no peer"
    assert 0 < row["share"]["low"] <= row["share"]["value"], "the share of the machine's peak"
    assert row["flops"] == 2 * 256**3
    assert document["host"]["target"].startswith("cpu/")
    assert document["versions"]["onnxruntime"]
    assert set(row["memory"]) == {"repro", "onnxruntime"}
    assert max(row["memory"].values()) > 0, "what we take for this one may be memory that was there"


@pytest.fixture
def another(tmp_path: Path) -> Path:
    """A folder with another version: this one, whose golden inputs are always drawn."""
    package, ours = tmp_path / "earlier" / "repro", Path(repro.__file__)
    package.mkdir(parents=True)
    package.with_name("passes").symlink_to(Path(passes.__file__).parent)
    build = "def build(*given, **named): return __getattr__('build')(*given, **{**named, 'inputs': None})"
    (package / "__init__.py").write_text(f"{ours.read_text()}\n__path__.append({str(ours.parent)!r})\n{build}\n")
    return package.parent


def test_what_another_version_builds_runs_beside(
    another: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "b.json"
    words = "bench dot/256 --threads 1 --rounds 1 --sides repro --no-memory --processes 2 --copies 2 --other"
    assert main([*words.split(), str(another), "--json", str(out)]) == 0
    assert "other / repro" in capsys.readouterr().out
    (row,) = json.loads(out.read_text())["measurements"]
    assert [each["side"] for each in row["timings"]] == ["repro", "other", "machine"]
    assert [len(each["samples"]) for each in row["timings"]] == [2, 2, 2]
    assert (row["processes"], row["copies"]) == (2, 2)
    assert row["artifact"].startswith("sha256:")
    assert row["other"].startswith("sha256:")
    assert row["artifact"] != row["other"], "it was built by this version"


def test_a_mixture_of_versions_is_refused(another: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (another / "passes").unlink()
    assert main(["bench", "dot/256", "--threads", "1", "--other", str(another)]) == EXIT_INCOMPLETE
    said = capsys.readouterr().err
    assert "it imports" in said
    assert str(another) in said


def test_what_a_version_says_is_told(another: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (another / "repro" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(
            "def build(*_, **__):\n    from repro.errors import ReproError\n    raise ReproError('no', next='go')\n"
        )
    assert main(["bench", "dot/256", "--threads", "1", "--other", str(another)]) == EXIT_INCOMPLETE
    assert "ReproError: no; next: go" in capsys.readouterr().err


@pytest.mark.parametrize("side", ["repro", "onnxruntime", "torch"])
def test_each_run_of_a_side_has_the_next_copy(side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if side == "torch":
        pytest.importorskip("torch")
    job = Job(WORKLOADS["dot/256"], "forward", 1, tmp_path, copies=2)
    suite._build(job, None)
    copies = [dict(job.inputs), {**job.inputs, "a": 2 * job.inputs["a"]}]
    monkeypatch.setattr(Job, "inputs", property(lambda _: copies[drawn.pop(0)]))
    drawn = [0, 1]
    run = SIDES[side].open(job)
    first, second, third = (np.array(run()) for _ in range(3))
    assert first.tobytes() == third.tobytes()
    np.testing.assert_array_equal(second, 2 * first)


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "nothing"],
        ["bench", "dot/256", "--mode", "step"],
        ["bench", "dot/256", "--sides", "theano"],
        ["bench", "dot/256", "--other", "docs"],
    ],
)
def test_wrong_words_are_explained(words, capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    assert "error: " in capsys.readouterr().err


def test_a_roofline_has_a_point_for_each_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Drawn by plotly, below the machine's roof or, from a cache, above it."""
    page = tmp_path / "roof.html"
    words = "bench dot/256 --threads 1 --rounds 1 --seconds 1 --sides repro --no-memory --kernels --json"
    assert main([*words.split(), str(tmp_path / "found.json"), "--roofline", str(page)]) == 0
    (measured,) = json.loads((tmp_path / "found.json").read_text())["measurements"]
    text = page.read_text()
    for written, meant in (("\\u002f", "/"), ("\\u003c", "<"), ("\\u003e", ">")):
        text = text.replace(written, meant)
    assert text.startswith("<!doctype html>")
    assert "dot/256, forward, 1 threads" in text
    points = re.findall(r'"([^"]*)<br>[\d.]+ ms, \d+ calls"', text)
    assert points == [kernel["what"] for kernel in measured["kernels"]] != []


def test_without_plotly_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("plotly", "plotly.graph_objects"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(suite, "run", lambda *_: pytest.fail("it measured"))
    assert main(["bench", "dot/256", "--roofline", str(tmp_path / "roof.html")]) == 2
    said = capsys.readouterr().err
    assert "needs plotly" in said
    assert "repro[report]" in said
