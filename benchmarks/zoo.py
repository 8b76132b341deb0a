"""Well-known models as PyTorch's two exporters write them: which import, how right and how fast they are.

    python -m benchmarks.zoo [NAME...] [--exporters script,dynamo] [--stages export,import,...] [--again]
                             [--folder build/zoo]
    python -m benchmarks.zoo [NAME...] --time [--rebuild]  # what was built, beside the others: on a machine at rest
    python -m benchmarks.zoo --record RECORDS.jsonl        # what the folder holds
    python -m benchmarks.zoo --table RECORDS.jsonl         # prints the table of docs/zoo.md, without PyTorch

Beyond the `torch` extra this needs torchvision, timm, transformers and onnxscript, which are no part of the lock. Every
model has random weights and small inputs, and a process of its own. A stage that fails says why, and none follows it.
What is done stays in the folder and is not done again. An exporter after the first that exports a model ends at import.

- import: the graph is read. build, verify: for this machine, the cache as it is.
- error: the greatest difference from PyTorch's result in float64, over the greatest magnitude, of any float output;
  beside it those of ONNX Runtime and of PyTorch in the model's own type.
- gradients: of the loss in training mode, by the reference: the greatest difference from PyTorch's in float64, beside
  that of PyTorch in the model's own type. The loss of classifiers is their cross entropy, of others the squares of the
  first output. Only the older exporter writes a model for that, and for what follows.
- train: the losses of three steps of AdamW beside PyTorch eager's, the greatest relative difference.
- memory: the most that is resident over three of these steps, less what was before the first.
- time: of a run, and of a step of that training: one thread, medians of rounds in turn.
"""

# pyright: reportMissingImports=false
# PyTorch and the libraries of models are no part of the lock.

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import repro
from benchmarks import zoo_table, zoo_training
from benchmarks.zoo_cases import EXPORTERS, Case, array_of, export, made
from repro import ending
from repro.artifact.build import Request, imported_entries
from repro.audit.environment import host
from repro.bench.measuring import peak_resident, same_processors
from repro.frontend import load_model
from repro.targets import cpu

MODULES = tuple(
    f"benchmarks.zoo_{each}"
    for each in ("library", "timm", "sizes", "written", "recent", "families", "sequences", "research")
)
STAGES = ("export", "import", "build", "error", "verify", "gradients", "train", "memory")
TIMED = {"time": ("build", "error"), "step": ("train",)}
"""What is timed, and the stages that build it and show that it runs."""
VERSIONS = ("torch", "torchvision", "timm", "transformers", "onnxscript", "onnx", "onnxruntime", "numpy", "llvmlite")
ROUNDS, SAMPLE = 5, 0.1
MIB = 1 << 20
COLOURS = re.compile(r"\x1b\[[\d;]*m")
"""PyTorch's exporter writes its errors for a terminal."""

Row = dict[str, Any]


def cases() -> dict[str, Case]:
    return {case.name: case for module in MODULES for case in importlib.import_module(module).CASES}


# ── one model ───────────────────────────────────────────────────────────────────────────────────────


class Trial:
    """One model by one exporter, in a folder of its own, which keeps what its stages found."""

    def __init__(self, case: Case, exporter: str, folder: Path) -> None:
        self.case, self.exporter, self.folder = case, exporter, folder / f"{case.name}.{exporter}"
        self.path, self.artifact = self.folder / "model.onnx", self.folder / "model.repro"
        self.notes = self.folder / "row.json"
        self.row: Row = {"model": case.name, "family": case.family, "exporter": exporter, "seconds": {}}
        if self.notes.exists():
            self.row = json.loads(self.notes.read_text(encoding="utf-8"))

    def take(self, stage: str) -> bool:
        """One stage, whether it ended well. Whatever it raises is the row's reason to end here."""
        started = time.perf_counter()
        if self.row.get("failed", {}).get("stage") in (stage, "process"):
            del self.row["failed"]
        try:
            getattr(self, "import_" if stage == "import" else stage)()
        except Exception as error:
            self.row["failed"] = {"stage": stage, "why": _first_line(error)}
            return False
        else:
            self.row["seconds"][stage] = round(time.perf_counter() - started, 3)
            return True
        finally:
            self.save()

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.notes.write_text(json.dumps(self.row) + "\n", encoding="utf-8")

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Those that the exporter kept, in the graph's order."""
        graph = onnx.load(self.path, load_external_data=False).graph
        given = {name: np.array(array_of(tensor)) for name, tensor in self.case.inputs().items()}
        return {value.name: given[value.name] for value in graph.input if value.name in given}

    def export(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        export(self.case, self.exporter, self.path)
        (self.folder / "training.onnx").unlink(missing_ok=True)
        self.row["nodes"] = len(onnx.load(self.path, load_external_data=False).graph.node)

    def import_(self) -> None:
        request = Request(load_model(self.path), _bound(self.inputs), {}, (), None, 0, 0, None)
        _, (entry,) = imported_entries(request)
        self.row["graph"] = len(entry.graph.nodes)

    def build(self) -> None:
        repro.build(self.path, self.artifact, inputs=self.inputs, targets=_target(), force=True)
        self.row["build_memory"] = peak_resident() / MIB

    def error(self) -> None:
        import torch

        truth = _torch(self.case, torch.float64)()
        self.row["error"] = {side: _error(run(), truth) for side, run in self._sides()}

    def verify(self) -> None:
        report = repro.verify(self.artifact)
        if report.exit_code:
            raise repro.ReproError(f"verify ends with exit code {report.exit_code}")

    def time(self) -> None:
        self.row["time"] = _medians(dict(self._sides()))

    def step(self) -> None:
        folder, sides = self.trained(), zoo_training.SIDES
        self.row["step"] = _medians({name: sides[name](self.case, folder, self.inputs) for name in sides})

    def memory(self) -> None:
        if self._trains():
            self.row["memory"] = {side: _alone(self, side) / MIB for side in zoo_training.SIDES}

    def _sides(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Each once it has run; not ONNX Runtime where it lacks the model's operators or types."""
        session = repro.load(self.artifact).session(threads=1)
        yield "repro", lambda: list(session.run(self.inputs).values())
        yield "torch", _torch(self.case, None)
        peer = _onnxruntime(self.path, self.inputs)
        try:
            peer()
        except Exception as error:
            self.row["peer_fails"] = _first_line(error).replace(str(self.path), self.path.name)
        else:
            yield "onnxruntime", peer

    def gradients(self) -> None:
        if self._trains():
            self.row["gradients"] = zoo_training.gradients(self.case, self._in_training(), self.inputs)

    def train(self) -> None:
        if self._trains():
            path, folder = self._in_training(), self.trained()
            self.row["train"] = zoo_training.losses(self.case, path, folder, self.inputs, _target())

    def _trains(self) -> bool:
        """Not in f16, whose AdamW in PyTorch rounds epsilon to 0, nor in bf16."""
        return all(each.element_size() >= 4 for each in made(self.case).parameters())

    def trained(self) -> Path:
        """What `train` builds."""
        return self.folder / "training.repro"

    def _in_training(self) -> Path:
        """The model exported again in training mode."""
        path = self.folder / "training.onnx"
        if not path.exists():
            export(self.case, "script", path, train=True)
        return path


def _alone(trial: Trial, side: str) -> int:
    """The peak of a side's training step, in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_peak, trial.case.name, trial.exporter, trial.folder.parent, side).result()


def _peak(name: str, exporter: str, folder: Path, side: str) -> int:
    _calm()
    trial = Trial(cases()[name], exporter, folder)
    return zoo_training.peak(trial.case, trial.trained(), trial.inputs, side)


def _target() -> str:
    """The best that this machine runs."""
    found = cpu.best_machine()
    if found is None:
        raise repro.ReproError("no cpu target runs on this host")
    return found.name


def _bound(inputs: Mapping[str, Any]) -> dict[str, int]:
    return {f"{name}[{axis}]": size for name, array in inputs.items() for axis, size in enumerate(array.shape)}


def _onnxruntime(path: Path, inputs: Mapping[str, Any]) -> Callable[[], list[Any]]:
    ort = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    found: list[Any] = []

    def run() -> list[Any]:
        if not found:
            found.append(ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
        return found[0].run(None, dict(inputs))

    return run


def _torch(case: Case, dtype: Any) -> Callable[[], list[Any]]:
    """PyTorch's results, in `dtype` or as the model is."""
    import torch

    module = made(case)
    inputs = list(case.inputs().values())
    if dtype is not None:
        module = module.to(dtype)
        inputs = [each.to(dtype) if each.is_floating_point() else each for each in inputs]

    def run() -> list[Any]:
        with torch.no_grad():
            found = module(*inputs)
        return [array_of(each) for each in (found if isinstance(found, tuple) else (found,))]

    return run


def _error(found: Iterable[Any], truth: Iterable[Any]) -> float:
    """Greatest difference over greatest magnitude, of any output; integers count as wrong or right."""
    worst = 0.0
    for value, right in zip(found, truth, strict=True):
        a, b = np.asarray(value).astype(np.float64), np.asarray(right).astype(np.float64)
        if a.shape != b.shape:
            raise repro.ReproError("another shape", found=str(a.shape), expected=str(b.shape))
        if a.size:
            worst = max(worst, float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-30)))
    return worst


def _medians(runs: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of a run, by side."""
    return {name: statistics.median(samples) for name, samples in _in_turn(runs).items()}


def _in_turn(runs: Mapping[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Seconds of a run, by side, a sample for each round: as many runs as take about SAMPLE."""
    repeats: dict[str, int] = {}
    for name, run in runs.items():
        run()
        start = time.perf_counter()
        run()
        repeats[name] = max(1, min(1000, round(SAMPLE / max(time.perf_counter() - start, 1e-6))))
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            run()
            start = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            samples[name].append((time.perf_counter() - start) / repeats[name])
    return samples


# ── all of them ─────────────────────────────────────────────────────────────────────────────────────


def _first_line(error: BaseException) -> str:
    text = COLOURS.sub("", str(error)).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}"[:300]


def stages(trial: Trial, asked: Sequence[str], again: bool) -> list[str]:
    """Those to take: what is asked, less what is done."""
    return [stage for stage in STAGES if stage in asked and (again or stage not in trial.row["seconds"])]


def trials(options: argparse.Namespace, known: Mapping[str, Case]) -> Iterator[Trial]:
    unknown = [name for name in options.names if name not in known]
    if unknown:
        raise repro.ReproError(
            "there is no such model", found=", ".join(unknown), expected=f"some of {', '.join(known)}"
        )
    for name in options.names or known:
        for exporter in options.exporters.split(","):
            yield Trial(known[name], exporter, options.folder)


def apart(trial: Trial, asked: Sequence[str], again: bool) -> Row:
    """The stages in a process of their own."""
    command = [sys.executable, "-m", "benchmarks.zoo", trial.case.name, "--exporters", trial.exporter, "--here"]
    command += ["--stages", ",".join(asked), "--folder", str(trial.folder.parent), *(["--again"] if again else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = Trial(trial.case, trial.exporter, trial.folder.parent)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        found.row["failed"] = {"stage": "process", "why": f"{done.returncode}: {last}"}
        found.save()
    return found.row


def take_all(options: argparse.Namespace) -> None:
    """Every model by every exporter; the first that exports it goes all the way."""
    known = cases()
    whole: set[str] = set()
    for each in trials(options, known):
        name = each.case.name
        asked = [stage for stage in options.stages.split(",") if name not in whole or stage in ("export", "import")]
        row = each.row
        if stages(each, asked, options.again):
            row = apart(each, asked, options.again)
            print(json.dumps(row), flush=True)
        if "import" in row["seconds"]:
            whole.add(name)


def take_here(options: argparse.Namespace) -> None:
    """What `apart` asks for."""
    _calm()
    for each in trials(options, cases()):
        for stage in stages(each, options.stages.split(","), options.again):
            if not each.take(stage):
                break


def time_all(options: argparse.Namespace) -> None:
    """Every model that ran beside the others, and its training step, in this process; nothing else should run."""
    _calm()
    chosen = [(each, what) for each in trials(options, cases()) for what in TIMED if TIMED[what][-1] in each.row]
    if options.rebuild:
        chosen = [(each, what) for each, what in chosen if all(map(each.take, TIMED[what]))]
    same_processors(1)
    for each, what in chosen:
        if what not in each.row or options.again or options.rebuild:
            each.take(what)
            print(each.row["model"], each.row["exporter"], what, each.row.get(what), flush=True)


def _calm() -> None:
    """One thread, and no look at a hub of models."""
    import torch

    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)


_FOLDERS = re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/")


def record(options: argparse.Namespace) -> None:
    """One line for the machine and the versions, then one for each row; of files that errors name, the names alone."""
    rows = [each.row for each in trials(options, cases()) if each.notes.exists()]
    first = {"host": {**host(), "target": _target()}, "versions": {name: version(name) for name in VERSIONS}}
    for failed in (row["failed"] for row in rows if "failed" in row):
        failed["why"] = _FOLDERS.sub("", failed["why"])
    options.record.write_text("".join(json.dumps(line) + "\n" for line in (first, *rows)), encoding="utf-8")


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--exporters", default=",".join(EXPORTERS))
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--folder", type=Path, default=Path("build/zoo"))
    parser.add_argument("--again", action="store_true", help="also what is done")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--rebuild", action="store_true", help="before it is timed, by the code of now")
    parser.add_argument("--record", type=Path, metavar="RECORDS.jsonl")
    parser.add_argument("--table", type=Path, metavar="RECORDS.jsonl")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.table:
        print(*zoo_table.lines(options.table), sep="\n")
    elif options.record:
        record(options)
    elif options.time:
        time_all(options)
    elif options.here:
        take_here(options)
    else:
        take_all(options)


if __name__ == "__main__":
    ending.run(main)
