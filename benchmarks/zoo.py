"""Well-known models as PyTorch's two exporters write them: which import, how right and how fast they are.

    python -m benchmarks.zoo [NAME...] [--exporters dynamo,script] [--until export|import|build|verify|run|step]
                             [--seconds 3] [--out RECORDS.jsonl]
    python -m benchmarks.zoo --table RECORDS.jsonl         # prints the table of docs/zoo.md, without PyTorch

Beyond the `torch` extra this needs torchvision, transformers and onnxscript, which are no part of the lock. Every model
has random weights and small inputs, and a process of its own. A stage that fails says why and ends the model's row.

- import: the graph is read. build, verify: all CPU targets, the cache as it is.
- error: the greatest difference from PyTorch's result in float64, over the greatest magnitude, of any float output;
  beside it those of ONNX Runtime and of PyTorch in the model's own type.
- time: one thread, medians of rounds in turn; the ratio is ONNX Runtime's time over ours, so above 1 is faster.
- step: the losses of three steps of AdamW beside PyTorch eager's, the greatest relative difference; classifiers only.
"""

# pyright: reportMissingImports=false
# PyTorch and the libraries of models are no part of the lock.

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import repro
from benchmarks.zoo_cases import EXPORTERS, Case, export, made, training
from repro.artifact.build import Request, imported_entries
from repro.bench.measuring import peak_resident, same_processors
from repro.frontend import load_model

MODULES = ("benchmarks.zoo_library", "benchmarks.zoo_written")
STAGES = ("export", "import", "build", "verify", "run", "step")
STEPS, RATE = 3, 1e-3
ROUNDS, SAMPLE = 5, 0.1
MIB = 1 << 20

Row = dict[str, Any]


def cases() -> dict[str, Case]:
    return {case.name: case for module in MODULES for case in importlib.import_module(module).CASES}


# ── one model ───────────────────────────────────────────────────────────────────────────────────────


class Trial:
    """One model by one exporter, stage by stage, in a folder."""

    def __init__(self, case: Case, exporter: str, folder: Path, seconds: float) -> None:
        import torch

        torch.set_num_threads(1)
        self.case, self.exporter, self.folder, self.seconds = case, exporter, folder, seconds
        self.path, self.artifact = folder / "model.onnx", folder / "model.repro"
        self.row: Row = {"model": case.name, "family": case.family, "exporter": exporter, "classes": case.classes}

    def export(self) -> None:
        export(self.case, self.exporter, self.path)
        proto = onnx.load(self.path)
        self.row["nodes"] = len(proto.graph.node)
        self.names = [value.name for value in proto.graph.input]
        given = {name: np.array(_numpy(tensor)) for name, tensor in self.case.inputs().items()}
        self.inputs = {name: given[name] for name in self.names if name in given}

    def import_(self) -> None:
        bind = {f"{name}[{axis}]": size for name, array in self.inputs.items() for axis, size in enumerate(array.shape)}
        request = Request(load_model(self.path), bind, {}, (), None, 0, 0, None)
        _, (entry,) = imported_entries(request)
        self.row["graph"] = len(entry.graph.nodes)

    def build(self) -> None:
        repro.build(self.path, self.artifact, inputs=self.inputs)
        self.row["build_memory"] = peak_resident() / MIB

    def verify(self) -> None:
        report = repro.verify(self.artifact)
        if report.exit_code:
            raise repro.ReproError(f"verify ends with exit code {report.exit_code}")

    def run(self) -> None:
        """Errors against float64, then times in turn."""
        import torch

        runs: dict[str, Callable[[], Any]] = {}
        session = repro.load(self.artifact).session(threads=1)
        runs["repro"] = lambda: list(session.run(self.inputs).values())
        peer = _onnxruntime(self.path)
        runs["onnxruntime"] = lambda: peer(self.inputs)
        truth = _torch(self.case, torch.float64)()
        self.row["error"] = {"torch": _error(_torch(self.case, None)(), truth)}
        for name, run in list(runs.items()):
            try:
                self.row["error"][name] = _error(run(), truth)
            except Exception as error:
                if name == "repro":
                    raise
                self.row["peer_fails"] = _first_line(error)
                runs.pop(name)
        samples = _in_turn(runs, self.seconds)
        self.row["time"] = {name: statistics.median(times) for name, times in samples.items()}

    def step(self) -> None:
        """Exported again in training mode, by the exporter that can."""
        if not self.case.classes or self.exporter != "script":
            return
        path = self.folder / "training.onnx"
        export(self.case, self.exporter, path, train=True)
        losses, labels = _torch_steps(self.case)
        started = time.perf_counter()
        artifact = repro.build(
            path, self.folder / "training.repro", loss="softmax_cross_entropy", optimizer="adamw", learning_rate=RATE,
            frozen=",".join(_not_parameters(self.case, path)), bind=_bound(self.inputs),
        )  # fmt: skip
        self.row["step_build"] = time.perf_counter() - started
        with artifact.session("train_step", threads=1) as session:
            given = {**self.inputs, "labels": labels}
            ours = [float(session.run(given)["loss"]) for _ in range(STEPS)]
        differences = (abs(a - b) / abs(b) for a, b in zip(ours, losses, strict=True))
        self.row["step"] = {"losses": ours, "difference": max(differences)}


def _numpy(tensor: Any) -> Any:
    """An array of a tensor of any type; NumPy has no bf16 of its own."""
    import ml_dtypes
    import torch

    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _bound(inputs: Mapping[str, Any]) -> dict[str, int]:
    return {f"{name}[{axis}]": size for name, array in inputs.items() for axis, size in enumerate(array.shape)}


def _onnxruntime(path: Path) -> Callable[[Mapping[str, Any]], list[Any]]:
    ort = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    found: list[Any] = []

    def run(inputs: Mapping[str, Any]) -> list[Any]:
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
        return [_numpy(each) for each in (found if isinstance(found, tuple) else (found,))]

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


def _in_turn(runs: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    repeats: dict[str, int] = {}
    for name, run in runs.items():
        run()
        start = time.perf_counter()
        run()
        repeats[name] = max(1, min(1000, round(SAMPLE / max(time.perf_counter() - start, 1e-6))))
    samples: dict[str, list[float]] = {name: [] for name in runs}
    started = time.perf_counter()
    for number in range(ROUNDS):
        if number >= 3 and time.perf_counter() - started > seconds:
            break
        for name, run in runs.items():
            run()
            start = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            samples[name].append((time.perf_counter() - start) / repeats[name])
    return samples


# ── training ────────────────────────────────────────────────────────────────────────────────────────


def _torch_steps(case: Case) -> tuple[list[float], Any]:
    """Losses of PyTorch eager's steps, and the labels."""
    import torch

    module = training(case)
    optimizer = torch.optim.AdamW(module.parameters(), RATE)
    inputs = list(case.inputs().values())
    losses: list[float] = []
    labels: Any = None
    for _ in range(STEPS):
        optimizer.zero_grad()
        found = module(*inputs)
        logits = found[0] if isinstance(found, tuple) else found
        labels = np.random.default_rng(3).integers(0, case.classes, (logits.shape[0], *logits.shape[2:]))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, labels


def _not_parameters(case: Case, path: Path) -> list[str]:
    """Initializers that are no parameters of the module: its buffers, which no optimizer of PyTorch changes."""
    trained = {name for name, _ in made(case).named_parameters()}
    graph = onnx.load(path, load_external_data=False).graph
    floats = [each.name for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT and each.dims]
    return [name for name in floats if name not in trained]


# ── all of them ─────────────────────────────────────────────────────────────────────────────────────


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return f"{type(error).__name__}: {text}"[:1500]


def trial(case: Case, exporter: str, until: str, seconds: float) -> Row:
    """All stages in this process; the row says where it ended."""
    with tempfile.TemporaryDirectory() as name:
        one = Trial(case, exporter, Path(name), seconds)
        one.row["seconds"] = {}
        for stage in STAGES[: STAGES.index(until) + 1]:
            started = time.perf_counter()
            try:
                getattr(one, "import_" if stage == "import" else stage)()
            except Exception as error:
                return one.row | {"failed": stage, "why": _first_line(error)}
            one.row["seconds"][stage] = time.perf_counter() - started
        return one.row


def apart(name: str, exporter: str, options: argparse.Namespace) -> Row:
    """`trial` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.zoo", name, "--one", exporter, "--until", options.until]
    command += ["--seconds", str(options.seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"model": name, "exporter": exporter, "failed": "process", "why": f"{done.returncode}: {last}"}
    return json.loads(done.stdout.splitlines()[-1])


# ── the table ───────────────────────────────────────────────────────────────────────────────────────


def table(rows: Iterable[Row]) -> str:
    """Markdown; an empty cell was not measured."""
    head = "model|exporter|ONNX nodes|import|verify|error: repro|ONNX Runtime|PyTorch|ms|ONNX Runtime / repro|step|ends"
    lines = [f"| {head.replace('|', ' | ')} |", "|" + "---|" * len(head.split("|"))]
    return "\n".join([*lines, *(f"| {' | '.join(_cells(row))} |" for row in rows)])


def _cells(row: Row) -> list[str]:
    done, error, times = row.get("seconds", {}), row.get("error", {}), row.get("time", {})
    ours, theirs = times.get("repro"), times.get("onnxruntime")
    return [
        row["model"], row["exporter"], str(row.get("nodes", "")),
        *("yes" if stage in done else "" for stage in ("import", "verify")),
        *(f"{error[side]:.1e}" if side in error else "" for side in ("repro", "onnxruntime", "torch")),
        "" if ours is None else f"{ours * 1e3:.2f}",
        "" if ours is None or theirs is None else f"{theirs / ours:.2f}",
        f"{row['step']['difference']:.0e}" if "step" in row else "",
        f"{row['failed']}: {row['why'].splitlines()[0][:90]}" if "failed" in row else "",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--exporters", default=",".join(EXPORTERS))
    parser.add_argument("--until", choices=STAGES, default=STAGES[-1])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, metavar="RECORDS.jsonl")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(map(json.loads, options.table.read_text(encoding="utf-8").splitlines())))
        return
    if options.one:
        os.environ["HF_HUB_OFFLINE"] = "1"
        same_processors(1) if options.until == "run" else None
        row = trial(cases()[options.names[0]], options.one, options.until, options.seconds)
        print(json.dumps(row))
        return
    for name in options.names or cases():
        for exporter in options.exporters.split(","):
            row = apart(name, exporter, options)
            print(json.dumps(row), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
