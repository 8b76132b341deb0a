"""The GPU benchmark without a GPU: it says so; its programs run as meant on a device that is the interpreter."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu, gpu_cases, gpu_device, gpu_functions, gpu_golden, gpu_quantized, gpu_results
from benchmarks.gpu_cases import CASES, Case, Training, gpt_step, trainings
from benchmarks.gpu_device import Loaded
from benchmarks.tables import RECORDS
from repro.errors import ReproError
from repro.ir.program import Call, walk
from repro.ir.types import F32, Array
from repro.numerics.elementary import FUNCTIONS
from repro.numerics.interpret import evaluate
from repro.targets import interpreter, registry
from repro.targets.gpu.driver import Driver, obstacle
from tests.targets.fake_cuda import FakeCuda
from tests.targets.test_gpu_blocks import eager

SMALL = {"layers": 1, "width": 16, "heads": 2, "tokens": 8, "batch": 2, "vocabulary": 11}


class OnStandIn(gpu_device.Cuda):
    """The benchmark's own side on a stand-in for libcuda, without PyTorch."""

    def __init__(self) -> None:
        self.library = FakeCuda()
        self.driver = Driver(self.library)


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none() -> Any:
        raise gpu_device._nothing("this is a test")

    monkeypatch.setattr(gpu_device, "_torch", none)
    assert gpu.main([]) == 3
    shown = capsys.readouterr().err
    assert "no GPU is there to measure" in shown and "benchmarks.gpu_static" in shown
    with pytest.raises(ReproError, match="no GPU"):
        gpu_device.Cuda()


def test_of_quantized_models_it_says_so_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> Any:
        raise gpu_device._nothing("this is a test")

    monkeypatch.setattr(gpu_device, "_torch", none)
    assert gpu_quantized.main([]) == 3
    assert "no GPU is there to measure" in capsys.readouterr().err
    assert gpu_quantized.main(["lstm"]) == 2
    assert "mlp, gpt, bert, resnet18" in capsys.readouterr().err


def _small(case: Case) -> Case:
    """The case with every extent cut down, and none that was the same made different."""
    shapes = {name: tuple(min(extent, 24) for extent in shape) for name, shape in case.shapes.items()}
    return Case(case.name, case.what, shapes, case.build, case.torch, case.dot)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_runs_as_its_program_means(case: Case) -> None:
    small = _small(case)
    if case.name == "convolution":
        small = Case(case.name, "", {"x": (2, 3, 9, 9), "w": (4, 3, 3, 3)}, case.build, case.torch)
    program, inputs = small.program(), gpu.drawn(small)
    device = OnStandIn()
    loaded = Loaded(device, program)
    loaded.give(inputs)
    (wanted,) = interpreter.run(program, inputs)
    for _ in range(2):
        loaded.run()
        assert loaded.outputs()[0].tobytes() == wanted.tobytes()
    assert device.library.count("cuGraphLaunch") == 1
    loaded.close()
    assert not device.library.allocations


def test_a_step_runs_as_its_program_means() -> None:
    made = gpt_step(SMALL)
    generator = np.random.default_rng(1)
    ids = generator.integers(0, SMALL["vocabulary"], (SMALL["batch"], SMALL["tokens"]))
    labels = generator.integers(0, SMALL["vocabulary"], ids.size)
    state = [np.array(value).reshape(-1) for value in made.initial]
    loaded = Loaded(OnStandIn(), made.program, [value.copy() for value in state])
    loaded.give([ids, labels])
    for _ in range(2):
        before = [value.tobytes() for value in state]
        loaded.run()
        wanted = interpreter.run(made.program, [ids, labels], state)
        assert loaded.outputs()[0].tobytes() == wanted[0].tobytes()
        assert any(value.tobytes() != first for value, first in zip(state, before, strict=True))
        for position, value in enumerate(state):
            found = loaded.executable.parameter(position)
            assert found is not None and found.tobytes() == value.tobytes()


def test_every_call_of_a_step_is_timed() -> None:
    made = gpt_step(SMALL)
    loaded = Loaded(OnStandIn(), made.program, [value.reshape(-1) for value in made.initial])
    rows = gpu.kernel_times(loaded, [np.zeros((2, 8), np.int64), np.zeros(16, np.int64)])
    named = ["k_" + kernel.digest[:8] for kernel in made.program.kernels]
    calls = Counter(named[step.kernel] for step in walk(made.program.steps) if isinstance(step, Call))
    assert {row["kernel"]: row["calls"] for row in rows} == calls
    launches = {name: len(code.launches) for name, code in zip(named, loaded.codes, strict=True)}
    assert all(row["seconds"] == pytest.approx(0.0025 * row["calls"] * launches[row["kernel"]]) for row in rows)


class Rehearsed(gpu_device.Cuda):
    """All of the benchmark but the device: PyTorch on the host, our kernels interpreted, no time passes."""

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")
        self.driver = Driver(FakeCuda())

    @property
    def name(self) -> str:
        return "a rehearsal"

    def tensor(self, data: Array) -> Any:
        return self.torch.from_numpy(np.array(data))

    def empty(self, size: int) -> Any:
        return self.torch.zeros(max(size, 16), dtype=self.torch.uint8)

    def aside(self, run: Callable[[], Any]) -> Any:
        return run()

    def graph(self, run: Callable[[], object]) -> Callable[[], None]:
        def replay() -> None:
            run()

        return replay

    def seconds(self, run: Callable[[], object], repeats: int) -> float:
        run()
        return 1.0


def _broken(*tensors: Any) -> Any:
    raise RuntimeError("out of memory")


def _small_trainings(layers: int) -> tuple[Training, ...]:
    """A small GPT, and another in ResNet-18's place, by an optimizer that runs on the host."""
    made = trainings(layers)
    small = replace(made[0], optimizer=lambda trained: pytest.importorskip("torch").optim.AdamW(trained, 1e-3))
    return small, replace(small, name=made[1].name)


def _rehearse(monkeypatch: pytest.MonkeyPatch, results: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The benchmark's exit code, and what its file of results holds then."""
    small = [_small(case) for case in CASES if case.name in ("linear", "exp")]
    broken = Case("softmax", "", {"x": (4, 8)}, small[1].build, _broken)
    monkeypatch.setattr(gpu, "CASES", [small[0], broken, small[1]])
    monkeypatch.setattr(gpu_cases, "GPT", SMALL)
    monkeypatch.setattr(gpu, "trainings", _small_trainings)
    monkeypatch.setattr(gpu, "Cuda", Rehearsed)
    monkeypatch.setattr(gpu_device, "shaped", eager)
    given = ["--rounds", "1", "--layers", "1", "--results", str(results), *words]
    return gpu.main(given), list(map(json.loads, results.read_text().splitlines()))


def test_a_rehearsal_of_all_that_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A case that fails loses nothing else; a second run finds what the first one left."""
    code, lines = _rehearse(monkeypatch, tmp_path / "results.jsonl", "--no-step")
    found = {line["case"]: line for line in lines}
    assert code == 3 and list(found) == ["linear", "softmax", "exp"]
    assert found["softmax"]["error"] == "RuntimeError: out of memory" and "failed: softmax" in capsys.readouterr().err
    assert found["linear"]["bits"] and found["linear"]["largest difference of the largest"] < 1e-5
    code, lines = _rehearse(monkeypatch, tmp_path / "results.jsonl", "--resume")
    again = [line["case"] for line in lines[3:]]
    step = "GPT step, 1 layers"
    steps = [f"{name}{part}" for name in (step, "ResNet-18 step") for part in ("", ": kernels", ": beside PyTorch")]
    assert code == 3 and again == ["softmax", *steps]
    ours, kernels, beside = lines[4:7]
    roads = [row["road"] for row in kernels["seconds by kernel"]]
    assert any(road.startswith("blocks") for road in roads), "no step over blocks of rows was timed"
    assert abs(ours["first loss"] - beside["PyTorch's first loss"]) < 1e-3
    assert beside["seconds"] == {"ours": 1.0, "torch": 1.0, "eager": 1.0} and beside["ratio"] == 1.0


def test_nothing_begins_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.jsonl"
    results.touch()
    assert _rehearse(monkeypatch, results, "--minutes", "0") == (3, [])
    said = capsys.readouterr().err
    assert "no time for: linear, softmax, exp, GPT step" in said
    assert "ResNet-18 step: beside PyTorch; again with --resume" in said


def test_results_of_another_device_or_code_are_no_results(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    gpu_results.Results(file, {"device": "one"}).add("", {"case": "a"})
    file.write_text(file.read_text() + '{"case": "b", "cut sh')
    gpu_results.Results(file, {"device": "two"}).add("", {"case": "c"})
    gpu_results.Results(file, {"device": "one", "code": "another"}).add("", {"case": "d"})
    assert list(gpu_results.Results(file, {"device": "one"}, resume=True).known) == ["a"]
    assert list(gpu_results.Results(file, {"device": "two"}, resume=True).known) == ["c"]
    assert not gpu_results.Results(file, {"device": "one"}).known


def test_golden_bits_on_a_target(tmp_path: Path) -> None:
    """What runs on a device runs on the interpreter: a model verified, a step beside the CPU's."""
    results = tmp_path / "results.jsonl"
    words = ["--target", "gpu/interpreter", "--steps", "1", "--results", str(results), "--only"]
    assert gpu_golden.main([*words, "digits_mlp", "digits_cnn_steps"]) == 0
    verified, trained = map(json.loads, results.read_text().splitlines())
    assert (verified["case"], verified["exit code"]) == ("digits_mlp", 0)
    assert (trained["steps"], trained["differing"]) == (1, [])


class Adding:
    """A session whose state is a sum; from a step on the sign of a zero is another one."""

    def __init__(self, wrong_from: int) -> None:
        self.wrong_from, self.steps = wrong_from, 0
        self.state = {"sum": np.zeros(2, np.float32), "zero": np.zeros(1, np.float32)}

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        self.steps += 1
        self.state["sum"] = self.state["sum"] + inputs["x"]
        self.state["zero"] = np.full(1, -0.0 if self.steps >= self.wrong_from else 0.0, np.float32)
        return {"loss": self.state["sum"].sum()}


def test_a_state_that_differs_is_named() -> None:
    inputs = [{"x": np.ones(2, np.float32)}] * 5
    assert gpu_golden.compared({"a": Adding(9), "b": Adding(9)}, inputs)["steps"] == 5
    found = gpu_golden.compared({"a": Adding(9), "b": Adding(3)}, inputs)
    assert (found["steps"], found["differing"]) == (3, ["zero"])


def test_without_a_device_golden_bits_did_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    if obstacle() is not None:
        assert gpu_golden.main([]) == 3
        assert "target gpu does not run here" in capsys.readouterr().err


def test_the_digests_of_two_records_of_a_device_agree() -> None:
    """Tiles, splits of K, orders of instructions and functions' implementations differ between them, and no bit."""
    first, last = (
        {row["case"]: row["digest"] for row in gpu_results.read(RECORDS / name / "gpu.jsonl") if "digest" in row}
        for name in ("h200-first", "h200")
    )
    assert len(first) == 20 and first == last


def test_functions_are_computed_by_class() -> None:
    """The first arguments of a class, on the interpreter: as the reference has them, and their digest."""
    of = gpu_functions.proven()["erf of x / sqrt(2)"]
    executable = gpu_functions.opened(gpu_functions.program(of.function, 512), registry.runner("gpu/interpreter"))
    (found,) = executable.run([np.array([129], np.uint32)])
    x = ((np.arange(512, dtype=np.uint32) << np.uint32(8)) | np.uint32(129)).view(np.float32)
    wanted = evaluate(of.function, [x], [F32])
    bits = np.where(np.isnan(wanted), np.uint32(0x7FC00000), wanted.view(np.uint32))
    assert found.tobytes() == bits.tobytes()
    digests = list(gpu_functions.digests(executable, [129, 129, 7]))
    assert digests[0] == digests[1] == hashlib.sha256(bits.tobytes()).hexdigest() != digests[2]


_of_few = partial(gpu_functions.program, count=256)


def test_functions_that_differ_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a record's classes one that is another's, and of a road's record its digest."""
    monkeypatch.setattr(gpu_functions, "program", _of_few)
    monkeypatch.setattr(gpu_functions, "CLASSES", 3)
    runner, exp = registry.runner("gpu/interpreter"), gpu_functions.proven()["exp"]
    executable = gpu_functions.opened(_of_few(exp.function), runner)
    classes = tuple(gpu_functions.digests(executable, range(3)))
    results = hashlib.sha256(b"".join(map(bytes.fromhex, classes))).hexdigest()
    right = gpu_functions.tried(replace(exp, classes=classes, results=results), runner)
    assert right["equal"] and right["differing"] == []
    wrong = gpu_functions.tried(replace(exp, classes=(classes[0], "00" * 32, classes[2]), results="00" * 32), runner)
    assert not wrong["equal"] and wrong["differing"] == [1]
    assert "classes [1]" in gpu_functions.said({"case": "exp", **wrong})


def test_every_proven_function_can_be_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(gpu_functions.proven()) == {*FUNCTIONS, "erf of x / sqrt(2)"}
    if obstacle() is not None:
        assert gpu_functions.main(["exp"]) == 3
        assert "does not run here" in capsys.readouterr().err
